// core/text/special_names.h: special tokens by the texts that model families use for them.
//
// Files name the ends of text and the fill-in-the-middle tokens incompletely or not at all, so control tokens are also
// recognised by their text.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

// Id of the control token with this text, or -1.
using FindControl = std::function<std::int32_t(std::string_view text)>;

// Fills what `special` still lacks.
void complete_special_tokens(const FindControl& find, SpecialTokens& special);

// The ids that end a generation: those `special` and `named` give, and control tokens known to end a text, a turn or a
// file. Increasing, each once.
std::vector<std::int32_t> end_of_text_ids(const FindControl& find, const SpecialTokens& special,
                                          const std::vector<std::int32_t>& named);

}  // namespace foresay::core
