// push() takes one character after the other, so that a decision falls at the first character that allows it. A line is
// compared with the surroundings when it ends; its indentation counts once its first word is known. certain() holds
// back what a later character may still cut off.
#include "app/edits/hole.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

namespace foresay::app {

namespace {

constexpr std::string_view kBlank = " \t\r\n\v\f";
constexpr std::string_view kOpening = "([{", kClosing = ")]}";
constexpr std::size_t kTab = 8;

std::string_view without_blank_end(std::string_view text) { return text.substr(0, text.find_last_not_of(kBlank) + 1); }
bool is_blank(std::string_view text) { return text.find_first_not_of(kBlank) == text.npos; }
bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

// In columns.
std::size_t indent_of(std::string_view line) {
    std::size_t columns = 0;
    for (const char c : line) {
        if (c == '\t') {
            columns += kTab - columns % kTab;
        } else if (c == ' ') {
            ++columns;
        } else {
            break;
        }
    }
    return columns;
}

// Whether a block or a list begins after this line.
bool opens_block(std::string_view line) {
    line = without_blank_end(line);
    return !line.empty() && (line.back() == ':' || kOpening.find(line.back()) != kOpening.npos);
}

// Whether a line that begins with this word goes on with the block of the line that opened it, or closes it.
bool continues_block(std::string_view head) {
    constexpr std::array<std::string_view, 8> kWords = {"else",  "elif",   "except", "finally",
                                                        "catch", "rescue", "ensure", "end"};
    return kClosing.find(head.front()) != kClosing.npos ||
           std::find(kWords.begin(), kWords.end(), head) != kWords.end();
}

// A line of the C preprocessor, which begins in the first column wherever it is.
bool is_directive(std::string_view head) {
    constexpr std::array<std::string_view, 9> kWords = {"#if",    "#ifdef",  "#ifndef", "#else",  "#elif",
                                                        "#endif", "#define", "#undef",  "#pragma"};
    return std::find(kWords.begin(), kWords.end(), head) != kWords.end();
}

}  // namespace

Hole::Hole(const Surroundings& around, bool sees_suffix)
    : sees_suffix_(sees_suffix), blank_left_out_(around.blank_left_out) {
    const std::string_view prefix = around.prefix, suffix = around.suffix;
    const std::size_t line = prefix.rfind('\n') + 1;  // npos + 1 is 0
    tail_ = prefix.substr(line);
    tail_blank_ = is_blank(tail_);
    rest_ = without_blank_end(suffix.substr(0, suffix.find('\n')));
    if (rest_.empty()) {
        const std::size_t content = std::min(suffix.find_first_not_of(kBlank), suffix.size());
        const std::size_t begin = content == suffix.size() ? content : suffix.rfind('\n', content) + 1;
        lead_ = suffix.substr(0, begin);
        next_line_ = without_blank_end(suffix.substr(begin, suffix.find('\n', content) - begin));
    }
    const std::string_view above = without_blank_end(prefix);
    last_line_ = above.substr(above.rfind('\n') + 1);
    for (const char c : prefix) take_code(c);
    // Brackets count from the hole on.
    depth_ = 0;
    line_in_string_ = long_quote_ != 0;
    set_block();
}

void Hole::set_block() {
    if (!tail_blank_ || tail_.empty()) {
        if (opens_block(last_line_)) {
            least_indent_ = indent_of(last_line_) + 1;
        } else if (!tail_blank_) {
            least_indent_ = indent_of(tail_);
        } else {
            // At the beginning of a line: between two lines the hole may have the indentation of either.
            const std::string& below = rest_.empty() ? next_line_ : rest_;
            least_indent_ = below.empty() ? 0 : std::min(indent_of(last_line_), indent_of(below));
        }
    } else {
        least_indent_ = indent_of(tail_);
    }
}

std::string Hole::push(std::string_view text) {
    if (!text.empty() && std::exchange(blank_left_out_, false) && text.front() == ' ') {
        blank_taken_ = true;
        text.remove_prefix(1);
    }
    for (const char c : text) {
        if (stopped_) return {};
        take(c);
    }
    return stopped_ ? std::string() : show(certain());
}

std::string Hole::finish() {
    if (!stopped_) {
        if (!head_seen_) look_at_head(all_);
        if (!stopped_) end_line(all_.size());
        if (!stopped_ && tail_blank_ && !rest_.empty()) {
            // The last line must not run into the rest of the hole's line: if it has begun to repeat that, it goes.
            const std::string_view line = std::string_view(all_).substr(line_);
            const std::string whole = line_ == 0 ? tail_ + std::string(line) : std::string(line);
            const bool begun = whole.size() > tail_.size() && (tail_ + rest_).starts_with(whole);
            if (begun) stop(line_ == 0 ? 0 : line_ + tail_.size());
        }
        stopped_ = true;
    }
    return show(all_.size());
}

std::string Hole::show(std::size_t end) {
    if (end <= shown_.size()) return {};
    std::string more = all_.substr(shown_.size(), end - shown_.size());
    shown_ += more;
    return more;
}

void Hole::take(char c) {
    const std::size_t at = all_.size();
    all_ += c;
    if (c == '\n') {
        if (!head_seen_ && at > line_) look_at_head(std::string_view(all_).substr(0, at));
        if (!stopped_) end_line(at);
        if (stopped_) return;
        take_code(c);
        line_ = at + 1;
        depth_of_line_ = depth_;
        line_in_string_ = long_quote_ != 0;
        head_seen_ = false;
        if (!sees_suffix_ && !tail_blank_ && !rest_.empty() && depth_ <= 0) stop(at);
        return;
    }
    if (!head_seen_ && !is_word(c) && c != '#') {
        const std::size_t word =
            kBlank.find(c) == kBlank.npos && is_blank(std::string_view(all_).substr(line_, at - line_)) ? at + 1 : at;
        if (!is_blank(std::string_view(all_).substr(line_, word - line_))) {
            look_at_head(std::string_view(all_).substr(0, word));
        }
        if (stopped_) return;
    }
    const bool in_string = quote_ != 0 || long_quote_ != 0;
    if (!in_string && !rest_.empty() && c == rest_.front() && kClosing.find(c) != kClosing.npos && depth_ <= 0) {
        return stop(at);
    }
    take_code(c);
}

void Hole::take_code(char c) {
    const char before = std::exchange(last_, last_ == '\\' && c == '\\' ? '\0' : c);
    if (c == '\n') {
        quote_ = 0;
        quotes_in_row_ = 0;
        return;
    }
    if (c == '"' || c == '\'') {
        quotes_in_row_ = before == c ? quotes_in_row_ + 1 : 1;
        if (quotes_in_row_ == 3 && (long_quote_ == 0 || long_quote_ == c)) {
            long_quote_ = long_quote_ == 0 ? c : '\0';
            quote_ = 0;
            quotes_in_row_ = 0;
            last_ = '\0';
        } else if (long_quote_ == 0 && before != '\\') {
            const bool apostrophe = c == '\'' && is_word(before);
            if (quote_ == c) {
                quote_ = 0;
            } else if (quote_ == 0 && !apostrophe) {
                quote_ = c;
            }
        }
        return;
    }
    quotes_in_row_ = 0;
    if (quote_ != 0 || long_quote_ != 0) return;
    if (kOpening.find(c) != kOpening.npos) ++depth_;
    if (kClosing.find(c) != kClosing.npos) --depth_;
}

// `head`: the text up to the end of the line's first word, or its first character that is none.
void Hole::look_at_head(std::string_view head) {
    const std::string_view line = head.substr(line_);
    const std::size_t begin = line.find_first_not_of(kBlank);
    if (begin == line.npos) return;
    head_seen_ = true;
    const std::string_view word = line.substr(begin);
    if (line_ == 0 && !tail_blank_) return;  // it continues the line of the hole
    const std::size_t indent = indent_of(line_ == 0 ? tail_ + std::string(line) : std::string(line));
    if (line_in_string_ || indent >= least_indent_ || is_directive(word)) return;
    const bool goes_on = opens_block(last_line_) && indent == indent_of(last_line_) && continues_block(word);
    const bool closes_own = depth_of_line_ > 0 && kClosing.find(word.front()) != kClosing.npos;
    if (!goes_on && !closes_own) stop_before_line(false);
}

int Hole::depth_at(std::size_t end) const {
    Hole copy(*this);
    copy.depth_ = depth_of_line_;
    copy.quote_ = 0;
    copy.long_quote_ = 0;
    copy.last_ = '\n';
    for (const char c : std::string_view(all_).substr(line_, end - line_)) copy.take_code(c);
    return copy.depth_;
}

// Compares the line that ends at `end` with the surroundings.
void Hole::end_line(std::size_t end) {
    const std::string_view line = without_blank_end(std::string_view(all_).substr(line_, end - line_));
    if (line.empty()) return;
    const std::string whole = line_ == 0 ? tail_ + std::string(line) : std::string(line);
    if (!rest_.empty()) {
        const bool again = tail_blank_ ? whole == tail_ + rest_ : line.ends_with(rest_);
        if (!again) return;
        const std::size_t cut = line_ + line.size() - rest_.size();
        if (tail_blank_ || depth_at(cut) <= 0) stop(cut);
    } else if (!next_line_.empty() && whole == next_line_ && (line_ > 0 || tail_blank_)) {
        const char first = next_line_[next_line_.find_first_not_of(kBlank)];
        if (kClosing.find(first) == kClosing.npos || depth_of_line_ <= 0) stop_before_line(true);
    }
}

void Hole::stop(std::size_t cut) {
    stopped_ = true;
    all_.resize(cut);
}

// `repeated`: the line is the suffix's. Otherwise the model has left the block.
void Hole::stop_before_line(bool repeated) {
    stop(line_);
    const std::size_t content = without_blank_end(all_).size();
    if (repeated) {
        // Blank lines that the suffix has, too.
        std::size_t same = std::min(lead_.size(), all_.size() - content);
        while (same > 0 && !all_.ends_with(std::string_view(lead_).substr(0, same))) --same;
        all_.resize(all_.size() - same);
    } else {
        all_.resize(content);
        // What follows the hole on its line gets a line of its own again.
        if (tail_blank_ && !rest_.empty() && content > 0) all_ += "\n" + tail_;
    }
}

std::size_t Hole::certain() const {
    std::size_t end = all_.size();
    const std::string_view line = std::string_view(all_).substr(line_);
    const std::string whole = line_ == 0 ? tail_ + std::string(line) : std::string(line);
    const auto begins = [&](const std::string& other) {
        return std::string_view(other).starts_with(without_blank_end(whole));
    };
    const bool may_be_rest = !rest_.empty() && tail_blank_ && begins(tail_ + rest_);
    const bool may_be_next = rest_.empty() && !next_line_.empty() && begins(next_line_);
    if (!head_seen_ || may_be_rest || may_be_next) {
        end = line_;
    } else if (!rest_.empty() && !tail_blank_) {
        const std::size_t content = without_blank_end(line).size();
        end = line_ + content - std::min(content, rest_.size());
    }
    // Blank lines at the end may go.
    end = without_blank_end(std::string_view(all_).substr(0, end)).size();
    while (end > 0 && end < all_.size() && (static_cast<unsigned char>(all_[end]) & 0xc0u) == 0x80u) --end;
    return end;
}

}  // namespace foresay::app
