// Lines edited with libedit, and the keys that do more than libedit's own: completion, pastes of several lines, line
// breaks, an external editor, lines and history on the arrow keys, and searching.
//
// libedit calls a function for each key and returns an action code from it. Characters come from read_character(),
// which libedit calls for the next one. While a search is active, every key becomes kOwnKey, which is bound to
// search_key(), so that libedit does not act on it; the bytes of the key are kept in `search_bytes_`.
#include "app/repl/line_reader.h"

#ifdef FORESAY_HAVE_LIBEDIT

#include <histedit.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

#include "app/interrupt.h"
#include "app/output.h"
#include "app/repl/blocks.h"
#include "app/repl/editor.h"
#include "app/repl/entry_search.h"
#include "app/repl/history.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMostPasted = std::size_t{16} << 20;
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::size_t kTab = 4;    // columns
constexpr wchar_t kOwnKey = 0x1f;  // Ctrl-_: stands for a key that libedit must not act on

std::wstring wide(std::string_view text) {
    std::wstring out;
    for (std::size_t at = 0; at < text.size();) out += static_cast<wchar_t>(next_character(text, at));
    return out;
}

std::string narrow(std::wstring_view text) {
    std::string out;
    for (const wchar_t character : text) core::append_utf8(static_cast<char32_t>(character), out);
    return out;
}

// Where the line of `text` begins that `place` is in.
std::size_t line_start(std::wstring_view text, std::size_t place) {
    const std::size_t line_break = text.substr(0, place).find_last_of(L'\n');
    return line_break == text.npos ? 0 : line_break + 1;
}

class EditingReader : public LineReader {
public:
    EditingReader(Keyboard& keyboard, EditingOptions options)
        : keyboard_(keyboard),
          options_(std::move(options)),
          history_(blocks_),
          search_([this](const std::string& part, std::size_t index) { return history_.find(part, index); }) {
        edit_ = el_init("foresay", stdin, stdout, stderr);
        if (!edit_) throw Error("cannot edit lines on this terminal; use --simple-io, or set TERM");
        el_set(edit_, EL_EDITOR, "emacs");
        el_set(edit_, EL_SIGNAL, 0);
        // Between two lines the terminal keeps the modes that TerminalMode has set.
        el_set(edit_, EL_SETTY, "-x", "-echo", "-icanon", "-icrnl", "-inlcr", "-igncr", nullptr);
        el_set(edit_, EL_SETTY, "-d", "-icrnl", "-inlcr", "-igncr", nullptr);  // while it edits a line
        el_set(edit_, EL_CLIENTDATA, this);
        el_set(edit_, EL_PROMPT_ESC, prompt_of, '\1');
        el_set(edit_, EL_HIST, EntryHistory::look, &history_);
        el_wset(edit_, EL_GETCFN, read_character);
        add_keys();
    }
    ~EditingReader() override { el_end(edit_); }
    EditingReader(const EditingReader&) = delete;
    EditingReader& operator=(const EditingReader&) = delete;

    Line read(const std::string& prompt, const std::string& initial, bool continues) override {
        continues_ = continues;
        usual_prompt_ = emphasized(prompt);
        usual_columns_ = columns_of(prompt);
        search_.end();
        show_prompt();
        initial_ = initial;
        literal_ = pasted_ = false;
        el_resize(edit_);  // it may have been resized during an answer
        drawn_columns_ = terminal_columns();
        end_ = Keyboard::Event::byte;
        int count = 0;
        const char* line = el_gets(edit_, &count);
        if (!line || count <= 0) {
            print("\n");
            el_reset(edit_);
            return {end_ == Keyboard::Event::interrupted ? LineEnd::interrupt : LineEnd::end, {}};
        }
        std::string text(line, static_cast<std::size_t>(count));
        if (text.ends_with('\n')) text.pop_back();  // of the Enter key
        return {LineEnd::line, blocks_.expanded(text), literal_, pasted_};
    }

    void remember(const std::string& entry) override { history_.remember(entry); }

private:
    using Key = unsigned char (EditingReader::*)();

    static EditingReader& of(EditLine* edit) {
        void* data = nullptr;
        el_get(edit, EL_CLIENTDATA, &data);
        return *static_cast<EditingReader*>(data);
    }
    // libedit does not count what stands between two \1 as columns.
    static std::string emphasized(const std::string& prompt) {
        return colourful_output() ? "\1\x1b[1m\1" + prompt + "\1\x1b[0m\1" : prompt;
    }
    void show_prompt() {
        prompt_ = search_.active() ? search_.prompt() : usual_prompt_;
        prompt_columns_ = search_.active() ? columns_of(prompt_) : usual_columns_;
    }
    // libedit's own function for a character takes every one for at least a column, and differs from the one that draws
    // an entry in how it goes to the next row (see rows_above_cursor()).
    static unsigned char insert_key(EditLine* edit, wint_t key) {
        const wchar_t text[] = {static_cast<wchar_t>(key), 0};
        el_winsertstr(edit, text);
        return CC_REFRESH;
    }
    static char* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

