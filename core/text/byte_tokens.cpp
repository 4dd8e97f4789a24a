#include "core/text/byte_tokens.h"

#include <charconv>
#include <system_error>

namespace foresay::core {

std::optional<unsigned char> byte_of_token(std::string_view text) {
    if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return std::nullopt;
    unsigned int value = 0;
    const auto [end, error] = std::from_chars(text.data() + 3, text.data() + 5, value, 16);
    if (error != std::errc() || end != text.data() + 5) return std::nullopt;
    return static_cast<unsigned char>(value);
}

void mark_byte_tokens(TokenizerData& data) {
    for (std::size_t id = 0; id < data.tokens.size(); ++id)
        if (data.types[id] == TokenType::normal && byte_of_token(data.tokens[id])) data.types[id] = TokenType::byte;
}

}  // namespace foresay::core
