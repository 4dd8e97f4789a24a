#include "kernels/cuda/attend.h"

#include <type_traits>

#include "kernels/cuda/async.cuh"
#include "kernels/cuda/launch.cuh"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;
using std::int64_t;

constexpr int kStrip = 32;  // positions that a warp takes at a time
constexpr int kWarps = 4;   // of a block
constexpr int kThreads = 32 * kWarps;
constexpr float kLog2e = 1.44269504f;

__device__ float minus_infinity() { return __int_as_float(0xff800000); }

// c += a . b, a 16 x 16 times 16 x 8 product of halves with float sums.
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ uint32_t pack(float low, float high) {
    const __half2 pair = __floats2half2_rn(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ uint32_t pack(__half low, __half high) {
    const __half2 pair = __halves2half2(low, high);
    return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ float power_of_two(float x) {
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

// Which (row, head) the 16 rows of a tile's operand are, and what they attend to.
struct Tile {
    TileState state;
    int32_t head_first;  // query head of the tile's row 0
    int32_t heads;       // query heads in it
    int32_t per_tile;    // operand rows of one batch row
    int32_t kv_head;

    __device__ Tile(const AttendCall& c, int32_t index, int32_t head_tile) : state(c.batch.tiles[index]) {
        const int32_t group = c.heads / c.kv_heads;
        per_tile = heads_per_tile(group);
        const int32_t tiles_per_head = (group + per_tile - 1) / per_tile;
        kv_head = head_tile / tiles_per_head;
        const int32_t first = head_tile % tiles_per_head * per_tile;
        head_first = kv_head * group + first;
        heads = min(per_tile, group - first);
    }
    // Least position that any row attends to; rows come in increasing position.
    __device__ int32_t least(const AttendCall& c) const {
        return c.window > 0 ? max(0, state.lowest - c.window + 1) : 0;
    }
    __device__ bool valid(int32_t r) const { return r / per_tile < state.rows && r % per_tile < heads; }
    __device__ int32_t used() const { return state.rows * per_tile; }  // operand rows from here on are empty
    __device__ int32_t row(int32_t r) const { return state.first + r / per_tile; }
    __device__ int32_t head(int32_t r) const { return head_first + r % per_tile; }
};

// The state of an online softmax of a warp: of its operand rows lane / 4 and lane / 4 + 8.
template <int kWidth>
struct Softmax {
    float peak[2];             // of the scores so far, times log2(e)
    float sum[2];              // this lane's share
    float out[kWidth / 8][4];  // columns 8 i + 2 (lane % 4) + {0, 1}, of both rows
};

// Decode rows read each key once: past L1, which may hold older lines (kernels/cuda/launch.cuh). Warps of input rows find
// in L1 what their neighbours have read.
template <bool kInput>
__device__ uint4 load16(const __half* from) {
    const auto* p = reinterpret_cast<const uint4*>(from);
    return kInput ? *p : __ldcg(p);
}

// Strips first, first + step, ... below `last` (strip numbers) of a tile, in order.
// Where a tile's keys and values are.
template <int kWidth>
struct Cells {
    const __half* base;
    const int32_t* pages;
    int64_t page_stride, v_offset;

    __device__ Cells(const AttendCall& c, const Tile& tile)
        : base(c.kv + tile.kv_head * c.layout.head_stride),
          pages(c.batch.lists + tile.state.pages),
          page_stride(c.layout.page_stride),
          v_offset(c.layout.v_offset()) {}
    // Value 0 of K at position `start`, which begins a strip; keys follow one another.
    __device__ const __half* keys(int32_t start) const {
        return base + pages[start / kPagePositions] * page_stride + (start % kPagePositions) * kWidth;
    }
    // Value 0 of V there; a value's positions follow one another.
    __device__ const __half* values(int32_t start) const {
        return base + pages[start / kPagePositions] * page_stride + v_offset + start % kPagePositions;
    }
};

// K of a strip, as operands. Column `quad` of the n-th product is position 8 (quad / 2) + 2 n + quad % 2, so that a lane
// ends up with the scores of eight neighbours.
template <int kWidth>
struct Keys {
    uint4 k[4][kWidth / 32];

    __device__ static int32_t position(int n) {
        const int quad = threadIdx.x % 32 / 4;
        return 8 * (quad / 2) + 2 * n + quad % 2;
    }
    template <bool kInput>
    __device__ void load(const __half* keys) {
        const int place = threadIdx.x % 4;
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int g = 0; g < kWidth / 32; ++g) {
                k[n][g] = load16<kInput>(keys + position(n) * kWidth + 32 * g + 8 * place);
            }
        }
    }
};

// kSpecial: the rows may be those of a tree, or their scores capped. The usual case is compiled apart, because code that
// runs once costs as much time to fetch as to run. `keys` holds those of the first strip if `loaded`.
template <int kWidth, bool kInput, bool kSpecial>
__device__ void attend_strips(const AttendCall& c, const Tile& tile, const Cells<kWidth>& cells, int32_t first,
                              int32_t last, int32_t step, Keys<kWidth>& keys, bool loaded, Softmax<kWidth>& state) {
    constexpr int kGroups = kWidth / 32;  // of 32 values of a head
    const int lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
    const int32_t head_dim = c.head_dim;

    // Values of the operands are taken in an order of our own, the same for queries and keys: lane `place` of a quad
    // holds values 32 g + 8 place ... + 7, which are 16 contiguous bytes of K.
    uint32_t q[2 * kGroups][4];
    int32_t from[2], to[2];  // positions that the two rows attend to: from <= p <= to
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        const bool valid = tile.valid(r);
        const int32_t t = valid ? tile.row(r) : tile.state.first;
        to[i] = valid ? c.batch.rows[t].position : -1;
        from[i] = c.window > 0 ? max(0, to[i] - c.window + 1) : 0;
        const float* values = c.q + static_cast<int64_t>(t) * c.heads * head_dim +
                              static_cast<int64_t>(valid ? tile.head(r) : tile.head_first) * head_dim;
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
            float v[8];
#pragma unroll
            for (int j = 0; j < 8; j += 4) {  // heads are whole fours
                const int32_t d = 32 * g + 8 * place + j;
                const float4 four = valid && d < head_dim ? __ldcg(reinterpret_cast<const float4*>(values + d))
                                                          : make_float4(0.0f, 0.0f, 0.0f, 0.0f);
                v[j] = four.x;
                v[j + 1] = four.y;
                v[j + 2] = four.z;
                v[j + 3] = four.w;
            }
            q[2 * g][i] = pack(v[0], v[1]);
            q[2 * g][2 + i] = pack(v[2], v[3]);
            q[2 * g + 1][i] = pack(v[4], v[5]);
            q[2 * g + 1][2 + i] = pack(v[6], v[7]);
        }
    }
    const int32_t in_place =  // positions from here on lie in the cells of a tree
        tile.state.branch > 0 ? tile.state.highest - tile.state.branch + 1 : 0x7fffffff;
    RowState lead = {};
    if (kSpecial) lead = c.batch.rows[tile.state.first];

#pragma unroll 1
    for (int32_t strip = first; strip < last; strip += step) {
        const int32_t start = strip * kStrip;
        const bool gather = kSpecial && start + kStrip > in_place;
        if (kSpecial && gather) {
#pragma unroll
            for (int n = 0; n < 4; ++n) {
                const int32_t p = min(start + Keys<kWidth>::position(n), lead.position);
                const int32_t cell = c.batch.cell(lead, p);
                const __half* key =
                    cells.base + c.layout.k_cell(cells.pages[cell / kPagePositions], cell % kPagePositions);
#pragma unroll
                for (int g = 0; g < kGroups; ++g) keys.k[n][g] = load16<kInput>(key + 32 * g + 8 * place);
            }
        } else if (!loaded) {
            keys.template load<kInput>(cells.keys(start));
        }
        float scores[4][4];
#pragma unroll
        for (int n = 0; n < 4; ++n) {
            for (float& score : scores[n]) score = 0.0f;
#pragma unroll
            for (int g = 0; g < kGroups; ++g) {
                multiply_add(scores[n], q[2 * g], keys.k[n][g].x, keys.k[n][g].y);
                multiply_add(scores[n], q[2 * g + 1], keys.k[n][g].z, keys.k[n][g].w);
            }
        }
        // While weights are made of the scores, V and the next keys are on their way.
        uint4 v[kWidth / 8];
        if (!gather) {
            const __half* values = cells.values(start);
#pragma unroll
            for (int d = 0; d < kWidth / 8; ++d) {
                v[d] = load16<kInput>(values + (8 * d + quad) * kPagePositions + 8 * place);
            }
        }
        loaded = !kSpecial && !kInput && strip + step < last;
        if (loaded) keys.template load<kInput>(cells.keys(start + step * kStrip));
        float top[2] = {minus_infinity(), minus_infinity()};
#pragma unroll
        for (int n = 0; n < 4; ++n) {
#pragma unroll
            for (int j = 0; j < 4; ++j) {
                const int i = j / 2;
                const int32_t p = start + 8 * place + 2 * n + j % 2;
                float score = scores[n][j] * c.scale;
                if (kSpecial && c.soft_cap > 0) score = c.soft_cap * tanhf(score / c.soft_cap);
                score = p >= from[i] && p <= to[i] ? score * kLog2e : minus_infinity();
                scores[n][j] = score;
                top[i] = fmaxf(top[i], score);
            }
        }
        float old_weight[2];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 1));
            top[i] = fmaxf(top[i], __shfl_xor_sync(0xffffffffu, top[i], 2));
            top[i] = fmaxf(top[i], state.peak[i]);
            const float zero = top[i] == minus_infinity() ? 0.0f : top[i];  // nothing attended yet
            old_weight[i] = power_of_two(state.peak[i] - zero);
            state.peak[i] = top[i];
            float sum = 0.0f;
