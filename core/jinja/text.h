// core/jinja/text.h: strings of a chat template, which remember which of their bytes came from outside.
//
// A conversation is rendered by a template that the model's maker wrote, around texts that people, files and tools
// wrote. Only the former may become special tokens. So every byte carries a mark, `input` or not, through every
// operation of a template: concatenation, slices, filters, JSON.
//
// Layout:   bytes in UTF-8, and the ranges of them that are input, ascending, disjoint and not adjacent.
// Threads:  values; no shared state.
// Errors:   none. Positions are byte offsets on character boundaries; the caller keeps them within the text.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::jinja {

class Text {
public:
    struct Range {
        std::size_t begin = 0, end = 0;  // bytes
        bool operator==(const Range&) const = default;
    };

    Text() = default;
    explicit Text(std::string bytes, bool input = false);

    const std::string& bytes() const { return bytes_; }
    std::size_t size() const { return bytes_.size(); }
    bool empty() const { return bytes_.empty(); }
    std::span<const Range> input() const { return input_; }
    // Passed through the filter `safe` or `escape`: what is added to it with + is escaped, as Jinja2's Markup does.
    bool is_markup() const { return markup_; }
    Text& set_markup(bool markup) {
        markup_ = markup;
        return *this;
    }
    bool is_input(std::size_t byte) const;

    void append(const Text& other) { append(other, 0, other.size()); }
    // Appends bytes [begin, end) of `other`.
    void append(const Text& other, std::size_t begin, std::size_t end);
    void append(std::string_view bytes, bool input = false);
    // Keeps marks and is_markup().
    Text slice(std::size_t begin, std::size_t end) const;

private:
    void mark(std::size_t begin, std::size_t end);

    std::string bytes_;
    std::vector<Range> input_;
    bool markup_ = false;
};

// ---- characters of UTF-8 texts. Invalid bytes count as one character each.

// Bytes of the character at `text[at]`, at least 1.
std::size_t character_bytes(std::string_view text, std::size_t at);
// The code of that character; the byte's value when it is invalid.
char32_t character_code(std::string_view text, std::size_t at);
std::size_t count_characters(std::string_view text);
// The byte offset of each character, and one more entry: the size.
std::vector<std::size_t> character_offsets(std::string_view text);
// What Python's str.isspace() says of one character.
bool is_space(char32_t code);
// Trims characters for which `is_space` holds, or those of `characters` when it is given.
Text strip(const Text& text, bool left, bool right, const std::string* characters = nullptr);

}  // namespace foresay::jinja
