# Checks everything that a build needs, before it begins: one error names all that is missing, with the command that
# installs it on Debian. Without a compiler it still looks for the libraries.

set(hetccl_missing "")
set(hetccl_packages "")
function(hetccl_require found what package)
  if(NOT found)
    list(APPEND hetccl_missing "${what}")
    list(APPEND hetccl_packages ${package})
    set(hetccl_missing "${hetccl_missing}" PARENT_SCOPE)
    set(hetccl_packages "${hetccl_packages}" PARENT_SCOPE)
  endif()
endfunction()

include(CheckLanguage)
check_language(CXX)
if(CMAKE_CXX_COMPILER)
  enable_language(CXX)
  # By its library as well: a new compiler may use an old one.
  file(WRITE ${CMAKE_BINARY_DIR}/requirements/cxx20.cc
       "#include <compare>\n#include <concepts>\n#include <optional>\n#include <span>\n"
       "template <std::integral T> constexpr T twice(T value) { return value + value; }\n"
       "struct Pair { int a, b; auto operator<=>(const Pair&) const = default; };\n"
       "int main() { int two[2] = {}; return twice(static_cast<int>(std::span(two).size())) - 4; }\n")
  try_compile(cxx20_found ${CMAKE_BINARY_DIR}/requirements/cxx20 ${CMAKE_BINARY_DIR}/requirements/cxx20.cc
              CXX_STANDARD 20 CXX_STANDARD_REQUIRED ON)
  hetccl_require(${cxx20_found}
                 "a C++20 compiler: ${CMAKE_CXX_COMPILER} (${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}) cannot \
compile C++20, CXX=PATH names another" g++)
else()
  hetccl_require(OFF "a C++20 compiler: none was found, CXX=PATH names one that is not in PATH" g++)
  # Finding libraries takes what the compiler would have told.
  set(CMAKE_LIBRARY_ARCHITECTURE ${CMAKE_HOST_SYSTEM_PROCESSOR}-linux-gnu)
  set(CMAKE_FIND_LIBRARY_PREFIXES lib)
  set(CMAKE_FIND_LIBRARY_SUFFIXES .so .a)
  list(APPEND CMAKE_SYSTEM_PREFIX_PATH /usr/local /usr)
endif()

find_path(SODIUM_INCLUDE_DIR sodium.h)
find_library(SODIUM_STATIC libsodium.a)
find_path(OPENSSL_INCLUDE_DIR openssl/ssl.h)
find_library(OPENSSL_SSL_STATIC libssl.a)
find_library(OPENSSL_CRYPTO_STATIC libcrypto.a)
find_path(ZLIB_INCLUDE_DIR zlib.h)
find_library(ZLIB_STATIC libz.a)
find_path(NLOHMANN_JSON_INCLUDE_DIR nlohmann/json.hpp)

function(hetccl_require_files what package)
  foreach(variable ${ARGN})
    if(NOT ${variable})
      hetccl_require(OFF "${what}" ${package})
      break()
    endif()
  endforeach()
  set(hetccl_missing "${hetccl_missing}" PARENT_SCOPE)
  set(hetccl_packages "${hetccl_packages}" PARENT_SCOPE)
endfunction()
hetccl_require_files("libsodium: sodium.h and libsodium.a" libsodium-dev SODIUM_INCLUDE_DIR SODIUM_STATIC)
hetccl_require_files("OpenSSL 3: openssl/ssl.h, libssl.a and libcrypto.a" libssl-dev OPENSSL_INCLUDE_DIR OPENSSL_SSL_STATIC
                     OPENSSL_CRYPTO_STATIC)
hetccl_require_files("zlib: zlib.h and libz.a" zlib1g-dev ZLIB_INCLUDE_DIR ZLIB_STATIC)
hetccl_require_files("nlohmann-json: nlohmann/json.hpp" nlohmann-json3-dev NLOHMANN_JSON_INCLUDE_DIR)
if(OPENSSL_INCLUDE_DIR)
  file(STRINGS ${OPENSSL_INCLUDE_DIR}/openssl/opensslv.h version REGEX "OPENSSL_VERSION_MAJOR +[0-9]+")
  if(NOT version MATCHES "MAJOR +([3-9]|[0-9][0-9])")
    hetccl_require(OFF "OpenSSL 3: ${OPENSSL_INCLUDE_DIR} has an older one" libssl-dev)
  endif()
endif()

if(hetccl_missing)
  list(JOIN hetccl_missing "\n  " hetccl_missing)
  list(REMOVE_DUPLICATES hetccl_packages)
  list(JOIN hetccl_packages " " hetccl_packages)
  message(FATAL_ERROR "hetccl cannot be built here. Missing:\n  ${hetccl_missing}\n"
                      "On Debian and Ubuntu:\n  apt-get install ${hetccl_packages}\n")
endif()
