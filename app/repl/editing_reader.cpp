// Lines edited with libedit: what its keys do besides what libedit does by itself.
#include "app/repl/line_reader.h"

#ifdef FORESAY_HAVE_LIBEDIT

#include <histedit.h>

#include <algorithm>
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

namespace foresay::app {

namespace {

constexpr std::size_t kMostPasted = std::size_t{16} << 20;
constexpr std::string_view kPasteEnd = "\x1b[201~";
constexpr std::size_t kTab = 4;
constexpr wchar_t kOwnKey = 0x1f;  // the keys of a search, and what is only to be drawn: not for libedit to obey

std::wstring wide(std::string_view text) {
    std::wstring out;
    for (std::size_t at = 0; at < text.size();) out += static_cast<wchar_t>(next_character(text, at));
    return out;
}

std::string narrow(std::wstring_view text) {
    std::string out;
    for (const wchar_t wide_character : text) {
        const auto c = static_cast<std::uint32_t>(wide_character);
        if (c < 0x80) {
            out += static_cast<char>(c);
            continue;
        }
        const int more = c < 0x800 ? 1 : c < 0x10000 ? 2 : 3;
        constexpr std::uint32_t kLead[] = {0, 0xc0, 0xe0, 0xf0};
        out += static_cast<char>(kLead[more] | c >> (6 * more));
        for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | (c >> (6 * i) & 0x3f));
    }
    return out;
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
        // Between two lines the terminal stays as TerminalMode has it.
        el_set(edit_, EL_SETTY, "-x", "-echo", "-icanon", nullptr);
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
        usual_prompt_ = prompt_ = emphasized(prompt);
        search_.end();
        initial_ = initial;
        literal_ = false;
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
        return {LineEnd::line, blocks_.expanded(text), literal_};
    }

    void remember(const std::string& entry) override { history_.remember(entry); }

private:
    using Key = unsigned char (EditingReader::*)();

    static EditingReader& of(EditLine* edit) {
        void* data = nullptr;
        el_get(edit, EL_CLIENTDATA, &data);
        return *static_cast<EditingReader*>(data);
    }
    // In libedit's escapes, which keep the codes out of its count of columns.
    static std::string emphasized(const std::string& prompt) {
        return colourful_output() ? "\1\x1b[1m\1" + prompt + "\1\x1b[0m\1" : prompt;
    }
    static char* prompt_of(EditLine* edit) { return of(edit).prompt_.data(); }

    template <Key key>
    static unsigned char call(EditLine* edit, wint_t) {
        return (of(edit).*key)();
    }

    void add_keys();
    static int read_character(EditLine* edit, wchar_t* out);
    int next_byte(char& byte);

    unsigned char complete();
    unsigned char paste();
    unsigned char new_line();
    unsigned char external_editor();
    unsigned char up();
    unsigned char down();
    unsigned char begin_search();
    unsigned char search_on();
    unsigned char show_search();

    std::string pasted();
    void insert(const std::string& text);
    // The buffer and the characters in front of the cursor.
    std::wstring_view buffer() const {
        const LineInfoW* line = el_wline(edit_);
        return {line->buffer, static_cast<std::size_t>(line->lastchar - line->buffer)};
    }
    std::size_t cursor() const {
        const LineInfoW* line = el_wline(edit_);
        return static_cast<std::size_t>(line->cursor - line->buffer);
    }
    void move_to(std::size_t place) { el_cursor(edit_, static_cast<int>(place) - static_cast<int>(cursor())); }

    Keyboard& keyboard_;
    EditingOptions options_;
    Blocks blocks_;
    EntryHistory history_;
    EntrySearch search_;
    std::string search_key_;  // the last key of a search
    EditLine* edit_ = nullptr;
    std::string prompt_, usual_prompt_, initial_;
    bool literal_ = false;
    bool continues_ = false;
    Keyboard::Event end_ = Keyboard::Event::byte;  // why a line ended without a line
};

