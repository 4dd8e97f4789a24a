// server/output/machine.h: an answer's tokens as events: reasoning, content, calls of tools.
//
// Rules:    nothing fails. What is no whole call is content, byte for byte. A call is told when it is complete. The
//           same text gives the same events, wherever it is cut: adjacent pieces of one kind count as one event.
// Threads:  one caller for each machine.
// Cost:     linear in the text; a call that is being written is looked at again with each piece.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/chat/answer_markup.h"
#include "server/output/call_parser.h"
#include "server/output/output_format.h"

namespace foresay::server {

class OutputMachine {
public:
    // Of an answer to a conversation. `prompt`: its tokens, which may have opened the reasoning. `tools`: those that
    // may be called; none: calls are content.
    OutputMachine(const OutputFormat& format, const core::AnswerMarkup& markup, const core::Tokenizer& tokenizer,
                  std::span<const std::int32_t> prompt, const std::vector<Tool>& tools);
    // For a text that is continued: all of it is content.
    explicit OutputMachine(const core::Tokenizer& tokenizer);

    void push(std::int32_t token, std::vector<OutputEvent>& out);
    void finish(std::vector<OutputEvent>& out);
    bool in_reasoning() const { return parser_.in_reasoning(); }

private:
    void pass_on(std::vector<OutputEvent>& out);

    core::AnswerParser parser_;
    std::unique_ptr<CallParser> calls_;  // null: no tools
    std::vector<core::AnswerPart> parts_;
};

}  // namespace foresay::server
