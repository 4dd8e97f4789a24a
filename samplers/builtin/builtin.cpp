#include "samplers/builtin/builtin.h"

#include <array>

namespace foresay::samplers {

std::span<const std::shared_ptr<const StageFactory>> builtin_factories() {
    static const std::array factories = {grammar_factory(),     logit_bias_factory(),
                                         min_length_factory(),  no_repeat_ngram_factory(),
                                         penalties_factory(),   dry_factory(),
                                         top_n_sigma_factory(), top_k_factory(),
                                         tfs_factory(),         typical_factory(),
                                         top_p_factory(),       top_a_factory(),
                                         min_p_factory(),       epsilon_cutoff_factory(),
                                         eta_cutoff_factory(),  xtc_factory(),
                                         temperature_factory(), dynatemp_factory(),
                                         smoothing_factory(),   skew_factory(),
                                         mirostat_factory(),    mirostat_1_factory(),
                                         adaptive_p_factory()};
    return factories;
}

std::shared_ptr<const StageFactory> find_builtin(std::string_view name) {
    for (const auto& factory : builtin_factories()) {
        if (factory->description().name == name) return factory;
    }
    return nullptr;
}

}  // namespace foresay::samplers
