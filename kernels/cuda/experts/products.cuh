// kernels/cuda/experts/products.cuh: the products of the chosen experts with up to eight rows at a time.
//
// Grid:     as many CTAs as are resident at once. An item is a tile and up to most_panels() neighbouring panels of its
//           expert; each CTA has a stretch of neighbouring items of the list, tiles slowest (ProductsPlan).
// Work:     K is cut into units of 128 or 256 inputs (ExpertUnit). Warp w has units w, w + warps, ... of every panel,
//           and multiplies them with those of the inputs of the tile's rows (Multiply<E>, decode/multiply.cuh). Weights
//           come through a ring of stages of its own, by cp.async, which runs ahead across panels and items. Nothing is
//           shared between warps until the sums of all of them are added, in the order of the warps.
// Inputs:   as ActivationOperand has them, but scaled by a power of two per row and unit, so that a warp needs no
//           other. Where there is room they are converted once per tile and lie in shared memory; else once per item.
// Shared:   a row of inputs, where they change places (expert_operand.cuh); per warp: stages of weights and converted
//           inputs of its units; then two buffers of the sums of a panel, [warp][row of the tile][packed row]. While
//           all threads finish a panel from one buffer, the first warps to be done fill the other one: one barrier a
//           panel.
// Packed:   rows whose layout is data have blocks of their own (products_packed.cu): all experts of a stack have the
//           same runs of blocks, and each its own factors and order of inputs. Operands stay in shared memory.
// Overlap:  tiles are complete before gate and up begin, so down asks for its first weights before it waits for them.
// Law 1:    the number of warps follows from the width; a column of an mma depends on that column alone.
#pragma once

#include <algorithm>

#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/decode/packed_multiply.cuh"
#include "kernels/cuda/device/launch.cuh"
#include "kernels/cuda/experts/block_sums.cuh"
#include "kernels/cuda/experts/expert_operand.cuh"
#include "kernels/cuda/experts/gated.cuh"

