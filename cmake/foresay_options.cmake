# What every target is compiled with, and how a folder becomes a library.

if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release)
endif()
set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)

if(CCACHE AND NOT EXISTS "${CCACHE}")
  unset(CCACHE CACHE)  # a build folder may outlive it
endif()
find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
# Standard headers are precompiled where no compiler cache keeps objects: a quarter less time for a first build. With a
# cache they would cost more than they save, since it hardly ever finds an object that was compiled with them.
set(precompile ON)
if(CMAKE_CXX_COMPILER_LAUNCHER)
  set(precompile OFF)
endif()
option(FORESAY_PRECOMPILED_HEADERS "Precompile the standard headers" ${precompile})
# Likewise sources are compiled several at once: half the time. Where warnings are errors each is compiled alone, which
# also finds an include that is missing.
set(unity ${precompile})
if(FORESAY_WERROR)
  set(unity OFF)
endif()
option(FORESAY_UNITY_BUILD "Compile several sources as one" ${unity})
include(foresay_unity)
set(FORESAY_STANDARD_HEADERS <algorithm> <array> <chrono> <filesystem> <functional> <map> <memory> <optional> <span>
  <string> <string_view> <utility> <variant> <vector>)
find_package(Threads REQUIRED)

add_library(foresay_options INTERFACE)
target_include_directories(foresay_options INTERFACE $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}>
  $<INSTALL_INTERFACE:include/foresay>)
target_compile_features(foresay_options INTERFACE cxx_std_20)
# Bit-equality of rows needs explicit fma: the compiler must not contract a * b + c (docs/architecture.md, law 1).
set(FORESAY_CXX_OPTIONS -Wall -Wextra -Wpedantic -Wno-missing-field-initializers -ffp-contract=off -fno-fast-math)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  list(APPEND FORESAY_CXX_OPTIONS -Wno-restrict)  # false alarms over std::string's operator+ (GCC bug 105651)
endif()
if(FORESAY_WERROR)
  list(APPEND FORESAY_CXX_OPTIONS -Werror)
endif()
target_compile_options(foresay_options INTERFACE
  $<BUILD_INTERFACE:$<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:${FORESAY_CXX_OPTIONS}>> $<INSTALL_INTERFACE:-ffp-contract=off>)
target_compile_definitions(foresay_options INTERFACE BOOST_DLL_USE_STD_FS)
# FORESAY_SANITIZED tells a test to run its reduced matrix: sanitized code is 2 to 20 times slower.
set(FORESAY_TEST_TIMEOUT 600)  # seconds, of a test that names no other
if(FORESAY_SANITIZER)
  set(FORESAY_TEST_TIMEOUT 3600)
  target_compile_definitions(foresay_options INTERFACE FORESAY_SANITIZED)
  target_compile_options(foresay_options INTERFACE
    $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-fsanitize=${FORESAY_SANITIZER}>)
  target_link_options(foresay_options INTERFACE -fsanitize=${FORESAY_SANITIZER})
  if(FORESAY_SANITIZER MATCHES undefined)
    target_compile_options(foresay_options INTERFACE $<$<NOT:$<COMPILE_LANGUAGE:CUDA>>:-fno-sanitize-recover=all>)
  endif()
endif()
target_link_libraries(foresay_options INTERFACE Threads::Threads)

# foresay_precompile(NAME): precompiles the standard headers for the sources of a target.
function(foresay_precompile name)
  if(FORESAY_PRECOMPILED_HEADERS)
    target_precompile_headers(${name} PRIVATE ${FORESAY_STANDARD_HEADERS})
  endif()
endfunction()

# foresay_library(NAME GLOB... ): a static library of the sources that match, named foresay_NAME, alias foresay::NAME.
function(foresay_library name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${ARGN})
  add_library(foresay_${name} STATIC ${sources})
  add_library(foresay::${name} ALIAS foresay_${name})
  target_link_libraries(foresay_${name} PUBLIC foresay_options)
  foresay_unity(foresay_${name})
endfunction()

# foresay_embed(TARGET FOLDER HEADER NAMESPACE TYPE FUNCTION NAMES...): the files of a folder as a source of the target,
# as cmake/embed.cmake writes it.
function(foresay_embed target folder header namespace type function)
  set(paths ${ARGN})
  list(TRANSFORM paths PREPEND ${folder}/)
  list(JOIN ARGN "," names)
  set(source ${CMAKE_CURRENT_BINARY_DIR}/${function}.cpp)
  add_custom_command(OUTPUT ${source}
    COMMAND ${CMAKE_COMMAND} -DOUT=${source} -DFOLDER=${folder} -DNAMES=${names} -DHEADER=${header}
      -DNAMESPACE=${namespace} -DTYPE=${type} -DFUNCTION=${function} -P ${PROJECT_SOURCE_DIR}/cmake/embed.cmake
    DEPENDS ${paths} ${PROJECT_SOURCE_DIR}/cmake/embed.cmake VERBATIM)
  target_sources(${target} PRIVATE ${source})
endfunction()

