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