namespace foresay::kernels::cuda {

inline constexpr int kProductWarps = 8;
// CTAs that share a multiprocessor: products of K-quants take more than half of its registers.
constexpr int most_ctas(QuantType e) { return block_format(e).inputs > 128 ? 1 : 2; }
// Panels of an item, at most; likewise.
constexpr int most_panels(QuantType e) { return e == QuantType::packed ? 1 : most_ctas(e) == 1 ? 4 : 2; }
inline constexpr int kMostStages = 4;

constexpr int sum_stride(int rows) { return rows * 33; }  // floats from one warp's sums to the next one's

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

// The biases of a pair of packed rows (2 i, 2 i + 1) of an expert.
__device__ inline float2 biases_of(const ProductsCall& c, int expert, int packed) {
    if (c.bias == nullptr || packed >= c.rows) return {};
    const float* const bias = c.bias + static_cast<std::int64_t>(expert) * c.rows + packed;
    return {__ldg(bias), packed + 1 < c.rows ? __ldg(bias + 1) : 0.0f};
}

// What becomes of the sums of such a pair of a slot.
__device__ inline void finish_pair(const ProductsCall& c, std::int32_t slot, int packed, float a, float b,
                                   float2 bias) {
    if (packed >= c.rows) return;
    if (c.bias != nullptr) {
        a += bias.x;
        b += bias.y;
    }
    if (c.gate_up) {
        c.out[static_cast<std::int64_t>(slot) * (c.rows / 2) + packed / 2] = gated(c.activation, c.limit, a, b);
        return;
    }
    float* const to = c.out + static_cast<std::int64_t>(slot) * c.rows + packed;
    to[0] = a;
    if (packed + 1 < c.rows) to[1] = b;
}

// How a launch divides its work. Changes no bit.
struct ProductsPlan {
    int tiles = 0;       // 0: the device knows
    int each = 1;        // panels of an item
    int stages = 1;      // of the ring of a warp
    int room = 1;        // rows of a tile, at most
    bool keeps = false;  // the inputs of a tile
    int row_bytes = 0;   // of a row whose inputs change places in shared memory; 0: none does
    int shared_bytes = 0;
};

// Where the blocks of an expert are, and their products. Packed rows have others (products_packed.cu).
template <QuantType E>
class ExpertBlocks {
    using Unit = ExpertUnit<E>;

public:
    __device__ explicit ExpertBlocks(const ProductsCall&) {}
    // Bytes of a stage, which a unit of a panel fits.
    static FORESAY_HOST_DEVICE constexpr int stage_bytes(const ProductsCall&) { return Unit::kBytes; }
    __device__ std::int64_t panel_bytes(const ProductsCall& c) const {
        return c.blocks * static_cast<std::int64_t>(Unit::kFormat.bytes);
    }
    // Of a unit: where it lies in the panel, and its bytes.
    __device__ int2 place(const ProductsCall& c, int unit) {
        const int block = unit * Unit::kBlocks;
        return {block * Unit::kFormat.bytes, min(Unit::kBlocks, c.blocks - block) * Unit::kFormat.bytes};
    }
    __device__ void begin(const ProductsCall&, int /*expert*/, int /*lane*/) {}
    // Adds a unit at `at` in shared memory times the inputs to `sums`.
    template <bool kOneRow>
    __device__ __forceinline__ void multiply(const ProductsCall& c, std::uint32_t at, int unit,
                                             const ExpertOperand<E>& in, float (&sums)[2][1][4], int lane) {
#pragma unroll
        for (int j = 0; j < Unit::kBlocks; ++j) {
            if (unit * Unit::kBlocks + j >= c.blocks) break;
            Multiply<E, 1, kOneRow>::run(at + j * Unit::kFormat.bytes, in, j, sums, lane);
        }
    }
};

// Shared memory of a warp that has the inputs of `kept` units.
template <QuantType E>
FORESAY_HOST_DEVICE constexpr int warp_bytes_of(int stage_bytes, const ProductsPlan& plan, int kept) {
    return (plan.stages * stage_bytes + kept * ExpertUnit<E>::input_bytes(plan.room) + 127) / 128 * 128;
}

// What a warp asks for next: a unit of a panel of an item, panels of a unit first.
template <QuantType E>
class WeightsAhead {
public:
    __device__ WeightsAhead(const ProductsCall& c, const ExpertBlocks<E>& blocks, int each, int tile, int group,
                            int items, int warp, int lane)
        : blocks_(blocks), tile_(tile), group_(group), items_(items), unit_(warp), heads_from_(tile) {
        look(c, lane);
        aim(c, each);
    }
    // Commits a group of copies, also of nothing: groups are counted.
    __device__ void ask(const ProductsCall& c, int each, int units, std::uint32_t ring, int stages, int lane) {
        if (items_ > 0) {
            const int2 place = blocks_.place(c, unit_);
            copy_async(ring + stage_ * ExpertBlocks<E>::stage_bytes(c),
                       weights_ + panel_ * blocks_.panel_bytes(c) + place.x, place.y, lane);
            if (++stage_ == stages) stage_ = 0;
            if (++panel_ == here_) {
                panel_ = 0;
                unit_ += static_cast<int>(blockDim.x / 32);
                if (unit_ >= units) next(c, each, lane);
            }
        }
        commit_copies();
    }

private:
    __device__ void next(const ProductsCall& c, int each, int lane) {
        unit_ = static_cast<int>(threadIdx.x / 32);
        if (--items_ == 0) return;
        if (++group_ * each >= c.panel_count) {
            group_ = 0;
            if (++tile_ == heads_from_ + 32) {
                heads_from_ = tile_;
                look(c, lane);
            }
        }
        aim(c, each);
    }
    // The experts of 32 tiles, one per lane.
    __device__ void look(const ProductsCall& c, int lane) {
        const auto most = static_cast<int>(most_tiles(c.slots, c.experts));
        expert_ = __ldcg(&c.with.tiles[min(heads_from_ + lane, most - 1)].expert);
    }
    __device__ void aim(const ProductsCall& c, int each) {
        const int expert = __shfl_sync(~0u, expert_, tile_ - heads_from_), first = group_ * each;
        here_ = min(each, c.panel_count - first);
        weights_ = c.panels + expert * c.expert_bytes + first * blocks_.panel_bytes(c);
    }