    template <Key key>
    static unsigned char call(EditLine* edit, wint_t) {
        return (of(edit).*key)();
    }

    void add_keys();
    static int read_character(EditLine* edit, wchar_t* out);
    int next_byte(char& byte);
    void redraw(bool in_place);
    std::size_t rows_above_cursor(std::size_t columns) const;

    unsigned char complete();
    unsigned char paste();
    unsigned char new_line();
    unsigned char external_editor();
    unsigned char up();
    unsigned char down();
    unsigned char left();
    unsigned char right();
    unsigned char erase_left();
    unsigned char erase_right();
    unsigned char begin_search();
    unsigned char search_key();
    unsigned char show_search();

    std::string read_paste();
    unsigned char indent(const std::string& line);
    unsigned char complete_command(const std::string& line);
    // Long texts appear as a label.
    std::wstring as_shown(const std::string& text) { return wide(Blocks::is_long(text) ? blocks_.label(text) : text); }
    void insert(const std::string& text);
    // libedit's line, and the cursor's place in it, in characters.
    std::wstring_view buffer() const {
        const LineInfoW* line = el_wline(edit_);
        return {line->buffer, static_cast<std::size_t>(line->lastchar - line->buffer)};
    }
    std::size_t cursor() const {
        const LineInfoW* line = el_wline(edit_);
        return static_cast<std::size_t>(line->cursor - line->buffer);
    }
    // Where the character left of the cursor begins, and where the one at the cursor ends: several code points may make
    // one character.
    std::size_t character_left() const;
    std::size_t character_right() const;
    void move_to(std::size_t place) { el_cursor(edit_, static_cast<int>(place) - static_cast<int>(cursor())); }

    Keyboard& keyboard_;
    EditingOptions options_;
    Blocks blocks_;
    EntryHistory history_;
    EntrySearch search_;
    std::string search_bytes_;  // of the last key of a search
    EditLine* edit_ = nullptr;
    std::string prompt_, usual_prompt_, initial_;
    std::size_t prompt_columns_ = 0, usual_columns_ = 0;  // without the marks of emphasized()
    std::size_t drawn_columns_ = 80;                      // of the terminal when the entry was drawn
    bool literal_ = false;
    bool pasted_ = false;
    bool continues_ = false;
    Keyboard::Event end_ = Keyboard::Event::byte;  // why reading ended without a line
};

