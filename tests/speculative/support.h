// tests/speculative/support.h: parts for tests of the generator: the bundled pair, chains, and drafters that are good,
// bad or malicious.
#pragma once

#include <algorithm>
#include <functional>
#include <random>

#include "core/text/tokenizer.h"
#include "core/weights/gguf.h"
#include "kernels/ops_decorator.h"
#include "samplers/chain.h"
#include "speculative/drafters/model_drafter.h"
#include "speculative/drafters/ngram_drafter.h"
#include "speculative/generator.h"
#include "tests/models/backends.h"

namespace foresay::test {

// The bundled pair's tokenizer.
inline const core::Tokenizer& tokenizer() {
    static const core::GgufFile file = core::GgufFile::open(bundled_path("target"));
    static const core::Tokenizer loaded = core::Tokenizer::from_gguf(file);
    return loaded;
}

class TestVocabulary final : public samplers::Vocabulary {
public:
    std::int32_t size() const override { return tokenizer().vocab_size(); }
    std::string_view text(std::int32_t token) const override {
        return tokenizer().is_control(token) ? std::string_view{} : tokenizer().bytes(token);
    }
    std::int32_t find(std::string_view text) const override {
        for (std::int32_t id = 0; id < size(); ++id) {
            if (this->text(id) == text) return id;
        }
        return -1;
    }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override {
        return tokenizer().encode(text, {.add_special = false, .parse_special = false});
    }
};

inline const TestVocabulary& vocabulary() {
    static const TestVocabulary instance;
    return instance;
}

inline samplers::StageSpec stage(const std::string& name, samplers::Parameters parameters = {}) {
    return {.name = name, .parameters = std::move(parameters)};
}

inline std::unique_ptr<samplers::Chain> make_chain(const samplers::ChainSpec& spec) {
    return std::make_unique<samplers::Chain>(spec, vocabulary());
}

inline std::unique_ptr<samplers::Chain> temperature_chain(double temperature) {
    return make_chain({stage("temperature", {{"value", temperature}})});
}

inline const core::ContextOptions& context_options() {
    static const core::ContextOptions options{.length = 512, .prefill_rows = 128, .decode_rows = 33};
    return options;
}

// ------------------------------------------------------------------------------------------------ drafters for tests

// Proposes the tokens that a function returns, given the sequence and how many to propose.
class ScriptedDrafter final : public speculative::Drafter {
public:
    using Script = std::function<std::vector<std::int32_t>(std::span<const std::int32_t> tokens, std::int32_t count)>;
    ScriptedDrafter(std::string name, Script script) : name_(std::move(name)), script_(std::move(script)) {}
    std::string_view name() const override { return name_; }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override {
        for (const std::int32_t token : script_(task.tokens, task.max_tokens)) {
            drafted.tokens.push_back(token);
            drafted.margins.push_back(1.0f);
            const bool end = std::ranges::find(task.end_tokens, token) != task.end_tokens.end();
            const std::int32_t count = static_cast<std::int32_t>(drafted.tokens.size());
            if (end || count == task.max_tokens) return;
            if (task.stop_rule != nullptr && !task.stop_rule->keep_drafting(count, 1.0f)) return;
        }
    }

private:
    std::string name_;
    Script script_;
};

inline std::unique_ptr<speculative::Drafter> random_drafter(unsigned seed) {
    return std::make_unique<ScriptedDrafter>(
        "random", [random = std::mt19937(seed)](std::span<const std::int32_t>, std::int32_t count) mutable {
            std::vector<std::int32_t> drafted(static_cast<std::size_t>(count));
            for (std::int32_t& token : drafted) token = static_cast<std::int32_t>(random() % 16384);
            return drafted;
        });
}

// Knows the answer: the whole sequence, prompt included. With chance `error` a token is off by one, so that rejections
// come at every depth.
inline std::unique_ptr<speculative::Drafter> replay_drafter(std::vector<std::int32_t> sequence, double error,
                                                            unsigned seed) {
    return std::make_unique<ScriptedDrafter>(
        "replay", [sequence = std::move(sequence), error, random = std::mt19937(seed)](
                      std::span<const std::int32_t> tokens, std::int32_t count) mutable {
            std::vector<std::int32_t> drafted;
            for (std::size_t i = tokens.size(); i < sequence.size() && std::ssize(drafted) < count; ++i) {
                const bool wrong = std::uniform_real_distribution<double>(0.0, 1.0)(random) < error;
                drafted.push_back(wrong ? (sequence[i] + 1) % 16384 : sequence[i]);
            }
            return drafted;
        });
}

// Another drafter, cut to random lengths, none included.
class RandomLengthDrafter final : public speculative::Drafter {
public:
    RandomLengthDrafter(std::unique_ptr<speculative::Drafter> inner, unsigned seed)
        : inner_(std::move(inner)), random_(seed) {}
    std::string_view name() const override { return "random length"; }
    void begin(std::span<const std::int32_t> tokens) override { inner_->begin(tokens); }
    void rewind(std::int32_t length) override { inner_->rewind(length); }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override {
        speculative::DraftTask cut = task;
        cut.max_tokens = static_cast<std::int32_t>(random_() % static_cast<unsigned>(task.max_tokens + 1));
        if (cut.max_tokens > 0) inner_->propose(cut, drafted);
    }

private:
    std::unique_ptr<speculative::Drafter> inner_;
    std::mt19937 random_;
};

// The likeliest wrong answer: evaluates the target itself and proposes its second choice where the first would be
// right.
class SecondBestDrafter final : public speculative::Drafter {
public:
    explicit SecondBestDrafter(std::shared_ptr<const core::Model> model)
        : context_(std::move(model), context_options()) {}
    std::string_view name() const override { return "second best"; }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override {
        context_.truncate(0);
        context_.prefill(task.tokens);
        for (std::int32_t i = 0; i < task.max_tokens; ++i) {
            const std::span<const float> logits = context_.logits(0);
            std::size_t best = 0;
            std::size_t second = 1;
            for (std::size_t id = 1; id < logits.size(); ++id) {
                if (logits[id] > logits[best]) {
                    second = best;
                    best = id;
                } else if (logits[id] > logits[second] || second == best) {
                    second = id;
                }
            }
            // Right at first, wrong from a depth that varies.
            const bool wrong = i >= static_cast<std::int32_t>(task.tokens.size() % 4);
            const std::int32_t token = static_cast<std::int32_t>(wrong ? second : best);
            drafted.tokens.push_back(token);
            drafted.margins.push_back(0.0f);
            if (!context_.decode(std::span(&token, 1))) return;
        }
    }

private:
    core::Context context_;
};

inline std::unique_ptr<speculative::Drafter> model_drafter(std::shared_ptr<const core::Model> model,
                                                           core::ContextOptions options = context_options()) {
    return speculative::make_model_drafter(std::make_unique<core::Context>(std::move(model), options));
}

inline std::unique_ptr<speculative::Drafter> ngram_drafter() {
    return speculative::make_ngram_drafter(context_options().length);
}

// ------------------------------------------------------------------------------------------------------- generators

inline speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                             std::vector<std::unique_ptr<speculative::Drafter>> drafters,
                                             speculative::SpeculationOptions speculation,
                                             core::ContextOptions options = context_options(),
                                             std::shared_ptr<const core::Model> target = nullptr) {
    if (target == nullptr) target = bundled(fast_backend(), "target");
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(std::move(target), options);
    parts.chain = std::move(chain);
    parts.drafters = std::move(drafters);
    parts.tokenizer = &tokenizer();
    parts.end_tokens.assign(tokenizer().end_of_text_ids().begin(), tokenizer().end_of_text_ids().end());
    parts.speculation = speculation;
    return speculative::Generator(std::move(parts));
}

