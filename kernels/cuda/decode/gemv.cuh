// kernels/cuda/decode/gemv.cuh: the decode kernel: stacks of matrices times 1 to 16 rows, and attention, one persistent
// launch for up to all layers of a forward.
//
// Grid:     one CTA per multiprocessor, all of them resident, because they wait for each other. 8 or 16 multiplying
//           warps (gemv_warps), then one producer warp, then three epilogue warps.
// Work:     a CTA owns some neighbouring panels (32 packed rows) of each matrix: CtaShare. Within a panel each
//           multiplying warp owns a slice of K (the inputs): block j of its slice is block j * warps + warp of the
//           panel. The slice is the same for all panels of a matrix, so a warp loads its activations once per matrix
//           and keeps them (ActivationOperand).
//
// Data flow of a matrix step, per CTA:
//
//   producer warp       global weights --cp.async.bulk--> ring slot            (CopyRing::produce)
//   multiplying warps   ring slot, activations --mma--> accumulators --> sums of the slice in shared memory
//                                                                              (multiply_slice, store_sums)
//   epilogue warps      sums of all slices, in the order of the warps --> split-K sums of other CTAs, if K is split
//                       --> norm factor, bias, rope, activation, residual --> global memory (run_epilogue)
//
// Waits:    ring slot, full: multiplying warps wait for the producer's copy. Ring slot, empty: the producer waits for
//           all multiplying warps. Sum buffer, full: the epilogue waits for all multiplying warps. Sum buffer, read: a
//           multiplying warp waits for the epilogue before it writes there again. All four are mbarriers whose phase is
//           one parity bit.
// Steps:    the multiplying warps take the steps together, named barrier 15 between two. The epilogue warps take them
//           by themselves, named barrier 14. The producer does not stop between steps: it runs ahead as far as the ring
//           is deep, so memory stays busy while others wait.
// Between CTAs: a step reads what other CTAs wrote in the step before. Within whole layers the values carry their own
// ready flag (flagged_words.cuh), and a reader polls the very words it needs. Otherwise all CTAs meet at a counter in
// global memory (GridCounter). Attention waits for the counter of the projections. Split K passes sums in tagged
// packets (panel_sums.cuh).
// Shared:   GemvHeader, ring slots, rows 8 to 15 of the activations of each warp, then the panel sums, which attention
//           uses instead while it runs, then row statistics. GemvPlan has the offsets.
// Overlap:  the producer fills the ring before the kernel waits for its predecessors on the stream (programmatic
//           dependent launch). No earlier kernel may write weights.
// Registers: 65,536 per multiprocessor for 12 or 20 warps: the inner loop spills at the slightest. So values that
//           follow from the thread's number are computed where they are used (thread_index()), and a step's number is
//           read again from shared memory instead of being kept.
// Law 1:    slices follow from the shape alone, and every step treats a column (row of the batch) by itself. The order
//           of a sum is: mma groups within a warp's slice, warps 0, 1, ..., then the parts of a split K.
// Breaks:   a launch with fewer resident CTAs than the grid hangs. So do two launches side by side on one device
//           (kernels/cuda/device/device_context.h). Reordering the additions changes the bits of every text.
#pragma once

#include "kernels/cuda/attention/decode_attention.cuh"
#include "kernels/cuda/decode/copy_ring.cuh"
#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/decode/row_steps.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"

