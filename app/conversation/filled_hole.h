// app/conversation/filled_hole.h: the hole that a turn of a conversation fills.
//
// Threads:  pure function.
#pragma once

#include <optional>

#include "app/conversation/turn_tree.h"
#include "app/edits/hole.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// The text around the hole, as far as the model was given it, with the blank before the hole that the model may have
// been left to write; nullopt if the turn fills none.
std::optional<Surroundings> filled_hole(const core::Tokenizer& tokenizer, const Turn& turn);

}  // namespace foresay::app
