// core/text/byte_alphabet.h: the byte-level alphabet, which spells every byte as one printable character.
//
// Bytes that are printable characters of Latin-1 spell themselves (! to ~, U+00A1 to U+00AC, U+00AE to U+00FF); the 68
// others take the characters from U+0100 on, in order: a space is U+0120.
// Threads:  pure functions.
// Source:   GPT-2's encoder.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace foresay::core {

// The character that spells `byte`, below U+0144.
char32_t byte_to_character(std::uint8_t byte);

// Appends the bytes that `text` spells to `out`; returns false and leaves `out` unchanged when some character
// spells none.
bool append_spelled_bytes(std::string_view text, std::string& out);

// Appends the spelling of `bytes` to `out`.
void append_spelling(std::string_view bytes, std::string& out);

}  // namespace foresay::core
