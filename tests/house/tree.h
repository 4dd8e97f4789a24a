// tests/house/tree.h: the project's own files as text, and the rules they keep as functions from text to complaints.
//
// Each rule takes a path relative to the project and the file's text, so that a test can also show it a file that
// breaks it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foresay::house {

struct File {
    std::string path;  // relative to the project, with forward slashes
    std::string text;
};

struct Include {
    std::string name;
    bool angled = false;
    int line = 0;  // from 1
};

using Complaints = std::vector<std::string>;

// Every text file of the project: sources, scripts, build files, configs and documents. Build folders, hidden folders
// except .ci, data and models are left out.
const std::vector<File>& project_files();

bool is_header(std::string_view path);
bool is_source(std::string_view path);  // C, C++ and CUDA, headers included

std::vector<Include> includes_of(std::string_view text);

// The rooms a file may include, by the house's DAG.
Complaints check_rooms(const File& file);
// The same of headers that a file sees through other headers, where a room that may include another one whole also sees
// what that one sees. The shortest chain of includes is shown, once for each
// room and header. Angled includes are not followed.
Complaints check_reach(const std::vector<File>& files);
// Third-party headers: in .cpp files only, and each library only in the room that wraps it. kernels: none at all. A
// header that says `// Private to NAME.cpp` counts as a part of that file.
Complaints check_third_party(const File& file);
// A header that says `// Private to NAME.cpp` is included by that file of its folder and its own .cpp only.
Complaints check_private_headers(const File& file);
// A header says its path and purpose first and is guarded.
Complaints check_header_opening(const File& file);
// At most 800 lines, unless the first line says that the file is generated.
Complaints check_length(const File& file);
// No path of a particular machine, no note to do something later.
Complaints check_words(const File& file);
// Relative links of a document lead to a file, and those with a # to one of its headings.
Complaints check_links(const File& file);

}  // namespace foresay::house
