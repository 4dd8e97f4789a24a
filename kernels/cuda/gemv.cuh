// kernels/cuda/gemv.cuh: the decode kernel: a stack of matrices times 1 to 16 rows, at the speed of memory.
//
// Shape:    a cluster of `split` blocks owns a run of panels; each of its 8 * split warps owns one slice of the inputs,
//           the same for all panels. So a warp's inputs stay where they are, and its weights are a stream that it feeds
//           itself through a ring in shared memory, without a word to the other warps. After each panel the sums of the
//           slices are added in the order of the slices and finished.
// Overlap:  the ring is filled before the kernel waits for its predecessors; so memory is busy while they end.
// Law 1:    slices follow from the shape alone; every step treats a column (row of the batch) by itself.
#pragma once

#include <algorithm>

#include "kernels/cuda/finish.cuh"
#include "kernels/cuda/multiply.cuh"

namespace foresay::kernels::cuda {

// First block of slice `index` of `count`.
__device__ inline int slice_begin(int blocks, int index, int count) {
    return static_cast<int>(static_cast<std::int64_t>(blocks) * index / count);
}

// Turns one warp's slice of the inputs into float16 and keeps the sums and the squares that go with it.
template <Encoding E>
class SliceWriter {
public:
    using Form = InputForm<E>;
    static constexpr int kVectors = 4;  // float4 of the norm a lane holds from before the wait

    __device__ SliceWriter(const GemvArgs& args, char* shared, int warp, int lane, int begin, int end)
        : args_(args), lane_(lane) {
        constexpr int inputs = block_format(E).inputs;
        first_ = begin * inputs;
        count_ = max(0, min(end * inputs, args.inputs) - first_);
        padded_ = (end - begin) * inputs;
        x_ = shared + args.x_at + warp * args.x_bytes;
        sums_ = shared + args.sums_at + warp * args.sums_bytes;
        stats_ = reinterpret_cast<float*>(shared + args.stats_at) + warp * 32;  // [scale back x 16][squares x 16]
    }

    // What does not depend on the predecessors.
    __device__ void load_norm() {
        if (padded_ > kVectors * 128 || args_.norm == nullptr) return;
#pragma unroll
        for (int v = 0; v < kVectors; ++v) norm_[v] = v * 128 < padded_ ? load(args_.norm, v) : float4{};
    }

    __device__ void write() {
        if (padded_ <= 128) {
            rows<1, 4>();
        } else if (padded_ <= 256) {
            rows<2, 4>();
        } else if (padded_ <= 512) {
            rows<4, 2>();
        } else {
#pragma unroll 1
            for (int t = 0; t < args_.rows; ++t) long_row(t);
        }
        __syncwarp();
    }

    // The sums of the inputs as they were rounded, which take the middle off the codes: a product with a matrix of ones.
    template <int NT>
    __device__ void write_sums(const Slice& slice) const {
        if constexpr (Form::floats) return;
        constexpr std::uint32_t low = (Form::middle << 16 | Form::middle) | 0x80008000u;
        constexpr std::uint32_t high = Form::quarters_lowered ? (Form::middle << 20 | Form::middle << 4) | 0x80008000u : low;
        const int pairs = (args_.rows + 1) / 2, lane = lane_;
        const auto store = [&](const float(&d)[4], int nt, int index) {
            if (lane < 4 && nt * 4 + lane < pairs) {
                *reinterpret_cast<float4*>(sums_ + (index * pairs + nt * 4 + lane) * 16) = {d[0], d[1], d[0], d[1]};
            }
        };
#pragma unroll 2
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
    __device__ const float* source(int t) const {
        const int row = args_.row != nullptr ? __ldcg(args_.row + t) : t;
        return args_.x + static_cast<std::int64_t>(row) * args_.inputs;
    }
    static __device__ float peak(float4 v) {
        return fmaxf(fmaxf(fabsf(v.x), fabsf(v.y)), fmaxf(fabsf(v.z), fabsf(v.w)));
    }
    static __device__ float squares(float4 v) { return fmaf(v.x, v.x, v.y * v.y) + fmaf(v.z, v.z, v.w * v.w); }
    static __device__ float4 times(float4 a, float4 b) { return {a.x * b.x, a.y * b.y, a.z * b.z, a.w * b.w}; }

    // Lane totals of B rows to the warp's scales; keeps what undoes them.
    template <int B>
    __device__ void finish_stats(int t, float (&most)[B], float (&square)[B], float (&scale)[B]) {
#pragma unroll
        for (int offset = 16; offset > 0; offset /= 2) {
#pragma unroll
            for (int b = 0; b < B; ++b) {
                most[b] = fmaxf(most[b], __shfl_xor_sync(~0u, most[b], offset));
                square[b] += __shfl_xor_sync(~0u, square[b], offset);
            }
        }
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const int exponent = max(static_cast<int>(__float_as_uint(most[b]) >> 23), 20);
            if (lane_ == 0 && t + b < args_.rows) {
                stats_[t + b] = __uint_as_float(static_cast<std::uint32_t>(exponent - 13) << 23) *
                                (Form::floats ? 1.0f : kCodeScale);
                stats_[16 + t + b] = square[b];
            }
            scale[b] = __uint_as_float(static_cast<std::uint32_t>(267 - exponent) << 23);
        }
    }

