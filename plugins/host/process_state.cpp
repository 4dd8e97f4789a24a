#include "plugins/host/process_state.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <system_error>

extern "C" char** environ;

namespace foresay::plugins {
namespace {

namespace fs = std::filesystem;

std::size_t entries(const char* folder) {
    std::error_code error;
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder, error), fs::directory_iterator()));
}

std::string handler(int number) {
    struct sigaction action {};
    if (::sigaction(number, nullptr, &action) != 0) return {};
    char text[64];
    std::snprintf(text, sizeof text, "%p %d", reinterpret_cast<void*>(action.sa_sigaction), action.sa_flags);
    return text;
}

}  // namespace

std::size_t open_files() { return entries("/proc/self/fd"); }

ProcessState::ProcessState() {
    const char* locale = std::setlocale(LC_ALL, nullptr);
    locale_ = locale != nullptr ? locale : "";
    std::error_code ignored;
    folder_ = fs::current_path(ignored).string();
    for (char** one = environ; one != nullptr && *one != nullptr; ++one) environment_.emplace_back(*one);
    std::ranges::sort(environment_);
    for (int number = 1; number < SIGRTMAX; ++number) handlers_.push_back(handler(number));
    threads_ = entries("/proc/self/task");
    std::fflush(nullptr);
    written_ = ::lseek(STDOUT_FILENO, 0, SEEK_CUR);
}

std::string ProcessState::changed() const {
    const ProcessState now;
    if (now.locale_ != locale_) return "the locale";
    if (now.folder_ != folder_) return "the current folder";
    if (now.environment_ != environment_) return "the environment";
    if (now.handlers_ != handlers_) {
        const auto [a, b] = std::ranges::mismatch(now.handlers_, handlers_);
        const int number = static_cast<int>(a - now.handlers_.begin()) + 1;
        return std::string("the handler of the signal ") + ::strsignal(number);
    }
    if (now.written_ != written_) return "standard output, by writing to it";
    if (now.threads_ > threads_) return "the process: it has threads of its own";
    return {};
}

}  // namespace foresay::plugins