    ExpertBlocks<E> blocks_;
    int tile_, group_, items_, unit_, heads_from_, panel_ = 0, stage_ = 0, here_ = 0;
    std::int32_t expert_ = 0;
    const std::uint8_t* weights_ = nullptr;
};

template <QuantType E>
__global__ void __launch_bounds__(32 * kProductWarps, most_ctas(E))
    multiply_experts(const ProductsCall c, const ProductsPlan plan) {
    constexpr int kMostPanels = most_panels(E);
    extern __shared__ __align__(128) char shared[];
    __shared__ std::int32_t slots[2][kExpertRows];
    using Unit = ExpertUnit<E>;
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const int warps = static_cast<int>(blockDim.x / 32), each = plan.each, stages = plan.stages, room = plan.room;
    // gate_up waits for the router here. When down may start, gate_up has waited, so the tiles are there.
    if (c.gate_up) await_predecessors();
    allow_successor();
    const int groups = (c.panel_count + each - 1) / each;
    const std::int64_t all =
        static_cast<std::int64_t>(plan.tiles > 0 ? plan.tiles : __ldcg(c.with.tile_count)) * groups;
    const auto begin = static_cast<int>(all * blockIdx.x / gridDim.x),
               end = static_cast<int>(all * (blockIdx.x + 1) / gridDim.x);
    if (begin == end) {
        // If no CTA of down waited, the next kernel would not know that those before down are done.
        if (all == 0 && !c.gate_up) await_predecessors();
        return;
    }
    int tile = begin / groups, group = begin - tile * groups;
    const int units = (c.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const int own_units = (units - warp + warps - 1) / warps;
    const int kept = plan.keeps ? (units + warps - 1) / warps : 1;
    const int stage_bytes = ExpertBlocks<E>::stage_bytes(c), warp_bytes = warp_bytes_of<E>(stage_bytes, plan, kept);
    const int row_bytes = E == QuantType::packed ? plan.row_bytes : 0;
    const std::uint32_t row = shared_address(shared), ring = row + row_bytes + warp * warp_bytes,
                        inputs = ring + stages * stage_bytes;
    ExpertBlocks<E> blocks(c);
    WeightsAhead<E> ahead(c, blocks, each, tile, group, end - begin, warp, lane);
    for (int i = 0; i < stages; ++i) ahead.ask(c, each, units, ring, stages, lane);
    TileRows rows(c.with.tiles + tile, lane);
    if (!c.gate_up) await_predecessors();
    ExpertOperand<E> in;
    bool fresh = true;  // the tile
    int stage = 0, buffer = 0, parity = 0;
    for (int item = begin; item < end; ++item) {
        if (fresh) {
            rows.locate(c);
            blocks.begin(c, rows.expert, lane);
            if (warp == 0 && lane < rows.count) slots[parity][lane] = rows.slot;
            if (row_bytes > 0) {
                if constexpr (E == QuantType::packed) {
                    ExpertOperand<E>::put_in_order(c, rows, row, inputs, room, warp, warps, lane);
                }
            } else {
                for (int i = 0; plan.keeps && i < own_units; ++i) {
                    ExpertOperand<E>::put(c, rows, (warp + i * warps) * Unit::kInputs,
                                          inputs + i * Unit::input_bytes(room), room, lane);
                }
            }
        }
        const int first_panel = group * each, here = min(each, c.panel_count - first_panel);
        // Asked for before the products, for the thread that finishes these rows of the first panel.
        const float2 bias =
            biases_of(c, rows.expert, first_panel * kPanelRows + 2 * static_cast<int>(threadIdx.x % 16));
        float total[kMostPanels][2][4] = {};
        const auto run = [&](auto one_row) __attribute__((always_inline)) {
            for (int i = 0; i < own_units; ++i) {
                const int unit = warp + i * warps;
                if (!plan.keeps) {
                    ExpertOperand<E>::put(c, rows, unit * Unit::kInputs, inputs, room, lane);
                    in.take(inputs, rows.count, room, lane);
                    __syncwarp();  // all lanes have taken theirs
                } else if (own_units > 1 || fresh) {
                    in.take(inputs + i * Unit::input_bytes(room), rows.count, room, lane);
                }
#pragma unroll
                for (int p = 0; p < kMostPanels; ++p) {
                    if (p >= here) break;
                    stage_ready(stages);
                    float sums[2][1][4] = {};
                    blocks.template multiply<one_row>(c, ring + stage * stage_bytes, unit, in, sums, lane);
#pragma unroll
                    for (int t = 0; t < 2; ++t) {
                        total[p][t][0] = fmaf(sums[t][0][0], in.first, total[p][t][0]);
                        total[p][t][2] = fmaf(sums[t][0][2], in.first, total[p][t][2]);
                        if (!one_row) {
                            total[p][t][1] = fmaf(sums[t][0][1], in.second, total[p][t][1]);
                            total[p][t][3] = fmaf(sums[t][0][3], in.second, total[p][t][3]);
                        }
                    }
                    __syncwarp();  // the stage is written next
                    ahead.ask(c, each, units, ring, stages, lane);
                    if (++stage == stages) stage = 0;
                }
            }
        };
        if (rows.count == 1) {
            run(std::true_type());
        } else {
            run(std::false_type());
        }
        // Panel after panel: sums to shared memory, [warp][row][packed row], and on.
#pragma unroll
        for (int p = 0; p < kMostPanels; ++p) {
            if (p >= here) break;
            float* const sums =
                reinterpret_cast<float*>(shared + row_bytes + warps * warp_bytes) + buffer * warps * sum_stride(room);
            float* const to = sums + warp * sum_stride(room);
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
            buffer ^= 1;
            const int packed = (first_panel + p) * kPanelRows + 2 * static_cast<int>(threadIdx.x % 16);
            for (int row = static_cast<int>(threadIdx.x) / 16; row < rows.count; row += 2 * warps) {
                float a = 0.0f, b = 0.0f;
                for (int w = 0; w < warps; ++w) {
                    const float* const from = sums + w * sum_stride(room) + row * 33 + packed % kPanelRows;
                    a += from[0];
                    b += from[1];
                }
                finish_pair(c, slots[parity][row], packed, a, b, p == 0 ? bias : biases_of(c, rows.expert, packed));
            }
        }
        fresh = (group + 1) * each >= c.panel_count;
        group = fresh ? 0 : group + 1;
        if (fresh && item + 1 < end) {
            ++tile;
            parity ^= 1;
            rows = TileRows(c.with.tiles + tile, lane);
        }
    }
}

// As many CTAs as can share a multiprocessor, the inputs of a tile if they fit, a row of those that have an order
// likewise, and then the ring as deep as possible.
template <QuantType E>
ProductsPlan plan_products(const ProductsCall& call, int units, int warps, int& ctas) {
    ProductsPlan plan;
    const int rows = call.slots / call.used, kept = (units + warps - 1) / warps;
    plan.room = rows < kExpertRows ? rows : kExpertRows;
    plan.tiles = rows == 1 && !call.part ? call.used : 0;
    const auto bytes = [&] {
        return plan.row_bytes +
               warps * (warp_bytes_of<E>(ExpertBlocks<E>::stage_bytes(call), plan, plan.keeps ? kept : 1) +
                        2 * sum_stride(plan.room) * 4);
    };
    const bool ordered = E == QuantType::packed && call.packed.order != nullptr;
    for (const bool keeps : {true, false}) {
        plan.keeps = keeps;
        plan.each = keeps ? 1 : most_panels(E);
        for (ctas = most_ctas(E); ctas > 0; --ctas) {
            for (const bool exchanges : {keeps && ordered, false}) {
                plan.row_bytes = exchanges ? call.inputs * 4 : 0;
                for (plan.stages = kMostStages; plan.stages > 1; --plan.stages) {
                    plan.shared_bytes = bytes();
                    if (plan.shared_bytes + 2048 <= call.shared_bytes / ctas) return plan;
                }
            }
        }
    }
    ctas = plan.stages = 1;
    plan.shared_bytes = bytes();
    return plan;
}

template <QuantType E>
void launch_products_as(cudaStream_t stream, const ProductsCall& call) {
    using Unit = ExpertUnit<E>;
    // By the shape: how many warps there are decides the order of sums.
    const int units = (call.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
    const int warps = units < kProductWarps ? units : kProductWarps;
    int ctas = 1;
    const ProductsPlan plan = plan_products<E>(call, units, warps, ctas);
    const std::int64_t items = most_tiles(call.slots, call.experts) * ((call.panel_count + plan.each - 1) / plan.each);
    const auto grid = static_cast<unsigned>(std::min<std::int64_t>(items, std::int64_t{call.processors} * ctas));
    launch_overlapping("products of experts", multiply_experts<E>, dim3(grid), 32 * warps, plan.shared_bytes, stream,
                       call, plan);
}

}  // namespace foresay::kernels::cuda