void EditingReader::add_keys() {
    el_wset(edit_, EL_ADDFN, L"complete-word", L"Complete the word at the cursor", call<&EditingReader::complete>);
    el_wset(edit_, EL_ADDFN, L"paste-block", L"Take a paste as one piece", call<&EditingReader::paste>);
    el_wset(edit_, EL_ADDFN, L"new-line", L"Insert a line break", call<&EditingReader::new_line>);
    el_wset(edit_, EL_ADDFN, L"edit-outside", L"Edit with $EDITOR", call<&EditingReader::external_editor>);
    el_wset(edit_, EL_ADDFN, L"line-or-entry-up", L"A line up, or an older entry", call<&EditingReader::up>);
    el_wset(edit_, EL_ADDFN, L"line-or-entry-down", L"A line down, or a newer entry", call<&EditingReader::down>);
    el_wset(edit_, EL_ADDFN, L"character-left", L"A character to the left", call<&EditingReader::left>);
    el_wset(edit_, EL_ADDFN, L"character-right", L"A character to the right", call<&EditingReader::right>);
    el_wset(edit_, EL_ADDFN, L"erase-left", L"Delete a character", call<&EditingReader::erase_left>);
    el_wset(edit_, EL_ADDFN, L"erase-right", L"Delete the next character", call<&EditingReader::erase_right>);
    el_wset(edit_, EL_ADDFN, L"search-entries", L"Search earlier entries", call<&EditingReader::begin_search>);
    el_wset(edit_, EL_ADDFN, L"search-key", L"A key of a search", call<&EditingReader::search_key>);
    el_wset(edit_, EL_ADDFN, L"insert-key", L"Insert a character", insert_key);
    for (int character = 0x20; character < 0x7f; ++character) {
        std::array<char, 8> key{};
        std::snprintf(key.data(), key.size(), "\\%03o", static_cast<unsigned>(character));
        el_set(edit_, EL_BIND, key.data(), "insert-key", nullptr);
    }
    constexpr const char* kKeys[][2] = {
        {"^I", "complete-word"},
        {"\\e[200~", "paste-block"},
        {"^J", "new-line"},
        {"\\e^M", "new-line"},
        {"\\e^J", "new-line"},
        {"^X^E", "edit-outside"},
        {"^R", "search-entries"},
        {"^_", "search-key"},  // kOwnKey
        {"^W", "ed-delete-prev-word"},
        {"^U", "vi-kill-line-prev"},
        {"^P", "line-or-entry-up"},
        {"^N", "line-or-entry-down"},
        {"\\e[A", "line-or-entry-up"},
        {"\\eOA", "line-or-entry-up"},
        {"\\e[B", "line-or-entry-down"},
        {"\\eOB", "line-or-entry-down"},
        {"\\e[H", "ed-move-to-beg"},
        {"\\eOH", "ed-move-to-beg"},
        {"\\e[1~", "ed-move-to-beg"},
        {"\\e[F", "ed-move-to-end"},
        {"\\eOF", "ed-move-to-end"},
        {"\\e[4~", "ed-move-to-end"},
        {"\\e[3~", "erase-right"},
        {"^H", "erase-left"},
        {"^?", "erase-left"},
        {"^B", "character-left"},
        {"^F", "character-right"},
        {"\\e[D", "character-left"},
        {"\\eOD", "character-left"},
        {"\\e[C", "character-right"},
        {"\\eOC", "character-right"},
        {"\\e[1;5D", "ed-prev-word"},
        {"\\e[1;3D", "ed-prev-word"},
        {"\\e[1;5C", "em-next-word"},
        {"\\e[1;3C", "em-next-word"},
        // up() and down() push these to reach the history.
        {"\\e[foresay-up", "ed-prev-history"},
        {"\\e[foresay-down", "ed-next-history"},
    };
    for (const auto& [keys, function] : kKeys) el_set(edit_, EL_BIND, keys, function, nullptr);
}

// Returns 1 and sets `byte`; 0 at the end of input, -1 when Ctrl-C ended the line.
int EditingReader::next_byte(char& byte) {
    const auto pause = [this] {
        if (options_.pause && !continues_) options_.pause(blocks_.expanded(narrow(buffer())));
    };
    for (;;) {
        end_ = keyboard_.next(byte, pause);
        if (end_ == Keyboard::Event::byte) return 1;
        if (end_ == Keyboard::Event::end) return 0;
        if (end_ == Keyboard::Event::interrupted) return -1;
        redraw(end_ == Keyboard::Event::resized);
    }
}

// After the terminal was resized (`in_place`: the entry is still there), or a shell used it in the meantime.
void EditingReader::redraw(bool in_place) {
    renew_terminal_mode();
    el_set(edit_, EL_PREP_TERM, 0);
    el_set(edit_, EL_PREP_TERM, 1);
    // Draws over the entry: libedit takes the line of the cursor for the first one of the entry.
    const std::size_t rows = in_place ? rows_above_cursor(terminal_columns()) : 0;
    print((rows > 0 ? "\r\x1b[" + std::to_string(rows) + "A" : "\r") + "\x1b[J");
    el_resize(edit_);
    drawn_columns_ = terminal_columns();
    el_set(edit_, EL_REFRESH);
}

// In how many rows the cursor is below the beginning of the prompt, now that the terminal has `columns` columns and has
// wrapped its lines again. On one that does not wrap them again, a part of the entry stays above, or a line above it is
// overwritten. libedit leaves out blanks at the end of a row and goes to the next one by a line break: the terminal
// does not join these two. It does join rows that end with a character.
std::size_t EditingReader::rows_above_cursor(std::size_t columns) const {
    std::size_t rows = 0, joined = 0;                     // before this row; cells of the rows that it is joined to
    std::size_t column = prompt_columns_, used = column;  // of this row; used: up to its last character
    const auto end_row = [&](bool line_break) {
        if (line_break) {
            const std::size_t cells = joined + (joined > 0 ? std::max<std::size_t>(used, 1) : used);
            rows += std::max<std::size_t>(1, (cells + columns - 1) / columns);
            joined = 0;
        } else {
            joined += drawn_columns_;
        }
        column = used = 0;
    };
    for (const wchar_t character : buffer().substr(0, cursor())) {
        if (character == L'\n') {
            end_row(true);
            continue;
        }
        std::size_t width = columns_of(static_cast<char32_t>(character));
        if (character < 0x20) width = character == L'\t' ? 8 - column % 8 : 2;  // as ^X
        if (column + width > drawn_columns_) end_row(true);
        column += width;
        if (character != L' ' && character != L'\t') used = column;
        if (column >= drawn_columns_) end_row(used < column);
    }
    return rows + (joined + column) / columns;
}

