// tests/samplers/judging_samplers.h: one rule about tokens, written against the plugin SDK in each way that it knows:
// test(), mask(), both, and process() over the whole vocabulary or over the best candidates.
#pragma once

#include <cstdint>
#include <memory>
#include <stdexcept>

#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"

namespace foresay::samplers {

// A token may not follow one of the same remainder, nor where keyed chance is against it; `at` knows how often the
// answer has changed the remainder, so that the rule depends on the history and on where the answer begins.
struct Rule {
    struct State {
        std::int32_t last = -1;
        std::int32_t changes = 0;
    };
    static constexpr std::int32_t kParts = 5;

    static void follow(State& state, std::int32_t token) {
        if (token % kParts != state.last % kParts) ++state.changes;
        state.last = token;
    }
    void begin(State& state, const Text& text) const {
        for (std::uint64_t i = 0; i < text.count; ++i) {
            if (i == text.answer) state.changes = 0;
            follow(state, text.tokens[i]);
        }
        if (text.answer == text.count) state.changes = 0;
    }
    void accept(State& state, std::int32_t token) const { follow(state, token); }
    static bool allows(const State& state, const RandomContext& context, std::int32_t id) {
        if (id == 0) return true;  // so that something may always follow
        if (state.last >= 0 && id % kParts == state.last % kParts) return false;
        return context.uniform(static_cast<std::uint32_t>(id + state.changes)) < 0.7;
    }
};

struct Tester : Rule {
    static constexpr Info info{"tester", "1", "The rule, token by token.", "Apache-2.0"};
    explicit Tester(Host) {}
    bool test(const State& state, const RandomContext& context, std::int32_t id) const {
        return allows(state, context, id);
    }
};

struct Masker : Rule {
    static constexpr Info info{"masker", "1", "The rule as bits.", "Apache-2.0"};
    explicit Masker(Host host) : size_(host.vocabulary_size()) {}
    void mask(const State& state, const RandomContext& context, Bits& bits) const {
        for (std::int32_t id = 0; id < size_; ++id) {
            if (allows(state, context, id)) bits.allow(id);
        }
    }
    std::int32_t size_;
};

struct Judge : Masker {
    static constexpr Info info{"judge", "1", "The rule in both ways.", "Apache-2.0"};
    using Masker::Masker;
    bool test(const State& state, const RandomContext& context, std::int32_t id) const {
        return allows(state, context, id);
    }
};

// The rule as bits, with states that cannot be copied.
struct SoleMasker : Masker {
    static constexpr Info info{"sole", "1", "The rule as bits, without copies.", "Apache-2.0"};
    struct State : Rule::State {
        State() = default;
        State(State&&) = default;
        State& operator=(State&&) = default;
        State(const State&) = delete;
        State& operator=(const State&) = delete;
    };
    using Masker::Masker;
};

struct WholeDropper : Rule {
    static constexpr Info info{"dropper", "1", "The rule over the whole vocabulary.", "Apache-2.0"};
    explicit WholeDropper(Host) {}
    void process(const State& state, const RandomContext& context, WholeMask& candidates) const {
        candidates.drop_if([&](Candidate c) { return !allows(state, context, c.id); });
    }
};

struct Dropper : Rule {
    static constexpr Info info{"dropper", "1", "The rule over the best candidates.", "Apache-2.0"};
    explicit Dropper(Host) {}
    void process(const State& state, const RandomContext& context, Mask& candidates) const {
        candidates.drop_if([&](Candidate c) { return !allows(state, context, c.id); });
    }
};

template <typename T>
std::shared_ptr<const StageFactory> linked_factory() {
    return make_plugin_factory(&detail::Adapter<T>::sampler, nullptr, "test");
}

}  // namespace foresay::samplers
