// Attention of many prefill rows: keys and values through shared memory, where neighbouring tiles of a CTA read them.
//
// Data flow of a page of 64 positions, per CTA:
//
//   K and V  global --cp.async.bulk--> slot of the ring                     (bring_page)
//   scores   Q . K^T by mma, strip by strip: Q in registers for the whole tile, K from the slot
//   softmax  online, as in prefill_attention.cu
//   output   P . V: the sums of the scores, packed to float16, already are operand A; V from the slot
//
// Order:    bit for bit that of prefill_kernel() (prefill_attention.cu): strips of 32 positions in order, the same
//           products in the same order. Scaling the outputs is left out where the factors are all 1.
// Tiles:    a warp has one tile of 16 (row, query head) pairs, a CTA kTiles neighbouring ones. Tiles of one sequence
//           are a run and go through its pages together; a CTA takes its runs one after the other.
// Waits:    slot, full: a warp waits for the copy. The last warp that has read a slot has the next page brought there,
//           so warps may be as many pages apart as there are slots.
// Few:      where tiles are few, a CTA has four, and computes the scores of both strips of a page first.
// Registers: twelve warps of 168, three for each scheduler: while one waits for its products, others have their
//           softmax.
// Cost:     reads K and V of a head once per kTiles tiles, mostly from L2.

#include "kernels/cuda/attention/flash_prefill.h"

#include <algorithm>

#include "kernels/cuda/attention/tile.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/probe.h"

