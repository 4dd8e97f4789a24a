// kernels/cuda/decode/split_k_epilogue.cuh: the epilogue warps of the decode kernel, and the counters at which CTAs
// meet.
//
// Three warps go through all matrix steps of the launch. For each panel of the CTA they wait until the multiplying
// warps' sums are in shared memory (PanelSums), add them in the order of the warps, exchange split-K sums with the CTAs
// of the other parts (SplitSums: part 0 adds them in the order of K and runs the epilogue, the others only send), apply
// the norm factor, and run the epilogue of each pair.
//
// Threads:  number = 32 * epilogue warp + lane takes the pairs and rows number, number + 96, ... of a panel: pair =
//           number / T, row = number % T. Panels begin with a different warp each, so that all three are busy where a
//           panel has less than 96 of them.
// Norms:    the multiplying warps leave sums of squares per row and slice (row_stats); these warps add them once per
//           step and scale every sum of the row by 1 / rms. The norm's weights are multiplied into the activations
//           before.
// Order:    the epilogue of step s may run while the multiplying warps are at step s + 1. It arrives at the grid's
//           counter when all of the CTA's panels of a step are written.
#pragma once

#include "kernels/cuda/decode/copy_ring.cuh"
#include "kernels/cuda/decode/epilogue.cuh"
#include "kernels/cuda/decode/panel_sums.cuh"
#include "kernels/cuda/decode/rank_link.cuh"

