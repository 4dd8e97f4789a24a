// core/text/subword_model.h: turns a piece of text into tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace foresay::core {

class SubwordModel {
public:
    virtual ~SubwordModel() = default;
    // Appends the tokens of `piece`, any bytes. Text without a token becomes `unknown`, or nothing when that is -1.
    virtual void encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const = 0;

    // How many bytes `character` (one character, or invalid bytes as next_utf8() cuts them) adds to the tokens of any
    // piece that it is in, whatever is around it. 0: it may vanish, or be one of many in a single unknown token. No
    // token holds more of these bytes than TokenTable::longest_token(), so this bounds the tokens of a piece from
    // below.
    virtual std::size_t kept_bytes(std::string_view character, std::int32_t unknown) const = 0;
    // Whether kept_bytes() is the length of every character.
    virtual bool keeps_every_byte(std::int32_t unknown) const = 0;
};

}  // namespace foresay::core
