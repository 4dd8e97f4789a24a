// kernels/cuda/decode/packed_header.cuh: what the kernels of packed rows (packed.cuh, mixed_gemm/sm90a/packed_tile.cuh)
// read of shared memory: a matrix's header, and blocks.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/weights/packed_format.h"

namespace foresay::kernels::cuda {

// A copy of a matrix's header in shared memory: reads of the device's memory queue after the weights.
class SharedHeader {
public:
    explicit __device__ SharedHeader(std::uint32_t address) : address_(address) {}
    // Word i of sixteen, each 16 bytes.
    static __device__ uint4 word(const std::uint8_t* panels, int i) {
        return __ldg(reinterpret_cast<const uint4*>(panels) + i);
    }
    __device__ void put(int i, const uint4& word) const {
        store_shared2(address_ + i * 16, {word.x, word.y});
        store_shared2(address_ + i * 16 + 8, {word.z, word.w});
    }
    static constexpr int kWords = sizeof(PackedHeader) / 16;

    __device__ std::uint32_t panel_bytes() const { return load(offsetof(PackedHeader, panel_bytes)); }
    __device__ std::uint32_t panels_at() const { return load(offsetof(PackedHeader, panels_at)); }
    __device__ PanelScales scales() const {
        return static_cast<PanelScales>(load(offsetof(PackedHeader, scales)) & 255u);
    }
    __device__ bool minimum_is_zero() const {
        return (load(offsetof(PackedHeader, scales)) >> 8 & kMinimumIsZero) != 0;
    }
    __device__ float factor(std::uint32_t row) const {
        return __uint_as_float(load(offsetof(PackedHeader, factor) + row % 2 * 4));
    }
    __device__ uint4 table() const { return load_shared4(address_ + offsetof(PackedHeader, table)); }
    __device__ PackedRun run(int number) const {
        const uint4 words = load_shared4(address_ + offsetof(PackedHeader, runs) + number * 16);
        PackedRun out;
        out.first = static_cast<std::uint16_t>(words.x);
        out.end = static_cast<std::uint16_t>(words.x >> 16);
        out.lines = static_cast<std::uint8_t>(words.y);
        out.kind = static_cast<CodeKind>(words.y >> 8 & 255u);
        out.apart = (words.y >> 16 & 255u) != 0;
        out.offset = words.z;
        out.zero = __uint_as_float(words.w);
        return out;
    }
    // Blocks that the decode kernel copies at once.
    __device__ int chunk() const { return load(offsetof(PackedHeader, chunk)); }
    // The run of a block, from run `from` on.
    __device__ int run_of(int from, int block) const {
        while (block >= static_cast<int>(load(offsetof(PackedHeader, runs) + from * 16) >> 16)) ++from;
        return from;
    }

    // Looked up each time: registers are short where this is used, and there are few runs.
    __device__ PackedRun run_with(int block) const { return run(run_of(0, block)); }
    // Where a block of that run begins in its panel.
    static __device__ int begin_of(const PackedRun& run, int block) {
        return static_cast<int>(run.offset) + (block - run.first) * run.bytes();
    }
    // Where blocks [first, end), which follow one another, lie in their panel: begin and bytes.
    __device__ int2 place(int first, int end) const {
        const PackedRun run = run_with(first), last = run_with(end - 1);
        const int begin = begin_of(run, first);
        return {begin, begin_of(last, end - 1) + last.bytes() - begin};
    }

private:
    __device__ std::uint32_t load(std::size_t at) const {
        return static_cast<std::uint32_t>(load_shared1(address_ + static_cast<std::uint32_t>(at)));
    }
    std::uint32_t address_;
};
static_assert(offsetof(PackedHeader, scales) == 8 && offsetof(PackedHeader, flags) == 9);

// Four values of all inputs, where an order says.
__device__ __forceinline__ float4 gather4(const float* from, const std::uint16_t* order) {
    const ushort4 at = __ldg(reinterpret_cast<const ushort4*>(order));
    return {__ldcg(from + at.x), __ldcg(from + at.y), __ldcg(from + at.z), __ldcg(from + at.w)};
}

// A block in shared memory, as load_pairs() reads it.
struct SharedBlock {
    std::uint32_t address;
    __device__ std::uint32_t one(int at) const {
        return static_cast<std::uint32_t>(load_shared1(address + static_cast<std::uint32_t>(at)));
    }
    __device__ uint2 two(int at) const {
        uint2 v;
        load_shared2(v.x, v.y, address + static_cast<std::uint32_t>(at));
        return v;
    }
    __device__ uint4 four(int at) const { return load_shared4(address + static_cast<std::uint32_t>(at)); }
};

}  // namespace foresay::kernels::cuda
