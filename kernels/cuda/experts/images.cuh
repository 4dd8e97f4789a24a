// kernels/cuda/experts/images.cuh: the images of prefill rows (grouped.h), by a CTA for each eight of positions.
//
// put_images()          a warp has a row, and reads it twice: for its largest magnitude, and to round it. Numbers pass
//                       through shared memory, so that they leave as pieces of 8 inputs x 8 rows. Where inputs have an
//                       order, each is loaded by itself.
// put_ordered_images()  inputs that have an order, of rows that all fit shared memory as float16: they come as they
//                       lie, are rounded there, and change places when they leave. The bits are those of put_images(),
//                       because an order has every input once, and neither norm nor rounding sees the place.
#pragma once

#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/device/row_scale.cuh"
#include "kernels/cuda/experts/grouped.h"

namespace foresay::kernels::cuda {

inline constexpr int kImageWarps = 8;         // a row each
inline constexpr int kImageInputs = 1024;     // that pass through shared memory at once
inline constexpr int kChunkBytes = 128 + 16;  // of 8 inputs x 8 rows, so that lanes are on different banks
inline constexpr int kPassageBytes = kImageInputs / 8 * kChunkBytes;

// The rows of an eight in shared memory, as float16: bytes from one to the next. Lanes that ask for the same input of
// eight rows are on different banks.
constexpr int ordered_row_bytes(int stride) { return stride * 2 + 16; }
constexpr int ordered_bytes(int stride) { return kImageWarps * ordered_row_bytes(stride); }

// A warp's row, and what its eight has in common.
struct ImageRow {
    int eights, position;
    bool exists;
    const float* x;
    float2 stats = {0.0f, 1.0f};
    const std::uint16_t* order = nullptr;  // of the eight's expert
    std::uint8_t* image;

