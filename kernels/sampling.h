// kernels/sampling.h: samples a token from a row of logits on the host, by a SamplingPlan or step by step.
//
// Law 2 (noise belongs to the position): the token is argmax(logit + gumbel(key, id)) over the candidates that the
// steps leave; a temperature step has already divided the logits. No state passes from one token to the next.
//
// Data flow: while no step has ranked or cut the candidates, they are the row of logits itself (whole()), and steps
//           modify it in place. The first ranking step, cut() or list() turns them into a list of ids and logits, which
//           later steps only shorten. It is sorted on demand, best first.
// Precision: float32; exp and log come from kernels/math.h, all other arithmetic that decides the token from
//           kernels/sampling_steps.h.
// Threads:  any; each thread needs its own SamplingScratch and its own logits.
// Cost:     16,384 logits with a leading top_k of 40: a few microseconds. Noise is computed only for ids that can win.
// Errors:   none; a row without any candidate yields token -1.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/error.h"
#include "kernels/sampled_token.h"
#include "kernels/sampling_plan.h"

namespace foresay::kernels {

// The candidates of one row, and the memory to work on them: it grows to the largest vocabulary seen, then allocates
// nothing. sample_row() calls start, apply..., cut, apply..., sample. A chain with host stages makes the same calls and
// runs those stages in between.
class SamplingScratch {
public:
    // Makes room for rows of `vocab` logits.
    void reserve(std::int32_t vocab);

    // Begins with all of logits[0, vocab) as candidates. `logits` is modified in place by elementwise steps.
    void start(std::span<float> logits, std::int32_t vocab);
    // Begins with a copy of `list`, which is sorted best first.
    void start(const Candidates& list);
    // Keeps the `count` best.
    void cut(std::int32_t count);
    void apply(const SamplingStep& step, const NoiseKey& key);

    // The candidates as a list, best first, valid until the next call. After writing to it, call set_list().
    Candidates list();
    // Takes back a list that was written to: its first `count` entries stay, in any order.
    void set_list(std::int32_t count);
    // Whether the candidates are still the row of logits: no cut and no list so far.
    bool whole() const { return whole_; }
    // whole(): the row, to be changed; and the `count` best of it, as cut() keeps them, while it stays whole. They are
    // valid until the next call.
    std::span<float> row() { return row_; }
    Candidates peek(std::int32_t count);

    SampledToken sample(const NoiseKey& key, bool greedy);

    // log of the softmax probability of `token` among the candidates; -inf if it is not a candidate.
    float log_probability(std::int32_t token);

private:
    void make_list();
    void sort();
    void drop_dead();
    std::uint64_t weigh();
    void apply_whole(const SamplingStep& step);
    void apply_elements(const SamplingStep& step);
    void apply_ranking(const SamplingStep& step, const NoiseKey& key);
    // In sampling_cutoffs.cpp. The first acts on the row, the others on a sorted list of at least one candidate.
    void apply_sigma_to_row(const SamplingStep& step);
    void apply_cutoff(const SamplingStep& step);
    std::int32_t tail_free(double limit);  // how many candidates stay
    void keep_typical(const SamplingStep& step);
    void change_logits(const SamplingStep& step);

    bool whole_ = false;
    bool sorted_ = false;
    std::span<float> row_;    // whole_: the logits, limited to the vocabulary
    std::int32_t count_ = 0;  // candidates in ids_ and logits_
    std::vector<std::int32_t> ids_;
    std::vector<float> logits_;
    std::vector<std::uint64_t> keys_;  // order keys while selecting and sorting
    std::vector<std::uint64_t> weights_;
    std::vector<float> maxima_;
};

// Runs `plan` on a row of logits, which is modified in place.
SampledToken sample_row(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch);

// Runs the steps of `plan` and does not sample: the candidates that it keeps (SamplingPlan::keep), else those that all
// steps leave, best first. Valid until the scratch is used again.
Candidates candidates_row(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch);

// Candidates that a list lacks: at most so many, none with a logit above the bound.
struct MissingCandidates {
    std::int32_t count = 0;
    float bound = 0.0f;
};
enum class Fate : std::uint8_t {
    dropped,  // by the step, whatever they are: it leaves the same of the list as it would with them
    open,     // the step keeps all candidates, and has changed `logits` and the bound
    unknown,
};
// What `step` makes of those that a list lacks. `logits` are those of the list, best first, at least one.
Fate fate_of(MissingCandidates& missing, const SamplingStep& step, std::span<float> logits);

// The candidates of plans with SamplingPlan::keep, by token slot. For backends on the host.
class KeptCandidates {
public:
    // Makes room if one of `plans` keeps candidates. Call it before threads call sample().
    void reserve(std::span<const SamplingPlan> plans);
    // sample_row(); if the plan keeps its candidates, they are copied to slot `slot`.
    SampledToken sample(std::span<float> logits, const SamplingPlan& plan, SamplingScratch& scratch, std::int32_t slot);
    // Writable until a token is next sampled into the slot.
    Candidates at(std::int32_t slot);

private:
    std::vector<std::int32_t> ids_, counts_;
    std::vector<float> logits_;
};

// The token slots of a workspace, for backends that sample one row after the other on the host.
class HostSlots {
public:
    // Before anything else; after that sampling allocates nothing, but for the first plan that keeps candidates.
    void reserve(std::int32_t vocab) {
        tokens_.resize(kTokenSlots);
        scratch_.reserve(vocab);
    }
    // Ops::sample(). logits(i) is a span of logit row i.
    template <class Logits>
    void sample(std::span<const SamplingPlan> plans, std::span<const std::int32_t> slots, const Logits& logits) {
        kept_.reserve(plans);
        for (std::size_t i = 0; i < plans.size(); ++i) {
            tokens_[static_cast<std::size_t>(slots[i])] =
                kept_.sample(logits(static_cast<std::int32_t>(i)), plans[i], scratch_, slots[i]);
        }
    }
    SampledToken sampled(std::int32_t slot) const {
        check(slot >= 0 && slot < kTokenSlots, "there is no such slot");
        return tokens_[static_cast<std::size_t>(slot)];
    }
    Candidates candidates(std::int32_t slot) { return kept_.at(slot); }

private:
    std::vector<SampledToken> tokens_;
    KeptCandidates kept_;
    SamplingScratch scratch_;
};

}  // namespace foresay::kernels
