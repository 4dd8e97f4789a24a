// kernels/draw.h: from a row of logits to a token. DrawPlan is a sampler chain compiled for one row, as plain data that
// a host or a device can run; draw_row() is the host's way to run it.
//
// Law 2 (noise belongs to the position): the token is argmax(logit + gumbel(key, id)) over what leaves the steps, where
// a temperature step has divided the logits. Nothing is remembered between draws.
//
// Order:    every list of candidates is ordered by logit, highest first, ties by lowest id. A logit of -inf or NaN is
//           no candidate. +inf counts as the largest float.
// Sums:     probabilities are summed as 2^-40 fixed-point integers, so that any order of adding gives the same bits.
// Precision: float32; exp and log are those of kernels/math.h.
// Threads:  draw_row() may run for many rows at once, each with its own DrawScratch and its own logits.
// Cost:     16,384 logits with a leading top_k of 40: a few microseconds. Noise is computed only for ids that can win.
// Errors:   none; a row without any candidate yields token -1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels {

// What the noise of one drawn token depends on, besides the candidate's id.
struct NoiseKey {
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::uint32_t index = 0;  // absolute index of the token being drawn; BOS is 0
};

enum class DrawStepKind : std::uint8_t {
    bias,         // logit += values[i].value
    penalties,    // counts[i]: x = x > 0 ? x / a : x * a; then x -= count * b + c   (repeat, frequency, presence)
    mask,         // ids without a bit in `bits` are dropped
    temperature,  // x /= a, a > 0
    top_k,        // the k best
    top_p,        // the shortest run of best candidates whose probability reaches a; at least one
    min_p,        // x >= best + a, where a = log(p); at least the best
    xtc,          // if uniform(stream k) < a: of the candidates with probability >= b only the last stays
};

struct TokenValue {
    std::int32_t token = 0;
    float value = 0.0f;
};

struct TokenCount {
    std::int32_t token = 0;
    std::int32_t count = 0;
};

struct DrawStep {
    DrawStepKind kind = DrawStepKind::temperature;
    float a = 0.0f;
    float b = 0.0f;
    float c = 0.0f;
    std::uint32_t k = 0;
    // Borrowed, valid until the draw has been read back. Ids ascend and are unique; ids beyond the vocabulary are
    // ignored.
    std::span<const TokenValue> values;   // bias
    std::span<const TokenCount> counts;   // penalties; every count > 0
    std::span<const std::uint32_t> bits;  // mask: bit id % 32 of word id / 32; ids beyond the words are dropped
};

inline constexpr std::int32_t kMaxDrawSteps = 16;

// A stage that is not elementwise sees this many candidates at most: the best by logit.
inline constexpr std::int32_t kCandidateCut = 512;

struct DrawPlan {
    NoiseKey key;
    std::int32_t vocab = 0;   // ids >= vocab are never candidates (padded heads); 0: all that the row holds
    std::int32_t cut = 0;     // keep this many best candidates...
    std::int32_t cut_at = 0;  // ...before step cut_at; earlier steps see the whole vocabulary. cut == 0: keep all
    bool greedy = false;      // no noise: the best of what leaves the steps
    bool keep = false;  // Ops::candidates() gives what leaves the steps; there must be a cut, at kCandidateCut or less
    std::int32_t step_count = 0;
    DrawStep steps[kMaxDrawSteps];
};

// Candidates as parallel arrays, writable in place.
struct Candidates {
    std::int32_t* ids = nullptr;
    float* logits = nullptr;
    std::int32_t count = 0;
};

// Working memory of one draw and the candidates in it. Grows to the largest vocabulary seen, then allocates nothing.
// draw_row() is start, apply..., cut, apply..., draw; a chain with host stages makes the same calls with its own
// between.
class DrawScratch {
public:
    // Makes room for rows of `vocab` logits.
    void reserve(std::int32_t vocab);

    // Begins with all of logits[0, vocab) as candidates. `logits` is modified in place by elementwise steps.
    void start(std::span<float> logits, std::int32_t vocab);
    // Begins with a list, best first, which is copied.
    void start(const Candidates& list);
    // Keeps the `count` best.
    void cut(std::int32_t count);
    void apply(const DrawStep& step, const NoiseKey& key);

    // The candidates as a sorted list. After writing to it, say so with set_list(); stays valid until the next call.
    Candidates list();
    // Takes back a list that was written to: `count` of its entries stay, in any order.
    void set_list(std::int32_t count);
    // Whether all ids are still candidates as they came (no cut, no list made).
    bool whole() const { return whole_; }

    Drawn draw(const NoiseKey& key, bool greedy);

    // log of the softmax probability of `token` among the candidates; -inf when it is none of them.
    float log_probability(std::int32_t token);

private:
    void make_list();
    void sort();
    void drop_dead();
    std::uint64_t weigh();
    void apply_whole(const DrawStep& step);
    void apply_elements(const DrawStep& step);
    void apply_ranked(const DrawStep& step, const NoiseKey& key);

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
Drawn draw_row(std::span<float> logits, const DrawPlan& plan, DrawScratch& scratch);

// The candidates of draws whose plans keep them, by slot. For backends on the host.
class KeptCandidates {
public:
    // Makes room when one of `plans` keeps candidates. Before rows are drawn side by side.
    void reserve(std::span<const DrawPlan> plans);
    // draw_row(), and the candidates stay in slot `slot` when the plan says so.
    Drawn draw(std::span<float> logits, const DrawPlan& plan, DrawScratch& scratch, std::int32_t slot);
    // Writable until the next draw into the slot.
    Candidates at(std::int32_t slot);

private:
    std::vector<std::int32_t> ids_, counts_;
    std::vector<float> logits_;
};

// Runs all of `plan` but the draw: what it would draw from, best first. Valid until the scratch is used again.
Candidates candidates_row(std::span<float> logits, const DrawPlan& plan, DrawScratch& scratch);

}  // namespace foresay::kernels
