// kernels/cuda/experts/grouped.h: the products of experts for prefill rows: all rows of an expert at once.
//
// Terms:    a group is up to kGroupRows slots of one expert. Slots sorted by expert have positions; a group begins at
//           a multiple of eight, and what is left of its last eight is empty.
//
// Data flow of an op (experts.h), with launch_router() counting the slots of each expert and the rank of each slot:
//
//   launch_groups    counts, ranks --> groups, the slot at each position
//   launch_images    rows --norm, a power of two per row, float16--> images, sorted     (for each product again)
//   launch_grouped   images, weights unpacked to float16 in registers --wgmma--> sums --bias, activation--> slots
//
// Images:   operand B of wgmma. Those of a group lie at its first position, `stride` inputs each:
//             [8 inputs][eight of rows][row][8 numbers]
//           so a stretch of inputs of all rows of a group is one piece of memory. Of each 16 inputs the order is 0, 1,
//           4, 5, 8, 9, 12, 13, 2, 3, 6, 7, 10, 11, 14, 15, because a lane has four that follow one another
//           (weights/panel_format.h).
//
// Law 1:    a column of sums depends on that column alone, inputs are added 16 by 16 in their order, and how slots are
//           ranked, grouped and shared out changes no bit. Decode rows have other bits (products.cuh).
// Precision: float16 weights, scaled by a power of two per stack so that none overflows; their scales are float16, too.
// Threads:  launches enqueue. Nothing asks the host how many slots an expert has.
// Cost:     reads the weights of an expert once per group.
// Errors:   launches throw Error when a kernel cannot be launched.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device_context.h"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

// Whether the device has these kernels for the type.
bool runs_grouped(const DeviceInfo& device, QuantType quant_type);

// The power of two that the weights of a stack are unpacked with. Reads its scales and waits.
int grouped_shift(const Panels::Part& part);

struct GroupsCall {
    std::int32_t slots = 0;
    OwnExperts own;
    ExpertBuffers to;
};
void launch_groups(cudaStream_t stream, const GroupsCall& call);

struct ImagesCall {
    std::int32_t slots = 0, experts = 0;
    std::int32_t used = 0;    // slots of a row of x
    std::int32_t inputs = 0;  // of a row of x
    std::int32_t stride = 0;  // inputs with padding, a multiple of 64
    const float* x = nullptr;
    NormArgs norm;                         // whose statistics are in `stats`
    const std::uint16_t* order = nullptr;  // of packed rows (PackedExpertsCall)
    std::int32_t first_expert = 0;         // of those that `order` is of, among all
    ExpertBuffers to;
};
void launch_images(cudaStream_t stream, const ImagesCall& call);

// `call` as launch_products() wants it, without x and norm. The weights are 2^shift times what they stand for.
struct GroupedCall {
    ProductsCall products;
    int shift = 0;
};
void launch_grouped(cudaStream_t stream, const GroupedCall& call);

}  // namespace foresay::kernels::cuda