# foresay_absent_cuda_test(NAME LABELS...): stands for a test that a build without CUDA lacks. ctest shows it as
# skipped, so that the summary of ./run test counts it.
function(foresay_absent_cuda_test name)
  add_test(NAME ${name} COMMAND ${CMAKE_COMMAND} -E echo "not run on CUDA: this build has no CUDA backend")
  set_tests_properties(${name} PROPERTIES LABELS "${ARGN};cuda" SKIP_REGULAR_EXPRESSION "not run on CUDA: [^\n]*")
endfunction()

# foresay_without_cublaslt(NAME): NAME_cuda once more as NAME_no_cublaslt, as on a machine without that library.
function(foresay_without_cublaslt name)
  if(FORESAY_HAVE_CUDA)
    add_test(NAME ${name}_no_cublaslt COMMAND ${name} --gtest_filter=*cuda*)
    set_tests_properties(${name}_no_cublaslt PROPERTIES LABELS "unit;cuda" TIMEOUT 600 RUN_SERIAL ON
      SKIP_REGULAR_EXPRESSION "not run on CUDA: [^\n]*"
      ENVIRONMENT "FORESAY_TEST_BACKEND=cuda;FORESAY_NO_CUBLASLT=1")
  endif()
endfunction()

# The precompiled headers of all tests: a target of its own, because each test would compile them again.
function(foresay_test_headers)
  if(TARGET foresay_test_headers)
    return()
  endif()
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/foresay_test_headers.cpp CONTENT "")
  add_executable(foresay_test_headers ${CMAKE_BINARY_DIR}/foresay_test_headers.cpp)  # as the tests: -fPIE, not -fPIC
  target_link_libraries(foresay_test_headers PRIVATE foresay_options GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_options(foresay_test_headers PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og>)
  target_precompile_headers(foresay_test_headers PRIVATE ${FORESAY_STANDARD_HEADERS} <gtest/gtest.h> <gmock/gmock.h>)
endfunction()

# foresay_test_library(NAME SOURCES... LIBS targets): what several tests share, compiled once.
function(foresay_test_library name)
  cmake_parse_arguments(ARG "" "" "LIBS" ${ARGN})
  add_library(${name} STATIC ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PUBLIC ${ARG_LIBS} PRIVATE GTest::gtest GTest::gmock)
  target_compile_definitions(${name} PRIVATE FORESAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE -Og)
  foresay_unity(${name})
endfunction()

# foresay_test(NAME SOURCES... [LIBS targets] [LABELS labels] [CUDA tests|program]): one GoogleTest binary.
# CUDA makes a second test NAME_cuda, which ctest shows as skipped where there is no device: of the tests whose names
# contain "cuda", or of the whole program with FORESAY_TEST_BACKEND=cuda. `program` makes a third one, NAME_paced, which
# exercises the code paths of a device on any machine (tests/models/paced_ops.h).
function(foresay_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT;CUDA" "LIBS;LABELS" ${ARGN})
  add_executable(${name} ${ARG_UNPARSED_ARGUMENTS})
  target_link_libraries(${name} PRIVATE ${ARG_LIBS} GTest::gtest GTest::gmock GTest::gtest_main)
  target_compile_definitions(${name} PRIVATE FORESAY_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_compile_options(${name} PRIVATE $<$<COMPILE_LANGUAGE:CXX>:-Og>)  # half the time to compile that -O3 takes
  if(FORESAY_PRECOMPILED_HEADERS)
    foresay_test_headers()
    target_precompile_headers(${name} REUSE_FROM foresay_test_headers)
  endif()
  foresay_unity(${name})
  if(ARG_CUDA STREQUAL tests)
    set(without_cuda --gtest_filter=-*cuda*)
    set(with_cuda --gtest_filter=*cuda*)
  endif()
  add_test(NAME ${name} COMMAND ${name} ${without_cuda})
  if(NOT ARG_LABELS)
    set(ARG_LABELS unit)
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT ${FORESAY_TEST_TIMEOUT})
  elseif(FORESAY_SANITIZER)
    math(EXPR ARG_TIMEOUT "6 * ${ARG_TIMEOUT}")
  endif()
  set_tests_properties(${name} PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT})
  if(ARG_CUDA STREQUAL program)
    add_test(NAME ${name}_paced COMMAND ${name})
    set_tests_properties(${name}_paced PROPERTIES LABELS "${ARG_LABELS}" TIMEOUT ${ARG_TIMEOUT}
      ENVIRONMENT FORESAY_TEST_BACKEND=paced)
  endif()
  if(ARG_CUDA AND FORESAY_HAVE_CUDA)
    add_test(NAME ${name}_cuda COMMAND ${name} ${with_cuda})
    set_tests_properties(${name}_cuda PROPERTIES LABELS "${ARG_LABELS};cuda" TIMEOUT ${ARG_TIMEOUT} RUN_SERIAL ON
      SKIP_REGULAR_EXPRESSION "not run on CUDA: [^\n]*" ENVIRONMENT FORESAY_TEST_BACKEND=cuda)
  elseif(ARG_CUDA)
    foresay_absent_cuda_test(${name}_cuda ${ARG_LABELS})
  endif()
endfunction()