#pragma unroll
            for (int n = 0; n < 4; ++n) {
#pragma unroll
                for (int j = 2 * i; j < 2 * i + 2; ++j) {
                    scores[n][j] = power_of_two(scores[n][j] - zero);
                    sum += scores[n][j];
                }
            }
            state.sum[i] = fmaf(state.sum[i], old_weight[i], sum);
        }
        uint32_t weights[2][4];
#pragma unroll
        for (int m = 0; m < 2; ++m) {
            weights[m][0] = pack(scores[2 * m][0], scores[2 * m][1]);
            weights[m][1] = pack(scores[2 * m][2], scores[2 * m][3]);
            weights[m][2] = pack(scores[2 * m + 1][0], scores[2 * m + 1][1]);
            weights[m][3] = pack(scores[2 * m + 1][2], scores[2 * m + 1][3]);
        }
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) {
            if (kSpecial && gather) {
                __half values[8];
#pragma unroll
                for (int j = 0; j < 8; ++j) {
                    const int32_t cell = c.batch.cell(lead, min(start + 8 * place + j, lead.position));
                    values[j] = cells.base[c.layout.v_cell(cells.pages[cell / kPagePositions], cell % kPagePositions) +
                                           (8 * d + quad) * kPagePositions];
                }
                v[d].x = pack(values[0], values[1]);
                v[d].y = pack(values[2], values[3]);
                v[d].z = pack(values[4], values[5]);
                v[d].w = pack(values[6], values[7]);
            }
            float(&out)[4] = state.out[d];
            out[0] *= old_weight[0];
            out[1] *= old_weight[0];
            out[2] *= old_weight[1];
            out[3] *= old_weight[1];
            multiply_add(out, weights[0], v[d].x, v[d].y);
            multiply_add(out, weights[1], v[d].z, v[d].w);
        }
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        state.sum[i] += __shfl_xor_sync(0xffffffffu, state.sum[i], 1);
        state.sum[i] += __shfl_xor_sync(0xffffffffu, state.sum[i], 2);
    }
}

