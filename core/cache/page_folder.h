// core/cache/page_folder.h: a folder with pages of texts, one file each, for this program and those that come after it
// or run beside it.
//
// A page's file is named by the hash of its name and of the fingerprint, so a page is found without an index, and
// programs with other models share a folder. Files appear whole. One that finds more bytes than it may keep deletes
// the files used longest ago, those of others too; a reader of such a file has it open or does not find it.
//
// Threads:  any: load() and write() may be called at once.
// Cost:     load() and write() of one file each; write() lists the folder now and then.
// Errors:   none. A file that is not what it should be is a miss. What a person should know is told to `notice`, each
//           file once; when the folder cannot be written, once, and nothing is written any more.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <mutex>
#include <set>
#include <span>
#include <string>

#include "core/cache/page_id.h"

namespace foresay::core {

// One sentence that begins in lower case and has no full stop. May come from any thread.
using PageNotice = std::function<void(const std::string& sentence)>;

class PageFolder {
public:
    // `fingerprint`: what the bytes of a page depend on besides its text: the model, the backend, the format.
    PageFolder(std::filesystem::path folder, std::int64_t most_bytes, std::string_view fingerprint,
               std::int64_t page_bytes, PageNotice notice);

    bool has(const PageId& id) const;
    // Reads a page into page_bytes bytes; they are unspecified when it returns false.
    bool load(const PageId& id, std::span<std::byte> to);
    // Writes a page. False: it could not be written.
    bool write(const PageId& id, std::span<const std::byte> bytes);
    // The bytes of the files in the folder, as far as is known.
    std::int64_t bytes() const { return bytes_; }

private:
    std::filesystem::path file_of(const PageId& id) const;
    void complain(const std::string& file, const std::string& sentence);
    void stop_writing(const std::string& why);
    void make_room();

    std::filesystem::path folder_;
    std::int64_t most_bytes_, page_bytes_;
    PageHash fingerprint_;
    PageNotice notice_;
    std::atomic<std::int64_t> bytes_{0};
    std::atomic<bool> writable_{true};
    std::mutex mutex_;  // guards what was complained about
    std::set<std::string> complained_;
};

}  // namespace foresay::core
