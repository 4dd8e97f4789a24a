// kernels/cuda/decode/epilogue.cuh: what becomes of the sums of a pair of packed rows: bias, rope, activation,
// residual.
#pragma once

#include <type_traits>

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/decode/gemv.h"

namespace foresay::kernels::cuda {

__device__ inline float soft_capped(float value, float cap) { return cap > 0.0f ? cap * tanhf(value / cap) : value; }

__device__ inline float activated(Activation kind, float x) {
    if (kind == Activation::silu) return __fdividef(x, 1.0f + __expf(-x));
    const float inner = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

// The head of a row; its place in the head is what is left.
__device__ inline std::int32_t head_of(const FinishArgs& f, std::int32_t row) {
    return quotient_by(row, f.head_inverse);
}

template <Finish kKind>
inline constexpr bool kProjects = kKind == Finish::attention_in || kKind == Finish::attention_in_fresh;

// The rows of the stack that a pair of packed rows stands for.
struct PairRows {
    std::int32_t a, b;
    std::int32_t place;  // attention_in: packed place in the head
};
template <Finish kKind>
__device__ inline PairRows pair_rows(const FinishArgs& f, std::int32_t packed) {
    const std::int32_t row = f.first_row + packed;
    if (!kProjects<kKind>) return {row, row + 1, 0};
    const std::int32_t place = row - head_of(f, row) * f.head_dim;
    if (!f.half_split || place >= f.rotated || row >= f.query_rows + f.kv_rows) return {row, row + 1, place};
    const std::int32_t a = row - place + place / 2;
    return {a, a + f.rotated / 2, place};
}

// What finishing a pair reads besides its sums; asked for early, because it comes from far away.
struct FinishOperand {
    float2 with = {0.0f, 0.0f};  // out: what is added to, attention_in: the turn
    std::int64_t cell = 0;       // attention_in: of K or V
};

// `from`: f.from, in its turn.
template <Finish kKind>
__device__ inline FinishOperand finish_operand(const FinishArgs& f, const float* from, std::int32_t packed, int t) {
    FinishOperand operand;
    if (packed >= f.rows || f.raw != nullptr) return operand;
    if (kKind == Finish::out) {
        const float* x = from + t * f.out_stride + f.first_row + packed;
        operand.with = {look_at(x), packed + 1 < f.rows ? look_at(x + 1) : 0.0f};
    }
    if (kProjects<kKind>) {
        const std::int32_t row = f.first_row + packed;
        const std::int32_t place = row - head_of(f, row) * f.head_dim;
        operand.with = {1.0f, 0.0f};
        const bool key = row < f.query_rows + f.kv_rows;
        if (key && place < f.rotated) operand.with = __ldcg(f.rope + t * (f.rotated / 2) + place / 2);
        if (kKind == Finish::attention_in && row >= f.query_rows)
            operand.cell = __ldcg(key ? f.cell + t : f.v_cell + t);
    }
    return operand;
}
// Waits for what was handed over and had not come yet.
template <Finish kKind>
__device__ inline void await_operand(const FinishArgs& f, const float* from, std::int32_t packed, int t,
                                     FinishOperand& operand) {
    while (is_nothing(operand.with)) operand = finish_operand<kKind>(f, from, packed, t);
}

// `bias` and `kv` are the layer's (GemvStep); `out`: f.out, in its turn.
template <Finish kKind>
__device__ inline void finish_pair(const FinishArgs& f, float* out, const float* bias, __half* kv, std::int32_t packed,
                                   int t, float a, float b, const FinishOperand& operand) {
    if (packed >= f.rows) return;
    const bool two = packed + 1 < f.rows;
    const PairRows rows = pair_rows<kKind>(f, packed);
    if (bias != nullptr) {
        a += bias[rows.a];
        if (two) b += bias[rows.b];
    }
    if ((kProjects<kKind> || kKind == Finish::out) && f.raw != nullptr) {
        f.raw[t * f.out_stride + rows.a] = a;
        if (two) f.raw[t * f.out_stride + rows.b] = b;
        return;
    }
    float* const to = out + t * f.out_stride;
    if (kKind == Finish::out) {
        to[rows.a] = operand.with.x + a;
        if (two) to[rows.b] = operand.with.y + b;
        return;
    }
    if (kKind == Finish::mlp_in) {
        to[packed / 2] = activated(f.activation, a) * b;
        return;
    }
    if (kKind == Finish::head) {
        to[rows.a] = soft_capped(a * f.scale, f.soft_cap);
        if (two) to[rows.b] = soft_capped(b * f.scale, f.soft_cap);
        return;
    }
    const float ra = fmaf(a, operand.with.x, -(b * operand.with.y)), rb = fmaf(a, operand.with.y, b * operand.with.x);
    if (rows.a < f.query_rows) {
        to[rows.a] = ra;
        to[rows.b] = rb;
        return;
    }
    if constexpr (kKind == Finish::attention_in_fresh) {
        float* const fresh = f.fresh + t * 2 * f.kv_rows - f.query_rows;
        fresh[rows.a] = ra;
        fresh[rows.b] = rb;
        return;
    }
    const bool value = rows.a >= f.query_rows + f.kv_rows;
    const std::int32_t row_a = rows.a - f.query_rows - (value ? f.kv_rows : 0);
    const std::int32_t row_b = rows.b - f.query_rows - (value ? f.kv_rows : 0);
    const std::int32_t head_a = head_of(f, row_a), head_b = head_of(f, row_b);
    // Saturated, NaN included: what a row does not attend to is multiplied by an exact 0.
    const auto half = [](float x) { return __float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f)); };
    __half* const cell = kv + operand.cell;
    const auto place = [&](std::int32_t d) { return value ? KvLayout::value_value(d) : KvLayout::key_value(d); };
    cell[head_a * f.head_stride + place(row_a - head_a * f.head_dim)] = half(ra);
    cell[head_b * f.head_stride + place(row_b - head_b * f.head_dim)] = half(rb);
}

// Calls body with the kind as a constant.
template <class Body>
__device__ __forceinline__ void with_finish(Finish kind, const Body& body) {
    switch (kind) {
        case Finish::attention_in:
            return body(std::integral_constant<Finish, Finish::attention_in>());
        case Finish::attention_in_fresh:
            return body(std::integral_constant<Finish, Finish::attention_in_fresh>());
        case Finish::out:
            return body(std::integral_constant<Finish, Finish::out>());
        case Finish::mlp_in:
            return body(std::integral_constant<Finish, Finish::mlp_in>());
        case Finish::head:
            return body(std::integral_constant<Finish, Finish::head>());
    }
}
// For those that do not know the kind, and have nothing to do while the operand comes.
__device__ inline void finish_pair(const FinishArgs& f, const float* bias, __half* kv, std::int32_t packed, int t,
                                   float a, float b) {
    with_finish(f.kind, [&](auto kind) {
        finish_pair<kind>(f, f.out, bias, kv, packed, t, a, b, finish_operand<kind>(f, f.from, packed, t));
    });
}

}  // namespace foresay::kernels::cuda
