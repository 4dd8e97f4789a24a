// app/terminal.h: the terminal's modes and size, and the width of text.
//
// Threads:  give_terminal_back() is safe in a signal handler; the modes have one caller; the widths are thread-safe.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

// Whether the terminal on standard output understands cursor movements: TERM is set and not "dumb".
bool terminal_moves();

// While it exists, keys arrive one by one without echo, Enter as \r and Ctrl-J as \n, pastes are bracketed, and Ctrl-C
// is still a signal. Does nothing unless standard input and output are such a terminal. At most one at a time.
class TerminalMode {
public:
    TerminalMode();
    ~TerminalMode();
    TerminalMode(const TerminalMode&) = delete;
    TerminalMode& operator=(const TerminalMode&) = delete;
};

// While it exists, the terminal has the modes from before TerminalMode, for another program to use.
class TerminalLoan {
public:
    TerminalLoan();
    ~TerminalLoan();
    TerminalLoan(const TerminalLoan&) = delete;
    TerminalLoan& operator=(const TerminalLoan&) = delete;

private:
    bool taken_;
};

// Restores the modes from before TerminalMode, if there is one. Safe in a signal handler.
void give_terminal_back();
// Sets the modes of the TerminalMode again, because a shell changes them while the program is stopped (Ctrl-Z).
void renew_terminal_mode();

std::size_t terminal_columns();
std::size_t terminal_rows();

// Columns that a character takes; control characters take none.
std::size_t columns_of(char32_t character);
// Columns that UTF-8 text takes on one line.
std::size_t columns_of(std::string_view text);
// `text` padded with blanks to `width` bytes; at least one blank follows it.
std::string padded(const std::string& text, std::size_t width);
// Wraps `text` between words to at most `columns` columns, each line indented by `indent`. Empty and indented lines
// stay as they are, and a word longer than a line is not broken.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);
// Where the last character of `text` begins, as a reader counts characters: with its combining marks, joined emoji and
// the like (an extended grapheme cluster of Unicode). 0 if `text` is empty.
std::size_t last_character(std::string_view text);
// Where the first character ends, counted likewise.
std::size_t first_character(std::string_view text);
// Decodes the character at `at` and advances `at` past it. An error (core/text/utf8.h) yields U+FFFD.
char32_t next_character(std::string_view text, std::size_t& at);

}  // namespace foresay::app
