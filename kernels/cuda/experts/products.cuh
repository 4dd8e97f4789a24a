// kernels/cuda/experts/products.cuh: the products of the chosen experts with up to eight rows at a time.
//
// Grid:     (panels of an expert, tiles). A CTA multiplies one panel of the expert of one tile; CTAs past the last tile
//           return. What CTAs there are follows from shapes and from the number of rows alone.
// Work:     K is cut into units of 128 or 256 inputs (ExpertUnit). Warp w has units w, w + warps, ...; it copies their
//           weights into its own stages of shared memory (cp.async), converts the inputs of the tile's rows while they
//           arrive, and multiplies (Multiply<E>, decode/multiply.cuh). Nothing is shared between warps until the sums
//           of all of them are added, in the order of the warps.
// Inputs:   as ActivationOperand has them, but scaled by a power of two per row and unit, so that a warp needs no
// other. Shared:   per warp: stages of weights, rows of inputs on their way to the lanes that multiply with them,
// factors that
//           scale the sums of a row back; then the sums, [warp][row of the tile][packed row].
// Law 1:    the number of warps follows from the width; a column of an mma depends on that column alone.
#pragma once

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/gated.cuh"

namespace foresay::kernels::cuda {

inline constexpr int kProductWarps = 8;
inline constexpr int kProductStages = 2;

template <QuantType E>
struct ExpertUnit {
    static constexpr BlockFormat kFormat = block_format(E);
    static constexpr int kInputs = kFormat.inputs > 128 ? kFormat.inputs : 128;
    static constexpr int kBlocks = kInputs / kFormat.inputs;
    static constexpr int kBytes = kBlocks * kFormat.bytes;
    static constexpr int kGroups = kInputs / 32, kVectors = kInputs / 128;
    static constexpr int kRowBytes = kInputs * 2 + 64;  // so that lanes of two rows are on different banks
    static constexpr int kPlanes = ActivationForm<E>::planes;
    // Of shared memory, of a warp.
    static constexpr int warp_bytes(int stages, int rows) { return stages * kBytes + rows * kRowBytes * kPlanes + 128; }
};
constexpr int sum_stride(int rows) { return rows * 33; }  // floats from one warp's sums to the next one's

// The rows of a tile, one per lane, lanes past the last one a copy of it.
struct TileRows {
    int count;
    std::int32_t slot, source;  // of x
    float2 stats;

    __device__ TileRows(const ProductsCall& c, int4 tile, int lane) : count(tile.z), stats{0.0f, 1.0f} {
        slot = __ldcg(c.with.sorted + tile.y + min(lane, count - 1));
        source = c.gate_up ? slot / c.used : slot;
        if (c.gate_up && c.norm.weight != nullptr) {
            stats = __ldcg(c.with.stats + source);
        }
    }
};

// A unit of the inputs of up to eight rows, as operand B.
template <QuantType E>
class ExpertOperand : public ActivationOperand<E, 1> {
    using Unit = ExpertUnit<E>;
    using Form = ActivationForm<E>;
    static constexpr int kV = Unit::kVectors;

public:
    // By a warp; rows pass through `passage`. `back` receives the factors of the rows' sums.
    __device__ __forceinline__ void load(const ProductsCall& c, const TileRows& rows, int begin, std::uint32_t passage,
                                         float* back, int lane) {
        if (rows.count == 1) {
            read<1>(c, rows, begin, passage, back, lane);
        } else if (rows.count <= 4) {
            read<4>(c, rows, begin, passage, back, lane);
        } else {
            read<8>(c, rows, begin, passage, back, lane);
        }
        if constexpr (!Form::floats) this->template sum_up<Unit::kGroups>(0);
    }

private:
    template <int B>
    __device__ __forceinline__ void read(const ProductsCall& c, const TileRows& rows, int begin, std::uint32_t passage,
                                         float* back, int lane) {
        float4 x[B][kV];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const float* const from = c.x + static_cast<std::int64_t>(__shfl_sync(~0u, rows.source, b)) * c.inputs;
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const int at = begin + v * 128 + lane * 4;
                x[b][v] = at < c.inputs ? __ldcg(reinterpret_cast<const float4*>(from + at)) : float4{};
            }
        }
        if (c.norm.weight != nullptr) {
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const int at = begin + v * 128 + lane * 4;
                float4 weight = {}, bias = {};
                if (at < c.inputs) {
                    weight = __ldg(reinterpret_cast<const float4*>(c.norm.weight + at));
                    if (c.norm.bias != nullptr) bias = __ldg(reinterpret_cast<const float4*>(c.norm.bias + at));
                }
#pragma unroll
                for (int b = 0; b < B; ++b) {
                    const float mean = __shfl_sync(~0u, rows.stats.x, b), inverse = __shfl_sync(~0u, rows.stats.y, b);
                    float4& a = x[b][v];
                    a.x = fmaf((a.x - mean) * inverse, weight.x, bias.x);
                    a.y = fmaf((a.y - mean) * inverse, weight.y, bias.y);
                    a.z = fmaf((a.z - mean) * inverse, weight.z, bias.z);
                    a.w = fmaf((a.w - mean) * inverse, weight.w, bias.w);
                }
            }
        }
        uint2 half[Form::planes][B][kV];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            float most = 0.0f;
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const float4 a = x[b][v];
                most = fmaxf(most, fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))));
            }
            // The largest magnitude ends up between 2^13 and 2^14. At least 20, so that zeros have a finite scale; at
            // most 254, so that the scale of an infinity is a number.
            const int exponent =
                min(max(static_cast<int>(__reduce_max_sync(~0u, __float_as_uint(most)) >> 23), 20), 254);
            const float scale = __uint_as_float(static_cast<std::uint32_t>(267 - exponent) << 23);
            if (lane == b) {
                back[b] = __uint_as_float(static_cast<std::uint32_t>(exponent - 13) << 23) *
                          (Form::floats ? 1.0f : kCodeScale);
            }
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const float4 a = x[b][v];
                this->round({a.x * scale, a.y * scale, a.z * scale, a.w * scale}, half, b, v);
            }
        }
        // Eight lanes have the 32 inputs of a group: lane % 8 = 4 s + q. A lane takes the four of each 16 inputs that
        // its row and q need.
        const std::uint32_t place = lane % 4 * 16 + lane / 4 % 2 * 8;
        const int row = min(lane / 4, rows.count - 1);
