// app/conversation/source_files.h: files as context: reading them, finding them, cutting one at a place.
//
// Errors:   Error naming the file: not there, no regular file, too large, no text.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace foresay::app {

inline constexpr std::int64_t kMaxContextFileBytes = std::int64_t{4} << 20;
inline constexpr std::size_t kMaxContextFiles = 1000;

// "~/" at the beginning of a path is the home folder.
std::filesystem::path user_path(const std::string& text);

// The text of a file. What holds zero bytes or is not UTF-8 is no text.
std::string read_text_file(const std::filesystem::path& path);

// The text files below a folder, by path: hidden ones and links are left out, and so is what is no text or too large,
// which is counted.
struct FolderFiles {
    std::vector<std::filesystem::path> files;
    std::size_t left_out = 0;
};
FolderFiles find_text_files(const std::filesystem::path& folder);

// A place in a text, as "FILE:LINE" or "FILE:LINE:COLUMN" names it, both from 1 on; column 0 is the end of the line.
struct FilePlace {
    std::string file;
    std::int64_t line = 1;
    std::int64_t column = 0;
};
FilePlace parse_place(const std::string& text);
// Its offset in bytes. Columns count characters, and end with the line.
std::size_t offset_of(const std::string& text, const FilePlace& place);

}  // namespace foresay::app
