// app/repl/screen_text.h: what to write to a terminal so that an answer grows on it while a line below shows what is
// being typed.
//
// The cursor stays at the end of the answer. Only what changes is written, so that nothing flickers: the line below is
// drawn again only when the answer moves to another line or when more was typed.
//
// Threads:  plain data; returns bytes and writes none.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::app {

class ScreenText {
public:
    // `colours`: dim and tinted text is allowed; else it is plain and underlined.
    ScreenText(std::size_t columns, bool colours) : columns_(columns), colours_(colours) {}

    // The terminal has another size.
    void resize(std::size_t columns);
    // More of the answer; `tinted` marks it. Control characters must have been replaced.
    std::string add(std::string_view text, bool tinted);
    // The line below; empty: there is none.
    std::string show_typed(std::string_view line);
    // Removes the line below.
    std::string finish();

    // Whether the answer's last line has something on it.
    bool line_open() const { return cells_ > 0 && !wrapped_; }

private:
    bool advance(std::string_view text, std::string& shown);
    std::string line_below();
    std::string make_room();

    std::size_t columns_;
    bool colours_;
    std::size_t column_ = 0;  // of the cursor; equal to columns_ when the next character goes to the next line
    std::size_t cells_ = 0;   // since the last line break
    bool wrapped_ = false;    // the cursor was moved to a new line that the text did not ask for yet
    std::string typed_;       // the line below, as shown
};

// The last part of `text` that fits into `columns`.
std::string_view tail(std::string_view text, std::size_t columns);

// What keys typed ahead (raw bytes of a terminal) amount to, near enough for a look: text with the last of what
// was deleted gone, and an arrow where Enter was pressed.
std::string typed_look(std::string_view keys);

}  // namespace foresay::app
