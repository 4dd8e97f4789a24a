// kernels/cuda/decode/activations.cuh: a warp's slice of the activations of up to 16 rows, as operands B of its
// products.
//
// Slice:    of the blocks of a part of K, those whose number modulo the warps is the warp's.
// Layout:   lane 4 r + q holds row r (and 8 + r) of the batch: of each 16 inputs the four from 4 q on. Rows 0 to 7 stay
//           in registers for as long as a matrix lasts, because every product needs them and reading shared memory is
//           what products wait for. Rows 8 to 15 lie in shared memory: [plane][row][group of 32 inputs][q][step],
//           GemvPlan::upper_rows_bytes per warp.
//
// Data flow of load(), per warp, for rows 8 to 15 first and then 0 to 7:
//
//   global (float32)  each lane loads neighbouring fours of all rows, all loads in flight at once (read)
//   flagged words     polled again until all are there
//   norm weight       multiplied in; sums of squares per row --> row statistics
//   scale             the largest magnitude of the row's slice --> a power of two; float16 after scaling
//   transpose         through shared memory (the warp's sum buffers, free between steps): lane 4 r + q gets row r
//   sums              of groups of 16 or 32 inputs, by mma with ones (sum_up)
//
// Precision: float16 after scaling by a power of two per row and slice, so the largest value lies between 2^13 and
//           2^14. Matrices of floats get a second float16 of what the first leaves (planes). The sums that take the
//           offset off the codes are those of the rounded values, as two float16 numbers each, so that scales times
//           sums are an mma of the same kind.
// Waits:    within the warp only (__syncwarp), apart from flagged words. The caller waits until the sum buffers are
//           free (PanelSums::all_read).
// Law 1:    a row's numbers depend on that row alone: its own scale, its own sums.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/decode/rank_link.cuh"
#include "kernels/cuda/device/async.cuh"
#include "kernels/cuda/device/half_pairs.cuh"
#include "kernels/cuda/device/mma.cuh"
#include "kernels/cuda/device/row_scale.cuh"
#include "kernels/cuda/weights/panel_format.h"

namespace foresay::kernels::cuda {

inline constexpr float kCodeScale = 16777216.0f;  // 2^24: codes enter as subnormal float16 numbers, code x 2^-24

// What a quantisation type wants of its activations.
template <QuantType E>
struct ActivationForm {
    static constexpr bool bf16 = E == QuantType::bf16;
    static constexpr bool floats = E == QuantType::f16 || bf16;
    static constexpr int planes = floats ? 2 : 1;  // high and low part
    // Four-bit floats: their float16 are 2^-14 times the numbers, and have no offset.
    static constexpr bool float_codes = E == QuantType::mxfp4;
    // Packed rows: as q4_0, but scales undo those of the codes, and the sums of 16 inputs stay float32 (packed.cuh).
    static constexpr bool packed = E == QuantType::packed;
    static constexpr bool has_sums = !floats && !float_codes;
    // What undoes the scale of the codes.
    static constexpr float code_scale = floats || packed ? 1.0f : float_codes ? 8192.0f : kCodeScale;
    static constexpr bool minima = E == QuantType::q4_k || E == QuantType::q5_k;
    static constexpr int sum_inputs = E == QuantType::q6_k || packed ? 16 : 32;  // inputs per sum
    // Pairs c = 2, 3 are multiplied with codes four bits higher in their word, so these inputs are scaled by 1 / 16.
    static constexpr bool quarters_lowered = has_sums && E != QuantType::q8_0;
    // What a sum is multiplied by: minus the offset of the codes, scaled as the codes are. With minima: a power of two
    // that keeps the sum in range, which kMinimumScale undoes.
    static constexpr float sum_factor = packed                 ? 1.0f
                                        : minima               ? -0.03125f
                                        : E == QuantType::q4_0 ? -8.0f / kCodeScale
                                        : E == QuantType::q8_0 ? -128.0f / kCodeScale
                                                               : -32.0f / kCodeScale;
    static constexpr int blocks = kSplitInputs / gemv_warps(E) / block_format(E).inputs;  // most of a slice
    static constexpr int groups = kSplitInputs / gemv_warps(E) / 32;
    // Words of sums per block and eight rows, as operands.
    static constexpr int sum_words = !has_sums || packed ? 0 : minima ? 2 : E == QuantType::q6_k ? 4 : 1;
};
inline constexpr float kMinimumScale = 32.0f;  // minima enter as code x 2^-24, so this is all that is left to undo

// Bytes from one of rows 8 to 15 to the next. The 64 extra bytes keep lanes of two rows on different banks.
constexpr int upper_row_bytes(QuantType e) { return kSplitInputs / gemv_warps(e) * 2 + 64; }
// What a warp needs of shared memory for `rows` rows.
constexpr int upper_rows_bytes(QuantType e, int rows) {
    const bool floats = e == QuantType::f16 || e == QuantType::bf16;
    return rows <= 8 ? 0 : (rows - 8) * upper_row_bytes(e) * (floats ? 2 : 1);
}

// What a warp leaves about its slice in shared memory: 16 factors that scale the sums of a row back, then 16 sums of
// squares.
__device__ inline float* row_stats(char* shared, const GemvPlan& plan, int warp) {
    return reinterpret_cast<float*>(shared + plan.row_stats_at) + warp * 32;
}

template <QuantType E, int NT>
class ActivationOperand {
public:
    using Form = ActivationForm<E>;

