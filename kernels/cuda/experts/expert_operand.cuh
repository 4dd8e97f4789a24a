// kernels/cuda/experts/expert_operand.cuh: the inputs of a tile's rows as operands of the products of an expert
// (products.cuh): converted to shared memory unit by unit, and taken from there.
//
// Order:    inputs of packed rows may have one, the expert's own. For put_in_order() all threads of the CTA load a row
//           as it lies, and each warp looks up the inputs of its units in shared memory. put() loads each by itself,
//           from L2. What becomes of a row's numbers is the same either way.
// Shared:   of a unit: [plane][row] float16 in the order of operands; then the factors that scale the sums of each row
//           back; of packed rows the sums of each 16 inputs besides.
#pragma once

#include "kernels/cuda/decode/activations.cuh"
#include "kernels/cuda/decode/packed_multiply.cuh"
#include "kernels/cuda/experts/experts.h"

namespace foresay::kernels::cuda {

template <QuantType E>
struct ExpertUnit {
    static constexpr BlockFormat kFormat = block_format(E);
    static constexpr int kInputs = kFormat.inputs > 128 ? kFormat.inputs : 128;
    static constexpr int kBlocks = kInputs / kFormat.inputs;
    static constexpr int kBytes = kBlocks * kFormat.bytes;
    static constexpr int kGroups = kInputs / 32, kVectors = kInputs / 128;
    static constexpr int kRowBytes = kInputs * 2 + 64;  // so that lanes of two rows are on different banks
    static constexpr int kPlanes = ActivationForm<E>::planes;
    // Bytes of shared memory: of the inputs of a unit of so many rows, and of a warp that has `kept` units of them.
    static constexpr int input_bytes(int rows) { return rows * kRowBytes * kPlanes + 4 * kExpertRows; }
};
// Two blocks of 64 inputs; their bytes are those of their runs. After the factors: the sums of each 16 inputs.
template <>
struct ExpertUnit<QuantType::packed> {
    static constexpr int kInputs = 128, kBlocks = 2, kGroups = 4, kVectors = 1, kPlanes = 1;
    static constexpr int kRowBytes = kInputs * 2 + 64;
    static constexpr int kSumBytes = kInputs / 16 * kExpertRows * 4;
    static constexpr int input_bytes(int rows) { return rows * kRowBytes + 4 * kExpertRows + kSumBytes; }
};

// A tile, its rows one per lane; lanes past the last one have a copy of it.
struct TileRows {
    int expert, count;
    std::int32_t slot;
    std::int32_t source = 0;  // of x
    float2 stats = {0.0f, 1.0f};

