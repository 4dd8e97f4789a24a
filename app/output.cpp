#include "app/output.h"

#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

namespace foresay::app {

namespace {

// 0, or the errno of a write that failed.
int write_all(int descriptor, std::string_view text) {
    while (!text.empty()) {
        const ssize_t wrote = ::write(descriptor, text.data(), text.size());
        if (wrote >= 0) {
            text.remove_prefix(static_cast<std::size_t>(wrote));
        } else if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

}  // namespace

void print(std::string_view text) {
    const int problem = write_all(STDOUT_FILENO, text);
    if (problem == EPIPE) throw OutputClosed();
    if (problem != 0) throw OutputFailed(std::string("cannot write to standard output: ") + std::strerror(problem));
}

void say(std::string_view text) { write_all(STDERR_FILENO, text); }

std::string printable(std::string_view text) {
    std::string out(text);
    for (std::size_t i = 0; i < out.size(); ++i) {
        const auto byte = static_cast<unsigned char>(out[i]);
        if ((byte < 0x20 && out[i] != '\n' && out[i] != '\t') || byte == 0x7f) out[i] = '?';
        // U+0080 to U+009F in UTF-8: some terminals treat them as control characters, too.
        const bool c1 = byte == 0xc2 && i + 1 < out.size() && static_cast<unsigned char>(out[i + 1]) < 0xa0;
        if (c1) out.replace(i, 2, "?");
    }
    return out;
}

void complain(std::string_view text) { say(printable(text) + "\n"); }

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

namespace {

bool colours_wanted() {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return (!no_color || !*no_color) && term && std::strcmp(term, "dumb") != 0;
}

}  // namespace

bool colourful_output() { return stdout_is_terminal() && colours_wanted(); }

bool colourful_messages() { return stderr_is_terminal() && colours_wanted(); }

std::string dim(std::string_view text) {
    if (!colourful_messages()) return std::string(text);
    return "\x1b[2m" + std::string(text) + "\x1b[0m";
}

}  // namespace foresay::app
