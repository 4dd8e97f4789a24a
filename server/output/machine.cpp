#include "server/output/machine.h"

#include <utility>

namespace foresay::server {

OutputMachine::OutputMachine(const OutputFormat& format, const core::AnswerMarkup& markup,
                             const core::Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                             const std::vector<Tool>& tools)
    : parser_(markup, tokenizer, prompt) {
    if (tools.empty()) return;
    calls_ = std::make_unique<CallParser>(format.family, tools);
    parser_.show_controls(format.controls);
}

OutputMachine::OutputMachine(const core::Tokenizer& tokenizer) : parser_(core::AnswerMarkup{}, tokenizer, {}) {}

void OutputMachine::push(std::int32_t token, std::vector<OutputEvent>& out) {
    parser_.push(token, parts_);
    pass_on(out);
}

void OutputMachine::finish(std::vector<OutputEvent>& out) {
    parser_.finish(parts_);
    pass_on(out);
    if (calls_) calls_->finish(out);
}

void OutputMachine::pass_on(std::vector<OutputEvent>& out) {
    for (core::AnswerPart& part : parts_) {
        if (part.reasoning) {
            // What may become a call ends where reasoning begins.
            if (calls_) calls_->finish(out);
            out.push_back({OutputEvent::Kind::reasoning, std::move(part.text), {}});
        } else if (calls_) {
            calls_->push(part.text, out);
        } else {
            out.push_back({OutputEvent::Kind::content, std::move(part.text), {}});
        }
    }
    parts_.clear();
}

}  // namespace foresay::server
