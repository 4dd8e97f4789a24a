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

void ScreenText::resize(std::size_t columns, std::size_t rows) {
    rows_ = rows;
    if (columns == columns_ || columns == 0) return;
    columns_ = columns;
    // Assumes that the terminal wraps the line again. One that does not is a line off until the next line break.
    place_.column = place_.cells % columns_;
    can_go_back_ = false;
    sure_ = place_.cells == 0;
}

// Moves the cursor over `text` and adds what to write to `shown`. True when the cursor leaves its line.
bool ScreenText::advance(std::string_view text, std::string& shown) {
    bool left = false;
    const auto next_row = [&] {
        place_.column = 0;
        ++place_.row;
        left = true;
    };
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t begin = at;
        const char32_t character = next_character(text, at);
        if (character == U'\t' && place_.column == columns_) {
            // Terminals disagree about a tab past the last column, so write blanks.
            next_row();
            place_.column = std::min(kTabStop, columns_ - 1);
            place_.cells += place_.column;
            shown.append(place_.column, ' ');
            continue;
        }
        shown += text.substr(begin, at - begin);
        if (character == U'\n') {
            next_row();
            place_.cells = 0;
            sure_ = true;
        } else if (character == U'\t') {
            const std::size_t stop = std::min((place_.column / kTabStop + 1) * kTabStop, columns_ - 1);
            if (stop > place_.column) place_.cells += stop - place_.column;
            place_.column = std::max(place_.column, stop);
        } else {
            const std::size_t width = columns_of(character);
            if (place_.column + width > columns_) next_row();
            place_.column += width;
            place_.cells += width;
        }
    }
    return left;
}

// Moves a cursor that is past the last column to the next line. Without that the line below would be off by one.
std::string ScreenText::make_room() {
    if (place_.column < columns_) return {};
    place_.column = 0;
    ++place_.row;
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
    if (place_.column > 0) out += "\x1b[" + std::to_string(place_.column) + "C";
    return out;
}

// Leaves out a line break that make_room() has already written.
void ScreenText::skip_line_break(std::string_view& text) {
    if (!wrapped_ || !text.starts_with('\n')) return;
    text.remove_prefix(1);
    place_.cells = 0;
    sure_ = true;
    if (text.empty()) wrapped_ = false;
}

// `shown` with the line below drawn again where it has to be. `left`: the answer moved to another line.
std::string ScreenText::with_line_below(std::string shown, bool left) {
    if (typed_.empty() || (!left && place_.column < columns_)) return shown;
    // Synchronised output: terminals that know it draw one frame, others ignore the marks.
    return "\x1b[?2026h\x1b[J" + std::move(shown) + line_below() + "\x1b[?2026l";
}

std::string ScreenText::add(std::string_view text, bool tinted) {
    skip_line_break(text);
    if (text.empty()) return {};
    wrapped_ = false;
    std::string shown;
    if (tinted) shown += colours_ ? "\x1b[32m" : "\x1b[4m";
    const bool left = advance(text, shown);
    if (tinted) shown += "\x1b[0m";
    return with_line_below(std::move(shown), left);
}

// Moves the cursor to the beginning of the undecided text.
std::string ScreenText::go_back() {
    if (undecided_begin_.column == columns_) {  // the text began on the next row
        undecided_begin_.column = 0;
        ++undecided_begin_.row;
    }
    std::string out = "\r";
    const std::size_t up = place_.row - undecided_begin_.row;
    if (up > 0) out += "\x1b[" + std::to_string(up) + "A";
    if (undecided_begin_.column > 0) out += "\x1b[" + std::to_string(undecided_begin_.column) + "C";
    place_ = undecided_begin_;
    wrapped_ = false;
    return out;
}

std::string ScreenText::add_code(const Runs& decided, std::string_view undecided) {
    std::size_t known = undecided_.size();  // bytes that are on the screen already, plain
    std::size_t same = 0;                   // of them, those that stay plain
    for (const Run& run : decided) {
        if (run.look != Look::plain) break;
        same += run.text.size();
    }
    std::string shown;
    const bool on_screen = place_.row - undecided_begin_.row + 2 < rows_;
    if (same < known && can_go_back_ && on_screen && !decided.empty()) {
        shown = go_back();
        known = 0;
    }
    bool left = known == 0 && !shown.empty();
    for (const Run& run : decided) {
        std::string_view text = run.text;
        const std::size_t skipped = std::min(known, text.size());
        text.remove_prefix(skipped);
        known -= skipped;
        skip_line_break(text);
        if (text.empty()) continue;
        wrapped_ = false;
        shown += escape_of(run.look);
        left = advance(text, shown) || left;
        if (run.look != Look::plain) shown += "\x1b[0m";
    }
    if (undecided_.empty() || !decided.empty()) {
        undecided_begin_ = place_;
        can_go_back_ = known == 0 && sure_;
    }
    std::string_view text = undecided;
    text.remove_prefix(std::min(known, text.size()));
    undecided_ = undecided;
    if (!text.empty()) {
        wrapped_ = false;
        left = advance(text, shown) || left;
    }
    return shown.empty() ? shown : with_line_below(std::move(shown), left);
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