    __device__ TileRows(const ExpertTile* tile, int lane) {
        const int2 head = __ldcg(reinterpret_cast<const int2*>(tile));
        const std::int32_t own = __ldcg(tile->slots + lane % kExpertRows);
        expert = head.x;
        count = head.y;
        slot = __shfl_sync(~0u, own, max(min(lane, count - 1), 0));
    }
    // What depends on the kernels before the router's.
    __device__ void locate(const ProductsCall& c) {
        source = c.gate_up ? slot / c.used : slot;
        if (c.gate_up && c.norm.weight != nullptr) stats = __ldcg(c.with.stats + source);
    }
};

// A unit of the inputs of up to eight rows, as operand B.
template <QuantType E>
class ExpertOperand : public ActivationOperand<E == QuantType::packed ? QuantType::q4_0 : E, 1> {
    using Unit = ExpertUnit<E>;
    using Form = ActivationForm<E>;
    using Base = ActivationOperand<E == QuantType::packed ? QuantType::q4_0 : E, 1>;
    static constexpr int kV = Unit::kVectors;

public:
    // Converts the unit that begins at input `begin` to `at` in shared memory, by a warp. After the rows: the factors
    // of their sums.
    __device__ static __forceinline__ void put(const ProductsCall& c, const TileRows& rows, int begin, std::uint32_t at,
                                               int room, int lane) {
        const std::uint32_t back = at + room * Unit::kRowBytes * Unit::kPlanes;
        if (rows.count == 1) {
            put_rows<1>(c, rows, begin, at, back, lane);
        } else if (rows.count <= 4) {
            put_rows<4>(c, rows, begin, at, back, lane);
        } else {
            put_rows<8>(c, rows, begin, at, back, lane);
        }
        __syncwarp();
        if constexpr (kPacked) {
            sum_sixteens(at + min(lane / 4, rows.count - 1) * Unit::kRowBytes + lane % 4 * 16, back + 4 * kExpertRows,
                         lane);
        }
    }
    // The same of all units of each warp, from `inputs` on, by all threads of the CTA, where inputs have an order. Rows
    // pass through `row`, memory for one, which no thread reads since the last barrier.
    __device__ static __forceinline__ void put_in_order(const ProductsCall& c, const TileRows& rows, std::uint32_t row,
                                                        std::uint32_t inputs, int room, int warp, int warps, int lane) {
        static_assert(kPacked && kV == 1);
        const int units = (c.blocks + Unit::kBlocks - 1) / Unit::kBlocks;
        const std::uint16_t* const order = c.packed.order + static_cast<std::int64_t>(rows.expert) * c.inputs;
        const auto places_of = [&](int unit) {
            const int i = unit * Unit::kInputs + lane * 4;
            return i < c.inputs ? __ldg(reinterpret_cast<const ushort4*>(order + i)) : ushort4{};
        };
        // Those of two units, which come while the first row does; most warps have no more.
        const ushort4 first_places = places_of(warp), second_places = places_of(warp + warps);
#pragma unroll 1
        for (int b = 0; b < rows.count; ++b) {
            if (b > 0) __syncthreads();  // all have taken their inputs of the row before
            const float* const from = c.x + static_cast<std::int64_t>(__shfl_sync(~0u, rows.source, b)) * c.inputs;
            const float mean = __shfl_sync(~0u, rows.stats.x, b), inverse = __shfl_sync(~0u, rows.stats.y, b);
            for (int i = (warp * 32 + lane) * 4; i < c.inputs; i += warps * 128) {
                float4 a = __ldcg(reinterpret_cast<const float4*>(from + i));
                if (c.norm.weight != nullptr) {
                    float4 bias = {};
                    if (c.norm.bias != nullptr) bias = __ldg(reinterpret_cast<const float4*>(c.norm.bias + i));
                    norm(a, mean, inverse, __ldg(reinterpret_cast<const float4*>(c.norm.weight + i)), bias);
                }
                store_shared2(row + 4 * i, {__float_as_uint(a.x), __float_as_uint(a.y)});
                store_shared2(row + 4 * i + 8, {__float_as_uint(a.z), __float_as_uint(a.w)});
            }
            __syncthreads();
            const auto there = [&](std::uint16_t input) {
                return __int_as_float(load_shared1(row + static_cast<std::uint32_t>(input) * 4));
            };
            std::uint32_t at = inputs;
#pragma unroll 1
            for (int unit = warp; unit < units; unit += warps, at += Unit::input_bytes(room)) {
                const ushort4 place = unit == warp           ? first_places
                                      : unit == warp + warps ? second_places
                                                             : places_of(unit);
                float4 x[1][kV] = {};
                if (unit * Unit::kInputs + lane * 4 < c.inputs) {
                    x[0][0] = {there(place.x), there(place.y), there(place.z), there(place.w)};
                }
                round_rows<1>(x, b, b + 1, at, at + room * Unit::kRowBytes, lane);
            }
        }
        __syncwarp();
        std::uint32_t at = inputs;
        for (int unit = warp; unit < units; unit += warps, at += Unit::input_bytes(room)) {
            sum_sixteens(at + min(lane / 4, rows.count - 1) * Unit::kRowBytes + lane % 4 * 16,
                         at + room * Unit::kRowBytes + 4 * kExpertRows, lane);
        }
    }
    // Eight lanes have the 32 inputs of a group: lane % 8 = 4 s + q. A lane takes the four of each 16 inputs that its
    // row and q need; of packed rows when they are multiplied.
    __device__ __forceinline__ void take(std::uint32_t at, int count, int room, int lane) {
        const int row = min(lane / 4, count - 1);
        const std::uint32_t back = at + room * Unit::kRowBytes * Unit::kPlanes + lane % 4 * 8;
        std::uint32_t low, high;
        load_shared2(low, high, back);
        first = __uint_as_float(low);
        second = __uint_as_float(high);
        if constexpr (kPacked) {
            inputs_ = at + row * Unit::kRowBytes + lane % 4 * 16;
            sums_at_ = back + 4 * kExpertRows;
        } else {
#pragma unroll
            for (int plane = 0; plane < Unit::kPlanes; ++plane) {
                const std::uint32_t from = at + (plane * room + row) * Unit::kRowBytes + lane % 4 * 16;
#pragma unroll
                for (int g = 0; g < Unit::kGroups; ++g) {
                    const uint4 got = load_shared4(from + g * 64);
                    this->x_[plane][g][0] = got.x;
                    this->x_[plane][g][1] = got.y;
                    this->x_[plane][g][2] = got.z;
                    this->x_[plane][g][3] = got.w;
                }
            }
            if constexpr (Form::has_sums) this->template sum_up<Unit::kGroups>(0);
        }
    }
    // Of packed rows, as PackedOperand has them: the operand of group g of the unit, and the sums of its sixteens of
    // inputs.
    using Base::operand;
    __device__ uint4 operand(int g) const { return load_shared4(inputs_ + g * 64); }
    __device__ float4 sums(int g) const {
        const std::uint32_t low = sums_at_ + g * 8 * kExpertRows, high = low + 4 * kExpertRows;
        std::uint32_t a, b, c, d;
        load_shared2(a, b, low);
        load_shared2(c, d, high);
        return {__uint_as_float(a), __uint_as_float(c), __uint_as_float(b), __uint_as_float(d)};
    }

