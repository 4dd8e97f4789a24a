// kernels/cuda/gemv.cuh: the decode kernel: stacks of matrices times 1 to 16 rows, at the speed of memory.
//
// Shape:    one block per multiprocessor, 8 or 16 warps. A block owns a run of panels of each matrix; each warp owns one slice
//           of the inputs, the same for all panels. So a warp's inputs stay where they are, and its weights are a stream
//           that it feeds itself through a ring in shared memory, without a word to the other warps. After each panel the
//           sums of the slices are added in the order of the slices and finished. Matrices wider than kSplitInputs are
//           split between blocks, and the last of them to arrive adds their sums, in the order of the inputs.
// Sequence: a launch runs several matrices one after the other; between two of them all blocks meet at a barrier. The
//           ring runs ahead across the barriers, so memory stays busy while blocks wait for each other.
// Overlap:  the ring is filled before the kernel waits for its predecessors, too.
// Threads:  blocks wait for each other, so all must be resident: launches of one device are on one stream at a time.
// Law 1:    slices follow from the shape alone; every step treats a column (row of the batch) by itself.
#pragma once

#include <algorithm>

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/multiply.cuh"

namespace foresay::kernels::cuda {

// A block's and a warp's share of an op.
struct Share {
    int part;  // of the inputs
    int panel_begin, panel_end;
    int begin, end;  // blocks of the slice
    __device__ Share(const GemvOp& op, int warp, int warps) {
        int member = static_cast<int>(blockIdx.x);
        part = 0;
        if (op.split > 1) {
            part = member / op.members;
            member -= part * op.members;
        }
        if (part >= op.split || member >= op.members) {
            part = 0;
            panel_begin = panel_end = begin = end = 0;
            return;
        }
        panel_begin = member * op.panels_each + min(member, op.panels_more);
        panel_end = panel_begin + op.panels_each + (member < op.panels_more ? 1 : 0);
        const int first = part * op.blocks_each + min(part, op.blocks_more);
        const int count = op.blocks_each + (part < op.blocks_more ? 1 : 0);
        begin = first + warp * count / warps;  // warps is a power of two, known when compiled
        end = first + (warp + 1) * count / warps;
    }
    __device__ bool idle() const { return panel_begin == panel_end; }
};

// Turns one warp's slice of the inputs into float16 and keeps the sums and the squares that go with it.
template <Encoding E>
class SliceWriter {
public:
    using Form = InputForm<E>;
    static constexpr int kVectors = kSplitInputs / gemv_warps(E) / 128;  // float4 a lane holds of a row
    static constexpr int kRows = 8 / kVectors;                           // rows at a time

    __device__ SliceWriter(const GemvArgs& args, const GemvOp& op, char* shared, int warp, int lane, const Share& share)
        : args_(args), op_(op), lane_(lane) {
        constexpr int inputs = block_format(E).inputs;
        first_ = share.begin * inputs;
        count_ = max(0, min(share.end * inputs, op.inputs) - first_);
        padded_ = (share.end - share.begin) * inputs;
        x_ = shared + args.x_at + warp * args.x_bytes;
        sums_ = shared + args.sums_at + warp * args.sums_bytes;
        stats_ = reinterpret_cast<float*>(shared + args.stats_at) + warp * 32;  // [scale back x 16][squares x 16]
#pragma unroll
        for (int v = 0; v < kVectors; ++v) norm_[v] = op.norm != nullptr ? load(op.norm, v) : float4{1, 1, 1, 1};
    }

    __device__ void write() {
        if (args_.rows == 1) {
            rows<1>(0);
        } else {
#pragma unroll 1
            for (int t = 0; t < args_.rows; t += kRows) rows<kRows>(t);
        }
        __syncwarp();
    }

