// kernels/cuda/experts/products.cuh: the products of the chosen experts with up to eight rows at a time.
//
// Grid:     (groups of neighbouring panels of an expert, tiles). CTAs of empty tiles return. How many panels a CTA has
//           (ProductsPlan) changes nothing but speed.
// Work:     K is cut into units of 128 or 256 inputs (ExpertUnit). Warp w has units w, w + warps, ... It converts a
// unit
//           of the inputs of the tile's rows once, and multiplies it with that unit of each panel of the CTA
//           (Multiply<E>, decode/multiply.cuh). Weights come through a ring of stages of its own, by cp.async. Nothing
//           is shared between warps until the sums of all of them are added, in the order of the warps.
// Inputs:   as ActivationOperand has them, but scaled by a power of two per row and unit, so that a warp needs no
// other. Shared:   per warp: stages of weights, rows of inputs on their way to the lanes that multiply with them,
// factors that
//           scale the sums of a row back; then the sums of a panel, [warp][row of the tile][packed row].
// Overlap:  tiles are complete before gate and up begin, so down asks for its first weights before it waits for them.
// Law 1:    the number of warps follows from the width; a column of an mma depends on that column alone.
#pragma once

#include <algorithm>

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/experts.h"
#include "kernels/cuda/experts/gated.cuh"
#include "kernels/cuda/experts/slot_sums.cuh"

namespace foresay::kernels::cuda {

inline constexpr int kProductWarps = 8;
inline constexpr int kMostPanels = 4;  // of a CTA
inline constexpr int kMostStages = 4;

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

// A tile, its rows one per lane; lanes past the last one have a copy of it.
struct TileRows {
    int expert, count;
    std::int32_t slot;
    std::int32_t source = 0;  // of x
    float2 stats = {0.0f, 1.0f};