namespace foresay::kernels::cuda {
namespace {

using attention::kLog2e;
using attention::minus_infinity;
using attention::pack;
using attention::power_of_two;
using attention::Tile;
using std::int32_t;
using std::uint32_t;

constexpr int kStrip = 32, kPageStrips = kPagePositions / kStrip;
constexpr int kPagesListed = 32;  // page numbers that are looked up at once

// kFew: for launches whose tiles would fill few multiprocessors. Four warps have registers enough to keep the scores of
// two strips, so that the products of one go on while the other has its softmax.
template <int kWidth, bool kFew>
struct PrefillForm {
    static constexpr int kTiles = kFew ? 4 : kWidth > 128 ? 8 : 12, kThreads = 32 * kTiles;
    static constexpr int kStripsAhead = kFew ? kPageStrips : 1;  // whose scores are computed at once
    static constexpr int kSlotBytes = 4 * kPagePositions * kWidth;
    static constexpr int kSlots = std::min(8, 192 * 1024 / kSlotBytes);
    struct Shared {
        unsigned char slots[kSlots][kSlotBytes];
        std::uint64_t full[kSlots];
        uint32_t readers[kSlots];  // how many warps have read a slot, so far
        TileState tiles[kTiles];
        // Where pages come from; used by one warp at a time.
        int32_t next, end, slot;  // page of the run
        int32_t list;             // of the sequence's pages
        int32_t pages[kPagesListed];
    };
};

// d += a . b, without an order among others.
__device__ inline void product(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Brings the next page of the run, if there is one. By one warp, when all have read what the slot had.
template <class Form, class Shared>
__device__ void bring_page(const AttendCall& c, Shared& shared, const __half* base) {
#if __CUDA_ARCH__ >= 900
    const int lane = static_cast<int>(threadIdx.x % 32);
    const int32_t page = shared.next, slot = shared.slot;
    if (page == shared.end) return;
    __syncwarp();
    if (page % kPagesListed == 0 || shared.pages[page % kPagesListed] < 0) {
        const int32_t listed = page / kPagesListed * kPagesListed + lane;
        const int32_t number = listed >= page && listed < shared.end ? c.batch.lists[shared.list + listed] : -1;
        __syncwarp();
        shared.pages[lane] = number;
        __syncwarp();
    }
    if (lane == 0) {
        const uint32_t full = shared_address(&shared.full[slot]);
        shared.next = page + 1;
        shared.slot = slot + 1 < Form::kSlots ? slot + 1 : 0;
        asm volatile("mbarrier.arrive.expect_tx.shared.b64 _, [%0], %1;" ::"r"(full), "r"(Form::kSlotBytes) : "memory");
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                         shared_address(shared.slots[slot])),
                     "l"(base + shared.pages[page % kPagesListed] * c.layout.page_stride), "r"(Form::kSlotBytes),
                     "r"(full)
                     : "memory");
    }
    __syncwarp();
#endif
}

// Grid: x: head tiles; y: kTiles tiles per CTA. Later tiles have more positions, so they start first.
template <int kWidth, bool kFew>
__global__ void __launch_bounds__(PrefillForm<kWidth, kFew>::kThreads, 1)
    flash_prefill_kernel(const __grid_constant__ AttendCall c) {
// Code for older devices never gets here (can_flash_prefill), and would only take room.
#if __CUDA_ARCH__ >= 900
    using Form = PrefillForm<kWidth, kFew>;
    using Shared = typename Form::Shared;
    constexpr int kGroups = kWidth / 32;  // of 32 values of a head
    extern __shared__ __align__(128) unsigned char memory[];
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const auto thread = static_cast<int>(threadIdx.x);
    const int warp = thread / 32, lane = thread % 32, quad = lane / 4, place = lane % 4;
    const int32_t first = (static_cast<int32_t>(gridDim.y) - 1 - static_cast<int32_t>(blockIdx.y)) * Form::kTiles;
    const int32_t count = min(Form::kTiles, c.tiles - first);
    const auto head_tile = static_cast<int32_t>(blockIdx.x);
    if (thread < Form::kSlots) {
        mbarrier_init(shared_address(&shared.full[thread]), 1);
        shared.readers[thread] = 0;
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    }
    if (thread < count) shared.tiles[thread] = c.batch.tiles[first + thread];
    if (thread == 0) shared.slot = 0;
    __syncthreads();

    // This warp's tile. Operand A: the values of a head are contracted in the order of prefill_kernel().
    const Tile tile(c, first + min(warp, count - 1), head_tile);
    const __half* const base = c.kv + tile.kv_head * c.layout.head_stride;
    const int32_t least = tile.least(c), most = tile.state.highest;
    uint32_t q[2 * kGroups][4];
    int32_t from[2], to[2];  // positions that the rows quad and quad + 8 attend to
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        const bool valid = tile.valid(r);
        to[i] = valid ? c.batch.rows[tile.row(r)].position : -1;
        from[i] = c.window > 0 ? max(0, to[i] - c.window + 1) : 0;
        const float* const values = c.q + (valid ? tile.values(c, r) : 0);
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
            float4 four[2] = {};
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int32_t d = 32 * g + 8 * place + 4 * j;
                if (valid && d < c.head_dim) four[j] = __ldcg(reinterpret_cast<const float4*>(values + d));
                q[2 * g + j][i] = pack(four[j].x, four[j].y);
                q[2 * g + j][2 + i] = pack(four[j].z, four[j].w);
            }
        }
    }
    // Pages that all rows attend to as a whole.
    const int32_t unmasked = c.window > 0 ? 0 : (tile.state.lowest + 1) / kPagePositions;
    float peak[2] = {minus_infinity(), minus_infinity()}, sum[2] = {}, out[kWidth / 8][4] = {};
    // This lane's part of every address in a slot.
    const int key_at = key_order(KvFormat::f16, kWidth).key_place(8 * (quad / 2) + quad % 2) + 8 * place;
    const int value_at = kPagePositions * kWidth + KvLayout::value_value(quad) + 8 * place;

    int slot = 0;
    uint32_t parity = 0;
