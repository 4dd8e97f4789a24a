#include "app/conversation/filled_hole.h"

#include "app/conversation/prompt.h"

namespace foresay::app {

std::optional<Surroundings> filled_hole(const core::Tokenizer& tokenizer, const Turn& turn) {
    Surroundings hole;
    if (!decode_fill(tokenizer, turn.input, hole.prefix, hole.suffix)) return std::nullopt;
    // The turn has all of the text before the hole; the tokens may lack its beginning, and the blank at its end.
    hole.blank_left_out = turn.said.ends_with(hole.prefix + " ");
    if (hole.blank_left_out) hole.prefix += ' ';
    return hole;
}

}  // namespace foresay::app