namespace foresay::kernels::cuda {

// Meets all multiplying threads of the CTA. Barriers 1 and 2 are those of attention groups, 14 is the epilogue's.
template <int Warps>
__device__ inline void multiplier_barrier() {
    named_barrier<15, Warps * 32>();
}

// Where attention finds its shared memory in this kernel (GroupMemory): units in the header, the groups' own memory in
// place of the panel sums, which are free during an attention step.
struct AttendBase {
    static __device__ std::uint32_t start() {
        extern __shared__ __align__(128) char shared[];
        return shared_address(shared);
    }
    static __device__ std::uint32_t call_at(const AttendCall& call) { return shared_address(&call); }
    // Loaded by an explicit instruction. Where the compiler sees that the address comes from memory, it does not
    // terminate in a reasonable time (CUDA 13.0).
    static __device__ const AttendCall& call(const attention::UnitDescriptors& units) {
        return *static_cast<const AttendCall*>(
            __cvta_shared_to_generic(static_cast<std::uint32_t>(load_shared1(shared_address(&units.call)))));
    }
    static __device__ std::uint32_t units_at() { return start() + kAttendUnitsAt; }
    static __device__ std::uint32_t groups_at() {
        return static_cast<std::uint32_t>(load_shared1(start() + kStepStateAt + offsetof(StepState, attend_at)));
    }
    using Output = attention::OwnOutput;
};
// The same where a rank's heads are some of those of whole rows, which all ranks have.
struct LinkedAttendBase : AttendBase {
    struct Output {
        static __device__ std::int64_t place(const AttendCall& c, const attention::Tile& tile, std::int32_t r) {
            return (static_cast<std::int64_t>(tile.row(r)) * c.whole_heads + tile.head(r)) * c.head_dim;
        }
        static __device__ void store(float* at, float value) {
            extern __shared__ __align__(128) char shared[];
            store_to_all(shared_link(shared), at, value);
        }
    };
};

// This CTA's units of the attention of decode rows. `call` points to an AttendCall in shared memory. Before it reads
// keys of this forward it waits until `counter` has `arrivals`, those of all projections so far. Not inlined: it needs
// every register there is, and inlined it would take them from the matrix steps.
template <int kWidth, KvFormat kFormat, int kWarps, class Base>
__device__ __noinline__ void attend_cta_share_of(const char* call, const AttendLayer layer,
                                                 const std::uint32_t* counter, std::uint32_t arrivals) {
    using attention::group_warps;
    constexpr int kGroups = kWarps / group_warps(kWidth);
    static_assert(kGroups * kAttendGroup<kWidth, kFormat> <= kAttendShared &&
                  kGroups * kAttendUnitBytes <= kCtaSharesAt - kAttendUnitsAt);
    // Tells the compiler that the pointer is to shared memory, which it cannot see from a function that is not inlined;
    // otherwise every access is a generic one.
    const auto& c = *static_cast<const AttendCall*>(__cvta_shared_to_generic(__cvta_generic_to_shared(call)));
    attend_group<kWidth, kFormat, kGroups, false>(c, layer, Base(), [&] {
        const attention::GroupThread<group_warps(kWidth)> group;
        if (group.thread() == 0) wait_for_arrivals(counter, arrivals);
        group.meet();
    });
}

// The same for any width. Returns whether the CTA takes part, and so has to arrive at the counter of attention.
template <KvFormat kFormat, int kWarps, class Base>
__device__ bool attend_cta_share(const AttendCall& c, const char* call, const AttendLayer& layer,
                                 const std::uint32_t* counter, std::uint32_t arrivals) {
    const auto blocks = static_cast<std::int32_t>(gridDim.x);
    if (!c.has_member(blocks - 1 - static_cast<std::int32_t>(blockIdx.x), blocks)) return false;
    if (kWarps >= attention::group_warps(256) && c.layout.width == 256) {
        if constexpr (kWarps >= attention::group_warps(256)) {
            attend_cta_share_of<256, kFormat, kWarps, Base>(call, layer, counter, arrivals);
        }
    } else if (c.layout.width == 128) {
        attend_cta_share_of<128, kFormat, kWarps, Base>(call, layer, counter, arrivals);
    } else if (c.layout.width == 64) {
        attend_cta_share_of<64, kFormat, kWarps, Base>(call, layer, counter, arrivals);
    } else {
        attend_cta_share_of<32, kFormat, kWarps, Base>(call, layer, counter, arrivals);
    }
    return true;
}

// A warp's slice of one panel: adds weights times activations to `sums`. `blocks`: of the panel, within the part of K
// that is this CTA's. A chunk of the ring has kChunk neighbouring blocks: where that is more than the warps, a warp has
// kEach of each chunk; where it is fewer, only some warps have a block in a chunk, and the others wait for it and
// release it all the same.
template <QuantType E, int NT, bool kOneRow, class Stream>
__device__ __forceinline__ void multiply_slice(Stream& ring, const ActivationOperand<E, NT>& in, int blocks,
                                               float (&sums)[2][NT][4]) {
    constexpr int kChunk = Stream::kChunk, kWarps = Stream::kWarps, kBytes = Stream::kBytes;
    constexpr int kEach = kChunk > kWarps ? kChunk / kWarps : 1;    // blocks of a chunk that are this warp's
    constexpr int kRounds = kChunk < kWarps ? kWarps / kChunk : 1;  // chunks of which one has a block of this warp's
    constexpr int kSteps = ActivationForm<E>::blocks / kEach;
    static_assert(ActivationForm<E>::blocks % kEach == 0);
    // The loops are unrolled over the whole slice, so that the registers of the activations have constant indices.
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int round = 0; round < kRounds; ++round) {
            if ((i * kRounds + round) * kChunk >= blocks) continue;
            // Also for chunks without a block of this warp: the parity bit distinguishes a phase from the one before
            // it, but not from the phase two before.
            ring.wait();
            const std::uint32_t thread = thread_index();
            const auto warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32);
            if (kRounds == 1 || round == warp / kChunk) {
                const std::uint32_t address = ring.address() + (kRounds == 1 ? warp : warp % kChunk) * kBytes;
                // A slice that ends within this chunk takes the other branch.
                if (((i + 1) * kEach - 1) * kWarps + warp < blocks) {
                    // No branch between blocks, so that their instructions mix.
#pragma unroll
                    for (int k = 0; k < kEach; ++k) {
                        Multiply<E, NT, kOneRow>::run(address + k * kWarps * kBytes, in, i * kEach + k, sums, lane);
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < kEach; ++k) {
                        if ((i * kEach + k) * kWarps + warp >= blocks) break;
                        Multiply<E, NT, kOneRow>::run(address + k * kWarps * kBytes, in, i * kEach + k, sums, lane);
                    }
                }
            }
            ring.release();
        }
    }
}

