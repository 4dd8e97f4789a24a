// min_length: the text does not end before the answer has so many tokens.

#include <limits>

#include "samplers/builtin/builtin.h"
#include "samplers/builtin/recent_text.h"

namespace foresay::samplers {
namespace {

class MinLength : public Stage {
public:
    MinLength(std::size_t tokens, const Vocabulary& vocabulary) : tokens_(tokens) {
        for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
            if (vocabulary.ends_text(id)) ends_.push_back({id, -std::numeric_limits<float>::infinity()});
        }
    }
    StageKind kind() const override { return StageKind::step; }
    bool idle() const override { return tokens_ == 0 || ends_.empty(); }
    bool whole_vocabulary() const override { return true; }
    std::unique_ptr<StageState> make_state() const override { return std::make_unique<RecentText>(0); }
    kernels::SamplingStep step(const StageState* state, std::vector<kernels::TokenCount>&) const override {
        const bool early = static_cast<const RecentText&>(*state).answered() < tokens_;
        return {.kind = kernels::SamplingStepKind::bias,
                .values = early ? std::span<const kernels::TokenValue>(ends_) : std::span<const kernels::TokenValue>()};
    }

private:
    std::size_t tokens_;
    std::vector<kernels::TokenValue> ends_;
};

}  // namespace

std::shared_ptr<const StageFactory> min_length_factory() {
    StageDescription description{"min_length",
                                 "Keeps the answer from ending early.",
                                 {.memory = StageMemory::history, .masks_only = true, .whole_vocabulary = true},
                                 {{"tokens",
                                   ParameterType::integer,
                                   std::int64_t{0},
                                   0.0,
                                   1048576.0,
                                   {},
                                   "Tokens before it may end; 0 is off."}}};
    return make_factory(std::move(description),
                        [](std::span<const ParameterValue> parameters, const Vocabulary& vocabulary) {
                            const auto tokens = static_cast<std::size_t>(std::get<std::int64_t>(parameters[0]));
                            return std::unique_ptr<Stage>(std::make_unique<MinLength>(tokens, vocabulary));
                        });
}

}  // namespace foresay::samplers