#pragma unroll 1
    for (int32_t begin = 0; begin < count;) {  // runs of tiles of one sequence
        const int32_t list = shared.tiles[begin].pages;
        int32_t end = begin + 1;
        while (end < count && shared.tiles[end].pages == list) ++end;
        const int32_t lowest = c.window > 0 ? max(0, shared.tiles[begin].lowest - c.window + 1) : 0;
        const int32_t first_page = lowest / kPagePositions,
                      end_page = shared.tiles[end - 1].highest / kPagePositions + 1;
        if (warp == 0) {
            if (lane == 0) {
                shared.next = first_page;
                shared.end = end_page;
                shared.list = list;
            }
            shared.pages[lane] = -1;
            __syncwarp();
            // What earlier kernels wrote by plain stores is read by bulk copies.
            asm volatile("fence.proxy.async;" ::: "memory");
            for (int i = 0; i < Form::kSlots; ++i) bring_page<Form>(c, shared, base);
        }
        const bool mine = warp >= begin && warp < end;
#pragma unroll 1
        for (int32_t page = first_page; page < end_page; ++page) {
            mbarrier_wait(shared_address(&shared.full[slot]), parity);
            const auto* const halves = reinterpret_cast<const __half*>(shared.slots[slot]);
            const auto attends = [&](int strip) {
                const int32_t start = page * kPagePositions + strip * kStrip;
                return mine && start + kStrip > least && start <= most;
            };
            const auto score = [&](int strip, float(&scores)[4][4]) {
#pragma unroll
                for (int n = 0; n < 4; ++n) {
                    const __half* const key =
                        halves + key_at + key_order(KvFormat::f16, kWidth).key_place(kStrip * strip + 2 * n);
#pragma unroll
                    for (float& value : scores[n]) value = 0.0f;
#pragma unroll
                    for (int g = 0; g < kGroups; ++g) {
                        const uint4 k = *reinterpret_cast<const uint4*>(key + KvLayout::key_value(32 * g));
                        product(scores[n], q[2 * g], k.x, k.y);
                        product(scores[n], q[2 * g + 1], k.z, k.w);
                    }
                }
            };
            float all_scores[Form::kStripsAhead][4][4];
            if (kFew && mine) {  // also of strips that are not attended to, which costs no more than a branch
#pragma unroll
                for (int strip = 0; strip < Form::kStripsAhead; ++strip) score(strip, all_scores[strip]);
            }
#pragma unroll
            for (int strip = 0; strip < kPageStrips; ++strip) {
                if (!attends(strip)) continue;
                const int32_t start = page * kPagePositions + strip * kStrip;
                float(&scores)[4][4] = all_scores[kFew ? strip : 0];
                if (!kFew) score(strip, scores);
                float top[2] = {minus_infinity(), minus_infinity()};
#pragma unroll
                for (int n = 0; n < 4; ++n) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) {
                        const float score = scores[n][j] * c.scale * kLog2e;
                        scores[n][j] = score;
                    }
                }
                if (page >= unmasked) {
#pragma unroll
                    for (int n = 0; n < 4; ++n) {
#pragma unroll
                        for (int j = 0; j < 4; ++j) {
                            const int32_t p = start + 8 * place + 2 * n + j % 2;
                            if (p < from[j / 2] || p > to[j / 2]) scores[n][j] = minus_infinity();
                        }
                    }
                }
#pragma unroll
                for (int n = 0; n < 4; ++n) {
#pragma unroll
                    for (int j = 0; j < 4; ++j) top[j / 2] = fmaxf(top[j / 2], scores[n][j]);
                }
                float old[2];
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 1));
                    top[i] = fmaxf(top[i], __shfl_xor_sync(~0u, top[i], 2));
                    top[i] = fmaxf(top[i], peak[i]);
                    const float zero = top[i] == minus_infinity() ? 0.0f : top[i];  // nothing attended yet
                    old[i] = power_of_two(peak[i] - zero);
                    peak[i] = top[i];
                    float here = 0.0f;
#pragma unroll
                    for (int n = 0; n < 4; ++n) {
#pragma unroll
                        for (int j = 2 * i; j < 2 * i + 2; ++j) {
                            scores[n][j] = power_of_two(scores[n][j] - zero);
                            here += scores[n][j];
                        }
                    }
                    sum[i] = fmaf(sum[i], old[i], here);
                }
                uint32_t weights[2][4];
