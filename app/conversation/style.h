// app/conversation/style.h: chooses the chat format and the system prompt from the configuration and the model.
//
// Errors:   Error with the place in the configuration if the model lacks the tokens of the configured format.
#pragma once

#include <string>

#include "app/conversation/prompt.h"
#include "core/config/config.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// From chat.style, chat.system, chat.newline and chat.fim_order; "auto" detects the format from the model's chat
// template.
ChatStyle chat_style(const core::Config& config, const core::Tokenizer& tokenizer);

FimOrder fim_order(const core::Config& config);

// A sentence for the user if there is a system prompt but the style has no place for one; empty otherwise.
std::string unused_system_notice(const core::Config& config, const core::Tokenizer& tokenizer);

// A sentence for the user if the model has a chat template that foresay does not know; empty otherwise.
std::string unknown_format_notice(const core::Config& config, const core::Tokenizer& tokenizer);

}  // namespace foresay::app