inline std::vector<std::unique_ptr<speculative::Drafter>> sources(
    std::unique_ptr<speculative::Drafter> first, std::unique_ptr<speculative::Drafter> second = nullptr) {
    std::vector<std::unique_ptr<speculative::Drafter>> all;
    if (first) all.push_back(std::move(first));
    if (second) all.push_back(std::move(second));
    return all;
}

inline speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                             std::unique_ptr<speculative::Drafter> drafter,
                                             speculative::SpeculationOptions speculation,
                                             core::ContextOptions options = context_options()) {
    return make_generator(std::move(chain), sources(std::move(drafter)), speculation, options);
}

inline speculative::SpeculationOptions off() { return {.mode = core::SpeculationMode::off}; }
inline speculative::SpeculationOptions fixed(std::int32_t length) {
    return {.mode = core::SpeculationMode::fixed, .draft_length = length};
}
inline speculative::SpeculationOptions automatic() { return {.mode = core::SpeculationMode::automatic}; }

// A clock by which every forward takes as long, whatever its rows: further rows are free.
inline speculative::Now free_rows() {
    static double clock;
    return [] { return clock += 1.0; };
}

// A backend whose forwards take their time on a clock of their own: so much each, and so much for each row.
class TimedOps final : public kernels::OpsDecorator {
public:
    TimedOps(kernels::Ops& inner, double forward_ms, double row_ms)
        : OpsDecorator(inner), forward_ms_(forward_ms), row_ms_(row_ms) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        clock_ += forward_ms_ + row_ms_ * static_cast<double>(batch.rows.size());
        OpsDecorator::begin(workspace, batch);
    }
    static double now() { return clock_; }

private:
    static inline double clock_ = 0.0;
    double forward_ms_, row_ms_;
};

inline std::vector<std::int32_t> prompt() {
    return tokenizer().encode("def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n");
}

}  // namespace foresay::test
