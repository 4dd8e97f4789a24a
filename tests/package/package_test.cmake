# cmake -DPART=install|consumer|deb -DBUILD= -DSOURCE= -DSCRATCH= ... -P package_test.cmake
#   install    a fresh prefix, moved elsewhere: the program runs and finds its pair, its plugin and its configurations
#   consumer   a project that knows only that prefix builds a program and a plugin, and both work
#   deb        CPack's Debian packages hold what they should, and the program in them runs
set(prefix ${SCRATCH}/prefix)
set(prompt "def area(radius):")

function(call expected)
  execute_process(COMMAND ${ARGN} OUTPUT_VARIABLE out ERROR_VARIABLE error RESULT_VARIABLE status
    WORKING_DIRECTORY ${SCRATCH})
  if(NOT status EQUAL 0 OR NOT out MATCHES "${expected}")
    list(JOIN ARGN " " command)
    message(FATAL_ERROR "${command}\nstatus ${status}, expected ${expected} in\n${out}\n${error}")
  endif()
  set(out "${out}" PARENT_SCOPE)
endfunction()

function(expect_file path)
  if(NOT EXISTS ${path})
    message(FATAL_ERROR "there is no ${path}")
  endif()
endfunction()

# A program that is not the clone's: nothing of the environment leads back to it.
function(expect_program root)
  set(program env -i PATH=$ENV{PATH} HOME=${SCRATCH} XDG_CONFIG_DIRS=${SCRATCH}/none ${root}/bin/foresay)
  call("^foresay [0-9]" ${program} --version)
  call("${root}/share/foresay/models/python-coder/target" ${program} config show)
  call("return" ${program} complete -p ${prompt} -n 16)
  call("${root}/lib/foresay/plugins/wordlist.so" ${program} plugin list)
  call("ok" ${program} config check ${root}/share/foresay/configs/python-coder.toml)
endfunction()

file(REMOVE_RECURSE ${SCRATCH})
file(MAKE_DIRECTORY ${SCRATCH})

if(PART STREQUAL install)
  call("" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${SCRATCH}/first --component runtime)
  file(RENAME ${SCRATCH}/first ${prefix})
  expect_program(${prefix})
  foreach(file share/man/man1/foresay.1 share/bash-completion/completions/foresay
      share/zsh/vendor-completions/_foresay share/fish/vendor_completions.d/foresay.fish
      share/foresay/configs/schema.json)
    expect_file(${prefix}/${file})
  endforeach()
elseif(PART STREQUAL consumer)
  call("" ${CMAKE_COMMAND} --install ${BUILD} --prefix ${prefix})
  call("" ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${SCRATCH}/build -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_BUILD_TYPE=${BUILD_TYPE} -DCMAKE_PREFIX_PATH=${prefix})
  call("" ${CMAKE_COMMAND} --build ${SCRATCH}/build)
  set(pair ${prefix}/share/foresay/models/python-coder)
  file(WRITE ${SCRATCH}/pair.toml "[target]\nmodel = \"${pair}/target-q4_k_m.gguf\"\n"
    "[draft]\nmodel = \"${pair}/draft-q8_0.gguf\"\n[sampling]\nseed = 7\nchain = [\"top_k\", \"temperature\"]\n"
    "[sampling.temperature]\nvalue = 0.6\n")
  call("area" ${SCRATCH}/build/embed ${SCRATCH}/pair.toml ${prompt})
  # The plugin that it built, loaded by the installed program: it forbids the letter e.
  file(WRITE ${SCRATCH}/no_e.toml "[target]\nmodel = \"${pair}/target-q4_k_m.gguf\"\n[sampling]\n"
    "chain = [\"no_letter\", \"temperature\"]\n[[plugin]]\nname = \"no_letter\"\n"
    "path = \"build/plugins/no_letter.so\"\n[plugin.options]\nletter = \"e\"\n")
  set(foresay ${CMAKE_COMMAND} -E env XDG_STATE_HOME=${SCRATCH} ${prefix}/bin/foresay)
  call("trusted" ${foresay} plugin trust build/plugins/no_letter.so)
  call("[a-z]" ${foresay} complete ${SCRATCH}/no_e.toml -p ${prompt} -n 32)
  if(out MATCHES "e")
    message(FATAL_ERROR "the plugin let an e through: ${out}")
  endif()
  # A plugin's author needs the SDK alone.
  call("" ${CMAKE_COMMAND} -S ${SOURCE}/tests/package/consumer -B ${SCRATCH}/sdk -G ${GENERATOR}
    -DCMAKE_CXX_COMPILER=${COMPILER} -DCMAKE_PREFIX_PATH=${prefix} -DSDK_ALONE=ON
    -DCMAKE_DISABLE_FIND_PACKAGE_Boost=ON -DCMAKE_DISABLE_FIND_PACKAGE_spdlog=ON)
  call("" ${CMAKE_COMMAND} --build ${SCRATCH}/sdk)
  # A plugin begun by the installed program, with the one command that it names.
  foreach(kind test mask process state)
    call("cmake --workflow --preset default" ${foresay} plugin new a_${kind} --kind ${kind})
    file(READ ${SCRATCH}/a_${kind}/CMakeLists.txt text)
    if(NOT text MATCHES "find_package\\(foresay REQUIRED COMPONENTS SamplerSDK HINTS \"${prefix}\"\\)")
      message(FATAL_ERROR "it is not built against the installed package: ${text}")
    endif()
    execute_process(COMMAND ${CMAKE_COMMAND} --workflow --preset default WORKING_DIRECTORY ${SCRATCH}/a_${kind}
      OUTPUT_VARIABLE out ERROR_VARIABLE out RESULT_VARIABLE status)
    if(NOT status EQUAL 0 OR NOT out MATCHES "100% tests passed")
      message(FATAL_ERROR "${kind}: ${out}")
    endif()
  endforeach()
else()
  find_program(dpkg_deb dpkg-deb)
  if(NOT dpkg_deb)
    message("skipped: dpkg-deb is not installed")
    return()
  endif()
  call("" cpack --config ${BUILD}/CPackConfig.cmake -B ${SCRATCH}/packages)
  file(GLOB runtime ${SCRATCH}/packages/foresay_*.deb)
  file(GLOB development ${SCRATCH}/packages/foresay-dev_*.deb)
  call("libc6" ${dpkg_deb} --field ${runtime} Depends)
  call("/usr/share/man/man1/foresay.1" ${dpkg_deb} --contents ${runtime})
  call("/usr/include/foresay/samplers/sdk/sampler.hpp" ${dpkg_deb} --contents ${development})
  call("" ${dpkg_deb} --extract ${runtime} ${SCRATCH}/system)
  expect_program(${SCRATCH}/system/usr)
endif()
file(REMOVE_RECURSE ${SCRATCH})
