// kernels/cuda/experts/experts.h: the kernels of a mixture of experts: the choice of each row, the products of the
// chosen experts, and their sum.
//
// Terms:    a slot is a row's use of one expert: slot t K + i is the i-th chosen expert of row t, by ascending id. A
//           tile is up to kExpertRows slots of one expert, which one reading of its weights multiplies.
//           Own experts are those whose weights are here: all, or a part where devices share the layer
//           (kernels/layer_share.h). The choice has ids among all experts; tiles and groups have slots of own experts
//           only, and ids among those.
//
// Data flow of an op, T rows of which each uses K of E experts:
//
//   launch_router     x --norm, router--> scores [T, E] --> choice and weight of each slot, the slots sorted by expert,
//                     and the list of tiles. For up to kFusedSlots slots one launch; else three.
//   launch_products   x of the slot's row --norm, gate and up, biases, activation--> ff [slots, Fe]
//   launch_products   ff --down, bias--> out [slots, D]
//   launch_combine    sum over the slots of a row, by ascending expert --post norm--> x or the branch
//
// Where devices share the layer, launch_take_slots() comes before the sum: each takes the slots of the others' experts
// from their memory. A slot has one owner, and values are copied as they are.
//
// Prefill rows have other products, where the device has wgmma: grouped.h.
//
// No kernel asks the host how many slots an expert has: the products divide the tiles that there are among a grid that
// is always the same. So a forward is a graph like any other.
//
// Law 1:    a row's scores, choice, products and sum depend on that row alone: a column of an mma depends on that
//           column, units of inputs are added in their order, and experts by ascending id.
// Precision: scores, weights and sums are float32; exponentials and sums of the softmax double. Inputs of quantised
//           matrices are float16 after scaling by a power of two per row and unit of 128 or 256 inputs.
// Overlap:  every kernel lets its successor start early and waits for its predecessors (device/launch.cuh).
// Errors:   launches throw Error when a kernel cannot be launched.
#pragma once

#include <cstdint>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda/weights/panels.h"
#include "kernels/host_device.h"
#include "kernels/ops.h"

