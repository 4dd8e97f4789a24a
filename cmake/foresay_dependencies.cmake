# Third-party libraries, one interface target each. A folder links those that it needs as PRIVATE: their headers stay in
# .cpp files (tests/house checks it).
#
#   foresay::toml      toml++          TOML files
#   foresay::json      nlohmann-json   JSON
#   foresay::pcre2     PCRE2, 8 bit    the pre-tokenizer's expressions
#   foresay::utf8proc  utf8proc        Unicode normalisation and properties
#   foresay::boost     Boost >= 1.81   headers of Boost.DLL only; 1.74 lacks import_symbol
#   foresay::cli11     CLI11           arguments
#   foresay::spdlog    spdlog          logging
#   foresay::xxhash    xxHash          the checksums that are compared at every load
#   foresay::crypto    OpenSSL         SHA-256, for `foresay inspect --verify`; libcrypto only
#   foresay::edit      libedit         line editing; defines FORESAY_HAVE_LIBEDIT. Empty with FORESAY_LIBEDIT=OFF
#
# With FORESAY_STATIC each is an archive or headers only, so that the program needs nothing but libc and libstdc++.

# foresay_dependency(NAME HEADER header [LIBRARY name] [PACKAGE Debian package]): foresay::NAME.
function(foresay_dependency name)
  cmake_parse_arguments(ARG "" "HEADER;LIBRARY;PACKAGE" "" ${ARGN})
  add_library(foresay_dependency_${name} INTERFACE)
  add_library(foresay::${name} ALIAS foresay_dependency_${name})
  find_path(FORESAY_${name}_INCLUDE ${ARG_HEADER})
  if(NOT FORESAY_${name}_INCLUDE)
    message(FATAL_ERROR "${ARG_HEADER} was not found: install ${ARG_PACKAGE}, or its counterpart on this system")
  endif()
  target_include_directories(foresay_dependency_${name} SYSTEM INTERFACE ${FORESAY_${name}_INCLUDE})
  if(ARG_LIBRARY)
    if(FORESAY_STATIC)
      set(CMAKE_FIND_LIBRARY_SUFFIXES .a)
    endif()
    find_library(FORESAY_${name}_LIBRARY ${ARG_LIBRARY})
    if(NOT FORESAY_${name}_LIBRARY)
      message(FATAL_ERROR
        "the library ${ARG_LIBRARY} was not found: install ${ARG_PACKAGE}, or its counterpart on this system")
    endif()
    target_link_libraries(foresay_dependency_${name} INTERFACE ${FORESAY_${name}_LIBRARY})
  endif()
endfunction()

foresay_dependency(json HEADER nlohmann/json.hpp PACKAGE nlohmann-json3-dev)
foresay_dependency(cli11 HEADER CLI/CLI.hpp PACKAGE libcli11-dev)
foresay_dependency(pcre2 HEADER pcre2.h LIBRARY pcre2-8 PACKAGE libpcre2-dev)
foresay_dependency(utf8proc HEADER utf8proc.h LIBRARY utf8proc PACKAGE libutf8proc-dev)
foresay_dependency(xxhash HEADER xxhash.h LIBRARY xxhash PACKAGE libxxhash-dev)
foresay_dependency(crypto HEADER openssl/evp.h LIBRARY crypto PACKAGE libssl-dev)

# toml++ compiles four times faster against its library. It has no static archive, so a static program takes the
# headers.
if(FORESAY_STATIC)
  foresay_dependency(toml HEADER toml++/toml.h PACKAGE libtomlplusplus-dev)
else()
  foresay_dependency(toml HEADER toml++/toml.h LIBRARY tomlplusplus PACKAGE libtomlplusplus-dev)
  target_compile_definitions(foresay_dependency_toml INTERFACE TOML_HEADER_ONLY=0 TOML_SHARED_LIB=1)
endif()

if(FORESAY_STATIC)
  foresay_dependency(spdlog HEADER spdlog/spdlog.h PACKAGE libspdlog-dev)
  target_compile_definitions(foresay_dependency_spdlog INTERFACE SPDLOG_FMT_EXTERNAL FMT_HEADER_ONLY)
else()
  find_package(spdlog REQUIRED)
  add_library(foresay_dependency_spdlog INTERFACE)
  add_library(foresay::spdlog ALIAS foresay_dependency_spdlog)
  target_link_libraries(foresay_dependency_spdlog INTERFACE spdlog::spdlog)
endif()

find_package(Boost 1.81 REQUIRED)
add_library(foresay_dependency_boost INTERFACE)
add_library(foresay::boost ALIAS foresay_dependency_boost)
target_compile_definitions(foresay_dependency_boost INTERFACE BOOST_DLL_USE_STD_FS)
target_link_libraries(foresay_dependency_boost INTERFACE Boost::headers ${CMAKE_DL_LIBS})

if(FORESAY_LIBEDIT)
  foresay_dependency(edit HEADER histedit.h LIBRARY edit PACKAGE libedit-dev)
  target_compile_definitions(foresay_dependency_edit INTERFACE FORESAY_HAVE_LIBEDIT)
  if(FORESAY_STATIC)
    foreach(part tinfo bsd md)
      find_library(FORESAY_edit_${part} NAMES lib${part}.a REQUIRED)
      target_link_libraries(foresay_dependency_edit INTERFACE ${FORESAY_edit_${part}})
    endforeach()
  endif()
else()
  add_library(foresay_dependency_edit INTERFACE)
  add_library(foresay::edit ALIAS foresay_dependency_edit)
endif()
