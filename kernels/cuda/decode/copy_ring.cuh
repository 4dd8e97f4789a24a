// kernels/cuda/decode/copy_ring.cuh: the ring of weight chunks in shared memory, through all matrices of a launch, and
// which panels a CTA takes.
//
// Layout:   kChunk neighbouring blocks of a panel are one copy into one slot. A chunk never crosses a panel, so the
//           last one of a panel may be shorter. Slot s lies at kGemvHeaderBytes + s * kSlotBytes.
// Producer: one warp. For each slot it waits until the slot is empty (all multiplying warps have released it), then
//           issues one cp.async.bulk, whose bytes complete the slot's full barrier. Before sm_90 all 32 lanes issue
//           16-byte copies instead.
// Consumer: each multiplying warp waits for the full barrier, reads its blocks, and arrives at the empty barrier. Every
//           warp does so for every chunk, also for those in which it has no block.
// Phases:   a slot's barriers complete one phase each time round, so the parity bit flips when the ring wraps. The
//           producer waits for `empty` with the opposite parity, which lets it through in the first round, when nothing
//           has been released yet.
// Overlap:  the producer runs ahead across panels and matrices. Weights depend on no step, so it waits for slots only.
// State:    consumers keep slot and parity in registers within a step and in GemvHeader::ring_states between steps,
//           where they would be spilled otherwise.
// Breaks:   producer and consumers must take the very same chunks in the same order. A step that one side skips and the
//           other does not hangs the CTA.
#pragma once

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {

// A CTA's panels of a matrix, and the blocks of a panel (part of K) that it multiplies. CTAs 0 .. members - 1 have part
// 0, the next `members` part 1, and so on; CTAs left over are idle in the step.
struct alignas(16) CtaShare {
    int panel_begin = 0, panel_end = 0;
    int first = 0, count = 0;  // blocks of a panel, within the part
    int part = 0;              // of K
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

    // Those of all ops, computed at the start of the kernel by one thread each. A __syncthreads() follows.
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

// E: of the step. kLargest: the type whose chunks fill a slot; another one than E in a launch of several types.
template <QuantType E, int NT, class Args, QuantType kLargest = E>
class CopyRing {
public:
    static constexpr int kChunk = chunk_blocks(E, NT, kLittleShared), kWarps = gemv_warps(E);
    static constexpr int kBytes = block_format(E).bytes, kSlotBytes = kChunk * block_format(kLargest).bytes;
    static_assert(share_launch(E, kLargest) && kBytes <= block_format(kLargest).bytes);

    // At the start of the kernel, by the producer warp. A __syncthreads() follows.
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
    // The producer warp. More copies in flight are hardly faster, and they delay the words that CTAs poll, which queue
    // after them in memory: at most kInFlight at a time, and only one while kReady chunks lie unread. kMixes: the ops
    // say which type theirs is.
    template <bool kMixes = false>
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
            const int bytes = kMixes ? block_format(op.quant_type).bytes : kBytes;
            const std::int64_t panel_bytes = static_cast<std::int64_t>(op.blocks) * bytes;
            const std::uint8_t* from = args.step[s].panels + share.panel_begin * panel_bytes + share.first * bytes;
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
                    bulk_copy(ring.slot_address(ring.slot_), from + block * bytes,
                              static_cast<std::uint32_t>(min(kChunk, share.count - block) * bytes),
                              ring.full(ring.slot_), lane);
                    ring.advance();
                }
            }
        }
    }

    // A multiplying warp at the start of a step.
    __device__ static CopyRing resumed(const Args& args, char* shared) {
        CopyRing ring(args, shared);
        std::uint32_t packed;
        load_shared2(packed, ring.panels_summed_, ring.parked(threadIdx.x / 32));
        ring.slot_ = static_cast<int>(packed & 0xffffu);
        ring.parity_ = packed >> 16;
        return ring;
    }
    // And at its end.
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
    // This warp has read its blocks of the chunk, or has none.
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
    // Whether fewer than `enough` chunks lie unread, beside `in_flight` that are still being copied: asks whether the
    // slot that far back has been released.
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
