// grammar/characters.h: sets of Unicode characters, and the bytes that write them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "grammar/expressions.h"

namespace foresay::grammar {

// Ranges of code points, both ends included. normalize() sorts and joins them and removes surrogates.
class CharacterSet {
public:
    using Range = std::pair<std::uint32_t, std::uint32_t>;

    CharacterSet() = default;
    CharacterSet(std::initializer_list<Range> ranges) : ranges_(ranges) { normalize(); }
    static CharacterSet all() { return {{0, 0x10FFFF}}; }
    void add(std::uint32_t first, std::uint32_t last) { ranges_.emplace_back(first, last); }
    void add(const CharacterSet& other) { ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end()); }
    void normalize();
    CharacterSet inverted() const;  // of a normalized set
    CharacterSet common_with(const CharacterSet& other) const;
    bool contains(std::uint32_t c) const;
    bool empty() const { return ranges_.empty(); }
    const std::vector<Range>& ranges() const { return ranges_; }

private:
    std::vector<Range> ranges_;
};

// One character of the set in UTF-8.
Expression utf8(Expressions& expressions, const CharacterSet& set);

// Appends a character in UTF-8.
void append_utf8(std::string& text, std::uint32_t c);
// Takes a character off the beginning of `text`; -1 where it is not well-formed UTF-8.
std::int64_t take_utf8(std::string_view& text);

// How the characters of a text are written where the grammar's text has them.
enum class Writing : std::uint8_t {
    plain,  // UTF-8
    json,   // inside a JSON string: UTF-8; quotes, backslashes and control characters as escapes, each in one way (the
            // digits of \u00XX in either case), so that different writing means different text
};

// One character of the set, as it is written.
Expression write(Expressions& expressions, const CharacterSet& set, Writing writing);
// A text, as it is written. `text` is UTF-8.
Expression write(Expressions& expressions, std::string_view text, Writing writing);

}  // namespace foresay::grammar
