// core/text/utf8.h: decoding and checking of UTF-8.
//
// Invalid bytes follow the Unicode standard's "maximal subpart" practice: the longest beginning of a character that a
// byte then breaks is one error, and so is any other invalid byte. Each error becomes one U+FFFD.
// Threads:  pure functions.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace foresay::core {

inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Status {
    valid,       // a whole character
    invalid,     // not a character, whatever follows
    incomplete,  // the text ends inside what may still become a character
};

struct Utf8Step {
    Utf8Status status = Utf8Status::valid;
    std::size_t length_bytes = 0;  // of the character, or of the maximal invalid or incomplete part
    char32_t code = 0;             // when valid
};

// Looks at the character that starts at text[0]. `text` must not be empty.
Utf8Step next_utf8(std::string_view text);

// Length in bytes of the longest prefix that is valid UTF-8.
std::size_t valid_utf8_prefix(std::string_view text);

inline bool is_valid_utf8(std::string_view text) { return valid_utf8_prefix(text) == text.size(); }

// Appends `text` to `out`, errors (an incomplete end among them) as U+FFFD.
void append_valid_utf8(std::string_view text, std::string& out);
std::string to_valid_utf8(std::string_view text);

// Appends the character `code`, or U+FFFD for a code that is not a character.
void append_utf8(char32_t code, std::string& out);

}  // namespace foresay::core
