// kernels/cuda/decode/panel_sums.cuh: partial sums on their way: of a panel from the multiplying warps to the epilogue
// warps, and of the parts of a split K from CTA to CTA.
#pragma once

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/device/async.cuh"

namespace foresay::kernels::cuda {

// Sums of the parts of a split K, on their way to the CTA that has part 0 and adds them in the order of the parts. A
// packet is 16 bytes: two sums, each beside a tag that no other launch and step has. It is written and read as a whole,
// so a packet with the right tag is complete: no counter and no fence.
// Layout in GemvPlan::partials: [panel][part][16 T packets of pairs of sums, T packets of squares].
// Tags:     launch number * 1024 + step + 1. Packets are cleared after they are read, so that a tag that comes again
//           after 2^22 launches finds no old packet.
class SplitSums {
public:
    __device__ SplitSums(const GemvOp& op, const GemvPlan& plan, int T, int panel, std::uint32_t tag)
        : packets_(reinterpret_cast<uint4*>(plan.partials + op.partials_at) +
                   static_cast<std::int64_t>(panel) * op.split * 17 * T),
          T_(T),
          tag_(tag) {}
    __device__ void send(int part, int place, float a, float b) const {
        asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(at(part, place)),
                     "r"(__float_as_uint(a)), "r"(tag_), "r"(__float_as_uint(b))
                     : "memory");
    }
    // Adds what the parts other than the first have sent, in their order. Polls three at once, because the L2 is far
    // away.
    __device__ void add(int parts, int place, float2& to) const {
        constexpr int kAtOnce = 3;
#pragma unroll 1
        for (int first = 1; first < parts; first += kAtOnce) {
            uint4 v[kAtOnce];
            bool all;
            do {
                all = true;
#pragma unroll
                for (int i = 0; i < kAtOnce; ++i) {
                    v[i] = {0, tag_, 0, tag_};
                    if (first + i >= parts) continue;
                    asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                                 : "=r"(v[i].x), "=r"(v[i].y), "=r"(v[i].z), "=r"(v[i].w)
                                 : "l"(at(first + i, place))
                                 : "memory");
                }
#pragma unroll
                for (int i = 0; i < kAtOnce; ++i) all = all && v[i].y == tag_ && v[i].w == tag_;
            } while (!all);
#pragma unroll
            for (int i = 0; i < kAtOnce; ++i) {
                if (first + i >= parts) continue;
                to.x += __uint_as_float(v[i].x);
                to.y += __uint_as_float(v[i].z);
            }
        }
    }
    // Clears the packets that were added.
    __device__ void clear(int parts, int place) const {
#pragma unroll 1
        for (int part = 1; part < parts; ++part) __stcg(at(part, place), uint4{});
    }
    // The place of the sum of squares of row t. That of pair p of row t is p T + t.
    __device__ int squares(int t) const { return 16 * T_ + t; }

private:
    __device__ uint4* at(int part, int place) const { return packets_ + part * 17 * T_ + place; }

    uint4* packets_;
    int T_;
    std::uint32_t tag_;
};

// The sums of a panel, from the multiplying warps to the epilogue warps, in GemvPlan::sum_buffers buffers (1 to 8, a
// power of two).
// Layout:   [warp][buffer][32 packed rows][rows of the batch] floats from GemvPlan::sums_at.
// Barriers of a buffer: `full` has one arrival of each multiplying warp, `read` one of each epilogue warp. Both
// complete one phase per panel that passes through the buffer. A multiplying warp waits for `read` with the opposite
// parity, which lets it through the first time.
template <int Warps>
class PanelSums {
public:
    // At the start of the kernel, by one thread.
    __device__ static void start(char* shared, const GemvPlan& plan, int rows) {
        std::uint32_t panels = 0;
        const PanelSums sums(shared, plan, rows, panels);
        for (int i = 0; i < plan.sum_buffers; ++i) {
            mbarrier_init(sums.full(i), Warps * kWarpArrivals);
            mbarrier_init(sums.read(i), kEpilogueWarps * kWarpArrivals);
        }
    }
    // `panels`: how many panels there were so far in this launch, which gives buffer and parity.
    __device__ PanelSums(char* shared, const GemvPlan& plan, int rows, std::uint32_t& panels)
        : shared_(shared), plan_(plan), rows_(rows), panels_(panels) {}
    // A multiplying warp's place in the buffer, once the epilogue has read what was there.
    __device__ float* mine(int warp) {
        mbarrier_wait(read(slot(panels_)), parity(panels_) ^ 1);
        return sums() + warp * warp_stride();
    }
    __device__ void hand_over() { mbarrier_arrive_warp(full(slot(panels_))); }
    // Warp 0's sums, once those of all warps are there. The other warps' follow warp_stride() apart.
    __device__ const float* all() {
        mbarrier_wait(full(slot(panels_)), parity(panels_));
        return sums();
    }
    // Waits until the epilogue has read all panels so far, with the row statistics that belong to them. Needed before
    // the statistics and the sums' memory are used for something else.
    __device__ void all_read() const {
        if (panels_ > 0) mbarrier_wait(read(slot(panels_ - 1)), parity(panels_ - 1));
    }
    __device__ int warp_stride() const { return plan_.warp_sum_stride; }
    // Where row t of the batch lies within the packed rows 2 pair, 2 pair + 1. With 16 rows the two eights change
    // places in every second pair, so that accesses meet few banks twice. NT: eights of rows.
    template <int NT>
    __device__ int column(int t, int pair) const {
        return NT == 2 && rows_ == 16 ? t ^ pair % 2 * 8 : t;
    }
    __device__ void done() { mbarrier_arrive_warp(read(slot(panels_))); }
    __device__ void next() { ++panels_; }

private:
    // The number of buffers is a power of two.
    __device__ std::uint32_t slot(std::uint32_t panel) const { return panel & plan_.sum_buffer_mask; }
    __device__ std::uint32_t parity(std::uint32_t panel) const { return (panel & plan_.sum_buffers) != 0; }
    __device__ float* sums() const {
        return reinterpret_cast<float*>(shared_ + plan_.sums_at) + slot(panels_) * kPanelRows * rows_;
    }
    __device__ std::uint32_t full(std::uint32_t i) const {
        return shared_address(shared_) + kCopyBarrierBytes + 16 * i;
    }
    __device__ std::uint32_t read(std::uint32_t i) const { return full(i) + 8; }

    char* shared_;
    const GemvPlan& plan_;
    int rows_;
    std::uint32_t& panels_;
};

}  // namespace foresay::kernels::cuda
