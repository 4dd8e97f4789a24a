// kernels/reference/arrays.h: the arithmetic that the reference ops share.
//
// Layout:   weights dequantised to float32, row-major.
// Precision: sums are in double precision, in eight interleaved partial sums (index modulo 8), rounded once at the end.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels::reference {

using std::int32_t;
using std::int64_t;
using Floats = std::vector<float>;

inline Floats dequantize(const TensorView& tensor) {
    Floats values(static_cast<std::size_t>(tensor.elements()));
    const auto cols = static_cast<std::size_t>(tensor.cols);
    for (int64_t row = 0; row < tensor.rows; ++row) {
        dequantize_row(tensor, row, std::span(values).subspan(static_cast<std::size_t>(row) * cols, cols));
    }
    return values;
}

inline float dot(const float* a, const float* b, int64_t n) {
    double partial[8] = {};
    int64_t i = 0;
    for (; i + 8 <= n; i += 8) {
        for (int j = 0; j < 8; ++j) partial[j] += static_cast<double>(a[i + j]) * b[i + j];
    }
    for (int j = 0; i < n; ++i, ++j) partial[j] += static_cast<double>(a[i]) * b[i];
    double sum = 0;
    for (double p : partial) sum += p;
    return static_cast<float>(sum);
}

struct Matrix {
    Floats values;  // [outputs, inputs]
    int64_t outputs = 0, inputs = 0;

    explicit Matrix(const TensorView& view) : values(dequantize(view)), outputs(view.rows), inputs(view.cols) {}
    // y[outputs] = W x[inputs]
    void apply(const float* x, float* y) const {
        for (int64_t o = 0; o < outputs; ++o) y[o] = dot(values.data() + o * inputs, x, inputs);
    }
};

// RMS norm: y = x / sqrt(mean(x^2) + eps) * weight. LayerNorm: y = (x - mean(x)) / sqrt(variance(x) + eps) * weight +
// bias. In place where x == y.
struct Norm {
    Floats weight, bias;
    float eps = 0;
    NormKind kind = NormKind::rms;

    explicit Norm(const NormSpec& spec)
        : weight(dequantize(spec.weight)), bias(dequantize(spec.bias)), eps(spec.eps), kind(spec.kind) {
        if (spec.plus_one) {
            for (float& w : weight) w += 1.0f;
        }
    }
    bool empty() const { return weight.empty(); }
    void apply(const float* x, float* y) const { apply(x, y, 0, weight.size()); }
    // Of n values with the weights from `first` on.
    void apply(const float* x, float* y, std::size_t first, std::size_t n) const {
        double mean = 0, squares = 0;
        if (kind == NormKind::layer) {
            for (std::size_t i = 0; i < n; ++i) mean += static_cast<double>(x[i]);
            mean /= static_cast<double>(n);
        }
        for (std::size_t i = 0; i < n; ++i) squares += (x[i] - mean) * (x[i] - mean);
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
        for (std::size_t i = 0; i < n; ++i) {
            y[i] = static_cast<float>((x[i] - mean) * scale) * weight[first + i];
            if (!bias.empty()) y[i] += bias[first + i];
        }
    }
};

// x, or its norm in `scratch`.
inline const float* normed(const Norm& norm, const float* x, float* scratch) {
    if (norm.empty()) return x;
    norm.apply(x, scratch);
    return scratch;
}

// x += y
inline void add(float* x, const float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}
// x = stream_scale * (x + scale * y)
inline void add_scaled(float* x, const float* y, int64_t n, float scale, float stream_scale) {
    for (int64_t i = 0; i < n; ++i) x[i] = stream_scale * (x[i] + scale * y[i]);
}
inline void add(float* x, const Floats& y) { add(x, y.data(), static_cast<int64_t>(y.size())); }

inline float activate(Activation kind, float x) {
    const double value = x;
    switch (kind) {
        case Activation::silu:
            return static_cast<float>(value / (1.0 + std::exp(-value)));
        case Activation::gelu_tanh: {
            const double cubic = 0.7978845608028654 * (value + 0.044715 * value * value * value);
            return static_cast<float>(0.5 * value * (1.0 + std::tanh(cubic)));
        }
        case Activation::gelu:
            return static_cast<float>(0.5 * value * (1.0 + std::erf(value * 0.7071067811865476)));
        case Activation::clamped_swiglu:
            return static_cast<float>(value / (1.0 + std::exp(-1.702 * value)));
    }
    return x;
}

// activation(gate) * up, as MlpInSpec says. Without a gate, `gate` is what up gave and `up` is null.
inline float gated(Activation kind, float limit, float gate, const float* up) {
    if (up == nullptr) return activate(kind, gate);
    if (kind != Activation::clamped_swiglu) return activate(kind, gate) * *up;
    return activate(kind, std::fmin(gate, limit)) * (std::fmax(-limit, std::fmin(*up, limit)) + 1.0f);
}

// cap * tanh(value / cap); 0: no cap.
inline float soft_cap(float value, float cap) { return cap > 0 ? cap * std::tanh(value / cap) : value; }

}  // namespace foresay::kernels::reference
