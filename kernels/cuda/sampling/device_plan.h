// kernels/cuda/sampling/device_plan.h: a SamplingPlan in the form that the device reads: of fixed size, with lists as
// offsets into one array of words.
//
// Limits:   a plan that ranks more than kMostCandidates, or that ranks the whole vocabulary (but for one top_n_sigma),
//           does not run on the device (plan_runs); the backend then copies the row and runs sample_row().
// Threads:  pure functions. Host code without CUDA headers, so tests run it on machines without nvcc.
// Errors:   none.
#pragma once

#include <cstdint>

#include "kernels/sampling_plan.h"

namespace foresay::kernels::cuda {

// Candidates that the first cut may keep on the device: one for each thread that ranks them.
inline constexpr std::int32_t kMostCandidates = kCandidateCut;

// A SamplingStep whose lists are words[first...]: `count` entries of TokenValue (bias) or TokenCount (penalties), two
// words each, or `count` words of bits (mask).
struct DeviceStep {
    SamplingStepKind kind;
    Penalties penalties;
    float temperature;
    std::uint32_t top_k;
    float top_p;
    float min_p_log;
    Xtc xtc;
    double limit;
    DynamicTemperature dynatemp;
    Smoothing smoothing;
    std::int32_t first, count;
};

struct DevicePlan {
    NoiseKey key;
    std::int32_t vocab;
    std::int32_t greedy;
    std::int32_t keep;   // candidates that the first cut keeps; 0: there is no cut
    std::int32_t whole;  // steps [0, whole) see the whole vocabulary; the cut and the other steps follow
    std::int32_t steps;
    std::int32_t slot;
    std::int32_t spread;  // step spread - 1, of the first `whole`, is a top_n_sigma; 0: none is
    std::int32_t list;    // the candidates before step list - 1 go to the host as well; 0: none do
    DeviceStep step[kMaxSamplingSteps];
};

// Whether the device can run `plan` on rows of `row_length` logits.
bool plan_runs(const SamplingPlan& plan, std::int32_t row_length);
// 32-bit words that the lists of a plan take.
std::int64_t plan_words(const SamplingPlan& plan);
// Fills `out`. Copies the lists to words[used...] and advances `used`.
void encode_plan(const SamplingPlan& plan, std::int32_t row_length, std::int32_t slot, DevicePlan& out,
                 std::uint32_t* words, std::int64_t& used);

}  // namespace foresay::kernels::cuda
