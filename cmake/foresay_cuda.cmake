# The CUDA backend, which is optional: foresay_enable_cuda() sets FORESAY_HAVE_CUDA.
#
#   FORESAY_CUDA                 AUTO: if nvcc is found and no sanitizer is on; ON: a missing nvcc is an error; OFF: no
#   FORESAY_CUDA_ARCHITECTURES   as CMAKE_CUDA_ARCHITECTURES; default: this machine's GPUs; quick PTX of 90 if it
#                                has none, which compiles in a fifth of the time and is slow where it runs
#   FORESAY_CUDA_CODE_OF         an older architecture such as 80 or 89, whose code is built for the one architecture in
#                                FORESAY_CUDA_ARCHITECTURES: to test on one GPU what others would run
#
# The CUDA runtime is linked statically, and the driver library is opened when the first device is asked for, so the
# program also starts on machines without either.

set(FORESAY_CUDA AUTO CACHE STRING "AUTO, ON or OFF")
set_property(CACHE FORESAY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(FORESAY_CUDA_ARCHITECTURES "" CACHE STRING
  "Compute capabilities such as 80;90; empty: those of this machine's GPUs, else PTX of 90")
set(FORESAY_CUDA_CODE_OF "" CACHE STRING
  "Build the code of this compute capability for a newer GPU, to test it there; empty: each GPU has its own")

macro(foresay_enable_cuda)
  set(FORESAY_HAVE_CUDA OFF)
  if(NOT FORESAY_CUDA STREQUAL "OFF" AND NOT (FORESAY_CUDA STREQUAL "AUTO" AND FORESAY_SANITIZER))
    find_program(FORESAY_NVCC nvcc HINTS ENV CUDA_PATH ENV CUDA_HOME PATHS /usr/local/cuda /opt/cuda PATH_SUFFIXES bin)
    if(FORESAY_NVCC AND NOT CMAKE_CUDA_COMPILER)
      set(CMAKE_CUDA_COMPILER ${FORESAY_NVCC})
    endif()
    if(NOT CMAKE_CUDA_HOST_COMPILER AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      set(CMAKE_CUDA_HOST_COMPILER ${CMAKE_CXX_COMPILER})
    endif()
    if(NOT FORESAY_CUDA_ARCHITECTURES)
      find_program(FORESAY_NVIDIA_SMI nvidia-smi)
      set(gpus 1)
      if(FORESAY_NVIDIA_SMI)
        execute_process(COMMAND ${FORESAY_NVIDIA_SMI} -L RESULT_VARIABLE gpus OUTPUT_QUIET ERROR_QUIET)
      endif()
      if(gpus EQUAL 0)
        set(CMAKE_CUDA_ARCHITECTURES native)
      else()
        set(CMAKE_CUDA_ARCHITECTURES 90-virtual)
        set(quick ON)
      endif()
    else()
      set(CMAKE_CUDA_ARCHITECTURES ${FORESAY_CUDA_ARCHITECTURES})
    endif()
    if(FORESAY_CUDA_CODE_OF)
      string(REGEX REPLACE "-.*" "" gpu "${CMAKE_CUDA_ARCHITECTURES}")
      if(NOT gpu MATCHES "^[0-9]+$")
        message(FATAL_ERROR "FORESAY_CUDA_CODE_OF wants one number in FORESAY_CUDA_ARCHITECTURES, such as 90")
      endif()
      set(CMAKE_CUDA_ARCHITECTURES OFF)
      set(CMAKE_CUDA_FLAGS
        "${CMAKE_CUDA_FLAGS} --generate-code=arch=compute_${FORESAY_CUDA_CODE_OF},code=sm_${gpu}")
    endif()
    if(CCACHE AND NOT CMAKE_CUDA_COMPILER_LAUNCHER)
      set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE})
    endif()
    if(FORESAY_CUDA STREQUAL "ON")
      if(NOT CMAKE_CUDA_COMPILER)
        message(FATAL_ERROR
          "FORESAY_CUDA is ON and nvcc was not found: put it on the path, or name it with -DCMAKE_CUDA_COMPILER=")
      endif()
      enable_language(CUDA)
      set(FORESAY_HAVE_CUDA ON)
    else()
      include(CheckLanguage)
      check_language(CUDA)  # a compiler that does not work leaves a program without CUDA, not a broken build
      if(CMAKE_CUDA_COMPILER)
        enable_language(CUDA)
        set(FORESAY_HAVE_CUDA ON)
      endif()
    endif()
  endif()
  if(FORESAY_HAVE_CUDA)
    if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc takes it
      set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
      set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION -std=c++20)
    endif()
    find_package(CUDAToolkit REQUIRED)
    # Without a GPU to run it on, that it compiles is what matters. Where the program meets one after all, it says so.
    set(FORESAY_CUDA_QUICK OFF)
    if(quick AND CMAKE_CUDA_COMPILER_ID STREQUAL NVIDIA AND CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 12.9)
      set(FORESAY_CUDA_QUICK ON)
      message(STATUS "CUDA backend: there is no GPU here, so its code is quick to compile and slow where it runs")
    endif()
    message(STATUS "CUDA backend: nvcc ${CMAKE_CUDA_COMPILER_VERSION}, architectures ${CMAKE_CUDA_ARCHITECTURES}")
  else()
    message(STATUS "CUDA backend: none (FORESAY_CUDA=${FORESAY_CUDA})")
  endif()
endmacro()