namespace foresay::kernels::cuda {

// 1 / root mean square of a row from the squares of its slices.
__device__ inline float norm_factor(const GemvOp& op, float squares) {
    return rsqrtf(fmaf(squares, op.inputs_inverse, op.eps));
}

// Counters that the CTAs of a launch share, in GemvScratch::counters. Zero between launches, except for the number of
// launches.
enum GridCounter : int { kMatrixArrivals, kDepartures, kLaunches, kAttendArrivals };
static_assert(kAttendArrivals < kScratchCounters);

// Where a CTA's multiplying warps are, in GemvHeader::step_state. Written by thread 0 between two meetings at barrier
// 15.
struct StepState {
    std::int32_t step;
    // Arrivals that complete all matrices, and all attentions, before this step.
    std::uint32_t matrix_arrivals, attend_arrivals;
    std::uint32_t attend_at;  // address of attention's memory (AttendBase)
};
static_assert(sizeof(StepState) <= kNormFactorsAt - kStepStateAt);

// A barrier of all CTAs in two halves, arrive() and wait_for_arrivals(). What others wrote before it is read with loads
// that bypass L1 (__ldcg), so no cache has to be invalidated, and polling with relaxed loads is enough; that is much
// cheaper than acquire. All CTAs arrive for a matrix, and for an attention those that take part. flagged: everything
// written carries its own flag, so the arrival need not be a release.
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

// To all ranks.
struct StoreToAll {
    const LinkTable* link;
    __device__ void operator()(float* at, float value) const { store_to_all(link, at, value); }
};
// What StepState leaves of its place has the link of a rank (linked launches only).
inline constexpr int kLinkAt = kStepStateAt + 48;
__device__ inline LinkTable* shared_link(const char* shared) {
    return *reinterpret_cast<LinkTable* const*>(shared + kLinkAt);
}
template <class Args>
__device__ inline LinkTable* link_of(const Args& args) {
    if constexpr (Args::kLinked) {
        return args.link;
    } else {
        return nullptr;
    }
}

// Resets flagged words, by thread `thread` of `threads`.
__device__ inline void reset_flagged(float* to, std::int32_t floats, int thread, int threads) {
    for (std::int32_t i = thread; i < floats / 4; i += threads) reset_flagged4(to + 4 * i);
}

// This CTA's panels of a matrix step of one kind. NT: eights of rows. `factors`: 1 / rms by row. `epilogue_warp`: the
// warp that begins the next panel is rotated from it. `link`: null but for linked launches.
template <Epilogue kKind, int NT, bool kLinked, int kWarps>
__device__ __forceinline__ void epilogue_panels(const GemvOp& op, const GemvStep& step, const GemvPlan& plan, int T,
                                                float* out, const float* from, std::uint32_t tag, const CtaShare& share,
                                                PanelSums<kWarps>& panel_sums, const float* factors, int epilogue_warp,
                                                int lane, LinkTable* link) {
    // A copy where there are registers for it.
    const std::conditional_t<NT == 1, EpilogueArgs, const EpilogueArgs&> f = op.epilogue;
    const float* const bias = step.bias;
    __half* const kv = step.kv;
    const int split = op.split, stride = panel_sums.warp_stride();
    const bool normed = step.norm != nullptr, first_part = share.part == 0, residual_flagged = op.residual_flagged;
#pragma unroll 1
    for (int panel = share.panel_begin; panel < share.panel_end; ++panel) {
        // One number after the other: several at once take registers that are then spilled, and a reload of a spilled
        // value waits for all loads in flight. Neighbouring lanes take neighbouring rows, so that they meet few banks
        // twice.
        int number = 32 * epilogue_warp + lane;
        epilogue_warp = epilogue_warp + 1 == kEpilogueWarps ? 0 : epilogue_warp + 1;
        const float* all = nullptr;
#pragma unroll 1
        for (int left = 16 * T; left > 0; left -= 32 * kEpilogueWarps, number += 32 * kEpilogueWarps) {
            const int pair = quotient_by(number, plan.rows_inverse), t = number - pair * T;
            const bool exists = number < 16 * T;
            const std::int32_t packed = panel * kPanelRows + 2 * pair;
            EpilogueOperand operand;
            // The residual or the angles: asked for before the sums are awaited.
            if (exists && first_part) operand = load_epilogue_operand<kKind>(f, from, packed, t);
            // Waits for the multiplying warps, once per panel.
            if (all == nullptr) all = panel_sums.all();
            float2 sum = {};
            if (exists) {
                const float* of = all + 2 * pair * T + panel_sums.template column<NT>(t, pair);
                // Slices in the order of the warps.
#pragma unroll
                for (int w = 0; w < kWarps; ++w) {
                    sum.x += of[w * stride];
                    sum.y += of[w * stride + T];
                }
            }
            // The last sums of the panel are read: its buffer may be written again.
            if (left <= 32 * kEpilogueWarps) {
                panel_sums.done();
                panel_sums.next();
            }
            if (!exists) continue;
            // Split K: part 0 adds what the others send, in the order of the parts.
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
            if (residual_flagged) {
                await_epilogue_operand<kKind>(f, from, packed, t, operand, Patience<kLinked>(link));
            }
            if constexpr (kLinked) {
                epilogue_pair<kKind>(f, out, bias, kv, packed, t, sum.x * factor, sum.y * factor, operand,
                                     StoreToAll{link});
            } else {
                epilogue_pair<kKind>(f, out, bias, kv, packed, t, sum.x * factor, sum.y * factor, operand);
            }
        }
    }
}

// All steps, by the epilogue warps. They arrive at the counter of the grid when this CTA's share of a matrix is
// written.
template <QuantType E, int NT, KvFormat kFormat, class Args>
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
    if constexpr (Args::kAttends && !Args::kLinked) {  // linked: by finish_linked(), at the end
        // All buffers are reset at the start of the launch, because the last one may have left words in them.
        // Projections of layer 0 read x from the workspace, and everything flagged comes after the first matrix
        // barrier.
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
        if (op.kind != OpKind::matrix) {  // the multiplying warps arrive
            if (op.kind == OpKind::add_rows) arrivals += gridDim.x;
            continue;
        }
        const CtaShare share = CtaShare::of(args, shared, s);
        const bool last = s + 1 == args.steps;
        if (share.idle()) {
            // An idle CTA still arrives, and not before the step begins: arrivals of all steps share one counter.
            if (!last && thread == 0) {
                wait_for_arrivals(plan.counters + kMatrixArrivals, arrivals);
                arrive(plan.counters + kMatrixArrivals, op.out_flagged);
            }
            arrivals += gridDim.x;
            continue;
        }
        // The residual is read early, but not while the step before may still be writing it.
        if (s > 0 && op.epilogue.kind == Epilogue::out && args.op(s - 1).kind != OpKind::attend &&
            args.op(s - 1).epilogue.kind == Epilogue::out) {
            if (lane == 0) wait_for_arrivals(plan.counters + kMatrixArrivals, arrivals);
            __syncwarp();
        }
        // Differs from the tags of all steps of this launch and of the launches before.
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
            // Leaves out the code of a kind that this cache format never has.
            if constexpr (kind == Epilogue::attention_in_new_kv && kFormat != KvFormat::q8) return;
            float* const out = op.epilogue.target() + args.flagged_offset(op.out_flagged, step.out_buffer);
            const float* const from =
                op.epilogue.residual + args.flagged_offset(op.residual_flagged, step.residual_buffer);
            epilogue_panels<kind, NT, Args::kLinked, kWarps>(op, step, plan, T, out, from, tag, share, panel_sums,
                                                             factors, epilogue_warp, lane, link_of(args));
        });
        if constexpr (Args::kAttends) {
            // The CTAs that have panels of this op divide the words to reset: x after mlp_out of the buffer after this
            // one's, the rest of the one after that (kFlaggedBuffers).
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
