// kernels/cuda/gemv.cuh: the decode kernel: stacks of matrices times 1 to 16 rows, and attention, at the speed of memory.
//
// Shape:    one block per multiprocessor, 8 or 16 warps. A block owns a run of panels of each matrix; each warp owns one slice
//           of the inputs, the same for all panels. So a warp's inputs stay where they are (kernels/cuda/inputs.cuh), and its
//           weights come through a ring in shared memory that one more warp fills (kernels/cuda/ring.cuh). A panel's sums of
//           the slices are added in the order of the warps and finished by three more warps, while the others go on
//           (PanelSums). Matrices wider than kSplitInputs are split between blocks; the one with the first inputs adds the
//           sums of all, in the order of the inputs (SplitSums).
// Sequence: a launch runs its steps one after the other, up to a whole forward; between two of them all blocks meet at a
//           barrier. The ring runs ahead across the barriers, so memory stays busy while blocks wait for each other.
// Overlap:  the ring is filled before the kernel waits for its predecessors, too.
// Threads:  blocks wait for each other, so all must be resident: launches of one device are on one stream at a time.
// Law 1:    slices follow from the shape alone; every step treats a column (row of the batch) by itself.
#pragma once

#include <cstddef>

#include "kernels/cuda/attend.cuh"
#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/multiply.cuh"
#include "kernels/cuda/ring.cuh"

namespace foresay::kernels::cuda {

// 1 / root mean square of a row from the squares of its slices.
__device__ inline float norm_factor(const GemvOp& op, float squares) {
    return rsqrtf(fmaf(squares, op.inputs_inverse, op.eps));
}

// All threads that multiply.
template <int Warps>
__device__ inline void workers_meet() {
    asm volatile("bar.sync 15, %0;" ::"n"(Warps * 32) : "memory");
}
// What blocks of a launch count together. Zero between launches, but for the number of launches.
enum GridCounter : int { kMatrixArrivals, kDepartures, kLaunches, kAttendArrivals };
static_assert(kAttendArrivals < kScratchCounters);

// What a block knows of where it is, in shared memory: words from kStepNumber on.
struct StepState {
    std::int32_t step;
    std::uint32_t launch;
    // Arrivals that complete the matrices, and the attentions, before this step.
    std::uint32_t matrix_arrivals, attend_arrivals;
};

// A barrier of all blocks, in two halves. What others wrote before it is read from L2 after it (__ldcg), so that nothing in
// L1 needs to be dropped: a relaxed look at the counter is enough, and the cheaper one by far. Of a matrix all blocks tell; of
// an attention those that can have units.
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

// Sums of the parts of a split matrix on their way to the block that adds them: packets of two numbers, each beside a tag
// that no other launch and step has. Eight bytes are written at once, so that a number whose tag is right is right, and
// nobody has to wait for anything else. Layout: [panel][part][16 T pairs of sums, T squares].
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
    // Adds what the parts but the first have sent to a place, in their order. Looks for three at once, because it is far.
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
    // Takes them away, so that no tag ever comes a second time.
    __device__ void clear(int parts, int place) const {
#pragma unroll 1
        for (int part = 1; part < parts; ++part) __stcg(at(part, place), uint4{});
    }
    // The place of the squares of row t; that of pair p is p T + t.
    __device__ int squares(int t) const { return 16 * T_ + t; }

private:
    __device__ uint4* at(int part, int place) const { return packets_ + part * 17 * T_ + place; }

    uint4* packets_;
    int T_;
    std::uint32_t tag_;
};

// Clears numbers that are handed over, by finishers: thread `thread` of `threads`.
__device__ inline void clear_handed(float* to, std::int32_t floats, int thread, int threads) {
    for (std::int32_t i = thread; i < floats / 4; i += threads) put_nothing4(to + 4 * i);
}

