// kernels/cuda/decode/split_k_epilogue.cuh: what the warps of the decode kernel do that finish panels, and how blocks
// count what is done.
//
// A panel's sums of the slices are added in the order of the warps, those of the parts of a split matrix behind them in
// the order of the inputs; what then becomes of a pair of rows is in kernels/cuda/decode/epilogue.cuh.
#pragma once

#include "kernels/cuda/decode/copy_ring.cuh"
#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/decode/panel_sums.cuh"

namespace foresay::kernels::cuda {

// 1 / root mean square of a row from the squares of its slices.
__device__ inline float norm_factor(const GemvOp& op, float squares) {
    return rsqrtf(fmaf(squares, op.inputs_inverse, op.eps));
}

// What blocks of a launch count together. Zero between launches, but for the number of launches.
enum GridCounter : int { kMatrixArrivals, kDepartures, kLaunches, kAttendArrivals };
static_assert(kAttendArrivals < kScratchCounters);

// What a block knows of where it is, in shared memory: words from kStepNumber on.
struct StepState {
    std::int32_t step;
    // Arrivals that complete the matrices, and the attentions, before this step.
    std::uint32_t matrix_arrivals, attend_arrivals;
    std::uint32_t attend_at;  // where attention has its groups' memory
};
static_assert(sizeof(StepState) <= kNormFactors - kStepNumber);

// A barrier of all blocks, in two halves. What others wrote before it is read from L2 after it (__ldcg), so that
// nothing in L1 needs to be dropped: a relaxed look at the counter is enough, and the cheaper one by far. Of a matrix
// all blocks tell, of an attention those that take part. handed: all that was written says by itself whether it has
// come, so that it need not have.
__device__ inline void arrive(std::uint32_t* counter, bool handed = false) {
    if (handed) {
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    } else {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
}
__device__ inline void look_for(const std::uint32_t* counter, std::uint32_t arrivals) {
    std::uint32_t seen;
    do {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < arrivals);
}

// Clears numbers that are handed over, by finishers: thread `thread` of `threads`.
__device__ inline void clear_handed(float* to, std::int32_t floats, int thread, int threads) {
    for (std::int32_t i = thread; i < floats / 4; i += threads) put_nothing4(to + 4 * i);
}

// A step that is a matrix of one kind: this block's panels. NT: eights of rows.
template <Finish kKind, int NT, int kWarps>
__device__ __forceinline__ void finish_panels(const GemvOp& op, const GemvStep& step, const GemvPlan& plan, int T,
                                              float* out, const float* from, std::uint32_t tag, const Share& share,
                                              PanelSums<kWarps>& panel_sums, const float* factors, int finisher,
                                              int lane) {
    // A copy where there are registers for it.
    const std::conditional_t<NT == 1, FinishArgs, const FinishArgs&> f = op.finish;
    const float* const bias = step.bias;
    __half* const kv = step.kv;
    const int split = op.split, stride = panel_sums.warp_stride();
    const bool normed = step.norm != nullptr, finishes = share.part == 0, from_handed = op.from_handed;
#pragma unroll 1
    for (int panel = share.panel_begin; panel < share.panel_end; ++panel) {
        // A thread takes row `number % T` of pair `number / T`, one number after the other: several side by side take
        // registers that are then spilled, and what is read back from there comes behind everything that is on its way.
        // Neighbours take neighbours, so that they meet few banks twice. Panels begin with one warp after the other.
        int number = 32 * finisher + lane;
        finisher = finisher + 1 == kFinishers ? 0 : finisher + 1;
        const float* all = nullptr;
#pragma unroll 1
        for (int left = 16 * T; left > 0; left -= 32 * kFinishers, number += 32 * kFinishers) {
            const int pair = quotient_by(number, plan.rows_inverse), t = number - pair * T;
            const bool exists = number < 16 * T;
            const std::int32_t packed = panel * kPanelRows + 2 * pair;
            FinishOperand operand;
            if (exists && finishes) operand = finish_operand<kKind>(f, from, packed, t);
            if (all == nullptr) all = panel_sums.all();
            float2 sum = {};
            if (exists) {
                const float* of = all + 2 * pair * T + panel_sums.template column<NT>(t, pair);
#pragma unroll
                for (int w = 0; w < kWarps; ++w) {
                    sum.x += of[w * stride];
                    sum.y += of[w * stride + T];
                }
            }
            if (left <= 32 * kFinishers) {
                panel_sums.done();
                panel_sums.next();
            }
            if (!exists) continue;
            if (split > 1) {
                const SplitSums sums(op, plan, T, panel, tag);
                if (!finishes) {
                    sums.send(share.part, number, sum.x, sum.y);
                    continue;
                }
                sums.add(split, number, sum);
                sums.clear(split, number);
            }
            const float factor = normed ? factors[t] : 1.0f;
            if (from_handed) await_operand<kKind>(f, from, packed, t, operand);
            finish_pair<kKind>(f, out, bias, kv, packed, t, sum.x * factor, sum.y * factor, operand);
        }
    }
}

// All steps, by the warps that finish panels. They tell the grid when this block's share of a matrix is done.
template <Encoding E, int NT, KvFormat kFormat, class Args>
__device__ __forceinline__ void finish_shares(const Args& args, char* shared) {
    constexpr int kWarps = gemv_warps(E);
    constexpr int kThreads = 32 * kFinishers;
    const int finisher = static_cast<int>(threadIdx.x / 32) - kWarps - 1, lane = static_cast<int>(threadIdx.x % 32);
    const int thread = 32 * finisher + lane;
    const GemvPlan& plan = args.plan;
    const float* const stats = reinterpret_cast<const float*>(shared + plan.stats_at);
    float* const factors = reinterpret_cast<float*>(shared + kNormFactors);
    const int T = args.rows;
    std::uint32_t panels_summed = 0;
    std::uint32_t arrivals = 0;  // of the matrices so far
    PanelSums<kWarps> panel_sums(shared, plan, T, panels_summed);
    const std::uint32_t launch = plan.splits ? __ldcg(plan.counters + kLaunches) : 0;
    const auto meet = meet_at<14, kThreads>;
    if constexpr (Args::kAttends) {
        if (plan.handed != nullptr) {
            clear_handed(plan.handed, kTurns * plan.turn_floats, static_cast<int>(blockIdx.x) * kThreads + thread,
                         static_cast<int>(gridDim.x) * kThreads);
            meet();
        }
    }
#pragma unroll 1
    for (int s = 0; s < args.steps; ++s) {
        const GemvOp& op = args.op(s);
        const GemvStep& step = args.step[s];
        if (op.kind != OpKind::matrix) continue;  // those that attend tell
        const Share share = Share::of(args, shared, s);
        const bool last = s + 1 == args.steps;
        if (share.idle()) {
            // Nothing to do is no reason to be early: arrivals are only counted.
            if (!last && thread == 0) {
                look_for(plan.counters + kMatrixArrivals, arrivals);
                arrive(plan.counters + kMatrixArrivals, op.out_handed);
            }
            arrivals += gridDim.x;
            continue;
        }
        // What is added to is read early, but not while the step before may still write it.
        if (s > 0 && op.finish.kind == Finish::out && args.op(s - 1).kind == OpKind::matrix &&
            args.op(s - 1).finish.kind == Finish::out) {
            if (lane == 0) look_for(plan.counters + kMatrixArrivals, arrivals);
            __syncwarp();
        }
        const std::uint32_t tag = launch * 1024u + static_cast<std::uint32_t>(s) + 1u;
        if (step.norm != nullptr) {
            // The squares of a row are there with the first panel, and its parts' with the parts' first panels.
            panel_sums.all();
            if (thread < T) {
                float2 squares = {};
#pragma unroll
                for (int w = 0; w < kWarps; ++w) squares.x += stats[w * 32 + 16 + thread];
                if (op.split > 1) {
                    const SplitSums sums(op, plan, T, share.panel_begin, tag);
                    const int place = sums.squares(thread);
                    if (share.part > 0) {
                        sums.send(share.part, place, squares.x, 0.0f);
                    } else {
                        sums.add(op.split, place, squares);
                        sums.clear(op.split, place);
                    }
                }
                factors[thread] = norm_factor(op, squares.x);
            }
            meet();
        }
        with_finish(op.finish.kind, [&](auto kind) {
            // Code that is not there does not cost those that are.
            if constexpr (kind == Finish::attention_in_fresh && kFormat != KvFormat::q8) return;
            float* const out = op.finish.out + args.turn(op.out_handed, step.out_turn);
            const float* const from = op.finish.from + args.turn(op.from_handed, step.from_turn);
            finish_panels<kind, NT, kWarps>(op, step, plan, T, out, from, tag, share, panel_sums, factors, finisher,
                                            lane);
        });
        if constexpr (Args::kAttends) {
            if (op.clears) {
                const int each = min(op.members, op.panel_count);
                const int index = share.part * each + static_cast<int>(blockIdx.x) - share.part * op.members;
                const auto clear = [&](int turn, std::int32_t begin, std::int32_t end) {
                    clear_handed(plan.handed + turn % kTurns * plan.turn_floats + begin, end - begin,
                                 index * kThreads + thread, each * op.split * kThreads);
                };
                clear(step.out_turn + 1, 0, plan.front_floats);
                clear(step.out_turn + 2, plan.front_floats, plan.turn_floats);
            }
        }
        if (last) break;
        meet();  // also: factors are read
        if (thread == 0) arrive(plan.counters + kMatrixArrivals, op.out_handed);
        arrivals += gridDim.x;
    }
}

}  // namespace foresay::kernels::cuda
