// kernels/sampling_plan.h: a sampler chain compiled for one row, as plain data that host and device can run.
//
// Order:    every list of candidates is ordered by logit, highest first, ties by lowest id. A logit of -inf or NaN is
//           not a candidate. +inf counts as the largest float.
// Life:     a plan borrows its lists. They must stay valid until the sampled token has been read back.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/noise.h"

namespace foresay::kernels {

enum class SamplingStepKind : std::uint8_t {
    // Elementwise: each logit by itself.
    bias,         // x += values[i].value
    penalties,    // x = x > 0 ? x / repeat : x * repeat; then x -= count * frequency + presence
    mask,         // ids without a bit in `bits` are dropped
    temperature,  // x /= temperature
    // Ranking: which candidates stay depends on the others.
    top_k,  // the top_k best; at least one
    top_p,  // the fewest best candidates whose probabilities reach top_p; at least one
    min_p,  // x >= best + min_p_log; at least the best
    xtc,    // with Xtc::probability: of the candidates that reach the threshold only the least likely stays
    tfs,  // the best, until the second differences of their probabilities exceed the share `limit` of all, and one more
    typical,         // those whose surprise is nearest to the expected one, until their probabilities reach `limit`
    top_a,           // probability >= limit * (the best one's) squared; at least the best
    epsilon_cutoff,  // probability >= limit; at least the best
    eta_cutoff,      // probability >= min(limit, sqrt(limit) * exp(-entropy)); at least the best
    // Ranking, and the only one that a row takes without a cut before it: it needs no order.
    top_n_sigma,  // x >= best - limit * (standard deviation of all candidates)
    // Ranking, because what becomes of each logit depends on the others.
    dynatemp,   // x /= a temperature that follows the entropy
    smoothing,  // x = a curve of its distance to the best
};

constexpr bool is_elementwise(SamplingStepKind kind) { return kind <= SamplingStepKind::temperature; }
// Whether the step leaves a row of logits a row, so that it may act on the whole vocabulary.
constexpr bool takes_row(SamplingStepKind kind) {
    return is_elementwise(kind) || kind == SamplingStepKind::top_n_sigma;
}

struct TokenValue {
    std::int32_t token = 0;
    float value = 0.0f;
};

struct TokenCount {
    std::int32_t token = 0;
    std::int32_t count = 0;
};

struct Penalties {
    float repeat = 1.0f;     // divides positive logits, multiplies negative ones
    float frequency = 0.0f;  // subtracted once per occurrence
    float presence = 0.0f;   // subtracted once
};

struct Xtc {
    float probability = 0.0f;  // of the step acting
    float threshold = 0.0f;    // a candidate at least this probable is likely
    std::uint32_t stream = 0;  // the `stage` of stage_uniform() in kernels/noise.h
};

struct DynamicTemperature {
    double min = 1.0;       // where the entropy is 0
    double max = 1.0;       // where all candidates are alike
    float exponent = 1.0f;  // of the entropy, as a share of the largest that so many candidates can have
};

// A logit at distance d below the best becomes best - factor * (square * d^2 + cube * d^3).
struct Smoothing {
    float factor = 0.0f;
    float square = 1.0f;
    float cube = 0.0f;
};

// Only the parameters of `kind` are read.
struct SamplingStep {
    SamplingStepKind kind = SamplingStepKind::temperature;
    Penalties penalties;
    float temperature = 1.0f;  // > 0
    std::uint32_t top_k = 0;
    float top_p = 1.0f;
    float min_p_log = 0.0f;  // log(p)
    Xtc xtc;
    double limit = 0.0;  // of tfs, typical, top_a, epsilon_cutoff, eta_cutoff and top_n_sigma
    DynamicTemperature dynatemp;
    Smoothing smoothing;
    // Sorted by id, each id once; ids beyond the vocabulary are ignored.
    std::span<const TokenValue> values;   // bias
    std::span<const TokenCount> counts;   // penalties; every count > 0
    std::span<const std::uint32_t> bits;  // mask: bit id % 32 of word id / 32; ids beyond the words are dropped
};

inline constexpr std::int32_t kMaxSamplingSteps = 16;

// A sampler stage that is not elementwise sees at most this many candidates, those with the highest logits.
inline constexpr std::int32_t kCandidateCut = 512;

struct SamplingPlan {
    NoiseKey key;
    std::int32_t vocab = 0;   // ids >= vocab are never candidates (padding of the LM head); 0: the whole row
    std::int32_t cut = 0;     // keep this many best candidates...
    std::int32_t cut_at = 0;  // ...before step cut_at; earlier steps see the whole vocabulary. cut == 0: keep all
    bool greedy = false;      // no noise: takes the best candidate that the steps leave
    // Ops::candidates() returns what the steps before step keep_at leave. Needs a cut of at most kCandidateCut, at most
    // at keep_at. The row itself is left as the elementwise steps before the cut make it.
    bool keep = false;
    std::int32_t keep_at = kMaxSamplingSteps;  // beyond the steps: after all of them
    std::int32_t step_count = 0;
    SamplingStep steps[kMaxSamplingSteps];
};

// Candidates as parallel arrays, writable in place.
struct Candidates {
    std::int32_t* ids = nullptr;
    float* logits = nullptr;
    std::int32_t count = 0;
};

}  // namespace foresay::kernels