void EditingReader::add_keys() {
    el_wset(edit_, EL_ADDFN, L"complete-word", L"Complete what stands at the cursor", call<&EditingReader::complete>);
    el_wset(edit_, EL_ADDFN, L"paste-block", L"Take a paste as one piece", call<&EditingReader::paste>);
    el_wset(edit_, EL_ADDFN, L"new-line", L"Insert a line break", call<&EditingReader::new_line>);
    el_wset(edit_, EL_ADDFN, L"edit-outside", L"Edit with $EDITOR", call<&EditingReader::external_editor>);
    el_wset(edit_, EL_ADDFN, L"line-or-entry-up", L"A line up, or an older entry", call<&EditingReader::up>);
    el_wset(edit_, EL_ADDFN, L"line-or-entry-down", L"A line down, or a newer entry", call<&EditingReader::down>);
    el_wset(edit_, EL_ADDFN, L"search-entries", L"Search earlier entries", call<&EditingReader::begin_search>);
    el_wset(edit_, EL_ADDFN, L"search-on", L"The next key of a search", call<&EditingReader::search_on>);
    constexpr const char* kKeys[][2] = {
        {"^I", "complete-word"},
        {"\\e[200~", "paste-block"},
        {"\\e^M", "new-line"},
        {"\\e^J", "new-line"},
        {"^X^E", "edit-outside"},
        {"^R", "search-entries"},
        {"^_", "search-on"},  // kOwnKey
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
        {"\\e[3~", "ed-delete-next-char"},
        {"\\e[1;5D", "ed-prev-word"},
        {"\\e[1;3D", "ed-prev-word"},
        {"\\e[1;5C", "em-next-word"},
        {"\\e[1;3C", "em-next-word"},
        // What up() and down() push when they mean the history.
        {"\\e[foresay-up", "ed-prev-history"},
        {"\\e[foresay-down", "ed-next-history"},
    };
    for (const auto& [keys, function] : kKeys) el_set(edit_, EL_BIND, keys, function, nullptr);
}

// 1 and a byte; 0 at the end, -1 when Ctrl-C ended the line.
int EditingReader::next_byte(char& byte) {
    const auto pause = [this] {
        if (options_.pause && !continues_) options_.pause(blocks_.expanded(narrow(buffer())));
    };
    for (;;) {
        end_ = keyboard_.next(byte, pause);
        if (end_ == Keyboard::Event::byte) return 1;
        if (end_ == Keyboard::Event::end) return 0;
        if (end_ == Keyboard::Event::interrupted) return -1;
        // Another size, or a shell had the terminal meanwhile.
        renew_terminal_mode();
        el_set(edit_, EL_PREP_TERM, 0);
        el_set(edit_, EL_PREP_TERM, 1);
        el_resize(edit_);
        el_set(edit_, EL_REFRESH);
    }
}

int EditingReader::read_character(EditLine* edit, wchar_t* out) {
    EditingReader& self = of(edit);
    if (!self.initial_.empty()) {
        self.insert(std::exchange(self.initial_, {}));
        *out = kOwnKey;  // draws the line
        return 1;
    }
    std::string bytes;
    for (;;) {
        char byte = 0;
        const int got = self.next_byte(byte);
        if (got <= 0) return got;
        bytes += byte;
        std::size_t at = 0;
        const char32_t character = next_character(bytes, at);
        if (character != U'\ufffd') {
            if (self.search_.active()) self.search_key_ = bytes;
            *out = self.search_.active() ? kOwnKey : static_cast<wchar_t>(character);
            return 1;
        }
        const auto first = static_cast<unsigned char>(bytes[0]);
        const std::size_t length = first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 1;
        if (bytes.size() >= length) bytes.clear();  // no character: dropped
    }
}

