// app/repl/screen_text.h: the bytes that show a growing answer on a terminal, with the typed keys on a line below it.
//
// The cursor stays at the end of the answer. Only changes are written, to avoid flicker: the line below is redrawn only
// when the answer moves to another line or when more is typed. A word whose colour is not known yet is shown plain, and
// written again in its colour once that is known.
//
// Threads:  plain data; returns bytes and writes nothing.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "app/highlight/look.h"

namespace foresay::app {

class ScreenText {
public:
    // `colours`: drafted text is green and the line below dim; otherwise drafted text is underlined.
    ScreenText(std::size_t columns, bool colours, std::size_t rows = 24)
        : columns_(columns), rows_(rows), colours_(colours) {}

    // The terminal has another size.
    void resize(std::size_t columns, std::size_t rows = 24);
    // Adds to the answer; `tinted` marks the text. Control characters must have been replaced.
    std::string add(std::string_view text, bool tinted);
    // Adds code in its colours. `decided` begins with the text that the last call showed as `undecided`; `undecided`
    // follows it, holds no newline, and is shown plain. It stays plain if the terminal has become another size in the
    // same line, or if it takes more rows than the terminal has.
    std::string add_code(const Runs& decided, std::string_view undecided);
    // Shows `line` below the answer; empty removes it.
    std::string show_typed(std::string_view line);
    // Removes the line below.
    std::string finish();

    // Whether the answer's last line is not empty.
    bool line_open() const { return place_.cells > 0 && !wrapped_; }

private:
    // Where text goes.
    struct Place {
        std::size_t column = 0;  // of the cursor; equal to columns_ when the next character wraps
        std::size_t cells = 0;   // since the last line break
        std::size_t row = 0;     // counted from any row
    };
    bool advance(std::string_view text, std::string& shown);
    std::string with_line_below(std::string shown, bool left);
    std::string go_back();
    void skip_line_break(std::string_view& text);
    std::string line_below();
    std::string make_room();

    std::size_t columns_, rows_;
    bool colours_;
    Place place_;
    bool wrapped_ = false;   // make_room() moved the cursor to a new line before the text did
    std::string typed_;      // the line below, as shown
    std::string undecided_;  // shown plain, at the end of the answer
    Place undecided_begin_;
    bool can_go_back_ = true;  // undecided_begin_ is known
    bool sure_ = true;         // of the column: the terminal has not changed since the line began
};

// The last part of `text` that fits into `columns`.
std::string_view tail(std::string_view text, std::size_t columns);

// An approximate view of keys typed ahead (raw bytes of a terminal): applies Backspace, Ctrl-U and Ctrl-W, and shows
// Enter as an arrow.
std::string typed_look(std::string_view keys);

}  // namespace foresay::app