template <int kWidth>
__device__ Softmax<kWidth> nothing_attended() {
    Softmax<kWidth> state;
    for (int i = 0; i < 2; ++i) {
        state.peak[i] = minus_infinity();
        state.sum[i] = 0.0f;
    }
#pragma unroll
    for (int d = 0; d < kWidth / 8; ++d) {
        for (float& value : state.out[d]) value = 0.0f;
    }
    return state;
}

// What warps of a chunk, and chunks of a unit, leave for the merge: per operand row a peak and a sum, then the output.
template <int kWidth>
struct Partial {
    float peak[kTileRows];
    float sum[kTileRows];
    float out[kTileRows][kWidth];
};

// The rows of a unit from the partial results of its chunks: all of them in order, each thread four values of a row.
template <int kWidth>
__device__ void merge_chunks(const AttendCall& c, const Tile& tile, const Partial<kWidth>* chunks, int32_t first,
                             int32_t last) {
#pragma unroll 1
    for (int i = threadIdx.x; i < tile.used() * (kWidth / 4); i += kThreads) {
        const int r = i / (kWidth / 4), d = 4 * (i % (kWidth / 4));
        if (!tile.valid(r) || d >= c.head_dim) continue;
        float peak = minus_infinity();
#pragma unroll 8
        for (int32_t k = first; k <= last; ++k) peak = fmaxf(peak, __ldcg(&chunks[k].peak[r]));
        float sum = 0.0f;
        float4 out = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
#pragma unroll 8
        for (int32_t k = first; k <= last; ++k) {
            const float weight = power_of_two(__ldcg(&chunks[k].peak[r]) - peak);
            const float4 part = __ldcg(reinterpret_cast<const float4*>(&chunks[k].out[r][d]));
            sum = fmaf(__ldcg(&chunks[k].sum[r]), weight, sum);
            out.x = fmaf(part.x, weight, out.x);
            out.y = fmaf(part.y, weight, out.y);
            out.z = fmaf(part.z, weight, out.z);
            out.w = fmaf(part.w, weight, out.w);
        }
        float* to = c.out + (static_cast<int64_t>(tile.row(r)) * c.heads + tile.head(r)) * c.head_dim + d;
        *reinterpret_cast<float4*>(to) = make_float4(out.x / sum, out.y / sum, out.z / sum, out.w / sum);
    }
}

