// tests/speculative/batch_support.h: parts for tests of batches.
#pragma once

#include <deque>
#include <sstream>

#include "core/models/given_text.h"
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

// By a clock of their own: how many forwards of decode rows come between two of prompts is decided by what both take.
inline speculative::BatchParts batch_parts(core::ContextOptions options,
                                           std::shared_ptr<const core::Model> target = nullptr) {
    if (target == nullptr) target = bundled(fast_backend(), "target");
    const std::int32_t short_given = core::short_given_tokens(target->ops());
    return {.target = std::make_unique<core::Context>(std::move(target), options),
            .short_given = short_given,
            .tokenizer = &tokenizer(),
            .end_tokens = {},
            .now = free_rows()};
}

inline speculative::BatchGenerator make_batch(core::ContextOptions options,
                                              std::shared_ptr<const core::Model> target = nullptr) {
    return speculative::BatchGenerator(batch_parts(options, std::move(target)));
}

// Whether no page is held by anything but beginnings that are kept.
inline bool no_page_is_lost(speculative::BatchGenerator& batch) {
    batch.forget();
    return batch.target().cache().free_pages() == batch.target().cache().pages().pages;
}

// A device evaluates them in another class of rows than long ones.
inline bool takes_short_prompts_as_decode_rows() { return core::short_given_tokens(fast_backend().ops()) > 0; }

// `text` with one line of twenty changed.
inline std::vector<std::int32_t> edited_lines(const std::string& text) {
    std::istringstream lines(text);
    std::string edited;
    int number = 0;
    for (std::string line; std::getline(lines, line); ++number) {
        edited += number % 20 == 10 ? "    edited = other(" + std::to_string(number) + ")" : line;
        edited += '\n';
    }
    return tokenizer().encode(edited);
}

inline core::ContextOptions for_sequences(std::int32_t sequences, std::int32_t length = context_options().length) {
    core::ContextOptions options = context_options();
    options.length = length;
    options.sequences = sequences;
    return options;
}

}  // namespace foresay::test
