// Markdown is read line by line: only the beginning of a line is ever undecided, until it is clear whether it is a
// fence (three backticks or tildes), a heading or text.
#include "app/highlight/highlighter.h"

#include <algorithm>
#include <cctype>

namespace foresay::app {

namespace {

constexpr std::size_t kFence = 3;          // characters that a fence has at least
constexpr std::size_t kHeadings = 6;       // levels
constexpr std::size_t kLongestStart = 80;  // a line that begins with more blanks, or a longer fence, is text
constexpr std::size_t kLongestInfo = 100;  // what counts of the text after a fence
static_assert(kLongestStart <= CodeHighlighter::kMostHeld);

// "```python title=x" and "```{python}" name python.
const Language* named_language(std::string_view info) {
    const std::size_t begin = info.find_first_not_of(" \t{.");
    if (begin == info.npos) return nullptr;
    std::size_t end = begin;
    const auto is_part = [&](char c) {
        return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '+' || c == '#' || c == '-' || c == '_';
    };
    while (end < info.size() && is_part(info[end])) ++end;
    return find_language(info.substr(begin, end - begin));
}

}  // namespace

Highlighter Highlighter::markdown(const Language* unnamed) {
    Highlighter highlighter;
    highlighter.unnamed_ = unnamed;
    return highlighter;
}

Highlighter Highlighter::code(const Language& language) {
    Highlighter highlighter;
    highlighter.mode_ = Mode::only_code;
    highlighter.code_.emplace(language);
    return highlighter;
}

void Highlighter::add(std::string_view text, Runs& out) {
    if (mode_ == Mode::only_code) return code_->add(text, out);
    held_ += text;
    while (at_ < held_.size() && step(out, false)) {
    }
    held_.erase(0, at_);
    at_ = 0;
}

void Highlighter::finish(Runs& out) {
    while (at_ < held_.size() && step(out, true)) {
    }
    held_.clear();
    at_ = 0;
    if (code_) code_->finish(out);
}

void Highlighter::take(std::size_t count, Look look, Runs& out) {
    append(out, std::string_view(held_).substr(at_, count), look);
    at_ += count;
}

// Takes the front of held_, or returns false because more text is needed.
bool Highlighter::step(Runs& out, bool last) {
    if (mode_ == Mode::line_start) return in_block_ ? code_line_start(out, last) : prose_line_start(out, last);
    const std::size_t end = std::min(held_.find('\n', at_), held_.size() - 1) + 1;
    const std::string_view line = std::string_view(held_).substr(at_, end - at_);
    const bool whole = line.ends_with('\n');
    switch (mode_) {
        case Mode::code_line:
            if (code_) {
                code_->add(line, out);
                at_ = end;
            } else {
                take(line.size(), Look::plain, out);
            }
            break;
        case Mode::heading:
            take(line.size(), Look::name, out);
            break;
        case Mode::fence: {
            // The fence itself may still go on.
            std::size_t more = 0;
            while (info_.empty() && more < line.size() && line[more] == fence_) ++more;
            fence_size_ += more;
            info_ += line.substr(more, kLongestInfo - std::min(kLongestInfo, info_.size()));
            take(line.size(), Look::comment, out);
            if (whole) end_fence_line();
            break;
        }
        case Mode::prose: {
            const std::size_t tick = line.find('`');
            if (tick == 0) {
                mode_ = Mode::inline_code;
                ticks_ = tick_run_ = 0;
                opening_ = true;
                return true;
            }
            take(std::min(tick, line.size()), Look::plain, out);
            if (tick != line.npos) return true;
            break;
        }
        default:
            inline_step(out);
            return true;
    }
    if (whole) mode_ = Mode::line_start;
    return true;
}

void Highlighter::inline_step(Runs& out) {
    const char c = held_[at_];
    if (c == '\n') {
        mode_ = Mode::prose;
        return;
    }
    if (c == '`') {
        ++(opening_ ? ticks_ : tick_run_);
    } else {
        opening_ = false;
        if (tick_run_ == ticks_) {
            mode_ = Mode::prose;
            return;
        }
        tick_run_ = 0;
    }
    take(1, Look::number, out);
}

bool Highlighter::prose_line_start(Runs& out, bool last) {
    const std::string_view text = std::string_view(held_).substr(at_, kLongestStart);
    const bool whole = last || text.size() == kLongestStart;
    const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
    if (begin == text.size() && !whole) return false;
    mode_ = Mode::prose;
    if (begin == text.size()) return true;
    const char mark = text[begin];
    const std::size_t end = std::min(text.find_first_not_of(mark, begin), text.size());
    const std::size_t count = end - begin;
    if (mark == '`' || mark == '~') {
        if (count >= kFence) {
            mode_ = Mode::fence;
            fence_ = mark;
            fence_size_ = 0;  // counted as the fence is taken
            info_.clear();
            if (begin > 0) take(begin, Look::comment, out);
            return true;
        }
        if (end == text.size() && !whole) mode_ = Mode::line_start;
    } else if (mark == '#' && count <= kHeadings) {
        if (end == text.size() && !whole) {
            mode_ = Mode::line_start;
        } else if (end < text.size() && (text[end] == ' ' || text[end] == '\t')) {
            mode_ = Mode::heading;
        }
    }
    return mode_ != Mode::line_start;
}

void Highlighter::end_fence_line() {
    // A line like ```x``` is code within text.
    if (fence_ == '`' && info_.find('`') != info_.npos) return;
    in_block_ = true;
    const Language* language = named_language(info_);
    const bool named = info_.find_first_not_of(" \t\n") != info_.npos;
    if (!named) language = unnamed_;
    if (language) code_.emplace(*language);
}

bool Highlighter::code_line_start(Runs& out, bool last) {
    const std::string_view text = std::string_view(held_).substr(at_, kLongestStart);
    const std::size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
    const std::size_t end = std::min(text.find_first_not_of(fence_, begin), text.size());
    const std::size_t stop = std::min(text.find_first_not_of(" \t", end), text.size());
    const bool open_end = stop == text.size();
    const bool fence_so_far = begin == text.size() || end == text.size() || end - begin >= fence_size_;
    if (open_end && fence_so_far && !last && text.size() < kLongestStart) return false;
    const bool closes = end - begin >= fence_size_ && (open_end ? last : text[stop] == '\n');
    if (!closes) {
        mode_ = Mode::code_line;
        return true;
    }
    if (code_) code_->finish(out);
    code_.reset();
    in_block_ = false;
    fence_ = 0;
    take(stop, Look::comment, out);
    mode_ = Mode::prose;  // of which only the newline is left
    return true;
}

}  // namespace foresay::app
