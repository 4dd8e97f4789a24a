// server/output/answer_grammar.h: what an answer must look like, as a structural tag (docs/grammars.md): reasoning as
// the model writes it, then content of a form, or calls of tools as the model's family writes them.
//
// Rules:    what the grammar allows as a call, call_syntax.h reads as that call.
// Threads:  pure functions.
// Errors:   ApiError where the family's way of writing cannot keep what was asked for.
#pragma once

#include <functional>
#include <string>

#include "core/chat/answer_markup.h"
#include "server/output/output_format.h"
#include "server/request.h"

namespace foresay::server {

struct AnswerGrammar {
    const OutputFormat& format;
    const core::AnswerMarkup& markup;
    bool in_reasoning = false;  // the prompt has opened the reasoning
    // The schema of a tool's arguments: its own, or any object where its own need not be kept and cannot be.
    std::function<Json(const Tool& tool)> schema_of;

    // Whether anything restricts the answer to the conversation.
    static bool needed(const Conversation& conversation, const AnswerForm* form);
    // The text of the structural tag.
    std::string text(const Conversation& conversation, const AnswerForm* form) const;
};

}  // namespace foresay::server