    __device__ TileRows(const ExpertTile* tile, int lane) {
        const int2 head = __ldcg(reinterpret_cast<const int2*>(tile));
        const std::int32_t own = __ldcg(tile->slots + lane % kExpertRows);
        expert = head.x;
        count = head.y;
        slot = __shfl_sync(~0u, own, max(min(lane, count - 1), 0));
    }
    // What depends on the kernels before the router's.
    __device__ void locate(const ProductsCall& c) {
        source = c.gate_up ? slot / c.used : slot;
        if (c.gate_up && c.norm.weight != nullptr) stats = __ldcg(c.with.stats + source);
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
        if constexpr (Form::has_sums) this->template sum_up<Unit::kGroups>(0);
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
                back[b] = __uint_as_float(static_cast<std::uint32_t>(exponent - 13) << 23) * Form::code_scale;
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

// Waits for the oldest stage: one group is committed for each stage at the start, and one after each stage that has
// been multiplied, so all but the `stages` - 1 youngest groups must be there.
__device__ inline void stage_ready(int stages) {
    if (stages == 1) {
        copies_done<0>();
    } else if (stages == 2) {
        copies_done<1>();
    } else if (stages == 3) {
        copies_done<2>();
    } else {
        copies_done<3>();
    }
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

// After the outputs of a CTA's rows and panels are written: counts them, and adds up the rows whose last slot this was.
// By all threads.
__device__ inline void combine_arrived(const ProductsCall& c, const std::int32_t* slots, int count, int first_panel,
                                       int panels) {
    __shared__ bool complete[kExpertRows * kMostPanels];
    __threadfence();
    __syncthreads();
    const auto thread = static_cast<int>(threadIdx.x), threads = static_cast<int>(blockDim.x);
    for (int i = thread; i < count * panels; i += threads) {
        const std::int64_t t = slots[i / panels] / c.used;
        std::int32_t* const arrived = c.with.arrived + t * c.panel_count + first_panel + i % panels;
        complete[i] = atomicAdd(arrived, 1) == c.used - 1;
        if (complete[i]) *arrived = 0;
    }
    __threadfence();
    __syncthreads();
    for (int i = thread; i < count * panels * kPanelRows; i += threads) {
        const int pair = i / kPanelRows, column = (first_panel + pair % panels) * kPanelRows + i % kPanelRows;
        if (!complete[pair] || column >= c.rows) continue;
        const std::int64_t t = slots[pair / panels] / c.used;
        add_to_row(c.sum, t, column, sum_of_slots(c.sum, t, column));
    }
}

// kPanels: the most panels of a CTA, `each` of them at most are its own.
template <QuantType E, int kPanels>
__global__ void __launch_bounds__(32 * kProductWarps, kPanels == 1 ? 2 : 1)
    multiply_experts(const ProductsCall c, int each, int stages, int room) {
    extern __shared__ __align__(128) char shared[];
    __shared__ std::int32_t slots[kExpertRows];
    using Unit = ExpertUnit<E>;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int warps = static_cast<int>(blockDim.x / 32);
    // gate_up waits for the router here. When down may start, gate_up has waited, so the tiles are there.
    if (c.gate_up) await_predecessors();
    allow_successor();
    TileRows rows(c.with.tiles + blockIdx.y, lane);
    if (rows.count == 0) return;
    const int first_panel = static_cast<int>(blockIdx.x) * each, here = min(each, c.panel_count - first_panel);
    const std::int64_t panel_bytes = static_cast<std::int64_t>(c.blocks) * Unit::kFormat.bytes;
    const std::uint8_t* const weights = c.panels + rows.expert * c.expert_bytes + first_panel * panel_bytes;
    const int units = (c.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const std::uint32_t mine = shared_address(shared) + warp * Unit::warp_bytes(stages, room);
    // Stages hold (unit, panel) after (unit, panel), panels first. `ahead_*`: the next one to ask for.
    int ahead_unit = warp, ahead_panel = 0, ahead_stage = 0;
    const auto ask = [&] {
        if (ahead_unit < units) {
            const int block = ahead_unit * Unit::kBlocks;
            copy_async(mine + ahead_stage * Unit::kBytes,
                       weights + ahead_panel * panel_bytes + static_cast<std::int64_t>(block) * Unit::kFormat.bytes,
                       min(Unit::kBlocks, c.blocks - block) * Unit::kFormat.bytes, lane);
            if (++ahead_panel == here) {
                ahead_panel = 0;
                ahead_unit += warps;
            }
            if (++ahead_stage == stages) ahead_stage = 0;
        }
        commit_copies();  // also of nothing: groups are counted
    };
    for (int i = 0; i < stages; ++i) ask();
    if (!c.gate_up) await_predecessors();
    rows.locate(c);
    if (warp == 0 && lane < rows.count) slots[lane] = rows.slot;
    const std::uint32_t passage = mine + stages * Unit::kBytes;
    float* const back = reinterpret_cast<float*>(shared + warp * Unit::warp_bytes(stages, room) +
                                                 stages * Unit::kBytes + room * Unit::kRowBytes * Unit::kPlanes);
    float total[kPanels][2][4] = {};
    const auto run = [&](auto one_row) {
        int stage = 0;
        for (int unit = warp; unit < units; unit += warps) {
            ExpertOperand<E> in;
            in.load(c, rows, unit * Unit::kInputs, passage, back, lane);
            const float first = back[lane % 4 * 2], second = back[lane % 4 * 2 + 1];
#pragma unroll
            for (int p = 0; p < kPanels; ++p) {
                if (p >= here) break;
                stage_ready(stages);
                float sums[2][1][4] = {};
#pragma unroll
                for (int j = 0; j < Unit::kBlocks; ++j) {
                    if (unit * Unit::kBlocks + j >= c.blocks) break;
                    Multiply<E, 1, one_row>::run(mine + stage * Unit::kBytes + j * Unit::kFormat.bytes, in, j, sums,
                                                 lane);
                }
#pragma unroll
                for (int t = 0; t < 2; ++t) {
                    total[p][t][0] = fmaf(sums[t][0][0], first, total[p][t][0]);
                    total[p][t][2] = fmaf(sums[t][0][2], first, total[p][t][2]);
                    if (!one_row) {
                        total[p][t][1] = fmaf(sums[t][0][1], second, total[p][t][1]);
                        total[p][t][3] = fmaf(sums[t][0][3], second, total[p][t][3]);
                    }
                }
                __syncwarp();  // the stage is written next
                ask();
                if (++stage == stages) stage = 0;
            }
        }
    };
    if (rows.count == 1) {
        run(std::true_type());
    } else {
        run(std::false_type());
    }
    copies_done<0>();
    // Panel after panel: sums to shared memory, [warp][row][packed row], and on.
    float* const all = reinterpret_cast<float*>(shared + warps * Unit::warp_bytes(stages, room));
#pragma unroll
    for (int p = 0; p < kPanels; ++p) {
        if (p >= here) break;
        if (p > 0) __syncthreads();  // the sums before are read
        float* const to = all + warp * sum_stride(room);
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            const int row = lane % 4 * 2 + i;
            if (row >= rows.count) continue;
#pragma unroll
            for (int t = 0; t < 2; ++t) {
                to[row * 33 + 16 * t + lane / 4] = total[p][t][i];
                to[row * 33 + 16 * t + 8 + lane / 4] = total[p][t][2 + i];
            }
        }
        __syncthreads();
        for (int i = static_cast<int>(threadIdx.x); i < 16 * rows.count; i += 32 * warps) {
            const int row = i / 16, pair = i % 16;
            float a = 0.0f, b = 0.0f;
            for (int w = 0; w < warps; ++w) {
                const float* const from = all + w * sum_stride(room) + row * 33 + 2 * pair;
                a += from[0];
                b += from[1];
            }
            finish_pair(c, rows.expert, slots[row], (first_panel + p) * kPanelRows + 2 * pair, a, b);
        }
    }
    if (c.combines) combine_arrived(c, slots, rows.count, first_panel, here);
}

template <QuantType E>
void launch_products_as(cudaStream_t stream, const ProductsCall& call) {
    using Unit = ExpertUnit<E>;
    // By the shape: how many warps there are decides the order of sums.
    const int units = (call.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const int warps = units < kProductWarps ? units : kProductWarps;
    const int rows = call.slots / call.used, room = rows < kExpertRows ? rows : kExpertRows;
    const auto tiles = static_cast<int>(most_tiles(call.slots, call.experts));
    // As many panels a CTA, up to kMostPanels, as leave every multiprocessor enough warps.
    const int each = call.panels_each > 0
                         ? call.panels_each
                         : std::clamp(call.panel_count * tiles * warps / (call.processors * 12), 1, kMostPanels);
    const int steps = (units + warps - 1) / warps * each;
    const int stages = std::min(steps, E == QuantType::f16 || E == QuantType::bf16 ? 2 : kMostStages);
    const int bytes = warps * (Unit::warp_bytes(stages, room) + sum_stride(room) * 4);
    const dim3 grid(static_cast<unsigned>((call.panel_count + each - 1) / each), static_cast<unsigned>(tiles));
    const auto launch = [&](auto kernel) {
        launch_overlapping("products of experts", kernel, grid, 32 * warps, bytes, stream, call, each, stages, room);
    };
    if (each == 1) {
        launch(multiply_experts<E, 1>);
    } else {
        launch(multiply_experts<E, kMostPanels>);
    }
}

}  // namespace foresay::kernels::cuda
