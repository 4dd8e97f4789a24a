// app/conversation/style.h: the chat format and system prompt that a configuration asks for, for a model.
//
// Errors:   Error with the place in the configuration when the model lacks the tokens of a format that was named.
#pragma once

#include <string>

#include "app/conversation/prompt.h"
#include "core/config/config.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// chat.style, "auto" by the model's template, with chat.system.
ChatStyle chat_style(const core::Config& config, const core::Tokenizer& tokenizer);

// One sentence for a person whose model was made for conversations in a format that is none of ours; empty otherwise.
std::string unknown_format_notice(const core::Config& config, const core::Tokenizer& tokenizer);

}  // namespace foresay::app