int EditingReader::read_character(EditLine* edit, wchar_t* out) {
    EditingReader& self = of(edit);
    if (!self.initial_.empty()) {
        self.insert(std::exchange(self.initial_, {}));
        *out = kOwnKey;  // makes libedit draw the line
        return 1;
    }
    std::string bytes;
    for (;;) {
        char byte = 0;
        const int got = self.next_byte(byte);
        if (got <= 0) return got;
        bytes += byte;
        core::Utf8Step step = core::next_utf8(bytes);
        if (step.status == core::Utf8Status::invalid) {
            // Dropped; the byte that broke it may begin another character.
            bytes.erase(0, step.length_bytes);
            if (bytes.empty()) continue;
            step = core::next_utf8(bytes);
            if (step.status == core::Utf8Status::invalid) bytes.clear();
        }
        if (step.status != core::Utf8Status::valid) continue;
        if (step.code == 0) {
            // Ctrl-Space, or what the terminal made of a Ctrl-D that was typed before the program read keys. For
            // libedit it quotes the next key, so that a second Ctrl-D would be text and end nothing.
            bytes.clear();
            continue;
        }
        if (self.search_.active()) {
            self.search_bytes_ = bytes;
        } else if (step.code >= 0x80) {
            // As insert_key() does it. Some of these are also keys of libedit's.
            self.insert(bytes);
            *out = kOwnKey;
            return 1;
        }
        *out = self.search_.active() ? kOwnKey : static_cast<wchar_t>(step.code);
        return 1;
    }
}

void EditingReader::insert(const std::string& text) {
    const std::wstring shown = as_shown(text);
    if (!shown.empty()) el_winsertstr(edit_, shown.c_str());
}

// The text of a bracketed paste, up to its end mark.
std::string EditingReader::read_paste() {
    std::string text;
    char byte = 0;
    while (keyboard_.next_of_burst(byte)) {
        text += byte;
        if (byte == kPasteEnd.back() && text.ends_with(kPasteEnd)) {
            text.resize(text.size() - kPasteEnd.size());
            break;
        }
        if (text.size() > kMostPasted) break;
    }
    // Line breaks arrive as the Enter key; other control characters do not belong into text.
    std::string clean;
    for (std::size_t i = 0; i < text.size(); ++i) {
        if (text[i] == '\r') {
            clean += '\n';
            if (i + 1 < text.size() && text[i + 1] == '\n') ++i;
        } else if (static_cast<unsigned char>(text[i]) >= 0x20 || text[i] == '\n' || text[i] == '\t') {
            clean += text[i];
        }
    }
    return clean;
}

unsigned char EditingReader::paste() {
    std::string text = read_paste();
    if (std::count(text.begin(), text.end(), '\n') == 1 && text.ends_with('\n')) text.pop_back();  // a single line
    if (cursor() == 0 && text.find('\n') != std::string::npos) literal_ = true;
    pasted_ = text.find('\n') != std::string::npos;
    insert(text);
    return CC_REFRESH;
}

unsigned char EditingReader::new_line() {
    el_winsertstr(edit_, L"\n");
    return CC_REFRESH;
}

unsigned char EditingReader::complete() {
    const std::string line = narrow(buffer().substr(0, cursor()));
    return line.starts_with('/') ? complete_command(line) : indent(line);
}

// To the next tab stop. `line`: what is left of the cursor, which may have several lines.
unsigned char EditingReader::indent(const std::string& line) {
    const std::size_t line_break = line.find_last_of('\n');
    const std::size_t column = line.size() - (line_break == std::string::npos ? 0 : line_break + 1);
    el_winsertstr(edit_, std::wstring(kTab - column % kTab, L' ').c_str());
    return CC_REFRESH;
}

unsigned char EditingReader::complete_command(const std::string& line) {
    if (!options_.complete) return CC_ERROR;
    const LineCompletion found = options_.complete(line);
    if (found.candidates.empty()) return CC_ERROR;
    const std::string typed = line.substr(found.start);
    std::string common = common_beginning(found.candidates);
    if (found.candidates.size() == 1 && common.find_last_of("/=.:") != common.size() - 1) common += ' ';
    if (common.size() > typed.size() && common.starts_with(typed)) {
        el_winsertstr(edit_, wide(std::string_view(common).substr(typed.size())).c_str());
        return CC_REFRESH;
    }
    if (found.candidates.size() == 1) return CC_ERROR;
    print("\n" + in_columns(found.candidates, terminal_columns()));
    return CC_REDISPLAY;
}