    // The sums of the inputs as they were rounded, which take the middle off the codes: a product with a matrix of that
    // number.
    template <int NT>
    __device__ void write_sums(const Slice& slice) const {
        if constexpr (Form::floats) return;
        constexpr std::uint32_t low = (Form::middle << 16 | Form::middle) | 0x80008000u;
        constexpr std::uint32_t high =
            Form::quarters_lowered ? (Form::middle << 20 | Form::middle << 4) | 0x80008000u : low;
        const int pairs = (args_.rows + 1) / 2;
        const auto store = [&](const float(&d)[4], int nt, int index) {
            if (lane_ < 4 && nt * 4 + lane_ < pairs) {
                *reinterpret_cast<float4*>(sums_ + (index * pairs + nt * 4 + lane_) * 16) = {d[0], d[1], d[0], d[1]};
            }
        };
#pragma unroll 4
        for (int group = 0; group < padded_ / 32; ++group) {
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
                const uint4 x = load_shared4(slice.x[nt] + group * 64);
                const float zero[4] = {};
                float d[4], e[4];
                mma(d, low, low, high, high, x.x, x.y, zero);
                if constexpr (Form::sum_inputs == 32) {
                    mma(d, low, low, high, high, x.z, x.w, d);
                    store(d, nt, group);
                } else {
                    mma(e, low, low, high, high, x.z, x.w, zero);
                    store(d, nt, 2 * group);
                    store(e, nt, 2 * group + 1);
                }
            }
        }
        __syncwarp();
    }

private:
    // Inputs 4 * lane .. of vector v of the slice; zeros beyond its end.
    __device__ float4 load(const float* from, int v) const {
        const int at = v * 128 + lane_ * 4;
        return at < count_ ? __ldcg(reinterpret_cast<const float4*>(from + first_ + at)) : float4{};
    }

    // Rows t .. t + B - 1 side by side; those beyond the last are the last once more.
    template <int B>
    __device__ void rows(int t) {
        float4 x[B][kVectors];
        float most[B] = {}, square[B] = {};
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const int at = min(t + b, args_.rows - 1), row = op_.row != nullptr ? __ldcg(op_.row + at) : at;
            const float* from = op_.x + static_cast<std::int64_t>(row) * op_.inputs;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) x[b][v] = load(from, v);
        }
#pragma unroll
        for (int b = 0; b < B; ++b) {
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                const float4 a = x[b][v], w = norm_[v];
                square[b] += fmaf(a.x, a.x, a.y * a.y) + fmaf(a.z, a.z, a.w * a.w);
                const float4 y = {a.x * w.x, a.y * w.y, a.z * w.z, a.w * w.w};
                most[b] = fmaxf(most[b], fmaxf(fmaxf(fabsf(y.x), fabsf(y.y)), fmaxf(fabsf(y.z), fabsf(y.w))));
                x[b][v] = y;
            }
        }
        float scale[B];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const int exponent = max(static_cast<int>(warp_most(__float_as_uint(most[b])) >> 23), 20);
            if (lane_ == b)
                stats_[min(t + b, args_.rows - 1)] = __uint_as_float(static_cast<std::uint32_t>(exponent - 13) << 23) *
                                                     (Form::floats ? 1.0f : kCodeScale);
            scale[b] = __uint_as_float(static_cast<std::uint32_t>(267 - exponent) << 23);
        }
#pragma unroll
        for (int b = 0; b < B; ++b) {
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                const float4 y = x[b][v];
                store(min(t + b, args_.rows - 1), v, {y.x * scale[b], y.y * scale[b], y.z * scale[b], y.w * scale[b]});
            }
        }
        if (op_.norm == nullptr) return;
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
            for (int b = 0; b < B; ++b) square[b] += __shfl_xor_sync(~0u, square[b], offset);
        }
