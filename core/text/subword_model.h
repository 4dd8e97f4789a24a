// core/text/subword_model.h: turns a piece of text into tokens.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace foresay::core {

class SubwordModel {
public:
    virtual ~SubwordModel() = default;
    // Appends the tokens of `piece`, any bytes. Text without a token becomes `unknown`, or nothing when that is -1.
    virtual void encode(std::string_view piece, std::int32_t unknown, std::vector<std::int32_t>& ids) const = 0;
};

}  // namespace foresay::core