    // Loads this warp's slice of blocks first .. first + count - 1 of every row of `x` (zeros beyond), waits for
    // flagged words, and leaves the row statistics. Rows pass through the memory of this warp's panel sums, which must
    // be free. `link`: as in epilogue_panels().
    template <bool kLinked = false>
    __device__ void load(const GemvOp& op, const float* x, const float* norm, int first, int count, int rows,
                         const GemvPlan& plan, char* shared, LinkTable* link = nullptr) {
        const Reader reader{op, x, norm, first, count, plan, shared};
        if constexpr (NT > 1) {
            const auto lane = static_cast<int>(thread_index() % 32);
            upper_plane_ = (rows - 8) * upper_row_bytes(E);
            upper_rows_ = reader.second() + min(lane / 4, max(rows - 9, 0)) * upper_row_bytes(E) + lane % 4 * 16;
        }
#pragma unroll
        for (int nt = NT - 1; nt >= 0; --nt) {
            const int here = min(rows - 8 * nt, 8);
            if (here == 1) {
                read<1, kLinked>(nt, reader, here, link);
            } else if (here <= 4) {
                read<4, kLinked>(nt, reader, here, link);
            } else {
                read<8, kLinked>(nt, reader, here, link);
            }
            if constexpr (Form::has_sums) sum_up(nt);
        }
        __syncwarp();
    }

    // The operand of group g (step 0: x, y; step 1: z, w) of rows 8 nt ...
    __device__ uint4 operand(int g, int nt, int plane = 0) const {
        if (nt == 0) return {x_[plane][g][0], x_[plane][g][1], x_[plane][g][2], x_[plane][g][3]};
        return load_shared4(upper_rows_ + plane * upper_plane_ + g * 64);
    }
    __device__ std::uint32_t sum(int block, int nt, int word) const {
        return sums_[nt][block * Form::sum_words + word];
    }

protected:  // for operands that are loaded otherwise (kernels/cuda/experts/products.cuh)
    static constexpr int kVectors = Form::groups / 4;  // fours of inputs that a lane loads of a row

    struct Reader {
        const GemvOp& op;
        const float* x;
        const float* norm;
        int first, count;
        const GemvPlan& plan;
        char* shared;

        // Addresses in shared memory, of this warp. The number of the thread is asked for each time, so that nothing of
        // this takes registers while activations arrive.
        __device__ std::uint32_t second() const {
            return shared_address(shared + plan.upper_rows_at +
                                  thread_index() / 32 * static_cast<std::uint32_t>(plan.upper_rows_bytes));
        }
        __device__ int room() const { return plan.warp_sum_stride * 4; }
        __device__ std::uint32_t passage() const {
            return shared_address(shared + plan.sums_at) + thread_index() / 32 * static_cast<std::uint32_t>(room());
        }
        __device__ float* stats() const { return row_stats(shared, plan, static_cast<int>(thread_index() / 32)); }

        // The input that vector v of this lane begins with; op.inputs where there is none.
        __device__ int input_of(int v) const {
            constexpr std::uint32_t inputs = block_format(E).inputs;
            const std::uint32_t thread = thread_index(), at = static_cast<std::uint32_t>(v) * 128 + thread % 32 * 4;
            const auto block = static_cast<int>(at / inputs * gemv_warps(E) + thread / 32);
            return block < count ? (first + block) * static_cast<int>(inputs) + static_cast<int>(at % inputs)
                                 : op.inputs;
        }
        __device__ float4 constant(int v) const {
            const int at = input_of(v);
            return at < op.inputs ? *reinterpret_cast<const float4*>(norm + at) : float4{};
        }
    };

