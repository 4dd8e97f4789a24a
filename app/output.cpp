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

Colours chosen = Colours::automatic;

bool is_set(const char* variable) {
    const char* value = std::getenv(variable);
    return value != nullptr && *value != '\0';
}

bool colours_on(bool terminal) {
    if (chosen != Colours::automatic) return chosen == Colours::always;
    if (is_set("NO_COLOR")) return false;
    if (is_set("CLICOLOR_FORCE") && std::strcmp(std::getenv("CLICOLOR_FORCE"), "0") != 0) return true;
    const char* term = std::getenv("TERM");
    return terminal && term && std::strcmp(term, "dumb") != 0;
}

}  // namespace

void choose_colours(Colours when) { chosen = when; }
bool colourful_output() { return colours_on(stdout_is_terminal()); }
bool colourful_errors() { return colours_on(stderr_is_terminal()); }

std::string dim(std::string_view text) {
    return colourful_errors() ? "\x1b[2m" + std::string(text) + "\x1b[0m" : std::string(text);
}

}  // namespace foresay::app