#pragma unroll
        for (int plane = 0; plane < Form::planes; ++plane) {
            const std::uint32_t plane_at = passage + plane * rows.count * Unit::kRowBytes;
#pragma unroll
            for (int b = 0; b < B; ++b) {
                if (b >= rows.count) continue;
#pragma unroll
                for (int v = 0; v < kV; ++v) {
                    store_shared2(plane_at + b * Unit::kRowBytes + (v * 4 + lane / 8) * 64 + place, half[plane][b][v]);
                }
            }
            __syncwarp();
#pragma unroll
            for (int g = 0; g < Unit::kGroups; ++g) {
                const uint4 got = load_shared4(plane_at + row * Unit::kRowBytes + g * 64 + lane % 4 * 16);
                this->x_[plane][g][0] = got.x;
                this->x_[plane][g][1] = got.y;
                this->x_[plane][g][2] = got.z;
                this->x_[plane][g][3] = got.w;
            }
        }
        __syncwarp();
    }
};

// Copies 16 bytes a lane at a time into shared memory; copies_done<N>() waits for all but the last N groups.
__device__ inline void copy_async(std::uint32_t to, const std::uint8_t* from, int bytes, int lane) {
    for (int at = 16 * lane; at < bytes; at += 512) {
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to + at), "l"(from + at) : "memory");
    }
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ inline void copies_done() {
    asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
    __syncwarp();
}

// What becomes of the sums of pair `pair` (packed rows 2 pair, 2 pair + 1) of a slot.
__device__ inline void finish_pair(const ProductsCall& c, int expert, std::int32_t slot, int packed, float a, float b) {
    if (packed >= c.rows) return;
    if (c.bias != nullptr) {
        const float* const bias = c.bias + static_cast<std::int64_t>(expert) * c.rows + packed;
        a += bias[0];
        if (packed + 1 < c.rows) b += bias[1];
    }
    if (c.gate_up) {
        c.out[static_cast<std::int64_t>(slot) * (c.rows / 2) + packed / 2] = gated(c.activation, c.limit, a, b);
        return;
    }
    float* const to = c.out + static_cast<std::int64_t>(slot) * c.rows + packed;
    to[0] = a;
    if (packed + 1 < c.rows) to[1] = b;
}

