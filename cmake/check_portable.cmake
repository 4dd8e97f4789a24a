# cmake -DPROGRAM=FILE -DREADELF=FILE -P check_portable.cmake: fails when the program needs more than libc and
# libstdc++.
execute_process(COMMAND ${READELF} -d ${PROGRAM} OUTPUT_VARIABLE dynamic COMMAND_ERROR_IS_FATAL ANY)
string(REGEX MATCHALL "\\(NEEDED\\)[^\n]*\\[[^]]*\\]" needed "${dynamic}")
foreach(line ${needed})
  string(REGEX REPLACE ".*\\[(.*)\\]" "\\1" library "${line}")
  if(NOT library MATCHES "^(libc|libm|libgcc_s|libstdc\\+\\+|ld-linux-[^.]*)\\.so")
    message(FATAL_ERROR "${PROGRAM} needs ${library}; the portable build may need libc and libstdc++ only")
  endif()
endforeach()
