// app/repl/screen_text.h: the bytes that show a growing answer on a terminal, with the typed keys on a line below it.
//
// The cursor stays at the end of the answer. Only changes are written, to avoid flicker: the line below is redrawn only
// when the answer moves to another line or when more is typed.
//
// Threads:  plain data; returns bytes and writes nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

class ScreenText {
public:
    // `colours`: drafted text is green and the line below dim; otherwise drafted text is underlined.
    ScreenText(std::size_t columns, bool colours) : columns_(columns), colours_(colours) {}

    // The terminal has another size.
    void resize(std::size_t columns);
    // Adds to the answer; `tinted` marks the text. Control characters must have been replaced.
    std::string add(std::string_view text, bool tinted);
    // Shows `line` below the answer; empty removes it.
    std::string show_typed(std::string_view line);
    // Removes the line below.
    std::string finish();

    // Whether the answer's last line is not empty.
    bool line_open() const { return cells_ > 0 && !wrapped_; }

private:
    bool advance(std::string_view text, std::string& shown);
    std::string line_below();
    std::string make_room();

    std::size_t columns_;
    bool colours_;
    std::size_t column_ = 0;  // of the cursor; equal to columns_ when the next character wraps
    std::size_t cells_ = 0;   // since the last line break
    bool wrapped_ = false;    // make_room() moved the cursor to a new line before the text did
    std::string typed_;       // the line below, as shown
};

// The last part of `text` that fits into `columns`.
std::string_view tail(std::string_view text, std::size_t columns);

// An approximate view of keys typed ahead (raw bytes of a terminal): applies Backspace, Ctrl-U and Ctrl-W, and shows
// Enter as an arrow.
std::string typed_look(std::string_view keys);

}  // namespace foresay::app
