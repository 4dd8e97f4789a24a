#include "samplers/grammar_stages.h"

#include <algorithm>

namespace foresay::samplers {

ChainSpec grammar_stages(const ChainSpec& spec) {
    static const auto grammar = find_builtin("grammar");
    ChainSpec stages;
    for (const StageSpec& stage : spec) {
        if (stage.factory ? stage.factory != grammar : stage.name != grammar->description().name) continue;
        const auto language =
            std::ranges::find_if(stage.parameters, [](const auto& p) { return p.first == "language"; });
        if (language == stage.parameters.end() || language->second == ParameterValue(std::string("none"))) continue;
        stages.push_back(stage);
    }
    return stages;
}

bool under_grammar(const Chain& chain) { return !grammar_stages(chain.spec()).empty(); }

}  // namespace foresay::samplers