#pragma unroll
        for (int b = 0; b < B; ++b) {
            if (lane_ == b) stats_[16 + min(t + b, args_.rows - 1)] = square[b];
        }
    }
    static __device__ std::uint32_t warp_most(std::uint32_t value) { return __reduce_max_sync(~0u, value); }

    __device__ void store(int t, int v, float4 x) {
        const bool inside = v * 128 + lane_ * 4 < padded_;
        // Eight lanes have 32 inputs: lane % 8 = 4 s + q.
        char* to = x_ + t * op_.x_stride + (v * 4 + lane_ / 8) * 64 + lane_ % 4 * 16 + lane_ / 4 % 2 * 8;
        if constexpr (Form::bf16) {
            const __nv_bfloat162 a = __floats2bfloat162_rn(x.x, x.y), b = __floats2bfloat162_rn(x.z, x.w);
            const float2 fa = __bfloat1622float2(a), fb = __bfloat1622float2(b);
            if (!inside) return;
            put(to, a, b);
            put(to + args_.x_bytes / 2, __floats2bfloat162_rn(x.x - fa.x, x.y - fa.y),
                __floats2bfloat162_rn(x.z - fb.x, x.w - fb.y));
        } else {
            const __half2 a = __floats2half2_rn(x.x, x.y);
            const __half2 b = __floats2half2_rn(x.z, x.w);
            if constexpr (Form::floats) {
                const float2 fa = __half22float2(a), fb = __half22float2(b);
                if (!inside) return;
                put(to, a, b);
                put(to + args_.x_bytes / 2, __floats2half2_rn(x.x - fa.x, x.y - fa.y),
                    __floats2half2_rn(x.z - fb.x, x.w - fb.y));
            } else {
                if (!inside) return;
                put(to, a, Form::quarters_lowered ? __hmul2(b, __float2half2_rn(0.0625f)) : b);
            }
        }
    }
    template <class Pair>
    static __device__ void put(char* to, Pair a, Pair b) {
        uint2 bits;
        bits.x = *reinterpret_cast<const std::uint32_t*>(&a);
        bits.y = *reinterpret_cast<const std::uint32_t*>(&b);
        *reinterpret_cast<uint2*>(to) = bits;
    }

    const GemvArgs& args_;
    const GemvOp& op_;
    int lane_, first_, count_, padded_;
    char *x_, *sums_;
    float* stats_;
    float4 norm_[kVectors];
};

// A warp's stream of weights, through all ops of the launch.
template <Encoding E>
class Ring {
public:
    // Barriers of all warps lie before all rings.
    static constexpr int kBarrierBytes = 1024;

    __device__ Ring(const GemvArgs& args, char* shared, int warp, int lane) : args_(args), warp_(warp), lane_(lane) {
        const std::uint32_t base = shared_address(shared);
        ring_ = base + kBarrierBytes + warp * args.stages * args.stage_bytes;
        barriers_ = base + warp * args.stages * 8;
        policy_ = streaming_policy();
        if (lane < args.stages) copy_barrier_init(barriers_ + 8 * lane);
        copy_barriers_ready();
        enter(0);
        for (int i = 0; i < args.stages; ++i) issue(i);
    }
    // The next stage's address. It holds stage_blocks of its op, or what is left of the slice.
    __device__ std::uint32_t wait() {
        copy_wait(barriers_ + 8 * slot_, parity_);
        return ring_ + slot_ * args_.stage_bytes;
    }
    // The stage that was waited for has been read by all lanes.
    __device__ void release() {
        __syncwarp();
        issue(slot_);
        if (++slot_ == args_.stages) {
            slot_ = 0;
            parity_ ^= 1;
        }
    }

private:
    static constexpr int kBytes = block_format(E).bytes;

    // Goes to the first op from `op` on in which this warp has work.
    __device__ void enter(int op) {
        for (; op < args_.count; ++op) {
            const Share share(args_.ops[op], warp_, gemv_warps(E));
            slice_ = share.end - share.begin;
            panels_ = share.panel_end - share.panel_begin;
            if (slice_ == 0 || panels_ == 0) continue;
            left_ = slice_;
            stage_blocks_ = args_.ops[op].stage_blocks;
            skip_ = static_cast<std::int64_t>(args_.ops[op].blocks - slice_) * kBytes;
            next_ = args_.ops[op].panels +
                    (static_cast<std::int64_t>(share.panel_begin) * args_.ops[op].blocks + share.begin) * kBytes;
            break;
        }
        op_ = op;
    }
    __device__ void issue(int slot) {
        if (op_ >= args_.count) return;
        const int blocks = min(stage_blocks_, left_), bytes = blocks * kBytes;
        bulk_copy(ring_ + slot * args_.stage_bytes, next_, static_cast<std::uint32_t>(bytes), barriers_ + 8 * slot,
                  policy_, lane_);
        next_ += bytes;
        left_ -= blocks;
        if (left_ == 0) {
            next_ += skip_;
            left_ = slice_;
            if (--panels_ == 0) enter(op_ + 1);
        }
    }

    const GemvArgs& args_;
    int warp_, lane_;
    int op_ = 0, slice_ = 0, left_ = 0, panels_ = 0, stage_blocks_ = 1;
    int slot_ = 0;
    std::uint32_t parity_ = 0, ring_, barriers_;
    std::int64_t skip_ = 0;
    const std::uint8_t* next_ = nullptr;
    std::uint64_t policy_;
};

