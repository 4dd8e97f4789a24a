// tests/speculative/support.h: parts for tests of the generator: the bundled pair, chains, and drafters that are good,
// bad or malicious.
#pragma once

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "core/text/tokenizer.h"
#include "kernels/ops_decorator.h"
#include "samplers/chain.h"
#include "speculative/generator.h"
#include "tests/models/backends.h"

namespace foresay::test {

// The bundled pair's tokenizer.
const core::Tokenizer& tokenizer();

const samplers::Vocabulary& vocabulary();

inline samplers::StageSpec stage(const std::string& name, samplers::Parameters parameters = {}) {
    return {.name = name, .parameters = std::move(parameters)};
}

std::unique_ptr<samplers::Chain> make_chain(const samplers::ChainSpec& spec);

std::unique_ptr<samplers::Chain> temperature_chain(double temperature);

const core::ContextOptions& context_options();

// ------------------------------------------------------------------------------------------------ drafters for tests

// Proposes the tokens that a function returns, given the sequence and how many to propose.
class ScriptedDrafter final : public speculative::Drafter {
public:
    using Script = std::function<std::vector<std::int32_t>(std::span<const std::int32_t> tokens, std::int32_t count)>;
    ScriptedDrafter(std::string name, Script script) : name_(std::move(name)), script_(std::move(script)) {}
    std::string_view name() const override { return name_; }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override;

private:
    std::string name_;
    Script script_;
};

std::unique_ptr<speculative::Drafter> random_drafter(unsigned seed);

// Knows the answer: the whole sequence, prompt included. With chance `error` a token is off by one, so that rejections
// come at every depth.
std::unique_ptr<speculative::Drafter> replay_drafter(std::vector<std::int32_t> sequence, double error, unsigned seed);

// Another drafter, cut to random lengths, none included.
class RandomLengthDrafter final : public speculative::Drafter {
public:
    RandomLengthDrafter(std::unique_ptr<speculative::Drafter> inner, unsigned seed)
        : inner_(std::move(inner)), random_(seed) {}
    std::string_view name() const override { return "random length"; }
    void begin(std::span<const std::int32_t> tokens) override { inner_->begin(tokens); }
    void rewind(std::int32_t length) override { inner_->rewind(length); }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override;

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
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) override;

private:
    core::Context context_;
};

std::unique_ptr<speculative::Drafter> model_drafter(std::shared_ptr<const core::Model> model,
                                                    core::ContextOptions options = context_options());

std::unique_ptr<speculative::Drafter> ngram_drafter();

// ------------------------------------------------------------------------------------------------------- generators

speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                      std::vector<std::unique_ptr<speculative::Drafter>> drafters,
                                      speculative::SpeculationOptions speculation,
                                      core::ContextOptions options = context_options(),
                                      std::shared_ptr<const core::Model> target = nullptr);

std::vector<std::unique_ptr<speculative::Drafter>> sources(std::unique_ptr<speculative::Drafter> first,
                                                           std::unique_ptr<speculative::Drafter> second = nullptr);

speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                      std::unique_ptr<speculative::Drafter> drafter,
                                      speculative::SpeculationOptions speculation,
                                      core::ContextOptions options = context_options());

inline speculative::SpeculationOptions off() { return {.mode = core::SpeculationMode::off}; }
inline speculative::SpeculationOptions fixed(std::int32_t length) {
    return {.mode = core::SpeculationMode::fixed, .draft_length = length};
}
inline speculative::SpeculationOptions automatic() { return {.mode = core::SpeculationMode::automatic}; }

// A clock by which every forward takes as long, whatever its rows: further rows are free.
speculative::Now free_rows();

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

std::vector<std::int32_t> prompt();

}  // namespace foresay::test
