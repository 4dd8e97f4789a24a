// A lexer that takes one token after another from the front of held_. Long tokens (strings, comments, numbers, long
// words) are modes, so that their text is decided as it comes; short ones are taken whole.
#include "app/highlight/code_highlighter.h"

#include <algorithm>
#include <cctype>

namespace foresay::app {

namespace {

constexpr std::size_t kLongestDelimiter = 32;  // of a raw string or a here-document
constexpr std::string_view kBeforeComment = " \t\n;&|(){}[],";

bool is_blank(char c) { return c == ' ' || c == '\t'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) {
    return std::isalpha(static_cast<unsigned char>(c)) != 0 || c == '_' || static_cast<unsigned char>(c) >= 0x80;
}
bool is_basic(char c) { return is_letter(c) || is_digit(c); }
bool holds(std::string_view set, char c) { return set.find(c) != set.npos; }

std::size_t character_length(char first) {
    const auto byte = static_cast<unsigned char>(first);
    return byte < 0xc0 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

bool contains(Words words, std::string_view word) { return std::find(words.begin(), words.end(), word) != words.end(); }

}  // namespace

void CodeHighlighter::add(std::string_view text, Runs& out) {
    held_ += text;
    run(out, false);
}

void CodeHighlighter::finish(Runs& out) { run(out, true); }

void CodeHighlighter::run(Runs& out, bool last) {
    out_ = &out;
    last_ = last;
    while (at_ < held_.size() && step()) {
    }
    held_.erase(0, at_);
    at_ = 0;
}

void CodeHighlighter::take(std::size_t count, Look look) {
    count = std::min(count, held_.size() - at_);
    if (count == 0) return;  // an empty key
    append(*out_, rest().substr(0, count), look);
    at_ += count;
    previous_ = held_[at_ - 1];
}

void CodeHighlighter::take_token(std::size_t count, Look look) {
    take(count, look);
    line_start_ = expects_name_ = after_dot_ = false;
}

bool CodeHighlighter::is_word(char c) const { return is_basic(c) || holds(language_->word_characters, c); }

bool CodeHighlighter::begins_word() const { return holds(kBeforeComment, previous_); }

bool CodeHighlighter::step() {
    switch (mode_) {
        case Mode::code:
            return code_step();
        case Mode::number:
            return number_step();
        case Mode::word:
            word_step();
            return true;
        case Mode::text:
            text_step();
            return true;
        case Mode::line_comment:
            if (next() == '\n') {
                mode_ = Mode::code;
            } else {
                take(1, Look::comment);
            }
            return true;
        case Mode::block_comment:
            block_comment_step();
            return true;
        case Mode::here_document:
            here_document_step();
            return true;
    }
    return false;
}

bool CodeHighlighter::code_step() {
    const char c = next();
    if (c == '\n') {
        take(1, Look::plain);
        line_start_ = true;
        expects_name_ = after_dot_ = false;
        if (!here_.empty()) mode_ = Mode::here_document;
        return true;
    }
    if (is_blank(c)) {
        take(1, Look::plain);
        after_dot_ = false;
        return true;
    }
    using Part = Found (CodeHighlighter::*)();
    constexpr Part kParts[] = {&CodeHighlighter::take_key,           &CodeHighlighter::take_quoted_key,
                               &CodeHighlighter::take_character,     &CodeHighlighter::take_opening,
                               &CodeHighlighter::take_here_document, &CodeHighlighter::take_sigil};
    for (const Part part : kParts) {
        const Found found = (this->*part)();
        if (found != Found::none) return found == Found::taken;
    }
    if (is_digit(c)) {
        line_start_ = expects_name_ = after_dot_ = false;
        hexadecimal_ = false;
        mode_ = Mode::number;
        return true;
    }
    if (is_word(c)) return take_word() == Found::taken;
    if (c == '\\') {  // an escaped quote opens no string
        if (lacks(2)) return false;
        take_token(next(1) == '\n' ? 1 : 2, Look::plain);
        return true;
    }
    const bool one_dot = c == '.' && previous_ != '.';
    take_token(1, Look::plain);
    after_dot_ = one_dot;
    return true;
}

// ---- keys of data files

// `key:` or `key =` at the beginning of a line, and TOML's [table].
CodeHighlighter::Found CodeHighlighter::take_key() {
    const Language::Keys kind = language_->keys;
    if (!line_start_ || kind == Language::Keys::none || kind == Language::Keys::quoted) return Found::none;
    const std::string_view text = rest().substr(0, kMostHeld);
    const bool whole = last_ || text.size() == kMostHeld || text.find('\n') != text.npos;
    const std::size_t line = std::min(text.find('\n'), text.size());
    if (kind == Language::Keys::before_colon) {
        if (text[0] == '-') {  // an element of a list, which may begin with a key
            if (lacks(2)) return Found::undecided;
            if (!is_blank(next(1))) return Found::none;
            take(1, Look::plain);
            return Found::taken;
        }
        if (holds("#{[\"'|>&*!%@`", text[0])) return Found::none;
        for (std::size_t i = 0; i < line; ++i) {
            if (holds("\"[{", text[i]) || (text[i] == '#' && is_blank(text[i - 1]))) return Found::none;
            if (text[i] != ':') continue;
            if (i + 1 == text.size() && !whole) return Found::undecided;
            if (i + 1 < line && !is_blank(text[i + 1])) continue;
            take_token(i, Look::keyword);
            return Found::taken;
        }
        return whole ? Found::none : Found::undecided;
    }
    if (text[0] == '#') return Found::none;
    if (text[0] == '[') {
        if (!whole) return Found::undecided;
        // After a table comes nothing but a comment; an array may begin a line, too.
        const std::string_view code = text.substr(0, std::min(line, text.find(" #")));
        const std::size_t stop = code.find_last_of(']');
        if (stop == code.npos || holds(code.substr(0, stop), ',')) return Found::none;
        take_token(stop + 1, Look::name);
        return Found::taken;
    }
    std::size_t end = 0;
    char quote = 0;  // of the part of the key that is being read
    for (; end < line && (quote != 0 || is_basic(text[end]) || holds(".-\"' \t", text[end])); ++end) {
        if (quote != 0 ? text[end] == quote : holds("\"'", text[end])) quote = quote != 0 ? '\0' : text[end];
    }
    if (end == text.size() && !whole) return Found::undecided;
    if (end == text.size() || text[end] != '=') return Found::none;
    while (end > 0 && is_blank(text[end - 1])) --end;
    if (end == 0) return Found::none;
    take_token(end, Look::keyword);
    return Found::taken;
}

// "key": of JSON, and of YAML where it also occurs.
CodeHighlighter::Found CodeHighlighter::take_quoted_key() {
    const Language::Keys kind = language_->keys;
    if (next() != '"' || (kind != Language::Keys::quoted && kind != Language::Keys::before_colon)) return Found::none;
    const std::string_view text = rest().substr(0, kMostHeld);
    const bool whole = last_ || text.size() == kMostHeld;
    std::size_t end = 1;
    while (end < text.size() && text[end] != '"' && text[end] != '\n') {
        const bool escape = text[end] == '\\' && text.substr(end + 1, 1) != "\n";
        end += escape ? 2 : 1;
    }
    if (end >= text.size()) return whole ? Found::none : Found::undecided;
    if (text[end] == '\n') return Found::none;
    std::size_t colon = end + 1;
    while (colon < text.size() && is_blank(text[colon])) ++colon;
    if (colon == text.size()) return whole ? Found::none : Found::undecided;
    if (text[colon] != ':') return Found::none;
    take_token(end + 1, Look::keyword);
    return Found::taken;
}

// ---- comments and strings

CodeHighlighter::Found CodeHighlighter::take_opening() {
    const std::string_view text = rest();
    std::size_t longest = 0;
    bool undecided = false;
    const auto opens = [&](std::string_view mark) {
        undecided = undecided || (!last_ && mark.size() > text.size() && mark.starts_with(text));
        if (!text.starts_with(mark) || mark.size() <= longest) return false;
        longest = mark.size();
        return true;
    };
    const StringRule* string = nullptr;
    if (!language_->quote_begins_word || !is_basic(previous_)) {
        for (const StringRule& rule : language_->strings) {
            if (opens(rule.open)) string = &rule;
        }
    }
    bool line = false, block = false;
    if (!language_->comment_begins_word || begins_word()) {
        for (const std::string_view mark : language_->line_comments) {
            if (opens(mark)) line = true;
        }
    }
    if (language_->block_comments != Language::Block::none && opens("/*")) block = true;
    if (undecided) return Found::undecided;
    if (longest == 0) return Found::none;
    if (block) {
        take_token(2, Look::comment);
        previous_ = '\0';  // "/*/" does not end here
        depth_ = 1;
        mode_ = Mode::block_comment;
        return Found::taken;
    }
    if (line) {
        take_token(longest, Look::comment);
        mode_ = Mode::line_comment;
        return Found::taken;
    }
    return open_text(*string);
}

CodeHighlighter::Found CodeHighlighter::open_text(const StringRule& rule) {
    std::size_t length = rule.open.size();
    std::string close(rule.close);
    if (rule.name_end != 0) {
        const std::string_view text = rest().substr(0, length + kLongestDelimiter);
        const std::size_t end = text.find_first_of(std::string{rule.name_end, '\n', ' ', '"', ')', '\\'}, length);
        if (end == text.npos && text.size() < length + kLongestDelimiter && !last_) return Found::undecided;
        if (end == text.npos || text[end] != rule.name_end) return Found::none;
        close.replace(close.find('\0'), 1, text.substr(length, end - length));
        length = end + 1;
    }
    take_token(length, rule.look);
    mode_ = Mode::text;
    look_ = rule.look;
    close_ = std::move(close);
    escape_ = rule.escape;
    multiline_ = rule.multiline;
    matched_ = 0;
    escaped_ = false;
    return Found::taken;
}

void CodeHighlighter::text_step() {
    const char c = next();
    if (c == '\n' && !multiline_ && !escaped_) {
        mode_ = Mode::code;
        return;
    }
    take(1, look_);
    if (escaped_) {
        escaped_ = false;
        matched_ = 0;
    } else if (escape_ != 0 && c == escape_) {
        escaped_ = true;
        matched_ = 0;
    } else {
        // What does not go on with close_ may begin it again. Going back further is never needed: no close_ repeats its
        // beginning, except equal quotes, and what interrupts those is no quote.
        if (c != close_[matched_]) matched_ = 0;
        if (c == close_[matched_]) ++matched_;
        if (matched_ == close_.size()) mode_ = Mode::code;
    }
}

void CodeHighlighter::block_comment_step() {
    const char before = previous_, c = next();
    take(1, Look::comment);
    if (before == '*' && c == '/') {
        --depth_;
    } else if (language_->block_comments == Language::Block::nested && before == '/' && c == '*') {
        ++depth_;
    } else {
        return;
    }
    previous_ = '\0';  // neither "/*/" nor "*/*" counts a character twice
    if (depth_ == 0) mode_ = Mode::code;
}

// A character of a language in which a quote may begin a lifetime: 'a' or '\n', but not 'a.
CodeHighlighter::Found CodeHighlighter::take_character() {
    if (!language_->lifetimes || next() != '\'') return Found::none;
    if (lacks(2)) return Found::undecided;
    if (next(1) == '\\') return Found::none;  // a string, as its rule says
    const std::size_t length = character_length(next(1));
    const bool ends = next(1) == '\'' || rest().substr(0, 2 + length).find('\n') != std::string_view::npos;
    if (!ends && lacks(2 + length)) return Found::undecided;
    if (!ends && next(1 + length) == '\'') {
        take_token(2 + length, Look::string);
    } else {
        take_token(1, Look::plain);
        begin_word(Look::plain, {});  // so that 'static is no keyword
    }
    return Found::taken;
}

CodeHighlighter::Found CodeHighlighter::take_here_document() {
    if (!language_->here_documents || next() != '<') return Found::none;
    const std::string_view text = rest().substr(0, kLongestDelimiter + 8);
    if (!last_ && std::string_view("<<").starts_with(text)) return Found::undecided;
    if (text.starts_with("<<<")) {
        take_token(3, Look::plain);
        return Found::taken;
    }
    if (!text.starts_with("<<")) return Found::none;
    std::size_t begin = 2;
    const bool tabs = begin < text.size() && text[begin] == '-';
    if (tabs) ++begin;
    const std::size_t blanks = begin;
    while (begin < text.size() && is_blank(text[begin])) ++begin;
    const bool spaced = begin > blanks;
    const bool quoted = begin < text.size() && holds("'\"", text[begin]);
    if (quoted) ++begin;
    std::size_t end = begin;
    while (end < text.size() && is_basic(text[end])) ++end;
    if (end == text.size() && end < kLongestDelimiter + 8 && !last_) return Found::undecided;
    if (end == begin || end == text.size() || !is_letter(text[begin])) return Found::none;
    if (spaced && !quoted && !std::isupper(static_cast<unsigned char>(text[begin]))) return Found::none;  // x << y
    const std::size_t stop = quoted && holds("'\"", text[end]) ? end + 1 : end;
    here_ = text.substr(begin, end - begin);
    here_tabs_ = tabs;
    here_line_.clear();
    take_token(begin - (quoted ? 1 : 0), Look::plain);
    take_token(stop - begin + (quoted ? 1 : 0), Look::string);
    return Found::taken;
}

void CodeHighlighter::here_document_step() {
    const char c = next();
    take(1, Look::string);
    if (c != '\n') {
        const bool margin = here_tabs_ && here_line_.empty() && c == '\t';
        if (!margin && here_line_.size() <= here_.size()) here_line_ += c;
        return;
    }
    if (here_line_ == here_) {
        here_.clear();
        mode_ = Mode::code;
        line_start_ = true;
    }
    here_line_.clear();
}

// ---- words and numbers

CodeHighlighter::Found CodeHighlighter::take_sigil() {
    const auto found = std::find_if(language_->sigils.begin(), language_->sigils.end(),
                                    [this](const Sigil& sigil) { return sigil.character == next(); });
    if (found == language_->sigils.end() || is_basic(previous_)) return Found::none;
    if (lacks(2)) return Found::undecided;
    if (holds(found->alone, next(1))) {
        take_token(2, found->look);
        return Found::taken;
    }
    if (!is_letter(next(1))) return Found::none;
    take_token(1, found->look);
    begin_word(found->look, found->inside);
    return Found::taken;
}

Look CodeHighlighter::look_of(std::string_view word) const {
    if (after_dot_) return Look::plain;
    std::string lower;
    if (language_->any_case) {
        lower = word;
        std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
        word = lower;
    }
    if (contains(language_->keywords, word)) return Look::keyword;
    if (contains(language_->constants, word)) return Look::number;
    return expects_name_ ? Look::name : Look::plain;
}

CodeHighlighter::Found CodeHighlighter::take_word() {
    const std::string_view text = rest();
    if (is_basic(previous_)) {  // finish() cut the word in two
        begin_word(Look::plain, language_->word_characters);
        return Found::taken;
    }
    std::size_t end = 1;
    while (end < text.size() && end <= kLongestWord && is_word(text[end])) ++end;
    if (end > kLongestWord) {  // no keyword
        begin_word(expects_name_ ? Look::name : Look::plain, language_->word_characters);
        line_start_ = expects_name_ = after_dot_ = false;
        return Found::taken;
    }
    if (end == text.size() && !last_) return Found::undecided;
    const std::string_view word = text.substr(0, end);
    const Look look = look_of(word);
    const bool defines = look == Look::keyword && contains(language_->definers, word);
    take_token(end, look);
    expects_name_ = defines;
    return Found::taken;
}

void CodeHighlighter::begin_word(Look look, std::string_view inside) {
    mode_ = Mode::word;
    look_ = look;
    inside_ = inside;
}

void CodeHighlighter::word_step() {
    if (is_basic(next()) || holds(inside_, next())) {
        take(1, look_);
    } else {
        mode_ = Mode::code;
    }
}

bool CodeHighlighter::number_step() {
    const char c = next();
    bool part = is_basic(c);
    if (c == '.' || c == '\'' || c == '+' || c == '-') {
        const bool exponent = (!hexadecimal_ && holds("eE", previous_)) || holds("pP", previous_);
        const bool joins = c == '.' || (c == '\'' ? language_->quotes_in_numbers : exponent);
        if (joins && lacks(2)) return false;
        part = joins && is_digit(next(1));
    }
    if (!part) {
        mode_ = Mode::code;
        return true;
    }
    if (holds("xX", c) && previous_ == '0') hexadecimal_ = true;
    take(1, Look::number);
    return true;
}

}  // namespace foresay::app