#pragma unroll
                for (int m = 0; m < 2; ++m) {
                    weights[m][0] = pack(scores[2 * m][0], scores[2 * m][1]);
                    weights[m][1] = pack(scores[2 * m][2], scores[2 * m][3]);
                    weights[m][2] = pack(scores[2 * m + 1][0], scores[2 * m + 1][1]);
                    weights[m][3] = pack(scores[2 * m + 1][2], scores[2 * m + 1][3]);
                }
                if (!__all_sync(~0u, old[0] == 1.0f && old[1] == 1.0f)) {
#pragma unroll
                    for (auto& d : out) {
#pragma unroll
                        for (int j = 0; j < 4; ++j) d[j] *= old[j / 2];
                    }
                }
                const __half* const values =
                    halves + value_at + value_order(KvFormat::f16, kWidth).value_place(kStrip * strip);
#pragma unroll
                for (int d = 0; d < kWidth / 8; ++d) {
                    const uint4 v = *reinterpret_cast<const uint4*>(values + KvLayout::value_value(8 * d));
                    product(out[d], weights[0], v.x, v.y);
                    product(out[d], weights[1], v.z, v.w);
                }
            }
            // The last warp to have read the slot has the next page brought there.
            __syncwarp();
            uint32_t before = 0;
            if (lane == 0) {
                asm volatile("atom.acq_rel.cta.shared.add.u32 %0, [%1], 1;"
                             : "=r"(before)
                             : "r"(shared_address(&shared.readers[slot]))
                             : "memory");
            }
            before = __shfl_sync(~0u, before, 0);
            if (before % Form::kTiles == Form::kTiles - 1) bring_page<Form>(c, shared, base);
            if (++slot == Form::kSlots) {
                slot = 0;
                parity ^= 1;
            }
        }
        begin = end;
        if (begin < count) {
            __syncthreads();
            if (thread == 0) shared.slot = slot;
            __syncthreads();
        }
    }
    if (warp >= count) return;
        // Each lane has summed its own positions; the peaks already agree.
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        sum[i] += __shfl_xor_sync(~0u, sum[i], 1);
        sum[i] += __shfl_xor_sync(~0u, sum[i], 2);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        if (!tile.valid(r)) continue;
        float* const row = c.out + tile.values(c, r);
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) {
#pragma unroll
            for (int j = 0; j < 2; ++j) {
                const int column = 8 * d + 2 * place + j;
                if (column < c.head_dim) row[column] = out[d][2 * i + j] / sum[i];
            }
        }
    }
#endif
}

}  // namespace

bool can_flash_prefill(const AttendCall& call, const DeviceInfo& device) {
    return !call.tree && call.soft_cap <= 0 && call.sinks == nullptr && call.layout.width >= 64 &&
           call.layout.width <= kMaxTileWidth && call.layout.format == KvFormat::f16 &&
           device.shared_bytes >= 200 * 1024 && code_version(device.index) >= 90;
}

void launch_flash_prefill(cudaStream_t stream, const AttendCall& call, int processors) {
    const auto launch_form = [&](auto width, auto few) {
        using Form = PrefillForm<width, few>;
        static_assert(sizeof(typename Form::Shared) <= 200 * 1024);
        const auto kernel = flash_prefill_kernel<width, few>;
        cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        static_cast<int>(sizeof(typename Form::Shared))),
                   "cannot have the shared memory");
        const dim3 grid(static_cast<unsigned>(call.head_tiles),
                        static_cast<unsigned>((call.tiles + Form::kTiles - 1) / Form::kTiles));
        kernel<<<grid, Form::kThreads, sizeof(typename Form::Shared), stream>>>(call);
    };
    // Few: not even with a third of the tiles per CTA do they fill the device.
    const auto launch = [&](auto width) {
        using Few = PrefillForm<width, true>;
        if ((call.tiles + Few::kTiles - 1) / Few::kTiles * call.head_tiles <= processors) {
            launch_form(width, std::true_type());
        } else {
            launch_form(width, std::false_type());
        }
    };
    if (call.layout.width == 64) {
        launch(std::integral_constant<int, 64>());
    } else if (call.layout.width == 128) {
        launch(std::integral_constant<int, 128>());
    } else {
        launch(std::integral_constant<int, 256>());
    }
    launched("attention of prefill rows");
}

}  // namespace foresay::kernels::cuda