template <int kWidth, bool kSpecial>
__global__ void __launch_bounds__(kThreads) decode_kernel(AttendCall c) {
    extern __shared__ float4 shared[];
    auto* warps = reinterpret_cast<Partial<kWidth>*>(shared);
    __shared__ bool last_block;
    allow_successor();
    const Tile tile(c, blockIdx.x, blockIdx.y);  // the batch does not change within a forward
    const int32_t least = tile.least(c), most = tile.state.highest;
    const int32_t chunk = blockIdx.z, first_chunk = chunk_of(least), last_chunk = chunk_of(most);
    if (chunk < first_chunk || chunk > last_chunk) {
        await_predecessors();
        return;
    }

    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
    {
        Softmax<kWidth> state = nothing_attended<kWidth>();
        const int32_t first = chunk_begin(chunk) / kStrip + warp;
        const int32_t last = (min(chunk_begin(chunk + 1), most + 1) + kStrip - 1) / kStrip;
        const Cells<kWidth> cells(c, tile);
        Keys<kWidth> keys;
        // Keys of earlier forwards need not wait for this one's.
        const bool early = !kSpecial && first < last && (first + 1) * kStrip <= tile.state.committed;
        if (early) keys.template load<false>(cells.keys(first * kStrip));
        await_predecessors();
        attend_strips<kWidth, false, kSpecial>(c, tile, cells, first, last, kWarps, keys, early, state);
        Partial<kWidth>& mine = warps[warp];
#pragma unroll
        for (int i = 0; i < 2; ++i) {
            if (place == 0) {
                mine.peak[quad + 8 * i] = state.peak[i];
                mine.sum[quad + 8 * i] = state.sum[i];
            }
#pragma unroll
            for (int d = 0; d < kWidth / 8; ++d) {
                mine.out[quad + 8 * i][8 * d + 2 * place] = state.out[d][2 * i];
                mine.out[quad + 8 * i][8 * d + 2 * place + 1] = state.out[d][2 * i + 1];
            }
        }
    }
    __syncthreads();

    const int64_t unit = static_cast<int64_t>(blockIdx.x) * gridDim.y + blockIdx.y;
    auto* chunks = reinterpret_cast<Partial<kWidth>*>(c.partial) + unit * gridDim.z;
    const bool alone = first_chunk == last_chunk;
#pragma unroll 1
    for (int i = threadIdx.x; i < tile.used() * kWidth; i += kThreads) {
        const int r = i / kWidth, d = i % kWidth;
        if (!tile.valid(r)) continue;
        float peak = warps[0].peak[r];
        for (int w = 1; w < kWarps; ++w) peak = fmaxf(peak, warps[w].peak[r]);
        const float zero = peak == minus_infinity() ? 0.0f : peak;
        float sum = 0.0f, out = 0.0f;
        for (int w = 0; w < kWarps; ++w) {
            const float weight = power_of_two(warps[w].peak[r] - zero);
            sum = fmaf(warps[w].sum[r], weight, sum);
            out = fmaf(warps[w].out[r][d], weight, out);
        }
        if (alone) {
            if (d < c.head_dim) {
                c.out[(static_cast<int64_t>(tile.row(r)) * c.heads + tile.head(r)) * c.head_dim + d] = out / sum;
            }
            continue;
        }
        chunks[chunk].out[r][d] = out;
        if (d == 0) {
            chunks[chunk].peak[r] = peak;
            chunks[chunk].sum[r] = sum;
        }
    }
    if (alone) return;

    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
        const int32_t before = atomicAdd(&c.arrived[unit], 1);
        last_block = before == last_chunk - first_chunk;
        if (last_block) c.arrived[unit] = 0;
    }
    __syncthreads();
    if (!last_block) return;
    __threadfence();
    merge_chunks<kWidth>(c, tile, chunks, first_chunk, last_chunk);
}