// A warp's sums of a panel to its place in the current sum buffer, scaled back by the power of two of each row
// (ActivationOperand). Waits until the epilogue has read what was there. Sums lie [packed row][row of the batch];
// kOneRow: the batch has one row, so the second column of each accumulator pair is unused.
template <bool kOneRow, int NT, int kWarps>
__device__ __forceinline__ void store_sums(const float (&sums)[2][NT][4], PanelSums<kWarps>& panel_sums, int rows,
                                           const GemvPlan& plan, char* shared) {
    const int T = kOneRow ? 1 : rows;
    const std::uint32_t thread = thread_index();
    const auto warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32);
    const float* const back = row_stats(shared, plan, warp);
    float* const to = panel_sums.mine(warp) + lane / 4 * T + lane % 4 * 2;
    if (NT == 2 && T == 16) {
        // Every column is some row's, so neighbours go together.
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
            const float2 factor = *reinterpret_cast<const float2*>(back + nt * 8 + lane % 4 * 2);
            const int columns = panel_sums.template column<NT>(nt * 8, lane / 8);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                const float(&d)[4] = sums[i / 2][nt];
                *reinterpret_cast<float2*>(to + i * 8 * T + columns) = {d[i % 2 * 2] * factor.x,
                                                                        d[i % 2 * 2 + 1] * factor.y};
            }
        }
        return;
    }
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
        for (int i = 0; i < (kOneRow ? 1 : 2); ++i) {
            const int t = nt * 8 + lane % 4 * 2 + i;
            if (t >= T) continue;
            const float factor = back[t];
#pragma unroll
            for (int tile = 0; tile < 2; ++tile) {
                to[tile * 16 * T + nt * 8 + i] = sums[tile][nt][i] * factor;
                to[(tile * 16 + 8) * T + nt * 8 + i] = sums[tile][nt][2 + i] * factor;
            }
        }
    }
}

