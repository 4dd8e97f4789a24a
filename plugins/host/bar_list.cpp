#include "plugins/host/bar_list.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <boost/crc.hpp>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fstream>
#include <iterator>
#include <optional>
#include <utility>

#include "base/error.h"

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxBars = 1000;

// CRC-64 as in ECMA-182.
using Crc64 = boost::crc_optimal<64, 0x42F0E1EBA9EA3693, 0xFFFFFFFFFFFFFFFF, 0xFFFFFFFFFFFFFFFF, true, true>;

std::string escaped(const std::string& text) {
    std::string out;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte != 0x7f && c != '%') {
            out += c;
            continue;
        }
        std::array<char, 4> code{};
        std::snprintf(code.data(), code.size(), "%%%02X", static_cast<unsigned>(byte));
        out += code.data();
    }
    return out;
}

template <typename Number>
std::optional<Number> number(std::string_view text, int base) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value, base);
    if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return value;
}

std::string unescaped(std::string_view text) {
    std::string out;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const auto code = text[i] == '%' ? number<unsigned>(text.substr(i + 1, 2), 16) : std::nullopt;
        out += code ? static_cast<char>(*code) : text[i];
        if (code) i += 2;
    }
    return out;
}

std::string line_of(const Bar& bar) {
    std::array<char, 80> head{};
    std::snprintf(head.data(), head.size(), "%016llx\t%llu\t%lld\t",
                  static_cast<unsigned long long>(bar.build.checksum), static_cast<unsigned long long>(bar.build.size),
                  static_cast<long long>(bar.since_s));
    return head.data() + escaped(bar.reason) + "\t" + escaped(bar.path.string()) + "\n";
}

std::optional<Bar> bar_of(std::string_view line) {
    std::array<std::string_view, 5> fields;
    for (std::size_t i = 0; i < fields.size(); ++i) {
        const std::size_t end = i + 1 < fields.size() ? line.find('\t') : line.size();
        if (end == line.npos) return std::nullopt;
        fields[i] = line.substr(0, end);
        line.remove_prefix(std::min(end + 1, line.size()));
    }
    const auto checksum = number<std::uint64_t>(fields[0], 16);
    const auto size = number<std::uint64_t>(fields[1], 10);
    const auto since = number<std::int64_t>(fields[2], 10);
    if (!checksum || !size || !since || fields[4].empty()) return std::nullopt;
    return Bar{{*checksum, *size}, *since, unescaped(fields[3]), unescaped(fields[4])};
}

// Writes all of `text`; empty, or what went wrong.
std::string write_file(const fs::path& path, int flags, const std::string& text) {
    const FileSizeSignalHeld held;
    const int handle = ::open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | flags, 0600);
    if (handle < 0) return std::strerror(errno);
    const ssize_t wrote = ::write(handle, text.data(), text.size());
    const int problem = errno;
    ::close(handle);
    if (wrote == static_cast<ssize_t>(text.size())) return {};
    return wrote < 0 ? std::strerror(problem) : std::strerror(ENOSPC);
}

}  // namespace

Build build_of(std::span<const std::byte> contents) {
    Crc64 crc;
    crc.process_bytes(contents.data(), contents.size());
    return {crc.checksum(), contents.size()};
}

BarList::BarList(fs::path file) : file_(std::move(file)) { refresh(); }

void BarList::refresh() {
    if (file_.empty()) return;
    bars_ = unwritten_;
    std::ifstream stream(file_);
    for (std::string line; bars_.size() < kMaxBars && std::getline(stream, line);) {
        const std::optional<Bar> bar = bar_of(line);
        if (bar && find(bar->build) == nullptr) bars_.push_back(*bar);
    }
}

const Bar* BarList::find(const Build& build) const {
    const auto found = std::find_if(bars_.begin(), bars_.end(), [&](const Bar& bar) { return bar.build == build; });
    return found == bars_.end() ? nullptr : &*found;
}

std::string BarList::add(const Bar& bar) {
    if (file_.empty() || find(bar.build) != nullptr) return {};
    bars_.push_back(bar);
    // The newline first ends a line that a full disk has cut off.
    std::string problem = write_file(file_, O_APPEND, "\n" + line_of(bar));
    if (!problem.empty()) unwritten_.push_back(bar);
    return problem;
}

std::vector<Bar> BarList::remove(const std::function<bool(const Bar&)>& which) {
    std::vector<Bar> removed, kept;
    for (const Bar& bar : bars_) (which(bar) ? removed : kept).push_back(bar);
    if (removed.empty()) return removed;
    std::string text;
    for (const Bar& bar : kept) text += line_of(bar);
    fs::path fresh = file_;
    fresh += ".new";
    std::string problem = write_file(fresh, O_TRUNC, text);
    if (problem.empty() && ::rename(fresh.c_str(), file_.c_str()) != 0) problem = std::strerror(errno);
    if (!problem.empty()) {
        ::unlink(fresh.c_str());
        throw Error("cannot write " + file_.string() + ": " + problem);
    }
    bars_ = std::move(kept);
    unwritten_.clear();  // the file holds all of them now
    return removed;
}

std::string time_text(std::int64_t since_s) {
    const auto time = static_cast<std::time_t>(since_s);
    std::tm parts{};
    if (::gmtime_r(&time, &parts) == nullptr) return "an unknown time";
    std::array<char, 40> text{};
    std::strftime(text.data(), text.size(), "%Y-%m-%d %H:%M UTC", &parts);
    return text.data();
}

namespace {
sigset_t file_size_signal() {
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGXFSZ);
    return set;
}
}  // namespace

FileSizeSignalHeld::FileSizeSignalHeld() {
    const sigset_t held = file_size_signal();
    sigset_t before;
    pthread_sigmask(SIG_BLOCK, &held, &before);
    was_blocked_ = sigismember(&before, SIGXFSZ) == 1;
}

FileSizeSignalHeld::~FileSizeSignalHeld() {
    if (was_blocked_) return;
    const sigset_t held = file_size_signal();
    const timespec at_once{};
    while (::sigtimedwait(&held, nullptr, &at_once) > 0) {
    }
    pthread_sigmask(SIG_UNBLOCK, &held, nullptr);
}

}  // namespace foresay::plugins
