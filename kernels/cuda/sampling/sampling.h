// kernels/cuda/sampling/sampling.h: samples tokens on the device, with the same choices as sample_row() on the same
// logits.
//
// Memory:   what SamplingCall names; logits are modified in place where steps come before a cut.
// Limits:   plans that plan_runs() (kernels/cuda/sampling/device_plan.h) accepts.
// Errors:   none; everything is enqueued.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/sampling/device_plan.h"
#include "kernels/sampled_token.h"
#include "kernels/sampling_cutoffs.h"

namespace foresay::kernels::cuda {

// What the host reads, in page-locked memory. The device writes `serial` last.
struct HostToken {
    SampledToken sampled;
    std::uint32_t serial;
    std::int32_t candidates;  // of a plan that keeps them
};

// Working memory of one model's sampling.
struct SamplingMemory {
    DeviceBuffer<float> group_best;        // [rows, V / 16]: largest logit of 16 neighbouring ids
    DeviceBuffer<float> part_best;         // [rows, parts, 3]: the BestTwo of each part of a row
    DeviceBuffer<std::int32_t> arrived;    // [rows]: parts that are done; zero between launches
    DeviceBuffer<std::int32_t> nonfinite;  // [rows]: parts with a NaN or an infinity; zero between launches
    DeviceBuffer<Moments> part_moments;    // [rows, parts]: of each part of a row
    DeviceBuffer<double> least;            // [rows]: the lowest logit that a top_n_sigma keeps
    void allocate(std::int32_t rows, std::int32_t vocab);
};

struct SamplingCall {
    std::int32_t rows = 0;
    std::int32_t vocab = 0;   // of the rows
    float* logits = nullptr;  // [rows, stride]; rows are padded to a multiple of 16
    std::int64_t stride = 0;
    bool spread = false;                   // whether a plan has a top_n_sigma before its cut
    std::int32_t candidates = 0;           // the largest vocabulary of a plan
    const DevicePlan* plans = nullptr;     // [rows], device; null: the one that launch_sampling() is given
    const std::uint32_t* words = nullptr;  // lists of the plans, device
    SampledToken* slots = nullptr;         // device, by slot
    HostToken* host_slots = nullptr;       // page-locked host memory as the device addresses it, by slot
    std::int32_t* host_ids = nullptr;      // likewise, kMostCandidates for each slot: of plans that keep them
    float* host_logits = nullptr;          // likewise
    std::uint32_t serial = 0;              // the number of this sample, written to host_slots
    const SamplingMemory* memory = nullptr;
};
// `single` is the plan of a call with one row and no lists: it travels with the launch instead of in memory.
void launch_sampling(cudaStream_t stream, const SamplingCall& call, const DevicePlan& single);

}  // namespace foresay::kernels::cuda
