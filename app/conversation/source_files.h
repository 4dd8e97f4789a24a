// app/conversation/source_files.h: reads and finds the text files that a conversation takes as context.
//
// Errors:   Error naming the file: missing, not a regular file, too large, or not text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace foresay::app {

inline constexpr std::int64_t kMaxContextFileBytes = std::int64_t{4} << 20;
inline constexpr std::size_t kMaxContextFiles = 1000;

// Expands "~/" at the beginning of a path to the home folder.
std::filesystem::path user_path(const std::string& text);

// The text of a file, which must be UTF-8 without zero bytes.
std::string read_text_file(const std::filesystem::path& path);

// The text files below a folder, sorted by path. Leaves out hidden files and links, and files that are not text, too
// large or unreadable; `left_out` counts the latter.
struct FolderFiles {
    std::vector<std::filesystem::path> files;
    std::size_t left_out = 0;
};
FolderFiles find_text_files(const std::filesystem::path& folder);

// A place in a file, from "FILE:LINE" or "FILE:LINE:COLUMN". Both count from 1; column 0 is the end of the line.
struct FilePlace {
    std::string file;
    std::int64_t line = 1;
    std::int64_t column = 0;
};
FilePlace parse_place(const std::string& text);
// The byte offset of the place. Columns count characters; the one after the last is the end of the line. Errors: the
// text has no such line or column.
std::size_t offset_of(const std::string& text, const FilePlace& place);

}  // namespace foresay::app