    // Rows 8 nt .. 8 nt + here - 1, at most B, all in flight at once. A lane loads neighbouring inputs of all rows, and
    // has to pass them to the lanes that multiply with them.
    template <int B, bool kLinked>
    __device__ void read(int nt, const Reader& r, int here, LinkTable* link) {
        Patience<kLinked> patience(link);
        float4 x[B][kVectors];
        const float* from[kVectors];  // row 0
        std::int32_t stride[kVectors];
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
            // Where there is nothing to load, all rows are the same zeros, so that no load needs a condition.
            const int at = r.input_of(v);
            const bool exists = at < r.op.inputs;
            from[v] = exists ? r.x + at : r.plan.zeros;
            stride[v] = exists ? r.op.inputs : 0;
        }
        const auto batch_row = [&](int b) { return 8 * nt + min(b, here - 1); };
        const auto place_of = [&](int row, int v) { return from[v] + static_cast<std::int64_t>(row * stride[v]); };
        const auto look_at_all = [&](const auto& row_of) {
#pragma unroll
            for (int b = 0; b < B; ++b) {
                const std::int32_t row = row_of(b);
#pragma unroll
                for (int v = 0; v < kVectors; ++v) x[b][v] = load_flagged4(place_of(row, v));
            }
        };
        if (B > 1 && nt == NT - 1 && r.op.x_flagged) {
            // Polling all of many rows would be much traffic for nothing. So a few lanes poll first, for the last words
            // of each panel in the row that is loaded first. When those are there, most others are too; words that are
            // still missing are polled below.
            const bool looks = thread_index() % 8 == 7;
            bool missing = looks;
            while (__any_sync(~0u, missing)) {
                if constexpr (kLinked) {
                    if (__any_sync(~0u, patience.ends())) break;
                }
                float4 last[kVectors] = {};
#pragma unroll
                for (int v = 0; v < kVectors; ++v) load_flagged4_if(last[v], missing, place_of(batch_row(B - 1), v));
                bool nothing = false;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) nothing |= not_ready(last[v]);
                missing = missing && nothing;
            }
        }
        // All loads of the rows, before anything else. The LM head reads chosen rows, whose numbers come from memory
        // first.
        if (r.op.row == nullptr) {
            look_at_all(batch_row);
        } else {
            look_at_all([&](int b) { return __ldcg(r.op.row + batch_row(b)); });
        }
        // The weights of the norm arrive after the rows.
        float4 weight[kVectors] = {};
        if (r.norm != nullptr) {
#pragma unroll
            for (int v = 0; v < kVectors; ++v) weight[v] = r.constant(v);
        }
        // Loads again what was kNotReady, until all lanes of the warp have everything.
        if (r.op.x_flagged) {
            for (;;) {
                std::uint32_t most = 0;
#pragma unroll
                for (int b = 0; b < B; ++b) {
#pragma unroll
                    for (int v = 0; v < kVectors; ++v) most = largest_word(most, x[b][v]);
                }
                const unsigned those = __ballot_sync(~0u, most == kNotReady);
                if (those == 0) break;
                if constexpr (kLinked) {
                    if (__any_sync(~0u, patience.ends())) break;
                }
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    asm volatile(
                        ""
                        : "+r"(stride[v]));  // so that addresses are computed again: kept, they would be spilled
                }
                // As long as nothing is there, few lanes poll.
                const bool looks = those != ~0u || thread_index() % 16 == 0;
#pragma unroll
                for (int b = 0; b < B; ++b) {
#pragma unroll
                    for (int v = 0; v < kVectors; ++v) {
                        load_flagged4_if(x[b][v], looks && not_ready(x[b][v]), place_of(batch_row(b), v));
                    }
                }
            }
        }
        const auto lane = static_cast<int>(thread_index() % 32);
        float* const stats = r.stats();
        if (r.norm != nullptr) {
            // Squares before the norm weight, which is multiplied in now. 1 / rms multiplies the sums in the epilogue,
            // so nothing waits for the squares of other warps here.
            float squares[B];
#pragma unroll
            for (int b = 0; b < B; ++b) {
                squares[b] = 0.0f;
#pragma unroll
                for (int v = 0; v < kVectors; ++v) {
                    float4& a = x[b][v];
                    const float4 w = weight[v];
                    squares[b] += fmaf(a.x, a.x, a.y * a.y) + fmaf(a.z, a.z, a.w * a.w);
                    a = {a.x * w.x, a.y * w.y, a.z * w.z, a.w * w.w};
                }
            }
            const int b = sum_over_lanes(squares, lane);
            if (lane % (32 / B) == 0 && b < here) stats[16 + 8 * nt + b] = squares[0];
        }
        // Scale and round each row by the largest magnitude of its slice.
        uint2 half[Form::planes][B][kVectors];
        std::uint32_t back = 0;  // the exponent that scales the sums of row `lane` back