    // Rows B at a time, V vectors of each in registers.
    template <int V, int B>
    __device__ void rows() {
#pragma unroll 1
        for (int t = 0; t < args_.rows; t += B) {
            float4 x[B][V];
#pragma unroll
            for (int b = 0; b < B; ++b) {
                const float* from = source(min(t + b, args_.rows - 1));
#pragma unroll
                for (int v = 0; v < V; ++v) x[b][v] = load(from, v);
            }
            float most[B] = {}, square[B] = {}, scale[B];
#pragma unroll
            for (int b = 0; b < B; ++b) {
#pragma unroll
                for (int v = 0; v < V; ++v) {
                    square[b] += squares(x[b][v]);
                    if (args_.norm != nullptr) x[b][v] = times(x[b][v], norm_[v]);
                    most[b] = fmaxf(most[b], peak(x[b][v]));
                }
            }
            finish_stats<B>(t, most, square, scale);
#pragma unroll
            for (int b = 0; b < B; ++b) {
                if (t + b >= args_.rows) break;
#pragma unroll
                for (int v = 0; v < V; ++v) store(t + b, v, x[b][v], scale[b]);
            }
        }
    }

    // Slices that registers cannot hold are read twice.
    __device__ void long_row(int t) {
        const float* from = source(t);
        float most[1] = {}, square[1] = {}, scale[1];
#pragma unroll 1
        for (int v = 0; v * 128 < padded_; v += 4) {
            float4 x[4];
#pragma unroll
            for (int i = 0; i < 4; ++i) x[i] = load(from, v + i);
#pragma unroll
            for (int i = 0; i < 4; ++i) {
                square[0] += squares(x[i]);
                if (args_.norm != nullptr) x[i] = times(x[i], load(args_.norm, v + i));
                most[0] = fmaxf(most[0], peak(x[i]));
            }
        }
        finish_stats<1>(t, most, square, scale);
#pragma unroll 1
        for (int v = 0; v * 128 < padded_; ++v) {
            float4 x = load(from, v);
            if (args_.norm != nullptr) x = times(x, load(args_.norm, v));
            store(t, v, x, scale[0]);
        }
    }

