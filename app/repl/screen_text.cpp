#include "app/repl/screen_text.h"

#include <algorithm>

#include "app/terminal.h"

namespace foresay::app {

namespace {

constexpr std::size_t kTabStop = 8;
constexpr std::string_view kPrompt = "> ";
constexpr std::string_view kEnter = "\u23ce ";

void erase_character(std::string& text, std::size_t start) {
    text.resize(start + last_character(std::string_view(text).substr(start)));
}

void erase_word(std::string& text, std::size_t start) {
    while (text.size() > start && text.back() == ' ') text.pop_back();
    while (text.size() > start && text.back() != ' ') text.pop_back();
}

// The end of the escape sequence that begins at `at`.
std::size_t escape_end(std::string_view keys, std::size_t at) {
    if (++at >= keys.size()) return at;
    if (keys[at] == 'O') return std::min(at + 2, keys.size());
    if (keys[at] != '[') return at + 1;
    for (++at; at < keys.size(); ++at) {
        if (keys[at] >= '@' && keys[at] <= '~') return at + 1;
    }
    return at;
}

}  // namespace

std::string_view tail(std::string_view text, std::size_t columns) {
    std::size_t wide = columns_of(text), at = 0;
    while (wide > columns) wide -= columns_of(next_character(text, at));
    return text.substr(at);
}

std::string typed_look(std::string_view keys) {
    std::string text;
    std::size_t line = 0;  // where the current line begins: lines before it cannot be deleted
    for (std::size_t at = 0; at < keys.size();) {
        const auto key = static_cast<unsigned char>(keys[at]);
        if (key == 0x1b) {
            at = escape_end(keys, at);
            continue;
        }
        ++at;
        if (key == '\r' || key == '\n') {
            text += kEnter;
            line = text.size();
        } else if (key == 0x7f || key == 0x08) {
            erase_character(text, line);
        } else if (key == 0x15) {
            text.resize(line);
        } else if (key == 0x17) {
            erase_word(text, line);
        } else if (key == '\t') {
            text += "    ";
        } else if (key >= 0x20) {
            text += static_cast<char>(key);
        }
    }
    return text;
}

void ScreenText::resize(std::size_t columns) {
    if (columns == columns_ || columns == 0) return;
    columns_ = columns;
    // Assumes that the terminal wraps the line again. One that does not is a line off until the next line break.
    column_ = cells_ % columns_;
}

// Moves the cursor over `text` and adds what to write to `shown`. True when the cursor leaves its line.
bool ScreenText::advance(std::string_view text, std::string& shown) {
    bool left = false;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t character = next_character(text, at);
        if (character == U'\t' && column_ == columns_) {
            // Terminals disagree about a tab past the last column, so write blanks.
            column_ = std::min(kTabStop, columns_ - 1);
            cells_ += column_;
            shown.append(column_, ' ');
            left = true;
            continue;
        }
        shown += text.substr(begin, at - begin);
        if (character == U'\n') {
            column_ = cells_ = 0;
            left = true;
        } else if (character == U'\t') {
            const std::size_t stop = std::min((column_ / kTabStop + 1) * kTabStop, columns_ - 1);
            if (stop > column_) cells_ += stop - column_;
            column_ = std::max(column_, stop);
        } else {
            const std::size_t width = columns_of(character);
            if (column_ + width > columns_) {
                column_ = 0;
                left = true;
            }
            column_ += width;
            cells_ += width;
        }
    }
    return left;
}

// Moves a cursor that is past the last column to the next line. Without that the line below would be off by one.
std::string ScreenText::make_room() {
    if (column_ < columns_) return {};
    column_ = 0;
    wrapped_ = true;
    return "\r\n";
}

std::string ScreenText::line_below() {
    if (typed_.empty()) return {};
    std::string out = make_room() + "\r\n";
    const std::size_t room = columns_ > kPrompt.size() + 2 ? columns_ - kPrompt.size() - 2 : 0;
    if (colours_) out += "\x1b[2m";
    out.append(kPrompt).append(tail(typed_, room));
    if (colours_) out += "\x1b[0m\x1b[7m \x1b[0m";
    out += "\x1b[K\x1b[A\r";
    if (column_ > 0) out += "\x1b[" + std::to_string(column_) + "C";
    return out;
}

std::string ScreenText::add(std::string_view text, bool tinted) {
    // make_room() has already written this line break.
    if (wrapped_ && text.starts_with('\n')) {
        text.remove_prefix(1);
        cells_ = 0;
    }
    if (text.empty()) {
        if (cells_ == 0) wrapped_ = false;
        return {};
    }
    wrapped_ = false;
    std::string shown;
    if (tinted) shown += colours_ ? "\x1b[32m" : "\x1b[4m";
    const bool left = advance(text, shown);
    if (tinted) shown += "\x1b[0m";
    if (typed_.empty() || (!left && column_ < columns_)) return shown;
    // Synchronised output: terminals that know it draw one frame, others ignore the marks.
    return "\x1b[?2026h\x1b[J" + shown + line_below() + "\x1b[?2026l";
}

std::string ScreenText::show_typed(std::string_view line) {
    if (line == typed_) return {};
    typed_ = line;
    return typed_.empty() ? "\x1b[J" : line_below();
}

std::string ScreenText::finish() {
    if (typed_.empty()) return {};
    typed_.clear();
    return "\x1b[J";
}

}  // namespace foresay::app
