// kernels/cuda/decode/copy_ring.cuh: a block's stream of weights, through all matrices of a launch, and the shares it
// consists of.
//
// Layout:   blocks of the grid take runs of a matrix' panels. The blocks of a panel go to the warps by turns, so that a
//           run of them, a chunk, is one copy into one stage of the ring, of which each warp reads its part, if it has
//           one. A chunk never crosses a panel.
// Threads:  one warp beside those that multiply asks for the weights (produce()); the others wait for a stage, read it,
//           and release it.
// Overlap:  the ring runs ahead of the products as far as it is deep: across panels, matrices, and whatever blocks wait
//           for.
#pragma once

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {

// A block's share of a matrix.
struct alignas(16) CtaShare {
    int panel_begin = 0, panel_end = 0;
    int first = 0, count = 0;  // blocks of a panel that belong to the part
    int part = 0;              // of the inputs
    CtaShare() = default;
    __device__ explicit CtaShare(const GemvOp& op) {
        int member = static_cast<int>(blockIdx.x);
        if (op.split > 1) {
            part = member / op.members;
            member -= part * op.members;
        }
        if (op.kind != OpKind::matrix || part >= op.split || member >= op.members) return;
        panel_begin = member * op.panels_each + min(member, op.panels_more);
        panel_end = panel_begin + op.panels_each + (member < op.panels_more ? 1 : 0);
        first = part * op.blocks_each + min(part, op.blocks_more);
        count = op.blocks_each + (part < op.blocks_more ? 1 : 0);
    }
    __device__ bool idle() const { return panel_begin == panel_end; }

    // Those of all ops, worked out as the kernel begins by all threads of a block, which then meet.
    template <class Args>
    __device__ static void start(const Args& args, char* shared) {
        static_assert(sizeof(CtaShare) * kMaxGemvOps <= kGemvHeaderBytes - kCtaSharesAt);
        const auto op = static_cast<int>(threadIdx.x);
        if (op < args.op_count) reinterpret_cast<CtaShare*>(shared + kCtaSharesAt)[op] = CtaShare(args.ops[op]);
    }
    template <class Args>
    __device__ static const CtaShare& of(const Args& args, const char* shared, int step) {
        return reinterpret_cast<const CtaShare*>(shared + kCtaSharesAt)[args.step[step].op];
    }
};

template <Encoding E, int NT, class Args>
class CopyRing {
public:
    static constexpr int kChunk = chunk_blocks(E, NT, kLittleShared), kWarps = gemv_warps(E);
    static constexpr int kBytes = block_format(E).bytes, kSlotBytes = kChunk * kBytes;

    // As the kernel begins, by one warp; then all threads meet.
    __device__ static void start(const Args& args, char* shared) {
        const CopyRing ring(args, shared);
        const int lane = threadIdx.x % 32;
        if (lane < args.plan.ring_slots) {
            copy_barrier_init(ring.full(lane));
            mbarrier_init(ring.empty(lane), kWarps * kWarpArrivals);
        }
        copy_barriers_ready();
        if (lane < kWarps) store_shared2(ring.parked(lane), {0, 0});
    }
    // What the warp does that asks for the weights. Many copies under way are hardly faster than few, and whatever
    // blocks tell each other waits behind them: there are at most kFlying, and only one while kStock chunks lie ready.
    __device__ static void produce(const Args& args, char* shared) {
        constexpr int kInFlight = 2, kReady = 2;
        CopyRing ring(args, shared), landed(args, shared);
        const int lane = threadIdx.x % 32;
#if __CUDA_ARCH__ >= 900
        if (lane != 0) return;
#endif
        int in_flight = 0;  // chunks
#pragma unroll 1
        for (int s = 0; s < args.steps; ++s) {
            const GemvOp& op = args.op(s);
            const CtaShare share = CtaShare::of(args, shared, s);
            if (share.idle()) continue;
            const std::int64_t panel_bytes = static_cast<std::int64_t>(op.blocks) * kBytes;
            const std::uint8_t* from = args.step[s].panels + share.panel_begin * panel_bytes + share.first * kBytes;
#pragma unroll 1
            for (int panel = share.panel_begin; panel < share.panel_end; ++panel, from += panel_bytes) {
#pragma unroll 1
                for (int block = 0; block < share.count; block += kChunk) {
                    mbarrier_wait(ring.empty(ring.slot_), ring.parity_ ^ 1);
                    while (in_flight > 0 && (in_flight >= kInFlight || !ring.lacks(in_flight, kReady))) {
                        mbarrier_wait(landed.full(landed.slot_), landed.parity_);
                        landed.advance();
                        --in_flight;
                    }
                    ++in_flight;
                    bulk_copy(ring.slot_address(ring.slot_), from + block * kBytes,
                              static_cast<std::uint32_t>(min(kChunk, share.count - block) * kBytes),
                              ring.full(ring.slot_), lane);
                    ring.advance();
                }
            }
        }
    }

    // Of a warp that multiplies, as a step begins and as it ends.
    __device__ static CopyRing resumed(const Args& args, char* shared) {
        CopyRing ring(args, shared);
        std::uint32_t packed;
        load_shared2(packed, ring.panels_summed_, ring.parked(threadIdx.x / 32));
        ring.slot_ = static_cast<int>(packed & 0xffffu);
        ring.parity_ = packed >> 16;
        return ring;
    }
    __device__ void park() const {
        __syncwarp();
        if (threadIdx.x % 32 == 0) {
            store_shared2(parked(threadIdx.x / 32),
                          {static_cast<std::uint32_t>(slot_) | parity_ << 16, panels_summed_});
        }
        __syncwarp();
    }
    __device__ std::uint32_t& panels_summed() { return panels_summed_; }

    // Waits for the next chunk.
    __device__ __forceinline__ void wait() const { mbarrier_wait(full(slot_), parity_); }
    __device__ __forceinline__ std::uint32_t address() const { return slot_address(slot_); }
    // This warp has read its part of it, or has none.
    __device__ __forceinline__ void release() {
        mbarrier_arrive_warp(empty(slot_));
        advance();
    }

private:
    __device__ CopyRing(const Args& args, char* shared) : args_(args), shared_(shared_address(shared)) {}
    __device__ __forceinline__ void advance() {
        if (++slot_ < args_.plan.ring_slots) return;
        slot_ = 0;
        parity_ ^= 1;
    }
    // Whether fewer than `enough` chunks wait to be read, beside `flying` that are on their way.
    __device__ bool lacks(int in_flight, int enough) const {
        const int ring_slots = args_.plan.ring_slots, at = slot_ + max(ring_slots - in_flight - enough, 0);
        return at < ring_slots ? mbarrier_test(empty(at), parity_ ^ 1) : mbarrier_test(empty(at - ring_slots), parity_);
    }
    __device__ std::uint32_t full(int slot) const { return shared_ + slot * 16; }
    __device__ std::uint32_t empty(int slot) const { return shared_ + slot * 16 + 8; }
    __device__ std::uint32_t slot_address(int slot) const { return shared_ + kGemvHeaderBytes + slot * kSlotBytes; }
    __device__ std::uint32_t parked(int warp) const { return shared_ + kRingStatesAt + warp * 8; }

    const Args& args_;
    std::uint32_t shared_;
    int slot_ = 0;              // of the next chunk
    std::uint32_t parity_ = 0;  // likewise
    std::uint32_t panels_summed_ = 0;
};

}  // namespace foresay::kernels::cuda
