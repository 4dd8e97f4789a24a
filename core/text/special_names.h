// core/text/special_names.h: special tokens by the texts that model families use for them, and the check of their ids.
//
// Many files do not name all end-of-text and fill-in-the-middle tokens, so control tokens are also recognised by their
// text.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer_data.h"

namespace foresay::core {

// Id of the control token with this text, or -1.
using FindControl = std::function<std::int32_t(std::string_view text)>;

// Fills in the ids that `special` lacks.
void complete_special_tokens(const FindControl& find, SpecialTokens& special);

// The ids that end a generation: those of `special` and `named`, and control tokens known to end a text, a turn or a
// file. Increasing, each once.
std::vector<std::int32_t> end_of_text_ids(const FindControl& find, const SpecialTokens& special,
                                          const std::vector<std::int32_t>& named);

// Throws Error if the id that `key` of the file `source` names is outside the vocabulary.
void check_token_id(std::int64_t id, std::int64_t vocabulary, const std::string& source, const std::string& key);

}  // namespace foresay::core
