// core/text/fill.h: prompts for fill-in-the-middle: the text that is missing between two others.
//
// Threads:  pure functions.
// Cost:     as encoding both texts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace foresay::core {

// How a fill-in-the-middle prompt has the texts around the hole.
enum class FimOrder : std::uint8_t {
    psm,  // <PRE>prefix<SUF>suffix<MID>
    spm,  // <PRE><SUF>suffix<MID>prefix: the model continues the prefix
};

// Whether the model has the special tokens of fill-in-the-middle.
bool has_fill_tokens(const Tokenizer& tokenizer);
// Whether a generated token begins another part of such a prompt: the middle has ended.
bool ends_middle(const Tokenizer& tokenizer, std::int32_t token);
// How many tokens the texts around a hole may take: what the answer leaves of the context, and at least half of it.
// `max_tokens`: of the answer; 0: no limit.
std::int64_t fill_room(std::int64_t capacity, std::int64_t max_tokens);
// The tokens of a fill-in-the-middle prompt. If both texts need more than `room` tokens, the parts farthest from the
// hole are left out; the prefix gets at least three quarters of the room, if it needs that much. For a model without
// the special tokens: the prefix alone, as a document that the model continues.
std::vector<std::int32_t> encode_fill(const Tokenizer& tokenizer, std::string_view prefix, std::string_view suffix,
                                      std::int64_t room, FimOrder order);
// Whether encode_fill() leaves out the last blank of the prefix, because the model continues the prefix: a token holds
// a word and the blank before it, so after a blank most words are out of reach. The model writes the blank itself.
bool leaves_out_blank(const Tokenizer& tokenizer, std::string_view prefix, FimOrder order);
// The inverse, of either order: the texts before and after the hole, without what was left out. False if `input` does
// not come from encode_fill().
bool decode_fill(const Tokenizer& tokenizer, const std::vector<std::int32_t>& input, std::string& prefix,
                 std::string& suffix);

}  // namespace foresay::core
