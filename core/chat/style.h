// core/chat/style.h: chooses the chat format and the system prompt from the configuration and the model.
//
// Errors:   Error with the place in the configuration if the model lacks what the configured style needs.
#pragma once

#include <memory>
#include <string>

#include "core/chat/chat_template.h"
#include "core/config/config.h"
#include "core/text/chat_format.h"
#include "core/text/fill.h"
#include "core/text/tokenizer.h"

namespace foresay::core {

struct ChatStyle {
    ChatFormat format = ChatFormat::complete;
    std::string system;   // the system prompt; may be empty; `complete` has no place for one
    bool newline = true;  // of `complete`: entries are whole lines
    FimOrder fim_order = FimOrder::psm;
    std::shared_ptr<const ChatTemplate> chat = {};  // of ChatFormat::own, and only there
    ChatOptions options = {};                       // of the same
    AnswerMarkup markup = {};                       // how answers tell reasoning from content
};

// From the keys of [chat]; "auto" is the chat template, where there is one. `chat`: what open_chat_template() gave for
// chat.template and this tokenizer.
ChatStyle chat_style(const Config& config, const Tokenizer& tokenizer, const OpenedTemplate& chat);

// Why the style has no place for a system prompt, as a sentence that begins with "the style" or "the model's"; empty:
// it has one.
std::string why_no_system(const ChatStyle& style);

FimOrder fim_order(const Config& config);

// A sentence for the user if there is a system prompt but the style has no place for one; empty otherwise.
std::string unused_system_notice(const Config& config, const Tokenizer& tokenizer, const OpenedTemplate& chat);

// A sentence for the user if the model has a chat template that cannot be used; empty otherwise.
std::string unusable_template_notice(const Config& config, const Tokenizer& tokenizer, const OpenedTemplate& chat);

}  // namespace foresay::core
