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

// RMS norm: y = x / sqrt(mean(x^2) + eps) * weight. In place where x == y.
struct Norm {
    Floats weight;
    float eps = 0;

    explicit Norm(const NormSpec& spec) : weight(dequantize(spec.weight)), eps(spec.eps) {
        if (spec.plus_one) {
            for (float& w : weight) w += 1.0f;
        }
    }
    bool empty() const { return weight.empty(); }
    void apply(const float* x, float* y) const {
        double squares = 0;
        for (std::size_t i = 0; i < weight.size(); ++i) squares += static_cast<double>(x[i]) * x[i];
        const double scale = 1.0 / std::sqrt(squares / static_cast<double>(weight.size()) + eps);
        for (std::size_t i = 0; i < weight.size(); ++i) y[i] = static_cast<float>(x[i] * scale) * weight[i];
    }
};

// x += y
inline void add(float* x, const float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) x[i] += y[i];
}
inline void add(float* x, const Floats& y) { add(x, y.data(), static_cast<int64_t>(y.size())); }

// cap * tanh(value / cap); 0: no cap.
inline float soft_cap(float value, float cap) { return cap > 0 ? cap * std::tanh(value / cap) : value; }

}  // namespace foresay::kernels::reference
