// app/terminal.h: the terminal as a device: its modes, its width, the width of text on it.
//
// Threads:  give_terminal_back() may be called from a signal handler; the modes have one caller, the widths any.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

// Whether the terminal on standard output understands cursor movements: TERM is set and not "dumb".
bool terminal_moves();

// As long as it lives, keys arrive one by one and are not echoed, pastes are bracketed, and Ctrl-C is still a signal.
// Does nothing where there is no such terminal on standard input and output. One at a time.
class TerminalMode {
public:
    TerminalMode();
    ~TerminalMode();
    TerminalMode(const TerminalMode&) = delete;
    TerminalMode& operator=(const TerminalMode&) = delete;
};

// As long as it lives, the terminal is as it was before TerminalMode: for another program.
class TerminalLoan {
public:
    TerminalLoan();
    ~TerminalLoan();
    TerminalLoan(const TerminalLoan&) = delete;
    TerminalLoan& operator=(const TerminalLoan&) = delete;

private:
    bool taken_;
};

// Undoes what TerminalMode has changed, if anything is changed. Safe in a signal handler.
void give_terminal_back();
// Sets the modes of a living TerminalMode again: a shell changes them while the program is stopped (Ctrl-Z).
void renew_terminal_mode();

std::size_t terminal_columns();

// Columns that a character takes; control characters take none.
std::size_t columns_of(char32_t character);
// Columns that UTF-8 text takes on one line.
std::size_t columns_of(std::string_view text);
// `text` cut into lines of at most `columns` columns between words, each `indent` columns in. Blank lines and indented
// ones stay as they are, and so does a word that is longer than a line.
std::string wrapped(std::string_view text, std::size_t columns, std::size_t indent = 0);
// Decodes the character at `at` and moves behind it. Invalid bytes are U+FFFD, one by one.
char32_t next_character(std::string_view text, std::size_t& at);

}  // namespace foresay::app
