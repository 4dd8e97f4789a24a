// core/text/unicode.h: properties and normalisation forms of Unicode, from utf8proc.
//
// Threads:  pure functions.
// Cost:     linear in the text, except that a run of n combining marks out of order takes O(n log n).
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace foresay::core {

enum class NormalForm : std::uint8_t { nfc, nfd, nfkc, nfkd };

// Appends `text` in the normalisation form. Bytes that are not UTF-8 stay as they are.
void append_normalized(std::string_view text, NormalForm form, std::string& out);

bool is_white_space(char32_t code);  // White_Space
bool is_word(char32_t code);         // letters, marks, digits, joiners and connecting punctuation such as _

// Length in bytes of the first extended grapheme cluster of `text`, which must be valid UTF-8 and not empty.
std::size_t grapheme_length(std::string_view text);

}  // namespace foresay::core
