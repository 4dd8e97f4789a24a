// kernels/cuda/experts/mixture_step.h: a mixture of experts as a step of the decode kernel: what the kernel must know
// of it, and how it fits.
//
// Layout:   MixtureConstants lie in device memory, one per mixture; a step has their address. What a forward adds
//           (rows, and the flagged words that the parts of the step pass on) is in MixturePlan, which all layers share.
// Errors:   none; plan_mixture_step() returns false where a mixture must be launched by itself (mixture.h).
#pragma once

#include <cstdint>

#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

// The calls of the launches (experts.h), without rows, activations and memory.
struct MixtureConstants {
    RouterCall router;
    ProductsCall in, out;
    CombineCall combine;
};
static_assert(sizeof(MixtureConstants) % 4 == 0);

inline constexpr int kMixtureRows = 8;    // of a step, at most
inline constexpr int kMixtureSlots = 64;  // likewise
inline constexpr int kMixtureGroups = 4;  // of warps that multiply apart from each other
// At most, in bytes. It leaves the ring of eight rows one slot, which is enough: beside experts the other matrices are
// small, and a CTA has one or two chunks of each.
inline constexpr int kMixtureShared = 140 * 1024;

// One of the products: groups of so many warps, each with its own memory.
struct MixtureProducts {
    ProductsPlan plan;
    std::int32_t warps = 1, groups = 1;
};
struct MixturePlan {
    // Shared memory, in bytes: where it begins, and how much there is. Lists first (MixtureLists), then what the parts
    // of the step use in turn.
    std::int32_t shared_at = 0, shared_bytes = 0, work_at = 0;
    MixtureProducts in, out;
    // Floats within one of GemvPlan's buffers.
    std::int32_t scores = 0, stats = 0, ff = 0, out_rows = 0;
};

// What all parts of the step read, at the front of its shared memory.
struct MixtureLists {
    MixturePlan plan;            // by the kernel, at its start
    MixtureConstants constants;  // of the layer
    std::int32_t tile_count;
    std::int32_t choice[kMixtureSlots];
    float weight[kMixtureSlots];
    float stats[kMixtureRows];                                  // 1 / deviation of each row
    std::int32_t group_slots[kMixtureGroups][2 * kExpertRows];  // of the tiles that groups multiply
    ExpertTile tiles[kMixtureSlots];

#ifdef __CUDACC__
    // By the address in shared memory, so that the compiler knows where it is.
    static __device__ MixtureLists& at(std::uint32_t address) {
        return *static_cast<MixtureLists*>(__cvta_shared_to_generic(address));
    }
    __device__ char* work() { return reinterpret_cast<char*>(this) + plan.work_at; }
#endif
};
inline constexpr int kMixtureWorkAt = (sizeof(MixtureLists) + 127) / 128 * 128;

// Whether there is a decode kernel of `dense` weights with code for experts of `expert` weights. Each is a kernel of
// its own (GemvExpertArgs), so there are those that people have: all in one type, and gpt-oss.
constexpr bool has_expert_code(QuantType dense, QuantType expert) {
    if (dense == QuantType::q8_0) return expert == QuantType::q8_0 || expert == QuantType::mxfp4;
    return dense == QuantType::q4_k && expert == QuantType::q4_k;
}

// Divides the work of `rows` rows among the `warps` multiplying warps of each CTA. False: the step cannot have them.
bool plan_mixture_step(const MixtureConstants& mixture, QuantType dense, std::int32_t rows, int warps,
                       MixturePlan& plan);
// Floats of flagged words that a row of the step needs, and the plan's places in them, from `begin` on.
std::int32_t place_mixture_words(const MixtureConstants& mixture, std::int32_t rows, std::int32_t begin,
                                 MixturePlan& plan);

}  // namespace foresay::kernels::cuda
