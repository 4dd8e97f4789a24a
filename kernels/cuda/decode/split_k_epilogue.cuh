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

// What a block knows of where it is, in shared memory: words from kStepStateAt on.
struct StepState {
    std::int32_t step;
    // Arrivals that complete the matrices, and the attentions, before this step.
    std::uint32_t matrix_arrivals, attend_arrivals;
    std::uint32_t attend_at;  // where attention has its groups' memory
};
static_assert(sizeof(StepState) <= kNormFactorsAt - kStepStateAt);

// A barrier of all blocks, in two halves. What others wrote before it is read from L2 after it (__ldcg), so that
// nothing in L1 needs to be dropped: a relaxed look at the counter is enough, and the cheaper one by far. Of a matrix
// all blocks tell, of an attention those that take part. handed: all that was written says by itself whether it has
// come, so that it need not have.
__device__ inline void arrive(std::uint32_t* counter, bool flagged = false) {
    if (flagged) {
        asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    } else {
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
}
__device__ inline void wait_for_arrivals(const std::uint32_t* counter, std::uint32_t arrivals) {
    std::uint32_t seen;
    do {
        asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (seen < arrivals);
}

// Clears numbers that are handed over, by finishers: thread `thread` of `threads`.
__device__ inline void reset_flagged(float* to, std::int32_t floats, int thread, int threads) {
    for (std::int32_t i = thread; i < floats / 4; i += threads) reset_flagged4(to + 4 * i);
}

// A step that is a matrix of one kind: this block's panels. NT: eights of rows.
template <Epilogue kKind, int NT, int kWarps>
__device__ __forceinline__ void epilogue_panels(const GemvOp& op, const GemvStep& step, const GemvPlan& plan, int T,
                                                float* out, const float* from, std::uint32_t tag, const CtaShare& share,
                                                PanelSums<kWarps>& panel_sums, const float* factors, int epilogue_warp,
                                                int lane) {
    // A copy where there are registers for it.
    const std::conditional_t<NT == 1, EpilogueArgs, const EpilogueArgs&> f = op.epilogue;
    const float* const bias = step.bias;
    __half* const kv = step.kv;
    const int split = op.split, stride = panel_sums.warp_stride();
    const bool normed = step.norm != nullptr, first_part = share.part == 0, residual_flagged = op.residual_flagged;
#pragma unroll 1
    for (int panel = share.panel_begin; panel < share.panel_end; ++panel) {
        // A thread takes row `number % T` of pair `number / T`, one number after the other: several side by side take
        // registers that are then spilled, and what is read back from there comes behind everything that is on its way.
        // Neighbours take neighbours, so that they meet few banks twice. Panels begin with one warp after the other.
        int number = 32 * epilogue_warp + lane;
        epilogue_warp = epilogue_warp + 1 == kEpilogueWarps ? 0 : epilogue_warp + 1;
        const float* all = nullptr;
#pragma unroll 1
        for (int left = 16 * T; left > 0; left -= 32 * kEpilogueWarps, number += 32 * kEpilogueWarps) {
            const int pair = quotient_by(number, plan.rows_inverse), t = number - pair * T;
            const bool exists = number < 16 * T;
            const std::int32_t packed = panel * kPanelRows + 2 * pair;
            EpilogueOperand operand;
            if (exists && first_part) operand = load_epilogue_operand<kKind>(f, from, packed, t);
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
            if (left <= 32 * kEpilogueWarps) {
                panel_sums.done();
                panel_sums.next();
            }
            if (!exists) continue;
            if (split > 1) {
                const SplitSums sums(op, plan, T, panel, tag);
                if (!first_part) {
                    sums.send(share.part, number, sum.x, sum.y);
                    continue;
                }
                sums.add(split, number, sum);
                sums.clear(split, number);
            }
            const float factor = normed ? factors[t] : 1.0f;
            if (residual_flagged) await_epilogue_operand<kKind>(f, from, packed, t, operand);
            epilogue_pair<kKind>(f, out, bias, kv, packed, t, sum.x * factor, sum.y * factor, operand);
        }
    }
}

// All steps, by the warps that finish panels. They tell the grid when this block's share of a matrix is done.
template <Encoding E, int NT, KvFormat kFormat, class Args>
__device__ __forceinline__ void run_epilogue(const Args& args, char* shared) {
    constexpr int kWarps = gemv_warps(E);
    constexpr int kThreads = 32 * kEpilogueWarps;
    const int epilogue_warp = static_cast<int>(threadIdx.x / 32) - kWarps - 1,
              lane = static_cast<int>(threadIdx.x % 32);
    const int thread = 32 * epilogue_warp + lane;
    const GemvPlan& plan = args.plan;
    const float* const stats = reinterpret_cast<const float*>(shared + plan.row_stats_at);
    float* const factors = reinterpret_cast<float*>(shared + kNormFactorsAt);
    const int T = args.rows;
    std::uint32_t panels_summed = 0;
    std::uint32_t arrivals = 0;  // of the matrices so far
    PanelSums<kWarps> panel_sums(shared, plan, T, panels_summed);
    const std::uint32_t launch = plan.splits ? __ldcg(plan.counters + kLaunches) : 0;
    const auto meet = named_barrier<14, kThreads>;
    if constexpr (Args::kAttends) {
        if (plan.flagged != nullptr) {
            reset_flagged(plan.flagged, kFlaggedBuffers * plan.buffer_floats,
                          static_cast<int>(blockIdx.x) * kThreads + thread, static_cast<int>(gridDim.x) * kThreads);
            meet();
        }
    }
#pragma unroll 1
    for (int s = 0; s < args.steps; ++s) {
        const GemvOp& op = args.op(s);
        const GemvStep& step = args.step[s];
        if (op.kind != OpKind::matrix) continue;  // those that attend tell
        const CtaShare share = CtaShare::of(args, shared, s);
        const bool last = s + 1 == args.steps;
        if (share.idle()) {
            // Nothing to do is no reason to be early: arrivals are only counted.
            if (!last && thread == 0) {
                wait_for_arrivals(plan.counters + kMatrixArrivals, arrivals);
                arrive(plan.counters + kMatrixArrivals, op.out_flagged);
            }
            arrivals += gridDim.x;
            continue;
        }
        // What is added to is read early, but not while the step before may still write it.
        if (s > 0 && op.epilogue.kind == Epilogue::out && args.op(s - 1).kind == OpKind::matrix &&
            args.op(s - 1).epilogue.kind == Epilogue::out) {
            if (lane == 0) wait_for_arrivals(plan.counters + kMatrixArrivals, arrivals);
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
        with_epilogue(op.epilogue.kind, [&](auto kind) {
            // Code that is not there does not cost those that are.
            if constexpr (kind == Epilogue::attention_in_new_kv && kFormat != KvFormat::q8) return;
            float* const out = op.epilogue.out + args.flagged_offset(op.out_flagged, step.out_buffer);
            const float* const from =
                op.epilogue.residual + args.flagged_offset(op.residual_flagged, step.residual_buffer);
            epilogue_panels<kind, NT, kWarps>(op, step, plan, T, out, from, tag, share, panel_sums, factors,
                                              epilogue_warp, lane);
        });
        if constexpr (Args::kAttends) {
            if (op.resets_buffers) {
                const int each = min(op.members, op.panel_count);
                const int index = share.part * each + static_cast<int>(blockIdx.x) - share.part * op.members;
                const auto clear = [&](int buffer, std::int32_t begin, std::int32_t end) {
                    reset_flagged(plan.flagged + buffer % kFlaggedBuffers * plan.buffer_floats + begin, end - begin,
                                  index * kThreads + thread, each * op.split * kThreads);
                };
                clear(step.out_buffer + 1, 0, plan.mlp_out_floats);
                clear(step.out_buffer + 2, plan.mlp_out_floats, plan.buffer_floats);
            }
        }
        if (last) break;
        meet();  // also: factors are read
        if (thread == 0) arrive(plan.counters + kMatrixArrivals, op.out_flagged);
        arrivals += gridDim.x;
    }
}

}  // namespace foresay::kernels::cuda