template <QuantType E>
__global__ void __launch_bounds__(32 * kProductWarps, 2) multiply_experts(const ProductsCall c, int stages, int room) {
    extern __shared__ __align__(128) char shared[];
    using Unit = ExpertUnit<E>;
    allow_successor();
    await_predecessors();
    if (static_cast<int>(blockIdx.y) >= __ldcg(c.with.counts)) return;
    const int4 tile = __ldcg(c.with.tiles + blockIdx.y);
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int warps = static_cast<int>(blockDim.x / 32);
    const int panel = static_cast<int>(blockIdx.x);
    const std::uint8_t* const weights =
        c.panels + tile.x * c.expert_bytes + static_cast<std::int64_t>(panel) * c.blocks * Unit::kFormat.bytes;
    const int units = (c.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const std::uint32_t mine = shared_address(shared) + warp * Unit::warp_bytes(stages, room);
    const auto copy = [&](int unit, int stage) {
        const int block = unit * Unit::kBlocks;
        if (unit < units) {
            copy_async(mine + stage * Unit::kBytes, weights + static_cast<std::int64_t>(block) * Unit::kFormat.bytes,
                       min(Unit::kBlocks, c.blocks - block) * Unit::kFormat.bytes, lane);
        }
        commit_copies();  // also of nothing: groups are counted
    };
    copy(warp, 0);
    const TileRows rows(c, tile, lane);
    const std::uint32_t passage = mine + stages * Unit::kBytes;
    float* const back = reinterpret_cast<float*>(shared + warp * Unit::warp_bytes(stages, room) +
                                                 stages * Unit::kBytes + room * Unit::kRowBytes * Unit::kPlanes);
    float total[2][4] = {};
    const auto run = [&](auto one_row) {
        int stage = 0;
        for (int unit = warp; unit < units; unit += warps) {
            // The next unit's weights are under way while this one's are multiplied.
            if (stages > 1) copy(unit + warps, stage ^ 1);
            ExpertOperand<E> in;
            in.load(c, rows, unit * Unit::kInputs, passage, back, lane);
            if (stages > 1) {
                copies_done<1>();
            } else {
                copies_done<0>();
            }
            float sums[2][1][4] = {};
#pragma unroll
            for (int j = 0; j < Unit::kBlocks; ++j) {
                if (unit * Unit::kBlocks + j >= c.blocks) break;
                Multiply<E, 1, one_row>::run(mine + stage * Unit::kBytes + j * Unit::kFormat.bytes, in, j, sums, lane);
            }
            const float first = back[lane % 4 * 2], second = back[lane % 4 * 2 + 1];
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                total[t][0] = fmaf(sums[t][0][0], first, total[t][0]);
                total[t][2] = fmaf(sums[t][0][2], first, total[t][2]);
                if (!one_row) {
                    total[t][1] = fmaf(sums[t][0][1], second, total[t][1]);
                    total[t][3] = fmaf(sums[t][0][3], second, total[t][3]);
                }
            }
            if (stages > 1) stage ^= 1;
            __syncwarp();  // the stage, the passage and the factors are written next
        }
    };
    if (rows.count == 1) {
        run(std::true_type());
    } else {
        run(std::false_type());
    }
    copies_done<0>();
    // Sums to shared memory: [warp][row][packed row].
    float* const all = reinterpret_cast<float*>(shared + warps * Unit::warp_bytes(stages, room));
    {
        float* const to = all + warp * sum_stride(room);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = lane % 4 * 2 + i;
            if (row >= rows.count) continue;
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                to[row * 33 + 16 * t + lane / 4] = total[t][i];
                to[row * 33 + 16 * t + 8 + lane / 4] = total[t][2 + i];
            }
        }
    }
    __syncthreads();
    for (int i = static_cast<int>(threadIdx.x); i < 16 * rows.count; i += 32 * warps) {
        const int row = i / 16, pair = i % 16;
        const std::int32_t slot = __ldcg(c.with.sorted + tile.y + row);
        float a = 0.0f, b = 0.0f;
        for (int w = 0; w < warps; ++w) {
            const float* const from = all + w * sum_stride(room) + row * 33 + 2 * pair;
            a += from[0];
            b += from[1];
        }
        finish_pair(c, tile.x, slot, panel * kPanelRows + 2 * pair, a, b);
    }
}

template <QuantType E>
void launch_products_as(cudaStream_t stream, const ProductsCall& call) {
    using Unit = ExpertUnit<E>;
    // By the shape: how many warps there are decides the order of sums.
    const int units = (call.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const int warps = units < kProductWarps ? units : kProductWarps;
    const int stages = units > warps ? kProductStages : 1;
    const int rows = call.slots / call.used, room = rows < kExpertRows ? rows : kExpertRows;
    const int bytes = warps * (Unit::warp_bytes(stages, room) + sum_stride(room) * 4);
    const dim3 grid(static_cast<unsigned>(call.panel_count),
                    static_cast<unsigned>(most_tiles(call.slots, call.experts)));
    launch_overlapping("products of experts", multiply_experts<E>, grid, 32 * warps, bytes, stream, call, stages, room);
}

}  // namespace foresay::kernels::cuda