// 1 / root mean square of a row from the squares of its slices.
__device__ inline float norm_factor(const GemvOp& op, float squares) {
    return 1.0f / sqrtf(squares / static_cast<float>(op.inputs) + op.eps);
}

// All blocks have arrived `times` times.
__device__ inline void grid_arrive(std::uint32_t* counter) {
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
    }
}
__device__ inline void grid_wait(const std::uint32_t* counter, std::uint32_t arrivals) {
    if (threadIdx.x == 0) {
        std::uint32_t seen;
        do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
        } while (seen < arrivals);
        __threadfence();
    }
    __syncthreads();
}

// Sums of the parts of a split op: [panel][part][pair][T] float2, behind them [panel][part][T] squares.
struct Partials {
    float2* sums;
    float* squares;
    int split, T;
    __device__ Partials(const GemvArgs& args, const GemvOp& op) : split(op.split), T(args.rows) {
        sums = reinterpret_cast<float2*>(args.partials);
        squares = args.partials + static_cast<std::int64_t>(op.panel_count) * split * 16 * T * 2;
    }
    __device__ float2* at(int panel, int part, int item) const {
        return sums + static_cast<std::int64_t>(panel * split + part) * 16 * T + item;
    }
    __device__ float* squares_at(int panel, int part, int t) const { return squares + (panel * split + part) * T + t; }
};

// Adds up and finishes the panels of a split op for which this block is the last to arrive.
static __device__ __noinline__ void finish_split(const GemvArgs& args, const GemvOp& op, const Share& share,
                                                 int* last) {
    const int T = args.rows;
    const Partials partials(args, op);
    for (int first = share.panel_begin; first < share.panel_end; first += 32) {
        const int count = min(32, share.panel_end - first);
        __syncthreads();
        if (static_cast<int>(threadIdx.x) < count) {
            std::uint32_t* counter = args.counters + 2 + first + threadIdx.x;
            __threadfence();
            const bool is_last = atomicAdd(counter, 1u) == static_cast<std::uint32_t>(op.split - 1);
            if (is_last) *counter = 0;
            __threadfence();
            last[threadIdx.x] = is_last ? 1 : 0;
        }
        __syncthreads();
        for (int item = static_cast<int>(threadIdx.x); item < count * 16 * T; item += static_cast<int>(blockDim.x)) {
            const int panel = item / (16 * T), place = item - panel * 16 * T, pair = place / T, t = place - pair * T;
            if (last[panel] == 0) continue;
            const int packed = (first + panel) * kPanelRows + 2 * pair;
            const float2 operand = finish_operand(op.finish, packed, t);
            float2 sum{};
            float squares = 0.0f;
            for (int from = 0; from < op.split; from += 4) {  // four at a time, so that their ways overlap
                float2 more[4] = {};
                float more_squares[4] = {};
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    if (from + i >= op.split) continue;
                    more[i] = __ldcg(partials.at(first + panel, from + i, place));
                    if (op.norm != nullptr) more_squares[i] = __ldcg(partials.squares_at(first + panel, from + i, t));
                }
#pragma unroll
                for (int i = 0; i < 4; ++i) {
                    sum.x += more[i].x;
                    sum.y += more[i].y;
                    squares += more_squares[i];
                }
            }
            const float factor = op.norm != nullptr ? norm_factor(op, squares) : 1.0f;
            finish_pair(op.finish, packed, t, sum.x * factor, sum.y * factor, operand);
        }
    }
}

