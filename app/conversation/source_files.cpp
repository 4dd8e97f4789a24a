#include "app/conversation/source_files.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <system_error>

#include "app/files.h"
#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

constexpr std::int64_t kMaxFolderFileBytes = 256 << 10;

bool is_text(const std::string& text) { return text.find('\0') == std::string::npos && core::is_valid_utf8(text); }

bool is_hidden(const fs::path& path) { return path.filename().string().starts_with('.'); }

}  // namespace

fs::path user_path(const std::string& text) {
    const char* home = std::getenv("HOME");
    if (text.starts_with("~/") && home != nullptr) return fs::path(home) / text.substr(2);
    return text;
}

std::string read_text_file(const fs::path& path) {
    std::error_code problem;
    const fs::file_status status = fs::status(path, problem);
    if (!fs::exists(status)) throw Error("there is no file " + path.string());
    if (fs::is_directory(status)) throw Error(path.string() + " is a folder; /dir attaches the text files in it");
    if (!fs::is_regular_file(status)) throw Error(path.string() + " is not a regular file");
    std::string text = read_file(path, "the file", kMaxContextFileBytes);
    if (!is_text(text)) throw Error(path.string() + " is not text: it contains zero bytes or is not UTF-8");
    return text;
}

FolderFiles find_text_files(const fs::path& folder) {
    FolderFiles found;
    std::error_code problem;
    if (!fs::is_directory(folder, problem)) throw Error(folder.string() + " is not a folder; /file attaches a file");
    fs::recursive_directory_iterator it(folder, fs::directory_options::skip_permission_denied, problem);
    if (problem) throw Error("cannot read the folder " + folder.string() + ": " + problem.message());
    for (; it != fs::recursive_directory_iterator(); it.increment(problem)) {
        if (problem) break;
        if (is_hidden(it->path())) {
            if (it->is_directory(problem)) it.disable_recursion_pending();
            continue;
        }
        if (it->is_symlink(problem) || !it->is_regular_file(problem)) continue;
        if (it->file_size(problem) > static_cast<std::uintmax_t>(kMaxFolderFileBytes)) {
            ++found.left_out;
            continue;
        }
        try {
            if (is_text(read_file(it->path(), "the file", kMaxFolderFileBytes))) {
                found.files.push_back(it->path());
            } else {
                ++found.left_out;
            }
        } catch (const Error&) {
            ++found.left_out;  // unreadable
        }
        if (found.files.size() > kMaxContextFiles) {
            throw Error(folder.string() + " contains more than " + std::to_string(kMaxContextFiles) +
                        " text files; name a folder inside it");
        }
    }
    std::sort(found.files.begin(), found.files.end());
    return found;
}

FilePlace parse_place(const std::string& text) {
    const auto number = [&](std::string_view digits) {
        std::int64_t value = -1;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        return error == std::errc() && end == digits.data() + digits.size() && value > 0 ? value : -1;
    };
    FilePlace place;
    const std::size_t last = text.rfind(':');
    const std::int64_t right = last == std::string::npos ? -1 : number(std::string_view(text).substr(last + 1));
    if (right < 0) throw Error("'" + text + "' is not a place; write FILE:LINE or FILE:LINE:COLUMN");
    const std::size_t before = last > 0 ? text.rfind(':', last - 1) : std::string::npos;
    const std::int64_t left =
        before == std::string::npos ? -1 : number(std::string_view(text).substr(before + 1, last - before - 1));
    place.file = text.substr(0, left > 0 ? before : last);
    place.line = left > 0 ? left : right;
    place.column = left > 0 ? right : 0;
    return place;
}

std::size_t offset_of(const std::string& text, const FilePlace& place) {
    std::size_t begin = 0;
    for (std::int64_t line = 1; line < place.line; ++line) {
        const std::size_t newline = text.find('\n', begin);
        if (newline == std::string::npos) {
            throw Error(place.file + " has no line " + std::to_string(place.line) + ", only " + std::to_string(line));
        }
        begin = newline + 1;
    }
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    if (place.column == 0) return end;
    std::size_t at = begin;
    for (std::int64_t column = 1; column < place.column; ++column) {
        if (at == end) {
            throw Error(place.file + ":" + std::to_string(place.line) + " has no column " +
                        std::to_string(place.column) + "; its columns go from 1 to " + std::to_string(column) +
                        ", which is the end of the line");
        }
        ++at;
        while (at < end && (static_cast<unsigned char>(text[at]) & 0xC0u) == 0x80u) ++at;
    }
    return at;
}

}  // namespace foresay::app
