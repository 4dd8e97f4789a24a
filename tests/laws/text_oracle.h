// tests/laws/text_oracle.h: the text that a model, a chain, a seed and a prompt determine, computed in the plainest
// way: evaluate a row, let the chain decide, append the token. No Generator, no speculation, no device sampling, no
// incremental text.
#pragma once

#include <optional>

#include "core/models/given_text.h"
#include "core/text/utf8.h"
#include "tests/speculative/support.h"

namespace foresay::test {

class TextOracle {
public:
    explicit TextOracle(std::shared_ptr<const core::Model> model, core::ContextOptions options = context_options())
        : context_(std::move(model), options) {}

    struct Answer {
        std::vector<std::int32_t> tokens;
        std::string text;
        speculative::FinishReason finish = speculative::FinishReason::length;
    };

    // A conversation turn: the request's input is appended to what was said before, and answered.
    Answer answer(const speculative::GenerateRequest& request, samplers::Chain& chain) {
        // The last sampled token has not been evaluated. It is a decode row, also when it is evaluated later.
        if (unseen_) {
            EXPECT_TRUE(context_.decode(std::span(&*unseen_, 1)));
        }
        EXPECT_TRUE(core::evaluate_given(context_, request.input));
        tokens_.insert(tokens_.end(), request.input.begin(), request.input.end());
        chain.begin(request.seed, request.branch, tokens_);
        Answer answer;
        std::string bytes;
        for (;;) {
            std::vector<float> logits(context_.logits(0).begin(), context_.logits(0).end());
            const std::int32_t token = chain.decide(logits).token;
            chain.accept(token);
            unseen_ = token;
            tokens_.push_back(token);
            answer.tokens.push_back(token);
            const auto ends = tokenizer().end_of_text_ids();
            bool stopped = !request.ignore_eos && std::ranges::find(ends, token) != ends.end();
            if (!stopped && !tokenizer().is_control(token)) bytes += tokenizer().bytes(token);
            stopped = stopped || cut(bytes, request.stop);
            if (stopped) answer.finish = speculative::FinishReason::stop;
            if (stopped || std::ssize(answer.tokens) == request.max_tokens) break;
            EXPECT_TRUE(context_.decode(std::span(&token, 1)));
        }
        core::append_valid_utf8(bytes, answer.text);
        return answer;
    }

private:
    // Cuts `text` before the stop string that is complete first; of several that end there, before the longest.
    static bool cut(std::string& text, std::span<const std::string> stops) {
        for (std::size_t end = 1; end <= text.size(); ++end) {
            std::size_t longest = 0;
            for (const std::string& stop : stops) {
                if (std::string_view(text).substr(0, end).ends_with(stop)) longest = std::max(longest, stop.size());
            }
            if (longest == 0) continue;
            text.resize(end - longest);
            return true;
        }
        return false;
    }

    core::Context context_;
    std::vector<std::int32_t> tokens_;
    std::optional<std::int32_t> unseen_;
};

}  // namespace foresay::test