template <Encoding E, int NT>
__global__ void __launch_bounds__(gemv_warps(E) * 32, 1) gemv(const __grid_constant__ GemvArgs args) {
    extern __shared__ __align__(128) char shared[];
    constexpr BlockFormat format = block_format(E);
    constexpr int groups = format.inputs / 32;
    constexpr int kWarps = gemv_warps(E);
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int T = args.rows;
    float* const stats = reinterpret_cast<float*>(shared + args.stats_at);
    float* const parts = reinterpret_cast<float*>(shared + args.parts_at);
    int* const last = reinterpret_cast<int*>(stats + kWarps * 32);

    allow_successor();
    Ring<E> ring(args, shared, warp, lane);
    std::uint32_t barriers = 0;

#pragma unroll 1
    for (int o = 0; o < args.count; ++o) {
        const GemvOp& op = args.ops[o];
        const Share share(op, warp, kWarps);
        SliceWriter<E> writer(args, op, shared, warp, lane, share);
        if (o == 0) {
            await_predecessors();
        } else {
            grid_wait(args.counters, ++barriers * gridDim.x);
        }
        if (!share.idle()) writer.write();
        Slice slice;
        {
            const std::uint32_t x = shared_address(shared + args.x_at + warp * args.x_bytes);
            const std::uint32_t sums = shared_address(shared + args.sums_at + warp * args.sums_bytes);
            const int pairs = (T + 1) / 2;
#pragma unroll
            for (int nt = 0; nt < 2; ++nt) {
                slice.x[nt] = x + min(nt * 8 + lane / 4, T - 1) * op.x_stride + lane % 4 * 16;
                slice.sums[nt] = sums + min(nt * 4 + lane % 4, pairs - 1) * 16;
            }
            slice.low = args.x_bytes / 2;
            slice.sum_step = pairs * 16;
        }
        if (!share.idle()) writer.template write_sums<NT>(slice);
        const int stage_blocks = op.stage_blocks;

#pragma unroll 1
        for (int panel = share.panel_begin; panel < share.panel_end; ++panel) {
            const int local = panel - share.panel_begin, buffer = args.part_buffers > 1 ? local & 1 : 0;
            // Who finishes pair `pair` of row `t`: spread over the warps in turn.
            const int turn = (static_cast<int>(threadIdx.x) + local * 32) & (kWarps * 32 - 1);
            const int pair = turn % 16, t = turn / 16, packed = panel * kPanelRows + 2 * pair;
            float2 operand{};
            if (op.split == 1 && t < T) operand = finish_operand(op.finish, packed, t);

            float sums[2][NT][4] = {};
#pragma unroll 1
            for (int block = share.begin; block < share.end; block += stage_blocks) {
                const std::uint32_t stage = ring.wait();
                const int count = min(stage_blocks, share.end - block);
#pragma unroll 1
                for (int i = 0; i < count; ++i) {
                    Multiply<E, NT>::run(stage + i * format.bytes, slice, (block - share.begin + i) * groups, sums,
                                         lane);
                }
                ring.release();
            }

            float* mine = parts + (buffer * kWarps + warp) * kPanelRows * T;
#pragma unroll
            for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
                for (int i = 0; i < 2; ++i) {
                    const int column = nt * 8 + lane % 4 * 2 + i;
                    if (column >= T) continue;
                    const float back = share.begin < share.end ? stats[warp * 32 + column] : 0.0f;
#pragma unroll
                    for (int tile = 0; tile < 2; ++tile) {
                        mine[(tile * 16 + lane / 4) * T + column] = sums[tile][nt][i] * back;
                        mine[(tile * 16 + 8 + lane / 4) * T + column] = sums[tile][nt][2 + i] * back;
                    }
                }
            }
            __syncthreads();
            if (t < T) {
                float2 sum{};
                float squares = 0.0f;
#pragma unroll 4
                for (int w = 0; w < kWarps; ++w) {
                    const float* from = parts + ((buffer * kWarps + w) * kPanelRows + 2 * pair) * T + t;
                    sum.x += from[0];
                    sum.y += from[T];
                    if (op.norm != nullptr) squares += stats[w * 32 + 16 + t];
                }
                if (op.split > 1) {
                    const Partials partials(args, op);
                    __stcg(partials.at(panel, share.part, pair * T + t), sum);
                    if (pair == 0) __stcg(partials.squares_at(panel, share.part, t), squares);
                } else {
                    const float factor = op.norm != nullptr ? norm_factor(op, squares) : 1.0f;
                    finish_pair(op.finish, packed, t, sum.x * factor, sum.y * factor, operand);
                }
            }
            if (args.part_buffers == 1) __syncthreads();
        }
        if (op.split > 1 && !share.idle()) finish_split(args, op, share, last);
        if (o + 1 < args.count) grid_arrive(args.counters);
    }
    // The last block to leave puts the barrier back for the next launch.
    if (barriers > 0 && threadIdx.x == 0) {
        if (atomicAdd(args.counters + 1, 1u) == gridDim.x - 1) {
            args.counters[0] = 0;
            args.counters[1] = 0;
        }
    }
}

}  // namespace foresay::kernels::cuda
