// kernels/cuda/decode/gemv.cuh: the decode kernel: stacks of matrices times 1 to 16 rows, and attention, at the speed
// of memory.
//
// Shape:    one block per multiprocessor, 8 or 16 warps. A block owns a run of panels of each matrix; each warp owns
//           one slice of the inputs, the same for all panels. So a warp's inputs stay where they are
//           (kernels/cuda/decode/activations.cuh), and its weights come through a ring in shared memory that one more
//           warp fills (kernels/cuda/decode/copy_ring.cuh). A panel's sums of the slices are added in the order of the
//           warps and finished by three more warps, while the others go on (PanelSums). Matrices wider than
//           kSplitInputs are split between blocks; the one with the first inputs adds the sums of all, in the order of
//           the inputs (SplitSums).
// Sequence: a launch runs its steps one after the other, up to a whole forward. Where a step is handed its inputs in
//           words that say by themselves whether they have come (kernels/cuda/decode/flagged_words.cuh), warps look at
//           those until they are there; else all blocks meet at a barrier before it. The ring runs ahead in any case,
//           so memory stays busy meanwhile.
// Overlap:  the ring is filled before the kernel waits for its predecessors, too.
// Threads:  blocks wait for each other, so all must be resident: launches of one device are on one stream at a time.
// Law 1:    slices follow from the shape alone; every step treats a column (row of the batch) by itself.
#pragma once

#include "kernels/cuda/attention/decode_attention.cuh"
#include "kernels/cuda/decode/copy_ring.cuh"
#include "kernels/cuda/decode/multiply.cuh"
#include "kernels/cuda/decode/split_k_epilogue.cuh"

