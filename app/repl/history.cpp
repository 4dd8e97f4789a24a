#include "app/repl/history.h"

#ifdef FORESAY_HAVE_LIBEDIT

#include <fcntl.h>
#include <histedit.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <string_view>
#include <utility>

#include "app/files.h"
#include "app/output.h"

namespace foresay::app {

namespace {

constexpr int kEntries = 1000;
constexpr std::string_view kFirstLine = "_HiStOrY_V2_\n";

// `entries` in libedit's file format; empty, with errno set, if that fails. libedit writes only to a file with a
// descriptor. This one is in memory, so that it needs no room on a disk.
std::string saved(::History* entries) {
    const int descriptor = ::memfd_create("history", MFD_CLOEXEC);
    if (descriptor < 0) return {};
    std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(::fdopen(descriptor, "w+"), std::fclose);
    if (!file) {
        ::close(descriptor);
        return {};
    }
    HistEvent event;
    if (::history(entries, &event, H_SAVE_FP, file.get()) < 0 || std::fflush(file.get()) != 0) {
        const int problem = errno;
        file.reset();
        errno = problem;
        return {};
    }
    std::rewind(file.get());
    std::string text;
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), file.get()))
        text.append(chunk.data(), got);
    return text;
}

// One entry in that format.
std::string saved(const std::string& entry) {
    ::History* alone = ::history_init();
    HistEvent event;
    ::history(alone, &event, H_SETSIZE, 1);
    ::history(alone, &event, H_ENTER, entry.c_str());
    std::string text = saved(alone);
    ::history_end(alone);
    return text;
}

// Writes with one call, so that appends of several processes do not interleave. False, with errno set, if the text
// could not be written as a whole; an append then leaves the file as it was.
bool write_file(const std::filesystem::path& path, int flags, const std::string& text) {
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NONBLOCK | flags, 0600);
    if (descriptor < 0) return false;
    ::fchmod(descriptor, 0600);  // entries are private; an older file may have other permissions
    const ssize_t put = ::write(descriptor, text.data(), text.size());
    int problem = put < 0 ? errno : 0;
    if (put >= 0 && put < static_cast<ssize_t>(text.size())) {
        problem = ENOSPC;
        const off_t end = ::lseek(descriptor, 0, SEEK_CUR);  // after what was written; O_APPEND moves it there
        if ((flags & O_APPEND) != 0 && end >= put && ::ftruncate(descriptor, end - put) != 0) problem = errno;
    }
    ::close(descriptor);
    errno = problem;
    return problem == 0;
}

}  // namespace

EntryHistory::EntryHistory(Blocks& blocks) : blocks_(blocks), entries_(::history_init()) {
    HistEvent event;
    ::history(entries_, &event, H_SETSIZE, kEntries);
    ::history(entries_, &event, H_SETUNIQUE, 1);
    const std::filesystem::path folder = state_folder();
    if (!folder.empty()) path_ = folder / "history";
    load();
}

EntryHistory::~EntryHistory() { ::history_end(entries_); }

void EntryHistory::load() {
    std::error_code ignored;
    if (path_.empty() || !std::filesystem::is_regular_file(path_, ignored)) return;
    HistEvent event;
    ::history(entries_, &event, H_LOAD, path_.c_str());
    std::ifstream file(path_, std::ios::binary);
    const auto lines = std::count(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>(), '\n');
    if (lines <= 2 * kEntries) return;
    const std::filesystem::path shorter = path_.string() + "." + std::to_string(::getpid());
    if (write_file(shorter, O_TRUNC, saved(entries_))) std::filesystem::rename(shorter, path_, ignored);
    std::filesystem::remove(shorter, ignored);
}

void EntryHistory::remember(const std::string& entry) {
    if (entry.empty() || entry.starts_with(' ') || entry == last_) return;
    last_ = entry;
    HistEvent event;
    ::history(entries_, &event, H_ENTER, entry.c_str());
    if (path_.empty()) return;
    std::error_code ignored;
    const bool first = !std::filesystem::exists(path_, ignored);
    std::string text = saved(entry);
    const bool whole = !text.empty();
    if (text.starts_with(kFirstLine) && !first) text.erase(0, kFirstLine.size());
    if ((whole && write_file(path_, O_APPEND, text)) || std::exchange(warned_, true)) return;
    const std::string problem = std::strerror(errno);
    complain("the history is not kept: cannot write " + path_.string() + ": " + problem);
}

std::optional<EntrySearch::Found> EntryHistory::find(const std::string& part, std::size_t index) const {
    HistEvent event;
    std::size_t at = 0;
    for (int status = ::history(entries_, &event, H_FIRST); status >= 0;
         status = ::history(entries_, &event, H_NEXT), ++at) {
        if (at >= index && event.str && std::strstr(event.str, part.c_str())) return {{event.str, at}};
    }
    return std::nullopt;
}

std::string EntryHistory::shown(const std::string& entry) const {
    // libedit would drop line breaks at the end of an entry; a label keeps them.
    const bool fits = !Blocks::is_long(entry) && !entry.ends_with('\n');
    return fits ? entry : blocks_.label(entry);
}

int EntryHistory::look(void* self, HistEvent* event, int operation, ...) {
    auto* history = static_cast<EntryHistory*>(self);
    const int status = ::history(history->entries_, event, operation, nullptr);
    if (status < 0 || !event->str) return status;
    history->shown_ = history->shown(event->str);
    event->str = history->shown_.c_str();
    return status;
}

}  // namespace foresay::app

#endif