    __device__ void store(int t, int v, float4 x, float scale) {
        if (v * 128 + lane_ * 4 >= padded_) return;
        x = {x.x * scale, x.y * scale, x.z * scale, x.w * scale};
        // Eight lanes have 32 inputs: lane % 8 = 4 s + q.
        char* to = x_ + t * args_.x_stride + (v * 4 + lane_ / 8) * 64 + lane_ % 4 * 16 + lane_ / 4 % 2 * 8;
        if constexpr (Form::bf16) {
            const __nv_bfloat162 a = __floats2bfloat162_rn(x.x, x.y), b = __floats2bfloat162_rn(x.z, x.w);
            const float2 fa = __bfloat1622float2(a), fb = __bfloat1622float2(b);
            put(to, a, b);
            put(to + args_.x_bytes / 2, __floats2bfloat162_rn(x.x - fa.x, x.y - fa.y),
                __floats2bfloat162_rn(x.z - fb.x, x.w - fb.y));
        } else {
            const __half2 a = __floats2half2_rn(x.x, x.y);
            __half2 b = __floats2half2_rn(x.z, x.w);
            if constexpr (Form::floats) {
                const float2 fa = __half22float2(a), fb = __half22float2(b);
                put(to + args_.x_bytes / 2, __floats2half2_rn(x.x - fa.x, x.y - fa.y),
                    __floats2half2_rn(x.z - fb.x, x.w - fb.y));
            }
            if constexpr (Form::quarters_lowered) b = __hmul2(b, __float2half2_rn(0.0625f));
            put(to, a, b);
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
    int lane_, first_, count_, padded_;
    char *x_, *sums_;
    float* stats_;
    float4 norm_[kVectors];
};

// A warp's stream of weights.
template <Encoding E>
class Ring {
public:
    __device__ Ring(const GemvArgs& args, char* shared, int warp, int lane, int panel_begin, int panel_end, int begin,
                    int end)
        : args_(args),
          lane_(lane),
          begin_(begin),
          count_(end - begin),
          next_panel_(panel_begin),
          last_panel_(panel_end) {
        const std::uint32_t base = shared_address(shared);
        stage_bytes_ = args.stage_blocks * block_format(E).bytes;
        ring_ = base + kBarrierBytes + warp * args.stages * stage_bytes_;
        barriers_ = base + warp * args.stages * 8;
        policy_ = streaming_policy();
        if (count_ == 0) next_panel_ = last_panel_;
        if (lane == 0) {
            for (int i = 0; i < args.stages; ++i) copy_barrier_init(barriers_ + 8 * i);
        }
        copy_barriers_ready();
    }
    // Barriers of all warps lie before all rings.
    static constexpr int kBarrierBytes = 1024;

    __device__ void fill() {
        for (int i = 0; i < args_.stages; ++i) issue(i);
    }
    // The next stage: its address; its number of blocks is stage_blocks or what is left of the slice.
    __device__ std::uint32_t wait() {
        copy_wait(barriers_ + 8 * slot_, parity_);
        return ring_ + slot_ * stage_bytes_;
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
    __device__ void issue(int slot) {
        if (next_panel_ >= last_panel_) return;
        const int blocks = min(args_.stage_blocks, count_ - next_block_);
        constexpr int bytes = block_format(E).bytes;
        const std::uint8_t* from =
            args_.panels + (static_cast<std::int64_t>(next_panel_) * args_.blocks + begin_ + next_block_) *
                               static_cast<std::int64_t>(bytes);
        bulk_copy(ring_ + slot * stage_bytes_, from, static_cast<std::uint32_t>(blocks * bytes), barriers_ + 8 * slot,
                  policy_, lane_);
        next_block_ += args_.stage_blocks;
        if (next_block_ >= count_) {
            next_block_ = 0;
            ++next_panel_;
        }
    }

    const GemvArgs& args_;
    int lane_, begin_, count_;
    int next_panel_, last_panel_, next_block_ = 0;
    int slot_ = 0, stage_bytes_;
    std::uint32_t parity_ = 0, ring_, barriers_;
    std::uint64_t policy_;
};

// 1 / root mean square of a row from the squares of its slices.
__device__ inline float norm_factor(const GemvArgs& args, float squares) {
    return 1.0f / sqrtf(squares / static_cast<float>(args.inputs) + args.eps);
}

// Two of these and an attention kernel fit into a multiprocessor together.
inline constexpr int kGemvRegisters = 96;

template <Encoding E, int NT, bool Clustered>
__global__ void __maxnreg__(kGemvRegisters) gemv(const __grid_constant__ GemvArgs args) {
    extern __shared__ __align__(128) char shared[];
    constexpr BlockFormat format = block_format(E);
    constexpr int groups = format.inputs / 32;
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const int split = Clustered ? args.split : 1;
    const int rank = Clustered ? cluster_rank() : 0;
    const int cluster = blockIdx.x / split, clusters = gridDim.x / split;
    const int panel_begin = slice_begin(args.panel_count, cluster, clusters);
    const int panel_end = slice_begin(args.panel_count, cluster + 1, clusters);
    const int slices = kGemvWarps * split, index = rank * kGemvWarps + warp;
    const int begin = slice_begin(args.blocks, index, slices), end = slice_begin(args.blocks, index + 1, slices);

    allow_successor();
    Ring<E> ring(args, shared, warp, lane, panel_begin, panel_end, begin, end);
    ring.fill();
    SliceWriter<E> writer(args, shared, warp, lane, begin, end);
    writer.load_norm();
    await_predecessors();
    writer.write();

    const int T = args.rows;
    float* stats = reinterpret_cast<float*>(shared + args.stats_at);
    float* block_squares = stats + kGemvWarps * 32;
    float* parts = reinterpret_cast<float*>(shared + args.parts_at);
    Slice slice;
    {
        const std::uint32_t x = shared_address(shared + args.x_at + warp * args.x_bytes);
        const std::uint32_t sums = shared_address(shared + args.sums_at + warp * args.sums_bytes);
        const int pairs = (T + 1) / 2;
#pragma unroll
        for (int nt = 0; nt < 2; ++nt) {
            slice.x[nt] = x + min(nt * 8 + lane / 4, T - 1) * args.x_stride + lane % 4 * 16;
            slice.sums[nt] = sums + min(nt * 4 + lane % 4, pairs - 1) * 16;
        }
        slice.low = args.x_bytes / 2;
        slice.sum_step = pairs * 16;
    }
    writer.template write_sums<NT>(slice);

    int pending = 0;   // panels in the exchange buffer
    int exchange = 0;  // which of the two buffers
#pragma unroll 1
    for (int panel = panel_begin; panel < panel_end; ++panel) {
        const int local = panel - panel_begin, buffer = local & 1;
        // Who finishes pair `pair` of row `t`: spread over the warps in turn.
        const int turn = (static_cast<int>(threadIdx.x) + local * 32) & (kGemvWarps * 32 - 1);
        const int pair = turn % 16, t = turn / 16;
        float2 operand{};
        if (!Clustered && t < T) operand = finish_operand(args.finish, panel * kPanelRows + 2 * pair, t);

        float sums[2][NT][4] = {};
        for (int block = begin; block < end; block += args.stage_blocks) {
            const std::uint32_t stage = ring.wait();
            const int count = min(args.stage_blocks, end - block);
#pragma unroll 1
            for (int i = 0; i < count; ++i) {
                Multiply<E, NT>::run(stage + i * format.bytes, slice, (block - begin + i) * groups, sums, lane);
            }
            ring.release();
        }

        float* mine = parts + (buffer * kGemvWarps + warp) * kPanelRows * T;
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
            for (int i = 0; i < 2; ++i) {
                const int column = nt * 8 + lane % 4 * 2 + i;
                if (column >= T) continue;
                const float back = stats[warp * 32 + column];
#pragma unroll
                for (int tile = 0; tile < 2; ++tile) {
                    mine[(tile * 16 + lane / 4) * T + column] = sums[tile][nt][i] * back;
                    mine[(tile * 16 + 8 + lane / 4) * T + column] = sums[tile][nt][2 + i] * back;
                }
            }
        }
        __syncthreads();
        if (Clustered && local == 0 && static_cast<int>(threadIdx.x) < T) {
            float squares = 0.0f;
            for (int w = 0; w < kGemvWarps; ++w) squares += stats[w * 32 + 16 + threadIdx.x];
            block_squares[threadIdx.x] = squares;
        }
        if (t < T) {
            float2 sum{};
            for (int w = 0; w < kGemvWarps; ++w) {
                const float* from = parts + ((buffer * kGemvWarps + w) * kPanelRows + 2 * pair) * T + t;
                sum.x += from[0];
                sum.y += from[T];
            }
            if constexpr (Clustered) {
                reinterpret_cast<float2*>(
                    shared + args.exchange_at)[((exchange * args.flush_panels + pending) * 16 + pair) * T + t] = sum;
            } else {
                if (args.norm != nullptr) {
                    float squares = 0.0f;
                    for (int w = 0; w < kGemvWarps; ++w) squares += stats[w * 32 + 16 + t];
                    const float factor = norm_factor(args, squares);
                    sum.x *= factor;
                    sum.y *= factor;
                }
                finish_pair(args.finish, panel * kPanelRows + 2 * pair, t, sum.x, sum.y, operand);
            }
        }
        if constexpr (Clustered) {
            if (++pending < args.flush_panels && panel + 1 < panel_end) continue;
            // Each block of the cluster finishes its share of the pairs of these panels.
            const int items = pending * 16 * T, first_panel = panel + 1 - pending;
            const int first = rank * kGemvWarps * 32 + static_cast<int>(threadIdx.x), step = kGemvWarps * 32 * split;
            const auto packed_of = [&](int item) {
                return first_panel * kPanelRows + item / T / 16 * 32 + item / T % 16 * 2;
            };
            if (first < items) operand = finish_operand(args.finish, packed_of(first), first % T);
            cluster_barrier();
            const std::uint32_t at =
                shared_address(shared + args.exchange_at) + exchange * args.flush_panels * 16 * T * 8;
            for (int item = first; item < items; item += step) {
                if (item != first) operand = finish_operand(args.finish, packed_of(item), item % T);
                float2 sum{};
#pragma unroll 4
                for (int r = 0; r < split; ++r) {
                    const float2 part = cluster_load(at + item * 8, r);
                    sum.x += part.x;
                    sum.y += part.y;
                }
                if (args.norm != nullptr) {
                    float squares = 0.0f;
                    for (int r = 0; r < split; ++r)
                        squares += cluster_load1(shared_address(block_squares + item % T), r);
                    const float factor = norm_factor(args, squares);
                    sum.x *= factor;
                    sum.y *= factor;
                }
                finish_pair(args.finish, packed_of(item), item % T, sum.x, sum.y, operand);
            }
            pending = 0;
            exchange ^= 1;
        }
    }
    // Nobody leaves while another block still reads its sums.
    if constexpr (Clustered) cluster_barrier();
}

}  // namespace foresay::kernels::cuda
