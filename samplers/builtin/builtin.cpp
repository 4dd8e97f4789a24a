#include "samplers/builtin/builtin.h"

#include <array>

namespace foresay::samplers {

std::span<const std::shared_ptr<const StageFactory>> builtin_factories() {
    static const std::array factories = {grammar_factory(), logit_bias_factory(), penalties_factory(),
                                         top_k_factory(),   top_p_factory(),      min_p_factory(),
                                         xtc_factory(),     mirostat_factory(),   temperature_factory()};
    return factories;
}

std::shared_ptr<const StageFactory> find_builtin(std::string_view name) {
    for (const auto& factory : builtin_factories()) {
        if (factory->description().name == name) return factory;
    }
    return nullptr;
}

}  // namespace foresay::samplers
