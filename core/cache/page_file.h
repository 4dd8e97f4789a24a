// core/cache/page_file.h: pages of a KV cache in a file: one page of a text, or all of a conversation.
//
// Layout:   little-endian numbers; see docs/formats.md.
//             8  "FSYPAGES"
//             4  version, 1
//             4  R, rows: 1 to kMostPageRows
//             8  B, bytes of a page: 1 to kMostPageBytes
//            16  fingerprint: what the bytes of a page depend on besides the text
//            16  hash of the page before the first one
//            4R  token ids
//             8  for each 64 rows: bit i is 1 where row i is a decode row
//            16  XXH3-128 of all bytes so far
//           then each page: B bytes, and their XXH3-128.
//           The file ends there.
// Threads:  any; one reader has one caller at a time.
// Cost:     a reader reads the header when it is made, and then what it is asked for.
// Errors:   files are untrusted: a file that is broken, cut off or foreign throws Error, a clause without its name.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <vector>

#include "core/cache/page_id.h"

namespace foresay::core {

inline constexpr std::int64_t kMostPageRows = 1 << 24;
inline constexpr std::int64_t kMostPageBytes = std::int64_t{1} << 32;

struct PageFileHeader {
    std::int64_t page_bytes = 0;
    PageHash fingerprint, parent;
    std::vector<std::int32_t> tokens;
    std::vector<std::uint64_t> decode_rows;  // of each page

    std::size_t pages() const { return decode_rows.size(); }
};

// The bytes of a header, ready to be written.
std::vector<std::byte> page_file_header(const PageFileHeader& header);

class PageFileReader {
public:
    // Reads `to.size()` bytes from `offset` on. False: there are not so many.
    using Read = std::function<bool(std::int64_t offset, std::span<std::byte> to)>;
    // For a file of `size` bytes. Throws Error.
    PageFileReader(std::int64_t size, Read read);

    const PageFileHeader& header() const { return header_; }
    // Reads page `index` into header().page_bytes bytes. Throws Error when they are not what was written.
    void read_page(std::size_t index, std::span<std::byte> to) const;

private:
    Read read_;
    PageFileHeader header_;
    std::int64_t first_page_ = 0;
};

// A file of the file system, open for reading. Throws Error when it cannot be opened or is no regular file.
class OpenPageFile {
public:
    explicit OpenPageFile(const std::filesystem::path& path);
    ~OpenPageFile();
    OpenPageFile(const OpenPageFile&) = delete;
    OpenPageFile& operator=(const OpenPageFile&) = delete;
    std::int64_t size() const { return size_; }
    PageFileReader::Read reader() const;

private:
    int descriptor_ = -1;
    std::int64_t size_ = 0;
};

// Writes a file whole or not at all: under another name in the same folder, which then takes the place of `path`.
// page(i) gives the bytes of page i, valid until the next call. Readable by its owner only. Returns the file's bytes.
// Throws Error, a sentence with the path, when the disk is full or the folder cannot be written.
std::int64_t write_page_file(const std::filesystem::path& path, const PageFileHeader& header,
                             const std::function<std::span<const std::byte>(std::size_t page)>& page);

// The beginning of the names under which files are written at first.
inline constexpr const char* kUnfinishedPageFile = ".unfinished-";

}  // namespace foresay::core
