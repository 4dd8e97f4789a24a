# cmake -DFROM=sampler.h -DTO=... -P grow_header.cmake: a header of version 1.1, in which every struct that may grow has
# a member more at its end.
file(READ ${FROM} header)
string(REPLACE "FORESAY_SAMPLER_ABI_MINOR 0u" "FORESAY_SAMPLER_ABI_MINOR 1u" grown "${header}")
foreach(type parameter host math context candidates token sampler self_test sampler_library)
  string(REPLACE "\n} foresay_${type};" "\n    uint64_t added_in_1_1;\n} foresay_${type};" next "${grown}")
  if(next STREQUAL grown)
    message(FATAL_ERROR "foresay_${type} was not found")
  endif()
  set(grown "${next}")
endforeach()
file(WRITE ${TO} "${grown}")
