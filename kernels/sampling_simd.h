// kernels/sampling_simd.h: the loops of sampling that touch many values, compiled once per instruction set.
//
// Identity: every version yields the same bits; they differ only in speed. Tests compare all that the processor can
//           run.
// Threads:  pure functions.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/noise.h"
#include "kernels/sampling_steps.h"

namespace foresay::kernels {

// Values are processed in chunks of 16 rows x 16 lanes. A lane's maximum bounds its 16 values, so later passes
// skip most of them.
inline constexpr std::int32_t kLanes = 16;
inline constexpr std::int32_t kChunk = kLanes * kLanes;
constexpr std::int32_t lane_count(std::int32_t n) { return (n + kChunk - 1) / kChunk * kLanes; }

struct SamplingKernels {
    const char* isa;
    // lanes[chunk * 16 + lane]: largest of the lane's values, NaN ignored; -inf for an empty lane.
    void (*lane_maxima)(const float* x, std::int32_t n, float* lanes);
    // Keys of all values >= threshold, which is above -inf. `keys` holds n + 1. Returns their number.
    std::int32_t (*collect)(const float* x, std::int32_t n, const float* lanes, float threshold, std::uint64_t* keys);
    // x /= divisor
    void (*divide)(float* x, std::int32_t n, float divisor);
    // weights = exp(x - top) * 2^40, top being the largest; returns their sum
    std::uint64_t (*weigh)(const float* x, std::int32_t n, float top, std::uint64_t* weights);
    // Best and second-best of x + G over ids 0..n-1. May miss scores below `floor`. `lanes` as from lane_maxima.
    BestTwo (*sample_whole)(const float* x, std::int32_t n, const float* lanes, float floor, const NoiseKey& key);
    // The same over a list.
    BestTwo (*sample_list)(const std::int32_t* ids, const float* x, std::int32_t n, const NoiseKey& key);
    // The same without noise.
    BestTwo (*best_whole)(const float* x, std::int32_t n, const float* lanes);
};

// The best version for this processor.
const SamplingKernels& sampling_kernels();
// Every version that this processor can run.
std::span<const SamplingKernels> all_sampling_kernels();

}  // namespace foresay::kernels
