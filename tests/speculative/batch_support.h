// tests/speculative/batch_support.h: parts for tests of batches.
#pragma once

#include <deque>

#include "speculative/batch_generator.h"
#include "tests/speculative/support.h"

namespace foresay::test {

// Keeps what one sequence says.
class Recorder final : public speculative::Sink {
public:
    void token(const speculative::TokenEvent& event) override {
        EXPECT_FALSE(ended) << "a token after the end";
        if (event.token >= 0) tokens.push_back(event.token);
        text += event.text;
        if (!event.logprobs.empty()) logprobs.emplace_back(event.logprobs.begin(), event.logprobs.end());
        if (on_token) on_token();
    }
    void end(const speculative::BatchEnd& end) override {
        EXPECT_FALSE(ended) << "ended twice";
        ended = true;
        result = end.result;
        error = end.error;
        if (on_end) on_end();
    }

    std::vector<std::int32_t> tokens;
    std::string text;
    std::vector<std::vector<speculative::TokenLogprob>> logprobs;
    bool ended = false;
    speculative::GenerateResult result;
    std::string error;
    std::function<void()> on_token, on_end;
};

inline speculative::BatchGenerator make_batch(core::ContextOptions options, std::int32_t prefill_rows_beside = 64,
                                              std::shared_ptr<const core::Model> target = nullptr) {
    if (target == nullptr) target = bundled(fast_backend(), "target");
    return speculative::BatchGenerator({.target = std::make_unique<core::Context>(std::move(target), options),
                                        .tokenizer = &tokenizer(),
                                        .end_tokens = {},
                                        .prefill_rows_beside = prefill_rows_beside});
}

inline core::ContextOptions for_sequences(std::int32_t sequences, std::int32_t length = context_options().length) {
    core::ContextOptions options = context_options();
    options.length = length;
    options.sequences = sequences;
    return options;
}

}  // namespace foresay::test