namespace foresay::kernels::cuda {

// All threads that multiply.
template <int Warps>
__device__ inline void multiplier_barrier() {
    named_barrier<15, Warps * 32>();
}

// Where attention has its shared memory in this kernel.
struct AttendBase {
    static __device__ std::uint32_t start() {
        extern __shared__ __align__(128) char shared[];
        return shared_address(shared);
    }
    static __device__ std::uint32_t call_at(const AttendCall& call) { return shared_address(&call); }
    // By an instruction of its own: the compiler does not come to an end with an address that it sees coming from
    // memory.
    static __device__ const AttendCall& call(const attention::UnitDescriptors& units) {
        return *static_cast<const AttendCall*>(
            __cvta_shared_to_generic(static_cast<std::uint32_t>(load_shared1(shared_address(&units.call)))));
    }
    static __device__ std::uint32_t units_at() { return start() + kAttendUnitsAt; }
    static __device__ std::uint32_t groups_at() {
        return static_cast<std::uint32_t>(load_shared1(start() + kStepStateAt + offsetof(StepState, attend_at)));
    }
};

// What this block does of the attention of decode rows. `call`: an AttendCall in shared memory. Waits until `counter`
// has `arrivals`, those of all projections. Not inlined: it needs all registers there are, and matrices would pay for
// that.
template <int kWidth, KvFormat kFormat, int kWarps>
__device__ __noinline__ void attend_cta_share_of(const char* call, const __half* kv, float* out,
                                                 const std::uint32_t* counter, std::uint32_t arrivals) {
    using attention::group_warps;
    constexpr int kGroups = kWarps / group_warps(kWidth);
    static_assert(kGroups * kAttendGroup<kWidth, kFormat> <= kAttendShared &&
                  kGroups * kAttendUnitBytes <= kCtaSharesAt - kAttendUnitsAt);
    // Said because the caller is not seen.
    const auto& c = *static_cast<const AttendCall*>(__cvta_shared_to_generic(__cvta_generic_to_shared(call)));
    attend_group<kWidth, kFormat, kGroups, false>(c, kv, out, AttendBase(), [&] {
        const attention::GroupThread<group_warps(kWidth)> group;
        if (group.thread() == 0) wait_for_arrivals(counter, arrivals);
        group.meet();
    });
}

// Likewise, for any width. Whether the block is one of those that tell of the attention.
template <KvFormat kFormat, int kWarps>
__device__ bool attend_cta_share(const AttendCall& c, const char* call, const __half* kv, float* out,
                                 const std::uint32_t* counter, std::uint32_t arrivals) {
    const auto blocks = static_cast<std::int32_t>(gridDim.x);
    if (!c.has_member(blocks - 1 - static_cast<std::int32_t>(blockIdx.x), blocks)) return false;
    if (c.layout.width == 128) {
        attend_cta_share_of<128, kFormat, kWarps>(call, kv, out, counter, arrivals);
    } else if (c.layout.width == 64) {
        attend_cta_share_of<64, kFormat, kWarps>(call, kv, out, counter, arrivals);
    } else {
        attend_cta_share_of<32, kFormat, kWarps>(call, kv, out, counter, arrivals);
    }
    return true;
}

// A warp's slice of a panel: block j of the slice is block j Warps + warp of the `blocks` of the part.
template <Encoding E, int NT, bool kOneRow, class Stream>
__device__ __forceinline__ void multiply_slice(Stream& ring, const ActivationOperand<E, NT>& in, int blocks,
                                               float (&sums)[2][NT][4]) {
    constexpr int kChunk = Stream::kChunk, kWarps = Stream::kWarps, kBytes = Stream::kBytes;
    constexpr int kEach = kChunk > kWarps ? kChunk / kWarps : 1;    // blocks of a chunk that are this warp's
    constexpr int kRounds = kChunk < kWarps ? kWarps / kChunk : 1;  // chunks of which one has a block of this warp's
    constexpr int kSteps = ActivationForm<E>::blocks / kEach;
    static_assert(ActivationForm<E>::blocks % kEach == 0);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int round = 0; round < kRounds; ++round) {
            if ((i * kRounds + round) * kChunk >= blocks) continue;
            // Also for the others' chunks: a barrier tells this phase from the one before, not from the one before
            // that.
            ring.wait();
            const std::uint32_t thread = thread_index();
            const auto warp = static_cast<int>(thread / 32), lane = static_cast<int>(thread % 32);
            if (kRounds == 1 || round == warp / kChunk) {
                const std::uint32_t address = ring.address() + (kRounds == 1 ? warp : warp % kChunk) * kBytes;
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

// A warp's sums of a panel to where those that finish it look for them. kOneRow: the batch has one row.
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

// A step that is a matrix: this block's share of it, by the warps that multiply.
template <Encoding E, int NT, class Args>
__device__ __forceinline__ void multiply_cta_share(const Args& args, char* shared) {
    constexpr int kWarps = gemv_warps(E);
    // What the step is follows from its number, which is read anew behind the inputs: while they come there is no
    // register to keep anything in, and what is spilled is far away.
    const auto now = [&] { return load_shared1(shared_address(shared) + kStepStateAt); };
    const GemvPlan& plan = args.plan;
    ActivationOperand<E, NT> in;
    {
        const int s = now();
        const GemvOp& op = args.op(s);
        const CtaShare share = CtaShare::of(args, shared, s);
        if (share.idle()) return;
        PanelSums<kWarps>(shared, plan, args.rows, CopyRing<E, NT, Args>::resumed(args, shared).panels_summed())
            .all_read();
        in.load(op, op.x + args.flagged_offset(op.x_flagged, args.step[s].x_buffer), args.step[s].norm, share.first,
                share.count, args.rows, plan, shared);
    }
    auto ring = CopyRing<E, NT, Args>::resumed(args, shared);
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

// The last to leave, of a block those that multiply and those that finish each for themselves, puts the counters back
// for the next launch, which has the next number. By one thread.
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

// kFormat: of the cache that steps attend to, or put K and V aside for.
template <Encoding E, int NT, KvFormat kFormat, class Args>
__global__ void __launch_bounds__(gemv_threads(E), 1) gemv(const __grid_constant__ Args args) {
    // Where shared memory begins is a parameter: asking for it takes a while, each time.
    char* const shared = static_cast<char*>(__cvta_shared_to_generic(args.plan.shared_start));
    if (AttendBase::start() != args.plan.shared_start) __trap();
    constexpr int kWarps = gemv_warps(E);
    const int warp = static_cast<int>(threadIdx.x / 32);
    allow_successor();
    if (warp == kWarps) {
        CopyRing<E, NT, Args>::start(args, shared);
        if (threadIdx.x % 32 == 0) PanelSums<kWarps>::start(shared, args.plan, args.rows);
    }
    if constexpr (Args::kAttends) {
        constexpr int kWords = sizeof(args.attends) / 4;
        for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x)) {
            reinterpret_cast<std::uint32_t*>(shared + kAttendCallsAt)[i] =
                reinterpret_cast<const std::uint32_t*>(args.attends)[i];
        }
    }
    CtaShare::start(args, shared);
    __syncthreads();
    if (warp == kWarps) {
        CopyRing<E, NT, Args>::produce(args, shared);
        return;
    }
    await_predecessors();
    if (warp > kWarps) {
        run_epilogue<E, NT, kFormat>(args, shared);
        if (warp == kWarps + 1 && threadIdx.x % 32 == 0) depart(args);
        return;
    }
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
                attended = attend_cta_share<kFormat, kWarps>(
                    call, shared + kAttendCallsAt + op.attend * sizeof(AttendCall), args.step[s].kv,
                    call.out + args.flagged_offset(op.out_flagged, args.step[s].out_buffer), counters + kMatrixArrivals,
                    state->matrix_arrivals);
                s = state->step;
                if (attended && s + 1 < args.steps && !args.op(s).out_flagged) {
                    multiplier_barrier<kWarps>();
                    if (threadIdx.x == 0) arrive(counters + kAttendArrivals);
                }
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
            // What is handed over is waited for where it is read, and attention waits by itself, for what it cannot do
            // before.
            const bool waits = !next.x_flagged && next.kind != OpKind::attend;
            if (done.kind != OpKind::attend) {
                state->matrix_arrivals += gridDim.x;
                if (waits) wait_for_arrivals(counters + kMatrixArrivals, state->matrix_arrivals);
            } else if (!done.out_flagged) {
                state->attend_arrivals +=
                    static_cast<std::uint32_t>(args.attends[done.attend].members(static_cast<std::int32_t>(gridDim.x)));
                if (waits) wait_for_arrivals(counters + kAttendArrivals, state->attend_arrivals);
            } else if (!attended) {
                // Who has not waited for the projections does so now: words that are looked for from here on have been
                // cleared.
                wait_for_arrivals(counters + kMatrixArrivals, state->matrix_arrivals);
            }
            state->step = s + 1;
        }
        multiplier_barrier<kWarps>();
    }
    if (threadIdx.x == 0) depart(args);
}

}  // namespace foresay::kernels::cuda
