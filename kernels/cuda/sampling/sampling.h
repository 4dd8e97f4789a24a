// kernels/cuda/sampling/sampling.h: a DrawPlan run on the device, with the very choices that draw_row() makes on the
// same logits.
//
// Order:    thread blocks share a row: each applies the leading elementwise steps to its part. A draw from the whole
//           vocabulary keeps the two best of each part; a cut keeps the best of every 16 neighbours, whose k-th largest
//           bounds the k-th largest of all from below. The block that finishes last gathers what reaches that bound,
//           sorts it, runs the remaining steps and draws. Every choice is made by total orders or integer sums, so it
//           does not matter who comes first.
// Limits:   a plan whose first ranking keeps more than kMostCandidates, or that ranks the whole vocabulary, does not
//           run here (plan_runs); the backend then copies the row and runs draw_row().
// Errors:   none; everything is enqueued.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/draw.h"

namespace foresay::kernels::cuda {

inline constexpr std::int32_t kMostCandidates = 512;

struct DeviceStep {
    DrawStepKind kind;
    float a, b, c;
    std::uint32_t k;
    std::int32_t first, count;  // its entries in the words behind the plans, in words and in entries
};

// A DrawPlan as plain data.
struct DevicePlan {
    NoiseKey key;
    std::int32_t vocab;
    std::int32_t greedy;
    std::int32_t keep;   // candidates that the first cut keeps; 0: there is none
    std::int32_t whole;  // steps [0, whole) see the whole vocabulary, the cut follows, then the others
    std::int32_t steps;
    std::int32_t slot;
    std::int32_t list;  // 1: the candidates go to the host as well
    DeviceStep step[kMaxDrawSteps];
};

// What the host reads: `serial` is written last.
struct HostDrawn {
    Drawn drawn;
    std::uint32_t serial;
    std::int32_t candidates;  // of a plan that keeps them
};

bool plan_runs(const DrawPlan& plan, std::int32_t row_length);
// 32-bit words of lists that a plan brings along.
std::int64_t plan_words(const DrawPlan& plan);
// Fills `out`; lists go to words[used...].
void encode_plan(const DrawPlan& plan, std::int32_t row_length, std::int32_t slot, DevicePlan& out,
                 std::uint32_t* words, std::int64_t& used);

// Working memory of one model's draws.
struct DrawMemory {
    DeviceBuffer<float> best16;          // [rows, V / 16]
    DeviceBuffer<float> best_two;        // [rows, parts, 3]
    DeviceBuffer<std::int32_t> arrived;  // [rows], zero between draws
    DeviceBuffer<std::int32_t> broken;   // [rows], likewise: parts of the row with a logit that is no finite number
    void allocate(std::int32_t rows, std::int32_t vocab);
};

struct DrawCall {
    std::int32_t rows = 0;
    std::int32_t vocab = 0;   // of the rows
    float* logits = nullptr;  // [rows, stride]; elementwise steps change it in place
    std::int64_t stride = 0;
    std::int32_t candidates = 0;           // no plan's vocabulary is larger
    const DevicePlan* plans = nullptr;     // [rows], device; null: the one that launch_draw() is given
    const std::uint32_t* words = nullptr;  // device
    Drawn* slots = nullptr;                // device, by slot
    HostDrawn* host_slots = nullptr;       // page-locked host memory as the device addresses it, by slot
    std::int32_t* host_ids = nullptr;      // likewise: kMostCandidates for each slot, of plans that keep them
    float* host_logits = nullptr;          // likewise
    std::uint32_t serial = 0;
    const DrawMemory* memory = nullptr;
};
// `single` is the plan of a draw of one row, which travels with the launch.
void launch_draw(cudaStream_t stream, const DrawCall& call, const DevicePlan& single);

}  // namespace foresay::kernels::cuda