namespace foresay::kernels::cuda {

inline constexpr int kExpertRows = 8;
inline constexpr int kFusedSlots = 512;   // up to so many slots the router is one launch
inline constexpr int kMaxExperts = 1024;  // E
inline constexpr int kMaxUsed = 32;       // K

// Experts [first, first + count) of all.
struct OwnExperts {
    std::int32_t first = 0, count = 0;
    FORESAY_HOST_DEVICE bool has(std::int32_t expert) const {
        return static_cast<std::uint32_t>(expert - first) < static_cast<std::uint32_t>(count);
    }
};

// What one reading of an expert's weights multiplies.
struct ExpertTile {
    std::int32_t expert = 0, count = 0;
    std::int32_t slots[kExpertRows] = {};
};
static_assert(sizeof(ExpertTile) == 40);

// What one reading of an expert's weights multiplies of prefill rows (grouped.h).
inline constexpr int kGroupRows = 64;
struct ExpertGroup {
    std::int32_t expert = 0, first = 0, count = 0;  // its slots have the positions from `first` on
    std::int32_t alone = 0;                         // whether the expert has no other group
};
// An eight of positions: the group's first position and eights.
struct GroupEight {
    std::int32_t first = 0, eights = 0;
};

// A norm as the kernels want it; no weight: x as it is.
struct NormArgs {
    const float* weight = nullptr;  // [D]
    const float* bias = nullptr;    // [D], LayerNorm only; may be absent
    float eps = 0.0f;
    bool layer = false;  // LayerNorm
};

// What a forward's experts need of memory, in CudaWorkspace. Addresses never change.
struct ExpertBuffers {
    float* scores = nullptr;         // [T, E]
    float2* stats = nullptr;         // [T]: mean and 1 / deviation of x, for the norm of the experts
    std::int32_t* choice = nullptr;  // [slots]: the expert
    float* weight = nullptr;         // [slots]
    ExpertTile* tiles = nullptr;     // most_tiles() of them; those past the last one are empty
    std::int32_t* tile_count = nullptr;
    std::int32_t* done = nullptr;  // CTAs of the router that are done; 0 between launches
    float* ff = nullptr;           // [slots, Fe]
    float* out = nullptr;          // [slots, D]
    float* branch = nullptr;       // [T, D]: what keep_branch keeps
    // Prefill rows, where the device has grouped.h; else null.
    std::int32_t* counts = nullptr;  // [E]: slots of the expert
    std::int32_t* rank = nullptr;    // [slots]: among those of its expert
    std::int32_t* order = nullptr;   // [8 most_eights()]: the slot at a position; only of those that there are
    GroupEight* eights = nullptr;    // [most_eights()]
    ExpertGroup* groups = nullptr;   // [most_groups()]
    std::int32_t* totals = nullptr;  // groups, eights
    float* back = nullptr;           // [8 most_eights()]: what scales the sums of a position back
    std::uint8_t* images = nullptr;
};

// The most tiles that so many slots make.
constexpr std::int64_t most_tiles(std::int64_t slots, std::int64_t experts) {
    const std::int64_t split = slots / kExpertRows + experts;
    return slots < split ? slots : split;
}

// The most eights of positions, and groups, that so many slots make.
constexpr std::int64_t most_eights(std::int64_t slots, std::int64_t experts) {
    const std::int64_t split = slots / 8 + experts;
    return slots < split ? slots : split;
}
constexpr std::int64_t most_groups(std::int64_t slots, std::int64_t experts) {
    const std::int64_t split = most_eights(slots, experts) / (kGroupRows / 8) + experts;
    return slots < split ? slots : split;
}

struct RouterCall {
    std::int32_t rows = 0, width = 0;  // T, D
    std::int32_t experts = 0, used = 0;
    OwnExperts own;                 // of which there are tiles, or counts and ranks
    const float* x = nullptr;       // [T, D]
    NormArgs norm;                  // of what the router reads
    NormArgs expert_norm;           // whose statistics go to `stats`
    const float* weight = nullptr;  // [E, D]
    const float* bias = nullptr;    // [E] or null, likewise the next two
    const float* choice_bias = nullptr;
    const float* factor = nullptr;
    Gating gating = Gating::softmax;
    bool renormalize = false;
    float scale = 1.0f;
    std::int32_t groups = 1, groups_used = 1;
    bool grouped = false;  // counts and ranks instead of tiles
    ExpertBuffers to;
};
void launch_router(cudaStream_t stream, const RouterCall& call);

// The sum of a row's slots, and its way into x or the branch.
struct CombineCall {
    std::int32_t rows = 0, width = 0, used = 0;
    NormArgs post_norm;
    bool keep_branch = false;
    float scale = 1.0f, stream_scale = 1.0f;
    float* x = nullptr;  // [T, D]
    ExpertBuffers with;
};

// What the experts of a stack in packed rows (kernels/cuda/weights/packed_format.h) have besides panels.
struct PackedExpertsCall {
    const std::uint8_t* header = nullptr;  // PackedHeader of all, but for the factors
    const float* factors = nullptr;        // [E][2]: of even and odd packed rows
    const std::uint16_t* order = nullptr;  // [E, inputs], or null: inputs as they come
    std::int32_t unit_bytes = 0;           // the most that two neighbouring blocks have
};

// gate and up (interleaved panels), or down. `experts`, and their ids: own ones.
struct ProductsCall {
    bool gate_up = false;
    QuantType quant_type = QuantType::f32;
    const std::uint8_t* panels = nullptr;  // of expert 0
    std::int64_t expert_bytes = 0;         // from an expert's panels to the next one's
    std::int32_t panel_count = 0;          // of an expert
    std::int32_t blocks = 0;               // of a panel
    std::int32_t inputs = 0, rows = 0;     // of an expert's stack, without padding
    PackedExpertsCall packed;              // of QuantType::packed
    std::int32_t slots = 0, used = 0, experts = 0;
    bool part = false;                              // of the experts: some slots are in no tile
    std::int32_t processors = 1, shared_bytes = 0;  // of the device; of a multiprocessor
    const float* x = nullptr;                       // gate_up: [T, D]; down: [slots, Fe]
    NormArgs norm;                                  // gate_up
    const float* bias = nullptr;                    // [E, rows] in packed order, or null
    Activation activation = Activation::silu;
    float limit = 0.0f;
    float* out = nullptr;  // [slots, Fe or D]
    ExpertBuffers with;
};
void launch_products(cudaStream_t stream, const ProductsCall& call);

void launch_combine(cudaStream_t stream, const CombineCall& call);

inline constexpr int kMostOwners = 8;
// Where the slots of some experts are.
struct SlotOwner {
    OwnExperts experts;
    const float* out = nullptr;  // [slots, D], memory that this device reaches
};
struct TakeSlotsCall {
    std::int32_t slots = 0, width = 0;
    const std::int32_t* choice = nullptr;  // [slots]
    float* out = nullptr;                  // [slots, D]
    std::int32_t count = 0;
    SlotOwner owners[kMostOwners];
};
// After an event that the stream awaits, so it does not begin before its predecessors have ended.
void launch_take_slots(cudaStream_t stream, const TakeSlotsCall& call);

// Zeros in the slots of experts that are not own ones.
void launch_clear_slots(cudaStream_t stream, std::int32_t slots, std::int32_t width, OwnExperts own,
                        const ExpertBuffers& with);

}  // namespace foresay::kernels::cuda
