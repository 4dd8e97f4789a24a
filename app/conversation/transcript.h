// app/conversation/transcript.h: a conversation as text for people: `foresay session show`, and where one is after
// /undo, /branch and /load.
//
// The first line of an entry begins with "> ", its further lines with ". "; answers are as they were generated,
// but without reasoning that is set apart. In a document (the style complete) the line breaks are those of the
// document. Where it has none, between a line and the text that continues it, that text begins with an ellipsis.
// Threads:  pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "app/conversation/turn_tree.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// `turns`: consecutive turns of a branch. Not cleaned for a terminal. Ends with a newline unless it is empty.
std::string transcript(const core::Tokenizer& tokenizer, std::span<const Turn* const> turns);

// The last `count` lines of `text`.
std::string_view last_lines(std::string_view text, std::size_t count);

}  // namespace foresay::app
