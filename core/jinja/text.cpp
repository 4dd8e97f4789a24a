#include "core/jinja/text.h"

#include <algorithm>

#include "core/text/utf8.h"

namespace foresay::jinja {

Text::Text(std::string bytes, bool input) : bytes_(std::move(bytes)) {
    if (input && !bytes_.empty()) input_.push_back({0, bytes_.size()});
}

bool Text::is_input(std::size_t byte) const {
    const auto after = std::upper_bound(input_.begin(), input_.end(), byte,
                                        [](std::size_t value, const Range& range) { return value < range.begin; });
    return after != input_.begin() && byte < std::prev(after)->end;
}

void Text::mark(std::size_t begin, std::size_t end) {
    if (begin == end) return;
    if (!input_.empty() && input_.back().end == begin) {
        input_.back().end = end;
    } else {
        input_.push_back({begin, end});
    }
}

void Text::append(const Text& other, std::size_t begin, std::size_t end) {
    const std::size_t at = bytes_.size();
    if (&other == this) {
        const Text copy = other.slice(begin, end);
        append(copy, 0, copy.size());
        return;
    }
    bytes_.append(other.bytes_, begin, end - begin);
    for (const Range& range : other.input_) {
        const std::size_t from = std::max(range.begin, begin), to = std::min(range.end, end);
        if (from < to) mark(at + from - begin, at + to - begin);
    }
}

void Text::append(std::string_view bytes, bool input) {
    const std::size_t at = bytes_.size();
    bytes_.append(bytes);
    if (input) mark(at, bytes_.size());
}

Text Text::slice(std::size_t begin, std::size_t end) const {
    Text out;
    out.append(*this, begin, end);
    out.markup_ = markup_;
    return out;
}

std::size_t character_bytes(std::string_view text, std::size_t at) {
    if (static_cast<unsigned char>(text[at]) < 0x80) return 1;
    const core::Utf8Step step = core::next_utf8(text.substr(at));
    return step.status == core::Utf8Status::valid ? step.length_bytes : 1;
}

char32_t character_code(std::string_view text, std::size_t at) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if (byte < 0x80) return byte;
    const core::Utf8Step step = core::next_utf8(text.substr(at));
    return step.status == core::Utf8Status::valid ? step.code : byte;
}

std::size_t count_characters(std::string_view text) {
    std::size_t count = 0;
    for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) ++count;
    return count;
}

std::vector<std::size_t> character_offsets(std::string_view text) {
    std::vector<std::size_t> offsets;
    offsets.reserve(text.size() + 1);
    for (std::size_t at = 0; at < text.size(); at += character_bytes(text, at)) offsets.push_back(at);
    offsets.push_back(text.size());
    return offsets;
}

bool is_space(char32_t code) {
    return (code >= 0x09 && code <= 0x0d) || (code >= 0x1c && code <= 0x20) || code == 0x85 || code == 0xa0 ||
           code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 || code == 0x2029 || code == 0x202f ||
           code == 0x205f || code == 0x3000;
}

Text strip(const Text& text, bool left, bool right, const std::string* characters) {
    const std::vector<std::size_t> at = character_offsets(text.bytes());
    const auto goes = [&](std::size_t i) {
        if (characters == nullptr) return is_space(character_code(text.bytes(), at[i]));
        const std::string one = text.bytes().substr(at[i], at[i + 1] - at[i]);
        for (std::size_t c = 0; c < characters->size(); c += character_bytes(*characters, c)) {
            if (characters->compare(c, character_bytes(*characters, c), one) == 0) return true;
        }
        return false;
    };
    std::size_t begin = 0, end = at.size() - 1;
    while (left && begin < end && goes(begin)) ++begin;
    while (right && end > begin && goes(end - 1)) --end;
    return text.slice(at[begin], at[end]);
}

}  // namespace foresay::jinja
