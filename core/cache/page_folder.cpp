#include "core/cache/page_folder.h"

#include <algorithm>
#include <chrono>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/cache/page_file.h"

namespace foresay::core {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSuffix = ".page";
// Files that a program left unfinished when it ended.
constexpr auto kAbandoned = std::chrono::hours(1);
constexpr std::size_t kMostComplaints = 1000;

// Whether a file of that name is ours to delete.
bool is_page_name(const std::string& name) {
    constexpr std::size_t kDigits = 32;
    return name.size() == kDigits + std::string_view(kSuffix).size() && name.ends_with(kSuffix) &&
           name.find_first_not_of("0123456789abcdef") == kDigits;
}

}  // namespace

PageFolder::PageFolder(fs::path folder, std::int64_t most_bytes, std::string_view fingerprint, std::int64_t page_bytes,
                       PageNotice notice)
    : folder_(std::move(folder)),
      most_bytes_(most_bytes),
      page_bytes_(page_bytes),
      fingerprint_(page_hash(fingerprint)),
      notice_(std::move(notice)) {
    std::error_code problem;
    if (fs::create_directories(folder_, problem)) {
        // Pages tell what was read and written.
        fs::permissions(folder_, fs::perms::owner_all, problem);
    }
    if (!fs::is_directory(folder_, problem)) {
        stop_writing(problem ? problem.message() : "it is no folder");
        return;
    }
    make_room();
}

fs::path PageFolder::file_of(const PageId& id) const {
    const PageHash both[] = {fingerprint_, id.hash()};
    return folder_ / (page_hash(std::as_bytes(std::span(both))).text() + kSuffix);
}

void PageFolder::complain(const std::string& file, const std::string& sentence) {
    {
        const std::scoped_lock lock(mutex_);
        if (complained_.size() >= kMostComplaints || !complained_.insert(file).second) return;
    }
    if (notice_) notice_(sentence);
}

void PageFolder::stop_writing(const std::string& why) {
    if (!writable_.exchange(false)) return;
    complain(folder_.string(), "pages are not kept in " + folder_.string() + " any more: " + why);
}

bool PageFolder::has(const PageId& id) const {
    std::error_code ignored;
    return fs::is_regular_file(file_of(id), ignored);
}

bool PageFolder::load(const PageId& id, std::span<std::byte> to) {
    const fs::path path = file_of(id);
    std::error_code ignored;
    if (!fs::exists(path, ignored)) return false;
    try {
        const OpenPageFile file(path);
        const PageFileReader reader(file.size(), file.reader());
        const PageFileHeader& header = reader.header();
        if (header.fingerprint != fingerprint_ || header.page_bytes != page_bytes_)
            throw Error("it belongs to another model, device or format");
        if (header.parent != id.parent || header.decode_rows != std::vector(1, id.decode_rows) ||
            !std::ranges::equal(header.tokens, id.tokens))
            throw Error("it holds another text than its name says");
        reader.read_page(0, to);
    } catch (const Error& problem) {
        // Another program may have deleted it between the two looks.
        if (fs::exists(path, ignored))
            complain(path.string(), "the page file " + path.string() + " is not used: " + problem.what());
        return false;
    }
    fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
    return true;
}

bool PageFolder::write(const PageId& id, std::span<const std::byte> bytes) {
    if (!writable_) return false;
    const fs::path path = file_of(id);
    try {
        std::error_code ignored;
        const auto before = static_cast<std::int64_t>(fs::exists(path, ignored) ? fs::file_size(path, ignored) : 0);
        const std::int64_t written = write_page_file(path,
                                                     {.page_bytes = page_bytes_,
                                                      .fingerprint = fingerprint_,
                                                      .parent = id.parent,
                                                      .tokens = {id.tokens.begin(), id.tokens.end()},
                                                      .decode_rows = {id.decode_rows}},
                                                     [&](std::size_t) { return bytes; });
        // The kernel's own time is that of its last tick, which many pages share.
        fs::last_write_time(path, fs::file_time_type::clock::now(), ignored);
        if ((bytes_ += written - std::max<std::int64_t>(0, before)) > most_bytes_) make_room();
    } catch (const Error& problem) {
        stop_writing(problem.what());
        return false;
    }
    return true;
}

// Counts the bytes of all programs' files. When they are too many, deletes those used longest ago, and some more, so
// that the folder is not listed for each page.
void PageFolder::make_room() {
    struct File {
        fs::path path;
        fs::file_time_type used;
        std::int64_t bytes = 0;
    };
    std::vector<File> files;
    std::int64_t all = 0;
    std::error_code problem;
    for (fs::directory_iterator entry(folder_, problem), end; !problem && entry != end; entry.increment(problem)) {
        std::error_code gone;
        File file{entry->path(), entry->last_write_time(gone), 0};
        const std::string name = file.path.filename().string();
        if (name.starts_with(kUnfinishedPageFile)) {
            if (!gone && fs::file_time_type::clock::now() - file.used > kAbandoned) fs::remove(file.path, gone);
            continue;
        }
        if (!is_page_name(name) || !entry->is_regular_file(gone)) continue;
        file.bytes = static_cast<std::int64_t>(entry->file_size(gone));
        if (gone) continue;
        all += file.bytes;
        files.push_back(std::move(file));
    }
    if (all > most_bytes_) {
        // All programs that make room at once choose the same files.
        std::ranges::sort(files, {}, [](const File& file) { return std::tie(file.used, file.path); });
        for (const File& file : files) {
            if (all <= most_bytes_ - most_bytes_ / 8) break;
            std::error_code gone;
            fs::remove(file.path, gone);
            all -= file.bytes;
        }
    }
    bytes_ = all;
}

}  // namespace foresay::core