template <int kWidth, bool kSpecial>
__global__ void __launch_bounds__(kThreads) input_kernel(AttendCall c) {
    // Later tiles are longer: they begin first.
    const int32_t index = c.tiles - 1 - static_cast<int32_t>(blockIdx.x * kWarps + threadIdx.x / 32);
    if (index < 0) return;
    const Tile tile(c, index, blockIdx.y);
    const int32_t least = tile.least(c), most = tile.state.highest;
    Softmax<kWidth> state = nothing_attended<kWidth>();
    const Cells<kWidth> cells(c, tile);
    Keys<kWidth> keys;
    attend_strips<kWidth, true, kSpecial>(c, tile, cells, least / kStrip, most / kStrip + 1, 1, keys, false, state);
    const int lane = threadIdx.x % 32, quad = lane / 4, place = lane % 4;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const int32_t r = quad + 8 * i;
        if (!tile.valid(r)) continue;
        float* out = c.out + (static_cast<int64_t>(tile.row(r)) * c.heads + tile.head(r)) * c.head_dim;
#pragma unroll
        for (int d = 0; d < kWidth / 8; ++d) {
            for (int j = 0; j < 2; ++j) {
                const int column = 8 * d + 2 * place + j;
                if (column < c.head_dim) out[column] = state.out[d][2 * i + j] / state.sum[i];
            }
        }
    }
}

int32_t head_tiles(const AttendCall& call) {
    const int32_t group = call.heads / call.kv_heads;
    return call.kv_heads * ((group + heads_per_tile(group) - 1) / heads_per_tile(group));
}

// Calls body(width, special) with constants.
template <class Body>
void with_kind(const AttendCall& call, const Body& body) {
    const auto with_width = [&](auto special) {
        if (call.layout.width == 32) {
            body(std::integral_constant<int, 32>(), special);
        } else if (call.layout.width == 64) {
            body(std::integral_constant<int, 64>(), special);
        } else if (call.layout.width == 128) {
            body(std::integral_constant<int, 128>(), special);
        } else {
            body(std::integral_constant<int, 256>(), special);
        }
    };
    if (call.tree || call.soft_cap > 0) {
        with_width(std::true_type());
    } else {
        with_width(std::false_type());
    }
}

}  // namespace

std::int64_t attend_units(const AttendCall& call) { return static_cast<int64_t>(call.tiles) * head_tiles(call); }

std::int64_t attend_partial_floats(const AttendCall& call) {
    return attend_units(call) * call.chunks * kTileRows * (2 + call.layout.width);
}

void launch_attend_decode(cudaStream_t stream, const AttendCall& call) {
    const dim3 grid(static_cast<unsigned>(call.tiles), static_cast<unsigned>(head_tiles(call)),
                    static_cast<unsigned>(call.chunks));
    with_kind(call, [&](auto width, auto special) {
        launch_overlapping("attention", decode_kernel<width, special>, grid, kThreads, kWarps * sizeof(Partial<width>),
                           stream, call);
    });
}

void launch_attend_input(cudaStream_t stream, const AttendCall& call) {
    const dim3 grid(static_cast<unsigned>((call.tiles + kWarps - 1) / kWarps), static_cast<unsigned>(head_tiles(call)));
    with_kind(call,
              [&](auto width, auto special) { input_kernel<width, special><<<grid, kThreads, 0, stream>>>(call); });
    launched("attention of input rows");
}

}  // namespace foresay::kernels::cuda
