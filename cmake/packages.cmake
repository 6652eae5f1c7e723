# Debian and RPM packages of the C library, its headers and what other programs load (tools/packages). Python's package
# is the wheel's.
include(GNUInstallDirs)
set(CPACK_PACKAGE_NAME hetccl)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_VENDOR hetccl)
set(CPACK_PACKAGE_CONTACT "The hetccl developers <hetccl@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "One communicator over unlike accelerators")
set(CPACK_PACKAGE_DESCRIPTION "The C library for one job over GPUs of several vendors and CPUs, its headers, the \
libraries that MPI and NCCL programs preload, a tuner for NCCL, and the sources of adaptors.")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_GENERATOR DEB RPM)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION libs)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# libhetccl.so lies where dpkg-shlibdeps does not look for what the other libraries need.
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS_PRIVATE_DIRS ${PROJECT_BINARY_DIR}/src)

set(CPACK_RPM_FILE_NAME RPM-DEFAULT)
set(CPACK_RPM_PACKAGE_LICENSE Apache-2.0)
# Libraries under the names of NCCL and RCCL must not satisfy what other packages require.
set(CPACK_RPM_SPEC_MORE_DEFINE "%global __provides_exclude_from ^/usr/lib64/hetccl-nccl/.*$")
# Folders that belong to others.
set(CPACK_RPM_EXCLUDE_FROM_AUTO_FILELIST_ADDITION /usr/lib/cmake /usr/lib64/cmake /usr/lib64/pkgconfig
    /usr/lib/x86_64-linux-gnu /usr/lib/x86_64-linux-gnu/cmake /usr/lib/x86_64-linux-gnu/pkgconfig)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/hetccl RENAME copyright)
include(CPack)