    float first, second;  // factors of the sums of this lane's rows

private:
    static constexpr bool kPacked = E == QuantType::packed;

    // The sums of each 16 inputs of the rows, [16 inputs][row], in float32. `from`: the lane's first operand.
    __device__ static void sum_sixteens(std::uint32_t from, std::uint32_t to, int lane) {
#pragma unroll
        for (int g = 0; g < Unit::kGroups; ++g) {
            const float2 sums = sums_of_sixteens(load_shared4(from + g * 64));
            if (lane % 4 != 0) continue;
            store_shared1(to + 2 * g * 4 * kExpertRows + lane, sums.x);
            store_shared1(to + (2 * g + 1) * 4 * kExpertRows + lane, sums.y);
        }
        __syncwarp();
    }
    // Four values of all inputs, from place i on: of packed rows that have an order, those that belong there.
    template <bool kWeights>
    __device__ static __forceinline__ float4 four(const ProductsCall& c, int expert, const float* from, int i) {
        if constexpr (kPacked) {
            if (c.packed.order != nullptr) {
                return gather4(from, c.packed.order + static_cast<std::int64_t>(expert) * c.inputs + i);
            }
        }
        const auto* const all = reinterpret_cast<const float4*>(from + i);
        return kWeights ? __ldg(all) : __ldcg(all);
    }
    std::uint32_t inputs_, sums_at_;  // of packed rows, in shared memory

    template <int B>
    __device__ static __forceinline__ void put_rows(const ProductsCall& c, const TileRows& rows, int begin,
                                                    std::uint32_t at, std::uint32_t back, int lane) {
        float4 x[B][kV];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            const float* const from = c.x + static_cast<std::int64_t>(__shfl_sync(~0u, rows.source, b)) * c.inputs;
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const int i = begin + v * 128 + lane * 4;
                x[b][v] = i < c.inputs ? four<false>(c, rows.expert, from, i) : float4{};
            }
        }
        if (c.norm.weight != nullptr) {
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const int i = begin + v * 128 + lane * 4;
                float4 weight = {}, bias = {};
                if (i < c.inputs) {
                    weight = four<true>(c, rows.expert, c.norm.weight, i);
                    if (c.norm.bias != nullptr) bias = four<true>(c, rows.expert, c.norm.bias, i);
                }
#pragma unroll
                for (int b = 0; b < B; ++b) {
                    const float mean = __shfl_sync(~0u, rows.stats.x, b), inverse = __shfl_sync(~0u, rows.stats.y, b);
                    norm(x[b][v], mean, inverse, weight, bias);
                }
            }
        }
        round_rows<B>(x, 0, rows.count, at, back, lane);
    }
    __device__ static __forceinline__ void norm(float4& a, float mean, float inverse, float4 weight, float4 bias) {
        a.x = fmaf((a.x - mean) * inverse, weight.x, bias.x);
        a.y = fmaf((a.y - mean) * inverse, weight.y, bias.y);
        a.z = fmaf((a.z - mean) * inverse, weight.z, bias.z);
        a.w = fmaf((a.w - mean) * inverse, weight.w, bias.w);
    }
    // Rows first .. first + B - 1, of which those below `count` exist: scaled, rounded, and left where operands are.
    template <int B>
    __device__ static __forceinline__ void round_rows(const float4 (&x)[B][kV], int first, int count, std::uint32_t at,
                                                      std::uint32_t back, int lane) {
        uint2 half[Form::planes][B][kV];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            float most = 0.0f;
#pragma unroll
            for (int v = 0; v < kV; ++v) most = larger_magnitude(most, x[b][v]);
            const RowScale<true> row(__reduce_max_sync(~0u, __float_as_uint(most)));
            const float scale = row.up();
            if (lane == 0) {
                store_shared1(back + 4 * (first + b), row.back() * Form::code_scale);
            }
#pragma unroll
            for (int v = 0; v < kV; ++v) {
                const float4 a = x[b][v];
                Base::round({a.x * scale, a.y * scale, a.z * scale, a.w * scale}, half, b, v);
            }
        }
        // Eight lanes have the 32 inputs of a group.
        const std::uint32_t place = lane % 4 * 16 + lane / 4 % 2 * 8;
#pragma unroll
        for (int plane = 0; plane < Form::planes; ++plane) {
#pragma unroll
            for (int b = 0; b < B; ++b) {
                if (first + b >= count) continue;
#pragma unroll
                for (int v = 0; v < kV; ++v) {
                    store_shared2(at + plane * (back - at) / Unit::kPlanes + (first + b) * Unit::kRowBytes +
                                      (v * 4 + lane / 8) * 64 + place,
                                  half[plane][b][v]);
                }
            }
        }
    }
};

}  // namespace foresay::kernels::cuda