void EditingReader::insert(const std::string& text) {
    const bool block = Blocks::is_long(text);
    const std::wstring shown = wide(block ? blocks_.label(text) : text);
    if (!shown.empty()) el_winsertstr(edit_, shown.c_str());
}

// The bytes up to the end of a bracketed paste.
std::string EditingReader::pasted() {
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
    // Line breaks arrive as the Enter key; other control characters have no place in a text.
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
    std::string text = pasted();
    if (std::count(text.begin(), text.end(), '\n') == 1 && text.ends_with('\n')) text.pop_back();  // of one line
    if (cursor() == 0 && text.find('\n') != std::string::npos) literal_ = true;
    insert(text);
    return CC_REFRESH;
}

unsigned char EditingReader::new_line() {
    el_winsertstr(edit_, L"\n");
    return CC_REFRESH;
}

unsigned char EditingReader::complete() {
    const std::string line = narrow(buffer().substr(0, cursor()));
    if (!line.starts_with('/')) {  // text: a step to the next column of indentation
        const std::size_t column =
            line.size() - (line.find_last_of('\n') == std::string::npos ? 0 : line.find_last_of('\n') + 1);
        el_winsertstr(edit_, std::wstring(kTab - column % kTab, L' ').c_str());
        return CC_REFRESH;
    }
    if (!options_.complete) return CC_ERROR;
    const LineCompletion found = options_.complete(line);
    if (found.candidates.empty()) return CC_ERROR;
    const std::string typed = line.substr(found.start);
    std::string common = common_beginning(found.candidates);
    if (found.candidates.size() == 1 && common.find_last_of("/=.") != common.size() - 1) common += ' ';
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
    const bool block = Blocks::is_long(after);
    el_wreplacestr(edit_, wide(block ? blocks_.label(after) : after).c_str());
    move_to(buffer().size());
    // Code may begin with a slash; a command has a letter behind it.
    const bool command = after.size() > 1 && after[0] == '/' && std::isalpha(static_cast<unsigned char>(after[1])) != 0;
    literal_ = literal_ || (after.find('\n') != std::string::npos && !command);
    return CC_REDISPLAY;
}

unsigned char EditingReader::up() {
    const std::wstring_view text = buffer();
    const std::size_t place = cursor();
    const std::size_t before = text.substr(0, place).find_last_of(L'\n');
    if (before == text.npos) {
        el_push(edit_, "\x1b[foresay-up");
        return CC_NORM;
    }
    const std::size_t above = before == 0 ? text.npos : text.substr(0, before).find_last_of(L'\n');
    const std::size_t start = above == text.npos ? 0 : above + 1;
    move_to(std::min(start + (place - before - 1), before));
    return CC_REFRESH;
}

unsigned char EditingReader::down() {
    const std::wstring_view text = buffer();
    const std::size_t place = cursor();
    const std::size_t next = text.find(L'\n', place);
    if (next == text.npos) {
        el_push(edit_, "\x1b[foresay-down");
        return CC_NORM;
    }
    const std::size_t before = text.substr(0, place).find_last_of(L'\n');
    const std::size_t column = place - (before == text.npos ? 0 : before + 1);
    const std::size_t end = std::min(text.find(L'\n', next + 1), text.size());
    move_to(std::min(next + 1 + column, end));
    return CC_REFRESH;
}

unsigned char EditingReader::begin_search() {
    search_.begin(narrow(buffer()));
    return show_search();
}

unsigned char EditingReader::search_on() {
    if (!search_.active()) return CC_REFRESH;
    std::size_t at = 0;
    const EntrySearch::After after = search_.key(next_character(search_key_, at));
    // The key that ends a search is obeyed after the line was drawn once more, with the usual prompt.
    if (after == EntrySearch::After::left) el_push(edit_, search_key_.c_str());
    return show_search();
}

unsigned char EditingReader::show_search() {
    prompt_ = search_.active() ? search_.prompt() : usual_prompt_;
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
