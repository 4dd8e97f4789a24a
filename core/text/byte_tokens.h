// core/text/byte_tokens.h: tokens spelled <0x00> to <0xFF>, which stand for a byte of a character without a token.
#pragma once

#include <optional>
#include <string_view>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

// The byte that "<0x0A>" stands for; nullopt for other texts.
std::optional<unsigned char> byte_of_token(std::string_view text);

// Makes normal tokens that are spelled so byte tokens, for formats that do not say which are.
void mark_byte_tokens(TokenizerData& data);

}  // namespace foresay::core
