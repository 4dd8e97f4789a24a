// core/text/bounded_encode.h: refuses text that is far too long for a context before all of it becomes tokens.
//
// Cost:     as encoding the text up to the limit; a text that has too many bytes for the limit is refused unread.
// Threads:  any.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace foresay::core {

// A number of tokens that `text` has at least. Up to `most` it is exact.
std::int64_t count_tokens(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, std::int64_t most);

// A number of tokens that `part` takes at least within a longer text, where the tokens at its ends may become others.
std::int64_t count_tokens_of_part(const Tokenizer& tokenizer, std::string_view part, EncodeOptions options,
                                  std::int64_t most);

// The tokens of `text`. Throws Error if there are more than `most`, which is what the context holds: "the prompt has at
// least 5000 tokens, but the context has 2048 positions; ...". `what` is what the text is ("the prompt").
std::vector<std::int32_t> encode_within(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options,
                                        std::int64_t most, const std::string& what);

}  // namespace foresay::core