unsigned char EditingReader::external_editor() {
    const std::string before = blocks_.expanded(narrow(buffer()));
    std::string after;
    el_set(edit_, EL_PREP_TERM, 0);
    try {
        after = edit_externally(before);
    } catch (const Error& problem) {
        print("\n");
        complain(std::string("foresay: ") + problem.what());
        after = before;
    }
    el_set(edit_, EL_PREP_TERM, 1);
    el_wreplacestr(edit_, as_shown(after).c_str());
    move_to(buffer().size());
    // Code may begin with a slash; a command has a letter after it.
    const bool command = after.size() > 1 && after[0] == '/' && std::isalpha(static_cast<unsigned char>(after[1])) != 0;
    literal_ = literal_ || (after.find('\n') != std::string::npos && !command);
    return CC_REDISPLAY;
}

// To the same column of the line above, or to an older entry from the first line.
unsigned char EditingReader::up() {
    const std::wstring_view text = buffer();
    const std::size_t start = line_start(text, cursor());
    if (start == 0) {
        el_push(edit_, "\x1b[foresay-up");
        return CC_NORM;
    }
    const std::size_t above_end = start - 1;  // its line break
    const std::size_t column = cursor() - start;
    move_to(std::min(line_start(text, above_end) + column, above_end));
    return CC_REFRESH;
}

// To the same column of the line below, or to a newer entry from the last line.
unsigned char EditingReader::down() {
    const std::wstring_view text = buffer();
    const std::size_t end = text.find(L'\n', cursor());
    if (end == text.npos) {
        el_push(edit_, "\x1b[foresay-down");
        return CC_NORM;
    }
    const std::size_t column = cursor() - line_start(text, cursor());
    const std::size_t below_end = std::min(text.find(L'\n', end + 1), text.size());
    move_to(std::min(end + 1 + column, below_end));
    return CC_REFRESH;
}

std::size_t EditingReader::character_left() const {
    const std::wstring_view text = buffer().substr(0, cursor());
    const std::size_t start = line_start(text, text.size());
    if (start == text.size()) return start > 0 ? start - 1 : 0;  // the line break
    const std::string line = narrow(text.substr(start));
    return start + wide(std::string_view(line).substr(0, last_character(line))).size();
}

std::size_t EditingReader::character_right() const {
    const std::wstring_view text = buffer().substr(cursor());
    if (text.starts_with(L'\n')) return cursor() + 1;
    const std::string line = narrow(text.substr(0, text.find(L'\n')));
    return cursor() + wide(std::string_view(line).substr(0, first_character(line))).size();
}

unsigned char EditingReader::left() {
    move_to(character_left());
    return CC_CURSOR;
}

unsigned char EditingReader::right() {
    move_to(character_right());
    return CC_CURSOR;
}

unsigned char EditingReader::erase_left() {
    const std::size_t begin = character_left(), end = cursor();
    if (begin == end) return CC_ERROR;
    el_deletestr(edit_, static_cast<int>(end - begin));
    // A terminal may show the parts of such a character as one, or not; only a new line is sure to be right.
    return end - begin > 1 ? CC_REDISPLAY : CC_REFRESH;
}

unsigned char EditingReader::erase_right() {
    const std::size_t begin = cursor(), end = character_right();
    if (begin == end) return CC_ERROR;
    move_to(end);
    el_deletestr(edit_, static_cast<int>(end - begin));
    return end - begin > 1 ? CC_REDISPLAY : CC_REFRESH;
}

unsigned char EditingReader::begin_search() {
    search_.begin(narrow(buffer()));
    return show_search();
}

unsigned char EditingReader::search_key() {
    if (!search_.active()) return CC_REFRESH;
    std::size_t at = 0;
    const EntrySearch::After after = search_.key(next_character(search_bytes_, at));
    // The key that ends a search acts on the line found, once that is drawn with the usual prompt.
    if (after == EntrySearch::After::left) el_push(edit_, search_bytes_.c_str());
    return show_search();
}

unsigned char EditingReader::show_search() {
    show_prompt();
    el_wreplacestr(edit_, wide(history_.shown(search_.line())).c_str());
    move_to(buffer().size());
    return CC_REFRESH;
}

}  // namespace

std::unique_ptr<LineReader> make_editing_reader(Keyboard& keyboard, EditingOptions options) {
    return std::make_unique<EditingReader>(keyboard, std::move(options));
}

}  // namespace foresay::app

#endif
