// kernels/cuda/decode/epilogue.cuh: what becomes of the sums of a pair of packed rows: bias, rope, activation,
// residual, and where the result goes.
//
// Packed rows 2i and 2i + 1 are chosen when weights are packed so that one thread has all it needs: the two rows that
// rope rotates together, or gate and up of one unit (kernels/cuda/weights/panels.h).
//
// Operand:  what an epilogue reads besides its sums (residual, angles, cell) is loaded early, before the sums are
//           awaited, because it comes from L2.
// Kinds:    a template parameter (with_epilogue), so that each kind is straight code. A new kind needs its branch in
//           epilogue_pair(), its operand in load_epilogue_operand() if it reads anything, and its case in
//           with_epilogue().
// Callers:  the epilogue warps of the decode kernel, gemv_f32, and the prefill epilogue (kernels/cuda/prefill/rows.cu).
//           One thread calls it once per pair and row; no two threads write the same place.
#pragma once

#include <type_traits>

#include "kernels/cuda/decode/flagged_words.cuh"
#include "kernels/cuda/decode/gemv.h"

namespace foresay::kernels::cuda {

__device__ inline float soft_capped(float value, float cap) { return cap > 0.0f ? cap * tanhf(value / cap) : value; }

// clamped_swiglu: the part of the gate, whose limit is the caller's.
__device__ inline float activated(Activation kind, float x) {
    if (kind == Activation::silu) return __fdividef(x, 1.0f + __expf(-x));
    if (kind == Activation::clamped_swiglu) return __fdividef(x, 1.0f + __expf(-1.702f * x));
    if (kind == Activation::gelu) return 0.5f * x * (1.0f + erff(x * 0.7071067811865476f));
    const float inner = 0.7978845608028654f * fmaf(0.044715f * x * x, x, x);
    return 0.5f * x * (1.0f + tanhf(inner));
}

// activation(gate) * up
__device__ inline float gated(Activation kind, float limit, float gate, float up) {
    if (kind != Activation::clamped_swiglu) return activated(kind, gate) * up;
    return activated(kind, fminf(gate, limit)) * (fmaxf(-limit, fminf(up, limit)) + 1.0f);
}

// The head that a row of the stack belongs to. Its place in the head is what is left.
__device__ inline std::int32_t head_of(const EpilogueArgs& f, std::int32_t row) {
    return quotient_by(row, f.head_inverse);
}

// Whether the rows are q, k and v.
template <Epilogue kKind>
inline constexpr bool kProjects = kKind == Epilogue::attention_in || kKind == Epilogue::attention_in_new_kv;

// The rows of the stack that a pair of packed rows stands for.
struct PairRows {
    std::int32_t a, b;
    std::int32_t place;  // attention_in: packed place in the head
};
template <Epilogue kKind>
__device__ inline PairRows pair_rows(const EpilogueArgs& f, std::int32_t packed) {
    const std::int32_t row = f.first_row + packed;
    if (!kProjects<kKind>) return {row, row + 1, 0};
    const std::int32_t place = row - head_of(f, row) * f.head_dim;
    // Rows that are not reordered: pairs of adjacent values, values that rope leaves alone, and V.
    if (!f.half_split || place >= f.rotated || row >= f.query_rows + f.kv_rows) return {row, row + 1, place};
    const std::int32_t a = row - place + place / 2;
    return {a, a + f.rotated / 2, place};
}

// What the epilogue of a pair reads besides its sums.
struct EpilogueOperand {
    float2 value = {0.0f, 0.0f};  // out: the residual; attention_in: cos and sin
    std::int64_t cell = 0;        // attention_in: of K or V
};

// `from`: f.residual, in the buffer of the step where it is flagged.
template <Epilogue kKind>
__device__ inline EpilogueOperand load_epilogue_operand(const EpilogueArgs& f, const float* from, std::int32_t packed,
                                                        int t) {
    EpilogueOperand operand;
    if (packed >= f.rows || f.raw != nullptr) return operand;
    if (kKind == Epilogue::out) {
        const float* x = from + t * f.out_stride + f.first_row + packed;
        operand.value = {load_flagged(x), packed + 1 < f.rows ? load_flagged(x + 1) : 0.0f};
    }
    if (kProjects<kKind>) {
        const std::int32_t row = f.first_row + packed;
        const std::int32_t place = row - head_of(f, row) * f.head_dim;
        operand.value = {1.0f, 0.0f};  // no rotation: V, and values past `rotated`
        const bool key = row < f.query_rows + f.kv_rows;
        if (key && place < f.rotated) operand.value = __ldcg(f.rope + t * (f.rotated / 2) + place / 2);
        if (kKind == Epilogue::attention_in && row >= f.query_rows)
            operand.cell = __ldcg(key ? f.cell + t : f.v_cell + t);
    }
    return operand;
}
// Loads again until a flagged residual is there.
template <Epilogue kKind, class Wait>
__device__ inline void await_epilogue_operand(const EpilogueArgs& f, const float* from, std::int32_t packed, int t,
                                              EpilogueOperand& operand, Wait wait) {
    while (not_ready(operand.value) && !wait.ends()) operand = load_epilogue_operand<kKind>(f, from, packed, t);
}

// Where what is passed on goes: to this device alone.
struct StoreHere {
    __device__ void operator()(float* at, float value) const { *at = value; }
};

// a, b: the complete sums of the pair for row t of the batch. `bias` and `kv` are the layer's (GemvStep); `out` is
// f.target(), in the buffer of the step where it is flagged. `packed` counts from the part's first row; rows that pad
// the last panel are skipped, and of an odd last row only `a` exists. `store`: of what other CTAs read in this launch.
template <Epilogue kKind, class Store = StoreHere>
__device__ inline void epilogue_pair(const EpilogueArgs& f, float* out, const float* bias, __half* kv,
                                     std::int32_t packed, int t, float a, float b, const EpilogueOperand& operand,
                                     const Store& store = {}) {
    if (packed >= f.rows) return;
    const bool two = packed + 1 < f.rows;
    const PairRows rows = pair_rows<kKind>(f, packed);
    if (bias != nullptr) {
        a += bias[rows.a];
        if (two) b += bias[rows.b];
    }
    float* const to = out + t * f.out_stride;
    if (kProjects<kKind> && f.raw != nullptr) {
        to[rows.a] = a;
        if (two) to[rows.b] = b;
        return;
    }
    if (kKind == Epilogue::out && f.raw != nullptr) {
        store(to + rows.a, a);
        if (two) store(to + rows.b, b);
        return;
    }
    if (kKind == Epilogue::out) {
        store(to + rows.a, fmaf(f.scale, a, operand.value.x));
        if (two) store(to + rows.b, fmaf(f.scale, b, operand.value.y));
        return;
    }
    if (kKind == Epilogue::mlp_in) {
        store(to + packed / 2, gated(f.activation, f.limit, a, b));
        return;
    }
    if (kKind == Epilogue::mlp_up) {
        store(to + rows.a, activated(f.activation, a));
        if (two) store(to + rows.b, activated(f.activation, b));
        return;
    }
    if (kKind == Epilogue::head) {
        to[rows.a] = soft_capped(a * f.scale, f.soft_cap);
        if (two) to[rows.b] = soft_capped(b * f.scale, f.soft_cap);
        return;
    }
    // q, k and v. The rotation of (1, 0) is exact, so V goes through it, too.
    const float ra = fmaf(a, operand.value.x, -(b * operand.value.y)),
                rb = fmaf(a, operand.value.y, b * operand.value.x);
    if (rows.a < f.query_rows) {
        to[rows.a] = ra;
        to[rows.b] = rb;
        return;
    }
    if constexpr (kKind == Epilogue::attention_in_new_kv) {
        float* const new_kv = f.new_kv + t * 2 * f.kv_rows - f.query_rows;
        new_kv[rows.a] = ra;
        new_kv[rows.b] = rb;
        return;
    }
    // K and V into the float16 cache: row and head within K or within V, then the place in the fragments (KvLayout).
    const bool value = rows.a >= f.query_rows + f.kv_rows;
    const std::int32_t row_a = rows.a - f.query_rows - (value ? f.kv_rows : 0);
    const std::int32_t row_b = rows.b - f.query_rows - (value ? f.kv_rows : 0);
    const std::int32_t head_a = head_of(f, row_a), head_b = head_of(f, row_b);
    // Saturates, NaN included: what a row does not attend to is multiplied by an exact 0, which an infinity would turn
    // into NaN.
    const auto half = [](float x) { return __float2half_rn(fminf(fmaxf(x, -65504.0f), 65504.0f)); };
    __half* const cell = kv + operand.cell;
    const auto place = [&](std::int32_t d) { return value ? KvLayout::value_value(d) : KvLayout::key_value(d); };
    cell[head_a * f.head_stride + place(row_a - head_a * f.head_dim)] = half(ra);
    cell[head_b * f.head_stride + place(row_b - head_b * f.head_dim)] = half(rb);
}

// Calls body with the kind as a constant, so that each kind is compiled by itself.
template <class Body>
__device__ __forceinline__ void with_epilogue(Epilogue kind, const Body& body) {
    switch (kind) {
        case Epilogue::attention_in:
            return body(std::integral_constant<Epilogue, Epilogue::attention_in>());
        case Epilogue::attention_in_new_kv:
            return body(std::integral_constant<Epilogue, Epilogue::attention_in_new_kv>());
        case Epilogue::out:
            return body(std::integral_constant<Epilogue, Epilogue::out>());
        case Epilogue::mlp_in:
            return body(std::integral_constant<Epilogue, Epilogue::mlp_in>());
        case Epilogue::mlp_up:
            return body(std::integral_constant<Epilogue, Epilogue::mlp_up>());
        case Epilogue::head:
            return body(std::integral_constant<Epilogue, Epilogue::head>());
    }
}
// For callers that do not know the kind at compile time, and have nothing to do while the operand arrives.
__device__ inline void epilogue_pair(const EpilogueArgs& f, const float* bias, __half* kv, std::int32_t packed, int t,
                                     float a, float b) {
    with_epilogue(f.kind, [&](auto kind) {
        epilogue_pair<kind>(f, f.target(), bias, kv, packed, t, a, b,
                            load_epilogue_operand<kind>(f, f.residual, packed, t));
    });
}

}  // namespace foresay::kernels::cuda
