# add_sampler_plugin(NAME SOURCES...): a sampler plugin NAME.so that exports the one symbol `foresay_sampler_entry`.
# Written to ${CMAKE_BINARY_DIR}/plugins, or to OUTPUT when that is given. Needs foresay::sampler_sdk, here or from
# find_package(foresay).

function(add_sampler_plugin name)
  cmake_parse_arguments(ARG "" "OUTPUT" "" ${ARGN})
  if(NOT ARG_OUTPUT)
    set(ARG_OUTPUT ${CMAKE_BINARY_DIR}/plugins)
  endif()
  set(map ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/foresay_plugin.map)
  add_library(${name} MODULE ${ARG_UNPARSED_ARGUMENTS})
  set_target_properties(${name} PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${ARG_OUTPUT}
    CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON
    LINK_DEPENDS ${map})
  target_compile_features(${name} PRIVATE cxx_std_17)
  target_link_libraries(${name} PRIVATE foresay::sampler_sdk)
  # Contracted multiply-adds would change the text. A GNU unique symbol would be shared between libraries.
  target_compile_options(${name} PRIVATE -Wall -Wextra -ffp-contract=off $<$<CXX_COMPILER_ID:GNU>:-fno-gnu-unique>)
  target_link_options(${name} PRIVATE -Wl,--version-script=${map} -Wl,-z,now -Wl,--no-undefined)
  if(FORESAY_SANITIZER)
    target_compile_options(${name} PRIVATE -fsanitize=${FORESAY_SANITIZER})
    target_link_options(${name} PRIVATE -fsanitize=${FORESAY_SANITIZER})
  endif()
endfunction()
