# cmake -DOUT=FILE.cpp -DFOLDER=DIR -DNAMES=a,b -P embed.cmake: the files as bytes of a C++ source.
string(REPLACE "," ";" names "${NAMES}")
set(arrays "")
set(list "")
set(number 0)
foreach(name ${names})
  file(READ "${FOLDER}/${name}" hex HEX)
  string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${hex}")
  string(APPEND arrays "constexpr unsigned char kFile${number}[] = {${bytes}0};\n")
  string(APPEND list "    {\"${name}\", {reinterpret_cast<const char*>(kFile${number}), sizeof kFile${number} - 1}},\n")
  math(EXPR number "${number} + 1")
endforeach()
file(WRITE "${OUT}" "// Generated from server/page.
#include \"server/page/page.h\"

namespace foresay::server {

namespace {

${arrays}
const PageFile kFiles[] = {
${list}};

}  // namespace

std::span<const PageFile> page_files() { return kFiles; }

}  // namespace foresay::server
")
