# A library that programs load which know nothing of hetccl. The sources of the current folder whose names match the
# regular expression `exports` are the library `name`; all others are `room`, a room of their own for its tests, which
# is linked with the libraries that follow.
function(hetccl_loaded_library name room exports)
  file(GLOB sources CONFIGURE_DEPENDS *.cc)
  set(exported ${sources})
  set(tests ${sources})
  list(FILTER exported INCLUDE REGEX "/${exports}\\.cc$")
  list(FILTER tests INCLUDE REGEX "_test\\.cc$")
  list(REMOVE_ITEM sources ${exported} ${tests})

  add_library(hetccl_${room} STATIC ${sources})
  target_include_directories(hetccl_${room} PUBLIC ${PROJECT_SOURCE_DIR}/compat)
  target_link_libraries(hetccl_${room} PUBLIC hetccl_flags ${ARGN})
  set_property(GLOBAL APPEND PROPERTY HETCCL_UNIT_TESTS ${room})
  set_property(GLOBAL PROPERTY HETCCL_UNIT_TESTS_${room} ${tests})

  hetccl_loaded_file(${name} ${room} "." ${exported})
endfunction()

# The library `name` of these sources, linked with `room`, in a folder beside libhetccl.so.
function(hetccl_loaded_file name room folder)
  add_library(${name} SHARED ${ARGN})
  target_link_libraries(${name} PRIVATE hetccl_${room})
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_BINARY_DIR BASE_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${folder} OUTPUT_VARIABLE up)
  set_target_properties(${name} PROPERTIES BUILD_RPATH_USE_ORIGIN ON INSTALL_RPATH "$ORIGIN/${up}"
                        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/${folder})
  # Never unmapped, as libhetccl.so: programs may close it, and its threads may still end.
  target_link_options(${name} PRIVATE -Wl,--exclude-libs,ALL -Wl,-z,defs -Wl,-z,nodelete)
  if(HETCCL_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,undefs)
  endif()
  include(GNUInstallDirs)
  set(place ${CMAKE_INSTALL_LIBDIR})
  if(SKBUILD)  # beside libhetccl.so in the Python package
    set(place lib)
  endif()
  cmake_path(APPEND place ${folder})
  cmake_path(NORMAL_PATH place)
  install(TARGETS ${name} LIBRARY DESTINATION ${place})
endfunction()
