# What `cmake --install` and the wheel contain of the C library. find_package(hetccl) then gives
# the target hetccl::hetccl; the version file refuses another minor version before 1.0.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)
set(hetccl_lib ${CMAKE_INSTALL_LIBDIR})
if(SKBUILD) # the wheel carries all of it inside the Python package, the install prefix
  set(hetccl_lib lib)
endif()
install(TARGETS hetccl EXPORT hetccl
        LIBRARY DESTINATION ${hetccl_lib}
        INCLUDES DESTINATION include)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/hetccl DESTINATION include
        FILES_MATCHING PATTERN "*.h")
install(EXPORT hetccl NAMESPACE hetccl:: FILE hetcclConfig.cmake
        DESTINATION ${hetccl_lib}/cmake/hetccl)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hetcclConfigVersion.cmake
                                 COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hetcclConfigVersion.cmake
        DESTINATION ${hetccl_lib}/cmake/hetccl)

# hetccl.pc, for pkg-config; found from its own place, so that the installation can be moved.
cmake_path(SET hetccl_pc_folder "/${hetccl_lib}/pkgconfig")
cmake_path(RELATIVE_PATH hetccl_pc_folder BASE_DIRECTORY / OUTPUT_VARIABLE hetccl_pc_folder)
string(REGEX REPLACE "[^/]+" ".." hetccl_up "${hetccl_pc_folder}")
configure_file(${PROJECT_SOURCE_DIR}/cmake/hetccl.pc.in ${PROJECT_BINARY_DIR}/hetccl.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hetccl.pc DESTINATION ${hetccl_pc_folder})

# The sources of adaptors, which are compiled against a vendor's library where that is.
set(hetccl_adaptors ${CMAKE_INSTALL_DATADIR}/hetccl)
if(SKBUILD)
  set(hetccl_adaptors .)
endif()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/adaptors DESTINATION ${hetccl_adaptors} USE_SOURCE_PERMISSIONS)
