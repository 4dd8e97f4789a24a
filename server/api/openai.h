// server/api/openai.h: OpenAI's chat and completions in their parts, and what other protocols share with them.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/api/protocol.h"

namespace foresay::server {

// {"message", "type", "param", "code"}
Json openai_error_body(const ApiError& error);
HttpResponse openai_error(const ApiError& error, const std::string& id);

// openai_fields.cpp
const Shape& chat_shape();
const Shape& completion_shape();
const Shape& fim_shape();

// openai_writers.cpp
// Log probabilities as a list: of each token its text, bytes, logprob and top_logprobs.
Json logprob_entries(const core::Tokenizer& tokenizer, std::span<const TokenNote> notes);
struct OpenAiOptions {
    bool usage = false, logprobs = false, explain = false;
    bool one_call = false;   // calls after the first one are left out
    bool old_calls = false;  // calls are told as function_call, which has one
};
std::shared_ptr<AnswerWriter> make_chat_writer(std::shared_ptr<Exchange> exchange, bool stream,
                                               const OpenAiOptions& options);
std::shared_ptr<AnswerWriter> make_completion_writer(std::shared_ptr<Exchange> exchange, bool stream,
                                                     const OpenAiOptions& options, bool echo);

}  // namespace foresay::server
