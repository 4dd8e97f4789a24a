// samplers/builtin/builtin.h: the built-in samplers. One file each; builtin.cpp lists them.
//
// To add one: a file with its factory, a line here, and a line in builtin.cpp.
#pragma once

#include <memory>

#include "samplers/stage.h"

namespace foresay::samplers {

std::shared_ptr<const StageFactory> grammar_factory();
std::shared_ptr<const StageFactory> logit_bias_factory();
std::shared_ptr<const StageFactory> min_length_factory();
std::shared_ptr<const StageFactory> no_repeat_ngram_factory();
std::shared_ptr<const StageFactory> penalties_factory();
std::shared_ptr<const StageFactory> dry_factory();
std::shared_ptr<const StageFactory> top_n_sigma_factory();
std::shared_ptr<const StageFactory> top_k_factory();
std::shared_ptr<const StageFactory> typical_factory();
std::shared_ptr<const StageFactory> tfs_factory();
std::shared_ptr<const StageFactory> top_a_factory();
std::shared_ptr<const StageFactory> epsilon_cutoff_factory();
std::shared_ptr<const StageFactory> eta_cutoff_factory();
std::shared_ptr<const StageFactory> top_p_factory();
std::shared_ptr<const StageFactory> min_p_factory();
std::shared_ptr<const StageFactory> xtc_factory();
std::shared_ptr<const StageFactory> mirostat_factory();
std::shared_ptr<const StageFactory> mirostat_1_factory();
std::shared_ptr<const StageFactory> temperature_factory();
std::shared_ptr<const StageFactory> dynatemp_factory();
std::shared_ptr<const StageFactory> smoothing_factory();
std::shared_ptr<const StageFactory> skew_factory();
std::shared_ptr<const StageFactory> adaptive_p_factory();

// A factory that calls `make` with complete parameters and the vocabulary.
template <typename Make>
class SimpleFactory : public StageFactory {
public:
    SimpleFactory(StageDescription description, Make make) : description_(std::move(description)), make_(make) {}
    const StageDescription& description() const override { return description_; }
    std::unique_ptr<Stage> create(std::span<const ParameterValue> parameters,
                                  const Vocabulary& vocabulary) const override {
        return make_(parameters, vocabulary);
    }

private:
    StageDescription description_;
    Make make_;
};

template <typename Make>
std::shared_ptr<const StageFactory> make_factory(StageDescription description, Make make) {
    return std::make_shared<SimpleFactory<Make>>(std::move(description), make);
}

// A stateless stage whose step is the same for every row.
class FixedStep : public Stage {
public:
    FixedStep(const kernels::SamplingStep& step, bool idle, bool whole) : step_(step), idle_(idle), whole_(whole) {}
    bool idle() const override { return idle_; }
    bool whole_vocabulary() const override { return whole_; }
    bool compares() const override { return !kernels::is_elementwise(step_.kind); }
    StageKind kind() const override { return StageKind::step; }
    kernels::SamplingStep step(const StageState*, std::vector<kernels::TokenCount>&) const override { return step_; }

private:
    kernels::SamplingStep step_;
    bool idle_;
    bool whole_;
};

}  // namespace foresay::samplers