// The sums that warps hand to those that finish a panel: a few buffers, each with a barrier for "all sums are here" and one
// for "they have been read". A warp's buffers lie together: [warp][buffer][32 packed rows][rows].
template <int Warps>
class PanelSums {
public:
    // As the kernel begins, by one thread.
    __device__ static void start(char* shared, const GemvPlan& plan, int rows) {
        std::uint32_t panels = 0;
        const PanelSums sums(shared, plan, rows, panels);
        for (int i = 0; i < plan.part_buffers; ++i) {
            barrier_init(sums.full(i), Warps);
            barrier_init(sums.read(i), kFinishers);
        }
    }
    // `panels`: how many there were so far.
    __device__ PanelSums(char* shared, const GemvPlan& plan, int rows, std::uint32_t& panels)
        : shared_(shared), plan_(plan), rows_(rows), panels_(panels) {}
    // Of this warp, once what was there has been read.
    __device__ float* mine(int warp) {
        copy_wait(read(slot()), parity() ^ 1);
        return sums() + warp * warp_stride();
    }
    __device__ void hand_over(int lane) {
        __syncwarp();
        if (lane == 0) barrier_arrive(full(slot()));
    }
    // Of warp 0, once all warps' sums are there; those of the others follow warp_stride() apart.
    __device__ const float* all() {
        copy_wait(full(slot()), parity());
        return sums();
    }
    // Waits until all panels so far have been read, with the squares that belong to them.
    __device__ void all_read() const {
        const std::uint32_t last = panels_ - 1;
        if (panels_ > 0) copy_wait(read(last & plan_.part_mask), (last & plan_.part_buffers) != 0);
    }
    __device__ int warp_stride() const { return plan_.part_stride; }
    __device__ void done(int lane) {
        __syncwarp();
        if (lane == 0) barrier_arrive(read(slot()));
    }
    __device__ void next() { ++panels_; }

private:
    // The number of buffers is a power of two.
    __device__ std::uint32_t slot() const { return panels_ & plan_.part_mask; }
    __device__ std::uint32_t parity() const { return (panels_ & plan_.part_buffers) != 0; }
    __device__ float* sums() const {
        return reinterpret_cast<float*>(shared_ + plan_.parts_at) + slot() * kPanelRows * rows_;
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

// This block's units of the attention of decode rows, if it has any. `call`: an AttendCall in shared memory. Waits until
// `counter` has `arrivals`, those of all projections. Not inlined: it needs all registers there are, and matrices would pay for
// that.
template <int kWidth, int kWarps>
__device__ __noinline__ void attend_share_of(const char* call, const __half* kv, float* out, char* shared, char* group,
                                             const std::uint32_t* counter, std::uint32_t arrivals) {
    static_assert(kAttendGroup<kWidth> <= kAttendShared && kAttendPlaces <= kGemvBarrierBytes - kAttendPlacesAt);
    // Said because the caller is not seen.
    const auto& c = *static_cast<const AttendCall*>(__cvta_shared_to_generic(__cvta_generic_to_shared(call)));
    attend_group<kWidth, KvFormat::f16, kWarps, false>(c, kv, out, shared + kAttendPlacesAt, group, [&] {
        if (threadIdx.x == 0) look_for(counter, arrivals);
        workers_meet<kWarps>();
    });
}

// Likewise, for any width. Whether the block is one of those that tell of the attention.
template <int kWarps>
__device__ bool attend_share(const AttendCall& c, const char* call, const __half* kv, float* out, char* shared,
                             char* group, const std::uint32_t* counter, std::uint32_t arrivals) {
    if (!c.has_member(static_cast<std::int32_t>(blockIdx.x), static_cast<std::int32_t>(gridDim.x))) return false;
    if (c.layout.width == 128) {
        attend_share_of<128, kWarps>(call, kv, out, shared, group, counter, arrivals);
    } else if (c.layout.width == 64) {
        attend_share_of<64, kWarps>(call, kv, out, shared, group, counter, arrivals);
    } else {
        attend_share_of<32, kWarps>(call, kv, out, shared, group, counter, arrivals);
    }
    return true;
}

// A warp's slice of a panel: block j of the slice is block j Warps + warp of the `blocks` of the part, of which `mine` are its.
template <Encoding E, int NT, bool kAlone, class Stream>
__device__ __forceinline__ void multiply_slice(Stream& ring, const Inputs<E, NT>& in, int blocks, int mine, int warp,
                                               int lane, float (&sums)[2][NT][4]) {
    constexpr int kChunk = Stream::kChunk, kWarps = Stream::kWarps, kBytes = Stream::kBytes;
    constexpr int kEach = kChunk > kWarps ? kChunk / kWarps : 1;   // blocks of a chunk that are this warp's
    constexpr int kTurns = kChunk < kWarps ? kWarps / kChunk : 1;  // chunks of which one has a block of this warp's
    constexpr int kSteps = InputForm<E>::blocks / kEach;
    static_assert(InputForm<E>::blocks % kEach == 0);
#pragma unroll
    for (int i = 0; i < kSteps; ++i) {
#pragma unroll
        for (int turn = 0; turn < kTurns; ++turn) {
            if ((i * kTurns + turn) * kChunk >= blocks) continue;
            // Also for the others' chunks: a barrier tells this phase from the one before, not from the one before that.
            ring.wait();
            if (kTurns == 1 || turn == warp / kChunk) {
                const std::uint32_t address = ring.address() + (kTurns == 1 ? warp : warp % kChunk) * kBytes;
                if (mine >= (i + 1) * kEach) {
                    // No branch between blocks, so that their instructions mix.
#pragma unroll
                    for (int k = 0; k < kEach; ++k) {
                        Multiply<E, NT, kAlone>::run(address + k * kWarps * kBytes, in, i * kEach + k, sums, lane);
                    }
                } else {
#pragma unroll
                    for (int k = 0; k < kEach; ++k) {
                        if (mine <= i * kEach + k) break;
                        Multiply<E, NT, kAlone>::run(address + k * kWarps * kBytes, in, i * kEach + k, sums, lane);
                    }
                }
            }
            ring.release();
        }
    }
}

// A step that is a matrix: this block's share of it, by the warps that multiply.
template <Encoding E, int NT, class Args>
__device__ __forceinline__ void multiply_share(const Args& args, char* shared) {
    constexpr int kWarps = gemv_warps(E);
    const auto now = [&] { return load_shared1(shared_address(shared) + kStepNumber); };
    const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
    const GemvPlan& plan = args.plan;
    float* const stats = reinterpret_cast<float*>(shared + plan.stats_at);  // per warp: [scale back x 16][squares x 16]
    int panels, blocks, mine;
    auto ring = Ring<E, NT, Args>::resumed(args, shared);
    PanelSums<kWarps> panel_sums(shared, plan, args.rows, ring.panels_summed());
    Inputs<E, NT> in;
    float back[NT][2];
    {
        const int s = now();
        const GemvOp& op = args.op(s);
        const Share share(op);
        if (share.idle()) return;
        const int T = args.rows, passage = plan.part_buffers * kPanelRows * T * 4;
        panel_sums.all_read();
        in.load(op, op.x + args.turn(op.x_handed, args.step[s].x_turn), args.step[s].norm, share.first, share.count, T,
                shared_address(shared + plan.second_at + warp * plan.second_bytes),
                shared_address(shared + plan.parts_at) + warp * passage, passage, stats + warp * 32);
        panels = share.panel_end - share.panel_begin;
        blocks = share.count;
        mine = (blocks + kWarps - 1 - warp) / kWarps;
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
            for (int i = 0; i < 2; ++i) back[nt][i] = stats[warp * 32 + min(nt * 8 + lane % 4 * 2 + i, T - 1)];
        }
    }

    const auto multiply_panels = [&](auto alone) {
#pragma unroll 1
        for (; panels > 0; --panels) {
            float sums[2][NT][4] = {};
            multiply_slice<E, NT, alone>(ring, in, blocks, mine, warp, lane, sums);

            const int T = alone ? 1 : args.rows;
            float* const to = panel_sums.mine(warp) + lane / 4 * T + lane % 4 * 2;
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
                for (int i = 0; i < (alone ? 1 : 2); ++i) {
                    if (nt * 8 + lane % 4 * 2 + i >= T) continue;
#pragma unroll
                    for (int tile = 0; tile < 2; ++tile) {
                        to[tile * 16 * T + nt * 8 + i] = sums[tile][nt][i] * back[nt][i];
                        to[(tile * 16 + 8) * T + nt * 8 + i] = sums[tile][nt][2 + i] * back[nt][i];
                    }
                }
            }
            panel_sums.hand_over(lane);
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

// All steps, by the warps that finish panels. They tell the grid when this block's share of a matrix is done.
template <Encoding E, int NT, class Args>
__device__ __forceinline__ void finish_shares(const Args& args, char* shared) {
    constexpr int kWarps = gemv_warps(E);
    constexpr int kItems = (16 * 8 * NT + 32 * kFinishers - 1) / (32 * kFinishers);  // of a thread, at most
    const int finisher = static_cast<int>(threadIdx.x / 32) - kWarps - 1, lane = static_cast<int>(threadIdx.x % 32);
    const GemvPlan& plan = args.plan;
    const float* const stats = reinterpret_cast<const float*>(shared + plan.stats_at);
    const int T = args.rows;
    std::uint32_t panels_summed = 0;
    std::uint32_t arrivals = 0;  // of the matrices so far
    PanelSums<kWarps> panel_sums(shared, plan, T, panels_summed);
    const int thread = 32 * finisher + lane;
    const auto meet = [] { asm volatile("bar.sync 14, %0;" ::"n"(kFinishers * 32) : "memory"); };
    if constexpr (Args::kAttends) {
        if (plan.handed != nullptr) {
            clear_handed(plan.handed, kTurns * plan.turn_floats,
                         static_cast<int>(blockIdx.x) * 32 * kFinishers + thread,
                         static_cast<int>(gridDim.x) * 32 * kFinishers);
            meet();
        }
    }
#pragma unroll 1
    for (int s = 0; s < args.steps; ++s) {
        const GemvOp& op = args.op(s);
        const GemvStep& step = args.step[s];
        if (op.kind != OpKind::matrix) continue;  // those that attend tell
        float* const out = op.finish.out + args.turn(op.out_handed, step.out_turn);
        const float* const from = op.finish.from + args.turn(op.from_handed, step.from_turn);
        const Share share(op);
        const bool normed = step.norm != nullptr;
        // What is added to is read early, but not while the step before may still write it.
        if (s > 0 && op.finish.kind == Finish::out && args.op(s - 1).kind == OpKind::matrix &&
            args.op(s - 1).finish.kind == Finish::out) {
            if (lane == 0) look_for(plan.counters + kMatrixArrivals, arrivals);
            __syncwarp();
        }
#pragma unroll 1
        for (int panel = share.panel_begin; panel < share.panel_end; ++panel) {
            // A thread takes row `item % T` of pair `item / T`, several of them side by side, because each has far to go.
            // Neighbours take neighbours, so that they meet few banks twice. Panels begin with one warp after the other.
            struct Item {
                int number, pair, t;
                bool exists;
            };
            const int first = (finisher + static_cast<int>(panels_summed % kFinishers)) % kFinishers * 32 + lane;
            const auto item_of = [&](int k) {
                const int number = first + 32 * kFinishers * k, pair = quotient_by(number, plan.rows_inverse);
                return Item{number, pair, number - pair * T, number < 16 * T};
            };
            const bool finishes = share.part == 0;
            FinishOperand operand[kItems];
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                const Item item = item_of(k);
                if (item.exists && finishes)
                    operand[k] = finish_operand(op.finish, from, panel * kPanelRows + 2 * item.pair, item.t);
            }
            const float* all = panel_sums.all();
            const int stride = panel_sums.warp_stride();
            float2 sum[kItems] = {};
            float squares[kItems] = {};
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                const Item item = item_of(k);
                if (!item.exists) continue;
                const float* of = all + 2 * item.pair * T + item.t;
#pragma unroll
                for (int w = 0; w < kWarps; ++w) {
                    sum[k].x += of[w * stride];
                    sum[k].y += of[w * stride + T];
                }
                if (normed) {
#pragma unroll
                    for (int w = 0; w < kWarps; ++w) squares[k] += stats[w * 32 + 16 + item.t];
                }
            }
            panel_sums.done(lane);
            const auto launch = static_cast<std::uint32_t>(
                load_shared1(shared_address(shared) + kStepNumber + offsetof(StepState, launch)));
            const SplitSums split(op, plan, T, panel, launch * 1024u + static_cast<std::uint32_t>(s) + 1u);
#pragma unroll
            for (int k = 0; k < kItems; ++k) {
                const Item item = item_of(k);
                if (!item.exists) continue;
                if (!finishes) {
                    split.send(share.part, item.number, sum[k].x, sum[k].y);
                    if (normed && item.pair == 0) split.send(share.part, split.squares(item.t), squares[k], 0.0f);
                    continue;
                }
                if (op.split > 1) {
                    split.add(op.split, item.number, sum[k]);
                    split.clear(op.split, item.number);
                    if (normed) {
                        float2 all_squares = {squares[k], 0.0f};
                        split.add(op.split, split.squares(item.t), all_squares);
                        squares[k] = all_squares.x;
                    }
                }
                const std::int32_t packed = panel * kPanelRows + 2 * item.pair;
                const float factor = normed ? norm_factor(op, squares[k]) : 1.0f;
                if (op.from_handed) await_operand(op.finish, from, packed, item.t, operand[k]);
                finish_pair(op.finish, out, step.bias, step.kv, packed, item.t, sum[k].x * factor, sum[k].y * factor,
                            operand[k]);
            }
            if constexpr (Args::kAttends) {
                if (op.clears && panel == share.panel_begin) {
                    const int each = min(op.members, op.panel_count);
                    const int index = share.part * each + static_cast<int>(blockIdx.x) - share.part * op.members;
                    const auto clear = [&](int turn, std::int32_t begin, std::int32_t end) {
                        clear_handed(plan.handed + turn % kTurns * plan.turn_floats + begin, end - begin,
                                     index * 32 * kFinishers + thread, each * op.split * 32 * kFinishers);
                    };
                    clear(step.out_turn + 1, 0, plan.front_floats);
                    clear(step.out_turn + 2, plan.front_floats, plan.turn_floats);
                }
            }
            panel_sums.next();
        }
        // Squares are read by all who finish rows of a panel, and taken away when they have.
        const auto clear_squares = [&] {
            if (op.split == 1 || !normed || share.part > 0) return;
            meet();
            for (int panel = share.panel_begin + finisher; panel < share.panel_end; panel += kFinishers) {
                const SplitSums split(op, plan, T, panel, 0);
                if (lane < T) split.clear(op.split, split.squares(lane));
            }
        };
        if (s + 1 == args.steps) {
            clear_squares();
            break;
        }
        if (share.idle()) {
            // Nothing to do is no reason to be early: arrivals are only counted.
            if (finisher == 0 && lane == 0) {
                look_for(plan.counters + kMatrixArrivals, arrivals);
                arrive(plan.counters + kMatrixArrivals, op.out_handed);
            }
        } else {
            clear_squares();
            meet();
            if (finisher == 0 && lane == 0) arrive(plan.counters + kMatrixArrivals, op.out_handed);
        }
        arrivals += gridDim.x;
    }
}

// The last to leave, of a block those that multiply and those that finish each for themselves, puts the counters back for the
// next launch, which has the next number. By one thread.
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

template <Encoding E, int NT, class Args>
__global__ void __launch_bounds__(gemv_threads(E), 1) gemv(const __grid_constant__ Args args) {
    extern __shared__ __align__(128) char shared[];
    constexpr int kWarps = gemv_warps(E);
    const int warp = static_cast<int>(threadIdx.x / 32);
    allow_successor();
    if (warp == kWarps) {
        Ring<E, NT, Args>::start(args, shared);
        if (threadIdx.x % 32 == 0) PanelSums<kWarps>::start(shared, args.plan, args.rows);
    }
    if constexpr (Args::kAttends) {
        constexpr int kWords = sizeof(args.attends) / 4;
        for (int i = static_cast<int>(threadIdx.x); i < kWords; i += static_cast<int>(blockDim.x)) {
            reinterpret_cast<std::uint32_t*>(shared + kAttendCalls)[i] =
                reinterpret_cast<const std::uint32_t*>(args.attends)[i];
        }
    }
    __syncthreads();
    if (warp == kWarps) {
        Ring<E, NT, Args>::produce(args, shared);
        return;
    }
    await_predecessors();
    if (warp > kWarps) {
        finish_shares<E, NT>(args, shared);
        if (warp == kWarps + 1 && threadIdx.x % 32 == 0) depart(args);
        return;
    }
    auto* const state = reinterpret_cast<StepState*>(shared + kStepNumber);
    std::uint32_t* const counters = args.plan.counters;
    if (threadIdx.x == 0) *state = {0, args.plan.splits ? __ldcg(counters + kLaunches) : 0, 0, 0};
    workers_meet<kWarps>();
    for (;;) {
        int s = load_shared1(shared_address(shared) + kStepNumber);
        bool attended = false;
        if constexpr (Args::kAttends) {
            const GemvOp& op = args.op(s);
            if (op.kind == OpKind::attend) {
                const AttendCall& call = args.attends[op.attend];
                attended = attend_share<kWarps>(
                    call, shared + kAttendCalls + op.attend * sizeof(AttendCall), args.step[s].kv,
                    call.out + args.turn(op.out_handed, args.step[s].out_turn), shared, shared + args.plan.parts_at,
                    counters + kMatrixArrivals, state->matrix_arrivals);
                s = state->step;
                if (attended && s + 1 < args.steps && !args.op(s).out_handed) {
                    workers_meet<kWarps>();
                    if (threadIdx.x == 0) arrive(counters + kAttendArrivals);
                }
            } else {
                multiply_share<E, NT>(args, shared);
            }
        } else {
            multiply_share<E, NT>(args, shared);
        }
        s = load_shared1(shared_address(shared) + kStepNumber);
        if (s + 1 >= args.steps) break;
        workers_meet<kWarps>();
        if (threadIdx.x == 0) {
            const GemvOp &done = args.op(s), &next = args.op(s + 1);
            // What is handed over is waited for where it is read, and attention waits by itself, for what it cannot do before.
            const bool waits = !next.x_handed && next.kind != OpKind::attend;
            if (done.kind != OpKind::attend) {
                state->matrix_arrivals += gridDim.x;
                if (waits) look_for(counters + kMatrixArrivals, state->matrix_arrivals);
            } else if (!done.out_handed) {
                state->attend_arrivals +=
                    static_cast<std::uint32_t>(args.attends[done.attend].members(static_cast<std::int32_t>(gridDim.x)));
                if (waits) look_for(counters + kAttendArrivals, state->attend_arrivals);
            } else if (!attended) {
                // Who has not waited for the projections does so now: words that are looked for from here on have been cleared.
                look_for(counters + kMatrixArrivals, state->matrix_arrivals);
            }
            state->step = s + 1;
        }
        workers_meet<kWarps>();
    }
    if (threadIdx.x == 0) depart(args);
}

}  // namespace foresay::kernels::cuda