// A matrix step, by the multiplying warps: load the activations of the slice, then one panel after the other.
template <QuantType E, int NT, QuantType kLargest = E, class Args>
__device__ __forceinline__ void multiply_cta_share(const Args& args, char* shared) {
    using Ring = CopyRing<E, NT, Args, kLargest>;
    constexpr int kWarps = gemv_warps(E);
    // The number of the step, read again from shared memory after the activations are loaded: while they arrive no
    // register is free to keep it, and a spilled value has to wait for all loads under way.
    const auto now = [&] { return load_shared1(shared_address(shared) + kStepStateAt); };
    const GemvPlan& plan = args.plan;
    ActivationOperand<E, NT> in;
    {
        const int s = now();
        const GemvOp& op = args.op(s);
        const CtaShare share = CtaShare::of(args, shared, s);
        if (share.idle()) return;
        PanelSums<kWarps>(shared, plan, args.rows, Ring::resumed(args, shared).panels_summed()).all_read();
        in.template load<Args::kLinked>(op, op.x + args.flagged_offset(op.x_flagged, args.step[s].x_buffer),
                                        args.step[s].norm, share.first, share.count, args.rows, plan, shared,
                                        link_of(args));
    }
    auto ring = Ring::resumed(args, shared);
    PanelSums<kWarps> panel_sums(shared, plan, args.rows, ring.panels_summed());
    const CtaShare share = CtaShare::of(args, shared, now());
    const int blocks = share.count;
    int panels = share.panel_end - share.panel_begin;
    const auto multiply_panels = [&](auto one_row) {
#pragma unroll 1
        for (; panels > 0; --panels) {
            float sums[2][NT][4] = {};
            multiply_slice<E, NT, one_row>(ring, in, blocks, sums);

            store_sums<one_row>(sums, panel_sums, args.rows, plan, shared);
            panel_sums.hand_over();
            panel_sums.next();
        }
    };
    if (NT == 1 && args.rows == 1) {
        multiply_panels(std::bool_constant<NT == 1>());
    } else {
        multiply_panels(std::false_type());
    }
    ring.park();
}

// With the type that the op of step s says.
template <int NT, class Args>
__device__ __forceinline__ void multiply_mix_share(const Args& args, int s, char* shared) {
    const QuantType e = args.op(s).quant_type;
    if (e == kSmallestOfMix) {
        multiply_cta_share<kSmallestOfMix, NT, kLargestOfMix>(args, shared);
    } else if (e == kLargestOfMix) {
        multiply_cta_share<kLargestOfMix, NT, kLargestOfMix>(args, shared);
    } else {
        multiply_cta_share<kMiddleOfMix, NT, kLargestOfMix>(args, shared);
    }
}

// By one thread of the multiplying warps and one of the epilogue of each CTA: the last of all 2 * gridDim.x puts the
// counters back to zero for the next launch and counts the launch. No thread polls the counters any more by then.
template <class Args>
__device__ inline void depart(const Args& args) {
    if (args.steps == 1 && !args.plan.splits) return;
    std::uint32_t* const counters = args.plan.counters;
    __threadfence();
    if (atomicAdd(counters + kDepartures, 1u) != 2 * gridDim.x - 1) return;
    counters[kMatrixArrivals] = 0;
    counters[kAttendArrivals] = 0;
    counters[kDepartures] = 0;
    counters[kLaunches] += 1;
}

