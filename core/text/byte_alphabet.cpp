#include "core/text/byte_alphabet.h"

#include <array>

#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr char32_t kCharacters = 0x144;

struct Alphabet {
    std::array<char32_t, 256> character{};
    std::array<std::int16_t, kCharacters> byte{};  // -1: spells none

    constexpr Alphabet() {
        byte.fill(-1);
        char32_t next = 0x100;
        for (int b = 0; b < 256; ++b) {
            const bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
            character[static_cast<std::size_t>(b)] = printable ? static_cast<char32_t>(b) : next++;
            byte[character[static_cast<std::size_t>(b)]] = static_cast<std::int16_t>(b);
        }
    }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t byte_to_character(std::uint8_t byte) { return kAlphabet.character[byte]; }

bool append_spelled_bytes(std::string_view text, std::string& out) {
    const std::size_t start = out.size();
    for (std::size_t i = 0; i < text.size();) {
        auto code = static_cast<char32_t>(static_cast<unsigned char>(text[i]));
        std::size_t length = 1;
        if (code >= 0x80) {  // the alphabet has no character of more than two bytes
            const bool two = code >= 0xC2 && code <= 0xC5 && i + 1 < text.size() &&
                             (static_cast<unsigned char>(text[i + 1]) & 0xC0) == 0x80;
            code = two ? ((code & 0x1F) << 6) | (static_cast<unsigned char>(text[i + 1]) & 0x3F) : kCharacters;
            length = 2;
        }
        if (code >= kCharacters || kAlphabet.byte[code] < 0) {
            out.resize(start);
            return false;
        }
        out.push_back(static_cast<char>(kAlphabet.byte[code]));
        i += length;
    }
    return true;
}

void append_spelling(std::string_view bytes, std::string& out) {
    for (const char c : bytes) append_utf8(byte_to_character(static_cast<std::uint8_t>(c)), out);
}

}  // namespace foresay::core