    __device__ ImageRow(const ImagesCall& c, int warp) {
        const int2 eight = __ldcg(reinterpret_cast<const int2*>(c.to.eights + blockIdx.x));
        const int first = 8 * static_cast<int>(blockIdx.x);
        position = first + warp;
        eights = eight.y & 0xffff;
        exists = warp < eight.y >> 16;
        const std::int32_t slot = exists ? __ldcg(c.to.order + position) : 0;
        const int source = slot / c.used;
        x = c.x + static_cast<std::int64_t>(source) * c.inputs;
        if (c.norm.weight != nullptr && exists) stats = __ldcg(c.to.stats + source);
        if (c.order != nullptr) {
            const int expert = __ldcg(c.to.choice + __ldcg(c.to.order + first));
            order = c.order + static_cast<std::int64_t>(expert - c.first_expert) * c.inputs;
        }
        image = c.to.images + static_cast<std::int64_t>(eight.x) * c.stride * 2 + (first - eight.x) * 16;
    }
    // Where chunk `chunk` of 8 inputs begins.
    __device__ std::uint8_t* chunk(int chunk) const { return image + static_cast<std::int64_t>(chunk) * eights * 128; }
    // Inputs at place i .. i + 3 after the norm: `order` of them, or null: inputs i .. as they come.
    __device__ float4 inputs(const ImagesCall& c, const std::uint16_t* from, int i) const {
        if (!exists || i >= c.inputs) return float4{};
        float4 a = from == nullptr ? __ldcg(reinterpret_cast<const float4*>(x + i)) : gather4(x, from + i);
        if (c.norm.weight == nullptr) return a;
        const float4 weight = constants(c.norm.weight, from, i);
        float4 bias = {};
        if (c.norm.bias != nullptr) bias = constants(c.norm.bias, from, i);
        a.x = fmaf((a.x - stats.x) * stats.y, weight.x, bias.x);
        a.y = fmaf((a.y - stats.x) * stats.y, weight.y, bias.y);
        a.z = fmaf((a.z - stats.x) * stats.y, weight.z, bias.z);
        a.w = fmaf((a.w - stats.x) * stats.y, weight.w, bias.w);
        return a;
    }
    // The scale of the row, from its largest magnitude. What undoes it goes to memory.
    __device__ float scale(const ImagesCall& c, const std::uint16_t* from, int lane) const {
        float most = 0.0f;
#pragma unroll 8
        for (int i = 4 * lane; i < c.inputs; i += 128) most = larger_magnitude(most, inputs(c, from, i));
        const RowScale<true> row(__reduce_max_sync(~0u, __float_as_uint(most)));
        if (lane == 0) c.to.back[position] = row.back();
        return row.up();
    }

private:
    __device__ static float4 constants(const float* all, const std::uint16_t* from, int i) {
        return from == nullptr ? __ldg(reinterpret_cast<const float4*>(all + i)) : gather4(all, from + i);
    }
};

// `passage`: kPassageBytes of shared memory.
__device__ inline void put_images(const ImagesCall& c, std::uint8_t* passage) {
    const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const ImageRow row(c, warp);
    const float scale = row.scale(c, row.order, lane);
    for (int begin = 0; begin < c.stride; begin += kImageInputs) {
        const int here = min(kImageInputs, c.stride - begin);
#pragma unroll 4
        for (int i = 4 * lane; i < here; i += 128) {
            const float4 a = row.inputs(c, row.order, begin + i);
            // Inputs 4 q to 4 q + 3 of 16 are word q of both chunks.
            std::uint8_t* const to = passage + i / 16 * (2 * kChunkBytes) + warp * 16 + lane % 4 * 4;
            *reinterpret_cast<std::uint32_t*>(to) = as_bits(__floats2half2_rn(a.x * scale, a.y * scale));
            *reinterpret_cast<std::uint32_t*>(to + kChunkBytes) = as_bits(__floats2half2_rn(a.z * scale, a.w * scale));
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < here; i += 32 * kImageWarps) {
            const int chunk = i / 8;
            *reinterpret_cast<uint4*>(row.chunk(begin / 8 + chunk) + i % 8 * 16) =
                *reinterpret_cast<const uint4*>(passage + chunk * kChunkBytes + i % 8 * 16);
        }
        __syncthreads();
    }
}

// `rows`: ordered_bytes() of shared memory.
__device__ inline void put_ordered_images(const ImagesCall& c, std::uint8_t* rows) {
    const auto lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
    const int row_bytes = ordered_row_bytes(c.stride);
    const ImageRow row(c, warp);
    const float scale = row.scale(c, nullptr, lane);
#pragma unroll 4
    for (int i = 4 * lane; i < c.inputs; i += 128) {
        const float4 a = row.inputs(c, nullptr, i);
        *reinterpret_cast<uint2*>(rows + warp * row_bytes + 2 * i) = {
            as_bits(__floats2half2_rn(a.x * scale, a.y * scale)), as_bits(__floats2half2_rn(a.z * scale, a.w * scale))};
    }
    __syncthreads();
    // A thread has a chunk's eight inputs of a row: two of every four of 16. Neighbours have its other rows.
    const std::uint8_t* const of_row = rows + threadIdx.x % 8 * row_bytes;
    const auto there = [&](std::uint16_t input) -> std::uint32_t {
        return *reinterpret_cast<const std::uint16_t*>(of_row + 2 * input);
    };
#pragma unroll 2
    for (int at = static_cast<int>(threadIdx.x); at < c.stride; at += 32 * kImageWarps) {
        const int first = at / 16 * 16 + at / 8 % 2 * 2;
        uint4 words = {};
        if (first < c.inputs) {  // so all of the 16 exist
            const auto pair = [&](int q) {
                const ushort2 place = __ldg(reinterpret_cast<const ushort2*>(row.order + first + 4 * q));
                return there(place.x) | there(place.y) << 16;
            };
            words = {pair(0), pair(1), pair(2), pair(3)};
        }
        *reinterpret_cast<uint4*>(row.chunk(at / 8) + at % 8 * 16) = words;
    }
}

}  // namespace foresay::kernels::cuda