#pragma unroll
        for (int b = 0; b < B; ++b) {
            float most = 0.0f;
#pragma unroll
            for (int v = 0; v < kVectors; ++v) most = larger_magnitude(most, x[b][v]);
            const RowScale<false> row(__reduce_max_sync(~0u, __float_as_uint(most)));
            const float scale = row.up();
            if (lane == b) back = row.back_exponent();
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                const float4 a = x[b][v];
                round({a.x * scale, a.y * scale, a.z * scale, a.w * scale}, half, b, v);
            }
        }
        if (lane < here) stats[8 * nt + lane] = __uint_as_float(back << 23) * Form::code_scale;
        // Eight lanes have the 32 inputs of a group: lane % 8 = 4 s + q.
        const std::uint32_t place = lane % 4 * 16 + lane / 4 % 2 * 8;
#pragma unroll
        for (int plane = 0; plane < Form::planes; ++plane) {
            if (nt == 1) {
                const std::uint32_t second = r.second();
#pragma unroll
                for (int b = 0; b < B; ++b) {
                    if (b >= here) continue;
#pragma unroll
                    for (int v = 0; v < kVectors; ++v) {
                        store_shared2(
                            second + plane * upper_plane_ + b * upper_row_bytes(E) + (v * 4 + lane / 8) * 64 + place,
                            half[plane][b][v]);
                    }
                }
                continue;
            }
            // All vectors at once where there is room, else one at a time. Groups lie in pairs that change places in
            // odd rows, so that rows never meet on a bank.
            const std::uint32_t pair_bytes = here * 128, vector_bytes = 2 * pair_bytes;
            const bool at_once = r.room() >= static_cast<int>(kVectors * vector_bytes);
            const std::uint32_t start = r.passage();
            const std::uint32_t to = start + lane / 16 * pair_bytes + place;
            const int row = min(lane / 4, here - 1);
            // give: each lane writes its inputs of all rows. take: each lane reads the four of each 16 inputs that its
            // row and q need.
            const auto give = [&](int v, std::uint32_t behind) {
#pragma unroll
                for (int b = 0; b < B; ++b) {
                    if (b < here) store_shared2(to + behind + b * 128 + (lane / 8 % 2 ^ b % 2) * 64, half[plane][b][v]);
                }
            };
            const auto take = [&](int v, std::uint32_t behind) {
#pragma unroll
                for (int g = 0; g < 4; ++g) {
                    const uint4 got = load_shared4(start + behind + g / 2 * pair_bytes + row * 128 +
                                                   (g % 2 ^ row % 2) * 64 + lane % 4 * 16);
                    std::uint32_t(&operand)[4] = x_[plane][4 * v + g];
                    operand[0] = got.x;
                    operand[1] = got.y;
                    operand[2] = got.z;
                    operand[3] = got.w;
                }
            };
            __syncwarp();
            if (at_once) {
#pragma unroll
                for (int v = 0; v < kVectors; ++v) give(v, v * vector_bytes);
                __syncwarp();
#pragma unroll
                for (int v = 0; v < kVectors; ++v) take(v, v * vector_bytes);
                continue;
            }
#pragma unroll
            for (int v = 0; v < kVectors; ++v) {
                give(v, 0);
                __syncwarp();
                take(v, 0);
                __syncwarp();
            }
        }
    }

    // Sums of B numbers over all lanes. While there are several, a lane passes half of them to the lane it adds with
    // and keeps the other half, so the work halves with each step. Each lane ends with one of the sums, values[0];
    // returns which.
    template <int B>
    static __device__ int sum_over_lanes(float (&values)[B], int lane) {
        int number = 0;
#pragma unroll
        for (int offset = 16, many = B; offset > 0; offset /= 2) {
            if (many > 1) {
                many /= 2;
                const bool upper = (lane & offset) != 0;
                if (upper) number += many;
#pragma unroll
                for (int i = 0; i < many; ++i) {
                    const float kept = upper ? values[i + many] : values[i],
                                given = upper ? values[i] : values[i + many];
                    values[i] = kept + __shfl_xor_sync(~0u, given, offset);
                }
            } else {
                values[0] += __shfl_xor_sync(~0u, values[0], offset);
            }
        }
        return number;
    }

    // Sums of the first kGroups groups, by multiplying with ones; a row's operand B serves as operand A.
    template <int kGroups = Form::groups>
    __device__ void sum_up(int nt) {
        if (nt == 1) __syncwarp();
        constexpr std::uint32_t one = 0x3c003c00u;
        constexpr float kUpper = Form::quarters_lowered ? 16.0f : 1.0f;
        float sums[kGroups * 32 / Form::sum_inputs];
#pragma unroll
        for (int g = 0; g < kGroups; ++g) {
            // Pairs c = 0, 1 of both steps are the first rows of A, pairs c = 2, 3 the others.
            const uint4 x = operand(g, nt);
            const float zero[4] = {};
            float d[4];
            const auto sum = [&](std::uint32_t step0, std::uint32_t step1) {
                mma(d, x.x, x.y, x.z, x.w, step0, step1, zero);
                return fmaf(d[2], kUpper, d[0]) * Form::sum_factor;
            };
            if constexpr (Form::sum_inputs == 32) {
                sums[g] = sum(one, one);
            } else {
                sums[2 * g] = sum(one, 0);
                sums[2 * g + 1] = sum(0, one);
            }
        }
        keep_sums(nt, sums, static_cast<int>(thread_index() % 4));
    }

    // Four inputs as float16: the pairs c = 0, 1 and c = 2, 3.
    template <int B, int kOf>
    static __device__ void round(float4 v, uint2 (&half)[Form::planes][B][kOf], int b, int i) {
        if constexpr (Form::bf16) {
            const __nv_bfloat162 lo = __floats2bfloat162_rn(v.x, v.y), hi = __floats2bfloat162_rn(v.z, v.w);
            const float2 a = __bfloat1622float2(lo), c = __bfloat1622float2(hi);
            half[0][b][i] = {as_bits(lo), as_bits(hi)};
            half[1][b][i] = {as_bits(__floats2bfloat162_rn(v.x - a.x, v.y - a.y)),
                             as_bits(__floats2bfloat162_rn(v.z - c.x, v.w - c.y))};
        } else {
            const __half2 lo = __floats2half2_rn(v.x, v.y), hi = __floats2half2_rn(v.z, v.w);
            if constexpr (Form::floats) {
                const float2 a = __half22float2(lo), c = __half22float2(hi);
                half[0][b][i] = {as_bits(lo), as_bits(hi)};
                half[1][b][i] = {as_bits(__floats2half2_rn(v.x - a.x, v.y - a.y)),
                                 as_bits(__floats2half2_rn(v.z - c.x, v.w - c.y))};
            } else {
                half[0][b][i] = {as_bits(lo),
                                 as_bits(Form::quarters_lowered ? __hmul2(hi, __float2half2_rn(0.0625f)) : hi)};
            }
        }
    }
    // Two sums as two pairs of float16 that add up to them.
    static __device__ void split(float a, float b, std::uint32_t& high, std::uint32_t& low) {
        const __half2 h = __floats2half2_rn(a, b);
        const float2 f = __half22float2(h);
        high = as_bits(h);
        low = as_bits(__floats2half2_rn(a - f.x, b - f.y));
    }
    // Entry 2 q (+ 1) of eight, without an index, which registers do not have.
    static __device__ float chosen(const float* of, int q) {
        const float low = q & 1 ? of[2] : of[0], high = q & 1 ? of[6] : of[4];
        return q & 2 ? high : low;
    }
    template <int N>
    __device__ void keep_sums(int nt, const float (&s)[N], int q) {
#pragma unroll
        for (int block = 0; block < N * Form::sum_inputs / block_format(E).inputs; ++block) {
            if constexpr (Form::sum_words == 1) {
                // k = 0, 1 of the product: the high parts of the two groups; k = 2, 3: the low parts.
                std::uint32_t high, low;
                split(s[2 * block], s[2 * block + 1], high, low);
                sums_[nt][block] = q == 0 ? high : q == 1 ? low : 0;
            } else if constexpr (Form::sum_words == 2) {
                // k = group: the high parts; k = 8 + group: the low parts.
                split(chosen(s + 8 * block, q), chosen(s + 8 * block + 1, q), sums_[nt][2 * block],
                      sums_[nt][2 * block + 1]);
            } else {
                // k = half group. Two products: high parts, low parts.
                std::uint32_t* word = sums_[nt] + 4 * block;
                split(chosen(s + 16 * block, q), chosen(s + 16 * block + 1, q), word[0], word[2]);
                split(chosen(s + 16 * block + 8, q), chosen(s + 16 * block + 9, q), word[1], word[3]);
            }
        }
    }

    std::uint32_t x_[Form::planes][Form::groups][4];
    std::uint32_t sums_[NT][Form::has_sums ? Form::blocks * Form::sum_words : 1];
    std::uint32_t upper_rows_ = 0;
    int upper_plane_ = 0;
};

}  // namespace foresay::kernels::cuda
