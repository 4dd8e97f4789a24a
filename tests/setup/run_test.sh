#!/bin/bash
# tests/setup/run_test.sh RUN: ./run on a tiny project, with stand-ins for the package manager. Nothing leaves the
# temporary folder and nothing is installed. The last line says how many expectations held; exit 1 if one did not.
set -uo pipefail
run=$1
work=$(mktemp -d)
trap 'rm -rf -- "$work"' EXIT
held=0 broken=0

expect() {  # expect WHAT CONDITION...: CONDITION is a command
    local what=$1; shift
    if "$@"; then held=$((held + 1)); else broken=$((broken + 1)); echo "NOT SO: $what"; sed 's/^/    /' "$work/err"; fi
}
has() { grep -qF -- "$2" "$1"; }
lacks() { ! grep -qF -- "$2" "$1"; }
is() { [[ $1 == "$2" ]]; }

# The path of every call: stand-ins that log their call, then links to the tools of this system. A stand-in lies in a
# folder of its own and is never written over anything, so that no link is ever followed.
stand_ins=$work/stand-ins links=$work/links log=$work/calls
mkdir "$stand_ins" "$links"
ln -s /usr/bin/* "$links/" 2>/dev/null
for tool in cmake ninja g++; do
    path=$(command -v "$tool") || { echo "$tool is needed for this test"; exit 1; }
    ln -sf "$path" "$links/$tool"
done
rm -f "$links"/{apt-get,dpkg-query,sudo,id,ccache,ninja}
stand_in() {  # stand_in NAME SCRIPT
    rm -f "$stand_ins/$1"
    printf '#!/bin/bash\necho "%s $*" >>"%s"\n%s\n' "$1" "$log" "$2" >"$stand_ins/$1"
    chmod +x "$stand_ins/$1"
}
stand_in cmake "exec '$(command -v cmake)' \"\$@\""
real_ninja="exec '$(command -v ninja)' \"\$@\""
everything='for p in "$@"; do case $p in -*|*boost1.74*|*" "*) ;; *) printf " installed:%s " "$p" ;; esac; done'
stand_in apt-get 'exit 1'
stand_in sudo 'exit 1'
stand_in tmux 'exit 0'
stand_in ldconfig 'echo libcurl.so.4'
stand_in clang-format-14 'echo Debian clang-format version 14.0.6'
stand_in id 'echo 1000'

tree() {  # tree PATH: the project
    mkdir -p "$1"/{app,plugins}
    cp "$run" "$1/run"
    cat >"$1/CMakeLists.txt" <<'END'
cmake_minimum_required(VERSION 3.25)
project(tiny LANGUAGES CXX)
enable_testing()
add_subdirectory(plugins)
add_subdirectory(app)
END
    : >"$1/plugins/CMakeLists.txt"
    cat >"$1/app/CMakeLists.txt" <<'END'
option(FORESAY_UNITY_BUILD "" ${UNITY})
add_executable(foresay main.cpp)
if(FORESAY_UNITY_BUILD)
  target_compile_definitions(foresay PRIVATE CLASH)
endif()
add_test(NAME quick COMMAND foresay quick)
add_test(NAME long COMMAND foresay long)
set_tests_properties(long PROPERTIES LABELS slow)
END
    cat >"$1/app/main.cpp" <<'END'
#include <cstdio>
#ifdef CLASH
#error these sources do not go together
#endif
int main(int argc, char** argv) {
    std::puts("one");
    for (int i = 1; i < argc; ++i) std::printf("[%s]", argv[i]);
    for (int c; argc > 1 && argv[1][0] == 'c' && (c = std::getchar()) != EOF;) std::putchar(c);
    return argc == 4 ? 7 : 0;
}
END
    cat >"$1/CMakePresets.json" <<'END'
{"version": 5, "configurePresets": [
  {"name": "release", "generator": "Ninja", "binaryDir": "${sourceDir}/build/${presetName}",
   "cacheVariables": {"CMAKE_BUILD_TYPE": "Release"}}]}
END
}
# call COMMAND...: sets status
call() { : >"$log"; PATH=$stand_ins:$links "$@" >"$work/out" 2>"$work/err" </dev/null; status=$?; }

here="$work/a tree with [spaces]"
tree "$here"

# Packages are missing, and Ninja.
stand_in dpkg-query 'printf " installed:libgtest-dev "'
call "$here/run" chat
expect "without the right to install it stops with 1" is $status 1
expect "its stdout is empty" is "$(cat "$work/out")" ""
expect "it prints the line for apt" has "$work/err" \
    "    sudo apt-get update && sudo apt-get install -y --no-install-recommends ninja-build libboost"
expect "the line has the last package" has "$work/err" " libxxhash-dev libssl-dev nlohmann-json3-dev libgmock-dev"
expect "the line omits what is installed" lacks "$work/err" libgtest-dev
expect "it called no apt-get" lacks "$log" apt-get
if grep -qs bookworm /etc/os-release; then
    stand_in dpkg-query 'printf " installed:libboost1.74-dev "'
    call "$here/run" chat
    expect "a Boost that is in the way is named" has "$work/err" "conflicts with the installed libboost1.74-dev"
fi
stand_in dpkg-query 'printf " installed:libgtest-dev "'
stand_in id 'echo 0'
stand_in apt-get "echo from-apt-get; read -r line && echo \"apt-get read \$line\"
    [[ \$1 == update ]] || ln -s '$(command -v ninja)' '$links/ninja'"
: >"$log"; printf 'typed\n' | PATH=$stand_ins:$links "$here/run" copy a >"$work/out" 2>"$work/err"; status=$?
expect "as root it installs, builds and runs" is $status 0
expect "apt-get updates first" has "$log" "apt-get update"
expect "apt-get removes nothing" has "$log" "apt-get install -qy --no-remove --no-install-recommends ninja-build"
expect "it says what it installs" has "$work/err" "foresay: installing ninja-build libboost"
expect "stdout is the program's alone, stdin too" is "$(cat "$work/out")" $'one\n[copy][a]typed'

# Nothing is missing.
stand_in dpkg-query "$everything"; stand_in apt-get 'exit 1'; stand_in id 'echo 1000'; stand_in ninja "$real_ninja"
call "$here/run" x 'two words' ''
expect "arguments and the exit status pass through" is "$status $(cat "$work/out")" $'7 one\n[x][two words][]'
expect "an unchanged tree calls no other tool" is "$(cat "$log")" ""
expect "and says nothing" is "$(cat "$work/err")" ""
(cd / && call "$here/run" x && [[ ! -s $log ]]); expect "any current folder will do" is $? 0
ln -s "$here/run" "$work/link"; call "$work/link" x
expect "a link to it will do" is "$status $(cat "$log")" "0 "

# Something changed.
sed -i 's/"one"/"two"/' "$here/app/main.cpp"; call "$here/run"
expect "an edit is built" is "$(cat "$work/out")" two
expect "without configuring" lacks "$log" "cmake --preset"
expect "without installing" lacks "$log" apt-get
echo 'int x = "' >>"$here/app/main.cpp"; call "$here/run"
expect "a compile error stops with 1" is $status 1
expect "stdout stays empty" is "$(cat "$work/out")" ""
expect "the compiler is heard" has "$work/err" main.cpp
expect "nothing is thrown away" lacks "$work/err" "is broken"
sed -i '$d' "$here/app/main.cpp"; call "$here/run"; expect "and then mended" is "$status $(cat "$work/out")" "0 two"
rm -r "$here/build"; sed -i 's/^option(/set(UNITY ON)\n&/' "$here/app/CMakeLists.txt"; call "$here/run"
expect "sources that do not go together are compiled apart" is "$status $(cat "$work/out")" "0 two"
expect "which is said" has "$work/err" "foresay: compiling each source by itself"
touch "$here/app/main.cpp"; call "$here/run"; expect "from then on" lacks "$work/err" "do not go together"

# The build folder is not what it should be.
mv "$here" "$work/elsewhere"; here=$work/elsewhere; call "$here/run"
expect "a moved tree is built again" is "$status $(cat "$work/out")" "0 two"
cp -a "$here" "$work/copy"; rm -rf "$here/app"; call "$work/copy/run"
expect "a copied tree does not use the original" is "$status $(cat "$work/out")" "0 two"
here=$work/copy
for damage in 'rm build.ninja' 'rm CMakeCache.txt' 'echo garbage >CMakeCache.txt' 'echo "build {" >build.ninja' \
    'rm -r CMakeFiles' 'echo x >.ninja_deps; echo x >.ninja_log' 'rm -r ../release' 'rm app/foresay' \
    ': >app/foresay; touch -d 2001-01-01 app/foresay' 'rm build.ninja app/foresay; rm -r CMakeFiles'; do
    (cd "$here/build/release" && eval "$damage; rm -f .program"); call "$here/run"
    expect "it recovers from: $damage" is "$status $(cat "$work/out")" "0 two"
done
touch "$here/app/main.cpp"; stand_in ninja 'kill -INT $PPID; exit 2'; call "$here/run"
expect "an interrupted build ends with 130, and nothing is judged broken" is "$status $(cat "$work/err")" "130 "
stand_in ninja "$real_ninja"; call "$here/run"; expect "and goes on later" is "$status $(cat "$work/out")" "0 two"
stand_in ldconfig 'echo libc.so.6'; touch "$here/app/main.cpp"; call "$here/run" test
expect "the tests want libcurl, which no build needs" is "$status $(grep -c 'recommends libcurl4$' "$work/err")" "1 1"
call "$here/run"; expect "the program does not" is "$status $(cat "$work/out")" "0 two"
stand_in ldconfig 'echo libcurl.so.4'
rm "$stand_ins/dpkg-query"; touch "$here/app/main.cpp"; call "$here/run"
expect "another distribution is told what is needed, and built for" is "$status $(cat "$work/out")" "0 two"
expect "with names" has "$work/err" "Boost 1.81"

# Tests.
call "$here/run" test
expect "./run test runs what is not slow" is "$status $(grep -c Passed "$work/out")" "0 1"
call "$here/run" test -L slow
expect "and others when told" is "$status $(grep -c Passed "$work/out")" "0 1"
expect "by label" has "$work/out" long
call "$here/run" test -R nothing; expect "no tests at all is a failure" is "$((status != 0))" 1

# The summary, and the record.
recorder=$here/build/release/tests/record/test_record
mkdir -p "${recorder%/*}"
printf '#!/bin/bash\necho "record $*"; [[ $1 != summary || ! -e "%s/bad" ]]\n' "$work" >"$recorder"
chmod +x "$recorder"
call "$here/run" test
expect "the summary is the end" is "$status $(tail -n 1 "$work/out")" \
    "0 record summary $here $here/build/release release"
call "$here/run" test -L slow
expect "and told that the tests were chosen" has "$work/out" "record summary $here $here/build/release release chosen"
: >"$work/bad"; call "$here/run" test; expect "what it finds wrong is a failure" is $status 1; rm "$work/bad"
sed -i 's/argc == 4/argc == 2/' "$here/app/main.cpp"; call "$here/run" test --record
expect "a failing test stays one" is "$((status != 0))" 1
sed -i 's/argc == 2/argc == 4/' "$here/app/main.cpp"
call "$here/run" test --record; expect "without git nothing is recorded" is $status 1
expect "and git is asked for" has "$work/err" "needs git"
git -C "$here" init -q; printf 'build\n' >"$here/.gitignore"; git -C "$here" add .
git -C "$here" -c user.name=a -c user.email=a@b commit -qm a
stand_in nvidia-smi 'printf "NVIDIA H200\nNVIDIA H200\n"'
call "$here/run" test --record -L slow
expect "--record names device, commit and date" grep -qE \
    "^record add $here $here/build/release/.*LastTest.log 2 x NVIDIA H200, [0-9]+ cores [0-9a-f]{9} 20..-..-..\$" \
    "$work/out"
echo >>"$here/app/CMakeLists.txt"; call "$here/run" test --record
expect "a tree with changes is not the commit" grep -qE ' [0-9a-f]{9}\+ 20' "$work/out"
call "$here/run" record --from a.log --device H100 --commit abcdef0 --date 2026-01-02
expect "another machine's log is recorded" is "$(cat "$work/out")" "record add $here a.log H100 abcdef0 2026-01-02"
call "$here/run" record --from a.log
expect "but not without device and commit" is "$status $(cat "$work/out")" "1 "
call "$here/run" record --script
expect "a script for devices is printed" has "$work/out" "record script $here $here/build/release"

# Formatting.
call "$here/run" format
expect "format calls clang-format 14 with the sources" has "$log" "clang-format-14 -i ./app/main.cpp"
stand_in clang-format-14 'echo version 15'; rm -f "$links/clang-format"; call "$here/run" format
expect "and no other version" is "$status $(grep -c -- -i "$log")" "1 0"

echo "$held expectations held, $broken did not"
((broken == 0))
