// app/conversation/style.h: chooses the chat format and the system prompt from the configuration and the model.
//
// Errors:   Error with the place in the configuration if the model lacks what the configured style needs.
#pragma once

#include <string>

#include "app/conversation/prompt.h"
#include "core/chat/chat_template.h"
#include "core/config/config.h"
#include "core/text/tokenizer.h"

namespace foresay::app {

// From the keys of [chat]; "auto" is the chat template, where there is one. `chat`: what open_chat_template() gave for
// chat.template and this tokenizer.
ChatStyle chat_style(const core::Config& config, const core::Tokenizer& tokenizer, const core::OpenedTemplate& chat);

// Why the style has no place for a system prompt, as a sentence that begins with "the style" or "the model's"; empty:
// it has one.
std::string why_no_system(const ChatStyle& style);

FimOrder fim_order(const core::Config& config);

// A sentence for the user if there is a system prompt but the style has no place for one; empty otherwise.
std::string unused_system_notice(const core::Config& config, const core::Tokenizer& tokenizer,
                                 const core::OpenedTemplate& chat);

// A sentence for the user if the model has a chat template that cannot be used; empty otherwise.
std::string unusable_template_notice(const core::Config& config, const core::Tokenizer& tokenizer,
                                     const core::OpenedTemplate& chat);

}  // namespace foresay::app
