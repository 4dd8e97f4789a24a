#include "app/terminal.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <atomic>
#include <clocale>
#include <cstdlib>
#include <cstring>
#include <cwchar>
#include <sstream>
#include <vector>

#include "app/output.h"
#include "core/text/splitter.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

constexpr std::string_view kPastesBracketed = "\x1b[?2004h";
constexpr std::string_view kPastesPlain = "\x1b[?2004l";

termios before{}, keys{};
std::atomic<bool> changed{false};

void write_quietly(std::string_view text) {
    const ssize_t ignored = ::write(STDOUT_FILENO, text.data(), text.size());
    static_cast<void>(ignored);  // the terminal may be gone
}

}  // namespace

bool terminal_moves() {
    const char* term = std::getenv("TERM");
    return stdout_is_terminal() && term && *term && std::strcmp(term, "dumb") != 0;
}

namespace {

void take_terminal() {
    if (changed || !stdin_is_terminal() || !terminal_moves() || ::tcgetattr(STDIN_FILENO, &before) != 0) return;
    keys = before;
    keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    keys.c_iflag &= ~static_cast<tcflag_t>(ICRNL | INLCR | IGNCR);
    keys.c_cc[VMIN] = 1;
    keys.c_cc[VTIME] = 0;
    if (::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys) != 0) return;
    changed = true;
    write_quietly(kPastesBracketed);
}

}  // namespace

TerminalMode::TerminalMode() {
    // wcwidth() uses the locale, and our text is UTF-8 in any locale.
    if (!std::setlocale(LC_CTYPE, "") || std::strstr(std::setlocale(LC_CTYPE, nullptr), "UTF-8") == nullptr) {
        std::setlocale(LC_CTYPE, "C.UTF-8");
    }
    take_terminal();
}
TerminalMode::~TerminalMode() { give_terminal_back(); }

TerminalLoan::TerminalLoan() : taken_(changed) { give_terminal_back(); }
TerminalLoan::~TerminalLoan() {
    if (taken_) take_terminal();
}

void give_terminal_back() {
    if (!changed.exchange(false)) return;
    write_quietly(kPastesPlain);
    ::tcsetattr(STDIN_FILENO, TCSANOW, &before);
}

void renew_terminal_mode() {
    if (!changed) return;
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &keys);
    write_quietly(kPastesBracketed);
}

std::size_t terminal_columns() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    return 80;
}

std::size_t terminal_rows() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) return size.ws_row;
    return 24;
}

char32_t next_character(std::string_view text, std::size_t& at) {
    const core::Utf8Step step = core::next_utf8(text.substr(at));
    at += step.length_bytes;
    return step.status == core::Utf8Status::valid ? step.code : U'\ufffd';
}

namespace {

// The lengths of the grapheme clusters of `text`, in bytes.
std::vector<std::size_t> clusters(std::string_view text) {
    static const core::Splitter splitter({"grapheme clusters", {{"\\X"}}}, "the line editor");
    std::vector<std::size_t> lengths;
    const auto add = [](void* to, std::string_view piece) {
        static_cast<std::vector<std::size_t>*>(to)->push_back(piece.size());
        return true;
    };
    splitter.split(text, {}, add, &lengths);
    return lengths;
}

}  // namespace

std::size_t last_character(std::string_view text) {
    const std::vector<std::size_t> lengths = clusters(text);
    return lengths.empty() ? 0 : text.size() - lengths.back();
}

std::size_t first_character(std::string_view text) {
    const std::vector<std::size_t> lengths = clusters(text);
    return lengths.empty() ? 0 : lengths.front();
}

std::size_t columns_of(char32_t character) {
    const int width = ::wcwidth(static_cast<wchar_t>(character));
    return width > 0 ? static_cast<std::size_t>(width) : 0;
}

std::size_t columns_of(std::string_view text) {
    std::size_t columns = 0;
    for (std::size_t at = 0; at < text.size();) columns += columns_of(next_character(text, at));
    return columns;
}

std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent) {
    const std::string margin(indent, ' ');
    std::string out;
    std::istringstream lines{std::string(text)};
    std::string line;
    while (std::getline(lines, line)) {
        if (line.empty() || line.starts_with(' ')) {
            out += line + "\n";
            continue;
        }
        std::istringstream words(line);
        std::string word;
        std::size_t column = 0;
        while (words >> word) {
            if (column > 0 && column + 1 + columns_of(word) > columns) {
                out += '\n';
                column = 0;
            }
            out += column > 0 ? " " : margin;
            out += word;
            column = column > 0 ? column + 1 + columns_of(word) : indent + columns_of(word);
        }
        out += '\n';
    }
    return out;
}

}  // namespace foresay::app
