// tests/plugins/grief_plugin.cpp: a sampler whose state depends on every token, and that does what its parameter says
// at one place of the text: so that a test can tell whether a state that was lost has come back.
#include <stdexcept>

#include "samplers/sdk/sampler.hpp"

namespace {

volatile int* const kNowhere = nullptr;

struct Grief {
    static constexpr foresay::Info info{"grief", "1", "Has a state, and does harm once.", "Apache-2.0"};
    struct Parameters {
        std::string deed = "none";
        std::int64_t at = 0;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::choice("deed", &Parameters::deed,
                            {"none", "throw", "segfault", "segfault_in_draft", "segfault_in_accept"}, "What it does."),
            foresay::integer("at", &Parameters::at, 0, 1000000, "At this index."));
    }
    struct State {
        std::uint64_t sum = 0, count = 0;
    };
    Grief(Parameters p, foresay::Host) : p_(std::move(p)) {}
    void accept(State& state, std::int32_t token) const {
        state.sum = state.sum * 31 + static_cast<std::uint64_t>(token) + 1;
        ++state.count;
        if (p_.deed == "segfault_in_accept" && state.count == static_cast<std::uint64_t>(p_.at)) *kNowhere = 1;
    }
    void process(const State& state, const foresay::Context& context, foresay::Mask& candidates) const {
        const bool here = context.index() == static_cast<std::uint64_t>(p_.at);
        if (here && p_.deed == "throw") throw std::runtime_error("on purpose");
        if (here && p_.deed == "segfault") *kNowhere = 1;
        if (p_.deed == "segfault_in_draft" && context.proposing()) *kNowhere = 1;
        // Keeps a third of them, and the state says which third.
        const std::int32_t last = candidates[candidates.size() - 1].id;
        candidates.drop_if([&](const foresay::Candidate& one) {
            return one.id != last && (static_cast<std::uint64_t>(one.id) + state.sum) % 3 != 0;
        });
    }
    Parameters p_;
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(Grief)