// The kernel. NT: eights of rows (1 or 2). kFormat: of the cache that steps attend to, or put K and V aside for; one
// code path each, so that the other one costs no registers. Args: with room for few steps or for a whole forward; only
// the latter has the code for attention. kMixes: E is kLargestOfMix, and the ops say which type theirs is.
template <QuantType E, int NT, KvFormat kFormat, class Args, bool kMixes = false>
__global__ void __launch_bounds__(gemv_threads(E), 1) gemv(const __grid_constant__ Args args) {
    // The start of shared memory comes as a parameter, because the instruction that asks for it takes a while each
    // time. The trap catches a driver that reserves another amount than the host was told.
    char* const shared = static_cast<char*>(__cvta_shared_to_generic(args.plan.shared_start));
    if (AttendBase::start() != args.plan.shared_start) __trap();
    constexpr int kWarps = gemv_warps(E);
    const int warp = static_cast<int>(threadIdx.x / 32);
    allow_successor();
    // The producer warp makes the barriers, the first threads copy what all of them index.
    if (warp == kWarps) {
        CopyRing<E, NT, Args>::start(args, shared);
        if (threadIdx.x % 32 == 0) PanelSums<kWarps>::start(shared, args.plan, args.rows);
    }
    if constexpr (Args::kAttends) {
        // The calls of attention go to shared memory: parameters cannot be indexed through a pointer without a local
        // copy.
        constexpr int kWords = sizeof(args.attends) / 4;
        for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x)) {
            reinterpret_cast<std::uint32_t*>(shared + kAttendCallsAt)[i] =
                reinterpret_cast<const std::uint32_t*>(args.attends)[i];
        }
    }
    if constexpr (Args::kLinked) {
        if (threadIdx.x == 0) *reinterpret_cast<LinkTable**>(shared + kLinkAt) = args.link;
    }
    CtaShare::start(args, shared);
    __syncthreads();
    if (warp == kWarps) {
        // Weights do not depend on earlier kernels, so the producer starts before the wait below.
        if constexpr (kMixes) {
            CopyRing<E, NT, Args>::template produce<true>(args, shared);
        } else {
            CopyRing<E, NT, Args>::produce(args, shared);
        }
        return;
    }
    await_predecessors();
    // Epilogue warps go through all steps by themselves.
    if (warp > kWarps) {
        run_epilogue<E, NT, kFormat>(args, shared);
        if (warp == kWarps + 1 && threadIdx.x % 32 == 0) depart(args);
        return;
    }
    // The multiplying warps, step by step.
    auto* const state = reinterpret_cast<StepState*>(shared + kStepStateAt);
    std::uint32_t* const counters = args.plan.counters;
    if (threadIdx.x == 0) *state = {0, 0, 0, shared_address(shared + args.plan.sums_at)};
    multiplier_barrier<kWarps>();
    for (;;) {
        int s = load_shared1(shared_address(shared) + kStepStateAt);
        bool attended = false;
        if constexpr (Args::kAttends) {
            const GemvOp& op = args.op(s);
            if (op.kind == OpKind::attend) {
                const AttendCall& call = args.attends[op.attend];
                using Base = std::conditional_t<Args::kLinked, LinkedAttendBase, AttendBase>;
                attended = attend_cta_share<kFormat, kWarps, Base>(
                    call, shared + kAttendCallsAt + op.attend * sizeof(AttendCall),
                    args.step[s].attend_layer(call.out + args.flagged_offset(op.out_flagged, args.step[s].out_buffer)),
                    counters + kMatrixArrivals, state->matrix_arrivals);
                // Read again: attention is a call, and keeps no registers of the caller.
                s = state->step;
                if (attended && s + 1 < args.steps && !args.op(s).out_flagged) {
                    multiplier_barrier<kWarps>();
                    if (threadIdx.x == 0) arrive(counters + kAttendArrivals);
                }
            } else if (op.kind == OpKind::add_rows) {
                const GemvStep& step = args.step[s];
                const AddRowsPlaces places = {
                    op.x + args.flagged_offset(op.x_flagged, step.x_buffer),
                    op.epilogue.residual + args.flagged_offset(op.residual_flagged, step.residual_buffer),
                    op.epilogue.out + args.flagged_offset(op.out_flagged, step.out_buffer)};
                add_rows_share<kWarps, Args::kLinked>(op, step, places, args.rows,
                                                      reinterpret_cast<float*>(shared + args.plan.row_stats_at),
                                                      link_of(args), [] { multiplier_barrier<kWarps>(); });
                s = state->step;
                if (s + 1 < args.steps) {
                    multiplier_barrier<kWarps>();
                    if (threadIdx.x == 0) arrive(counters + kMatrixArrivals, args.op(s).out_flagged);
                }
            } else if constexpr (kMixes) {
                multiply_mix_share<NT>(args, s, shared);
            } else {
                multiply_cta_share<E, NT>(args, shared);
            }
        } else {
            multiply_cta_share<E, NT>(args, shared);
        }
        s = load_shared1(shared_address(shared) + kStepStateAt);
        if (s + 1 >= args.steps) break;
        multiplier_barrier<kWarps>();
        if (threadIdx.x == 0) {
            const GemvOp &done = args.op(s), &next = args.op(s + 1);
            // Flagged words are awaited where they are read, and attention waits inside, after what it can do earlier.
            // All else waits here for the grid.
            const bool waits = !next.x_flagged && next.kind != OpKind::attend;
            if (done.kind != OpKind::attend) {
                state->matrix_arrivals += gridDim.x;
                if (waits) wait_for_arrivals(counters + kMatrixArrivals, state->matrix_arrivals);
            } else if (!done.out_flagged) {
                state->attend_arrivals +=
                    static_cast<std::uint32_t>(args.attends[done.attend].members(static_cast<std::int32_t>(gridDim.x)));
                if (waits) wait_for_arrivals(counters + kAttendArrivals, state->attend_arrivals);
            } else if (!attended) {
                // A CTA without a unit has not waited for the projections. It does so now, because only after them have
                // all words that it polls from here on been reset.
                wait_for_arrivals(counters + kMatrixArrivals, state->matrix_arrivals);
            }
            state->step = s + 1;
        }
        multiplier_barrier<kWarps>();
    }
    if (threadIdx.x == 0) depart(args);
}

}  // namespace foresay::kernels::cuda
