// tests/house/style.h: how lines look and which words they use, as rules like those of tests/house/tree.h.
#pragma once

#include <string>
#include <string_view>

#include "tests/house/tree.h"

namespace foresay::house {

// No line has more than 120 columns, but: a row of a Markdown table, a line with a URL, a line without a space to break
// it at, and whatever a file holds whose first line says that it is generated.
Complaints check_columns(const File& file);

// The file's text with code blanked out: comments and strings of C++ and CUDA, everything of other files. Lines stay.
std::string prose_of(const File& file);
// Words to avoid, except in the phrases that words.cpp allows.
Complaints check_english(const File& file);

// The command that runs clang-format 14, the version whose output the style is; empty when it is not installed.
std::string clang_format();
// Those of `files` that clang-format would change, each with the first line that it would.
Complaints check_format(const std::string& command, const std::vector<File>& files);

}  // namespace foresay::house
