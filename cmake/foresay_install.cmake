# What `cmake --install` and CPack put where. Two components:
#   runtime       the program, its plugins, configs/ and models/, the manual page and the shells' completions
#   development   headers, static libraries and what find_package(foresay) needs
# The program finds its data and plugins from its own place (app/files.h, plugins/host), so the prefix may be moved.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

# ---- made by the program: the manual page and the completions. A sanitized build makes them only on request: it is not
# installed, and its program may not start where the kernel randomises addresses widely.
set(all ALL)
if(FORESAY_SANITIZER)
  set(all)
endif()
set(documents ${CMAKE_BINARY_DIR}/documents)
file(MAKE_DIRECTORY ${documents})
function(foresay_document file)
  add_custom_command(OUTPUT ${documents}/${file} COMMAND foresay ${ARGN} > ${documents}/${file} DEPENDS foresay
    VERBATIM)
endfunction()
foresay_document(foresay.1 manual)
foresay_document(foresay.bash completion bash)
foresay_document(_foresay completion zsh)
foresay_document(foresay.fish completion fish)
add_custom_target(foresay_documents ${all} DEPENDS ${documents}/foresay.1 ${documents}/foresay.bash
  ${documents}/_foresay
  ${documents}/foresay.fish)

# ---- runtime
set(data ${CMAKE_INSTALL_DATADIR})
install(TARGETS foresay RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
install(TARGETS wordlist indent budget LIBRARY DESTINATION lib/foresay/plugins COMPONENT runtime)
install(DIRECTORY configs models DESTINATION ${data}/foresay COMPONENT runtime)
install(FILES ${documents}/foresay.1 DESTINATION ${CMAKE_INSTALL_MANDIR}/man1 COMPONENT runtime)
install(FILES ${documents}/foresay.bash DESTINATION ${data}/bash-completion/completions RENAME foresay COMPONENT
  runtime)
install(FILES ${documents}/_foresay DESTINATION ${data}/zsh/vendor-completions COMPONENT runtime)
install(FILES ${documents}/foresay.fish DESTINATION ${data}/fish/vendor_completions.d COMPONENT runtime)
install(FILES README.md LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# ---- development
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/foresay)
set(headers ${CMAKE_INSTALL_INCLUDEDIR}/foresay)
foreach(folder base kernels grammar core samplers speculative plugins/host engine)
  install(DIRECTORY ${folder}/ DESTINATION ${headers}/${folder} COMPONENT development FILES_MATCHING PATTERN *.h
    PATTERN *.hpp PATTERN *.cuh)
endforeach()
install(TARGETS foresay_sampler_sdk EXPORT foresaySdk INCLUDES DESTINATION ${headers})
set(libraries foresay_options foresay_base foresay_kernels foresay_grammar foresay_core foresay_samplers
  foresay_speculative foresay_plugin_host foresay_engine)
foreach(name json cli11 pcre2 utf8proc xxhash toml spdlog boost edit)
  list(APPEND libraries foresay_dependency_${name})
endforeach()
foreach(library ${libraries})
  string(REGEX REPLACE "^foresay_" "" short ${library})
  set_target_properties(${library} PROPERTIES EXPORT_NAME ${short})
endforeach()
set_target_properties(foresay_sampler_sdk PROPERTIES EXPORT_NAME sampler_sdk)
install(TARGETS ${libraries} EXPORT foresayEngine ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR}/foresay
  COMPONENT development)
foreach(set foresaySdk foresayEngine)
  install(EXPORT ${set} NAMESPACE foresay:: DESTINATION ${package} COMPONENT development)
endforeach()
configure_package_config_file(cmake/foresayConfig.cmake.in ${CMAKE_BINARY_DIR}/foresayConfig.cmake
  INSTALL_DESTINATION ${package})
write_basic_package_version_file(${CMAKE_BINARY_DIR}/foresayConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/foresayConfig.cmake ${CMAKE_BINARY_DIR}/foresayConfigVersion.cmake
  cmake/foresay_plugin.cmake cmake/foresay_plugin.map DESTINATION ${package} COMPONENT development)

# ---- packages: cpack -G DEB in the build folder
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_CONTACT "the foresay authors <foresay@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "large language models with a small one that guesses ahead")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_COMPONENTS_ALL runtime development)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_NAME foresay)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_RUNTIME_PACKAGE_RECOMMENDS "libcurl4 | libcurl4t64, ca-certificates")  # opened at run time
set(CPACK_COMPONENT_RUNTIME_DESCRIPTION
  "A runtime for speculative decoding: the program, its sampler plugins and a small bundled pair of models.")
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_NAME foresay-dev)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_SECTION libdevel)
set(CPACK_DEBIAN_DEVELOPMENT_PACKAGE_DEPENDS
  "libboost1.81-dev | libboost-dev (>= 1.81), libspdlog-dev, libtomlplusplus-dev, libpcre2-dev, libutf8proc-dev, \
libxxhash-dev")
set(CPACK_COMPONENT_DEVELOPMENT_DESCRIPTION
  "Headers, static libraries and CMake files of foresay, for programs that embed the engine and for sampler plugins.")
include(CPack)
