// tests/kernels/oracle.h: what the kernels of an instruction set compute, in plain loops and double precision. Inputs
// of quantised matrices go through the same int8 codes as in the backend, so that nothing can hide in their rounding.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/isa_kernels.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {

// x as int8 codes with one scale per kScaleInputs values: x ~= scale * code. Zero padded.
struct Codes {
    static constexpr std::size_t kStep = kernels::cpu::kScaleInputs;
    std::vector<int> code;
    std::vector<float> scale;

    explicit Codes(const std::vector<float>& x) {
        for (std::size_t begin = 0; begin < x.size(); begin += kStep) {
            const std::size_t end = std::min(begin + kStep, x.size());
            float peak = 0.0f;
            for (std::size_t i = begin; i < end; ++i) peak = std::max(peak, std::fabs(x[i]));
            const float step = peak / 127.0f;
            const float inverse = step > 1e-37f ? 1.0f / step : 0.0f;
            scale.push_back(inverse > 0.0f ? step : 0.0f);
            for (std::size_t i = begin; i < begin + kStep; ++i)
                code.push_back(i < end ? static_cast<int>(std::nearbyint(x[i] * inverse)) : 0);
        }
    }
    std::vector<float> values(std::size_t count) const {
        std::vector<float> out(count);
        for (std::size_t i = 0; i < count; ++i) out[i] = scale[i / kStep] * static_cast<float>(code[i]);
        return out;
    }
};

// The inputs that a matrix of type `quant_type` sees.
inline std::vector<float> seen_by(QuantType quant_type, const std::vector<float>& x) {
    return is_float(quant_type) ? x : Codes(x).values(x.size());
}

struct Sum {
    double value = 0.0, magnitude = 0.0;  // of W x, and of the sum of |W x|
};

// Every output of W x; `weights` is row-major.
inline std::vector<Sum> multiply(const std::vector<float>& weights, const std::vector<float>& x) {
    std::vector<Sum> out(weights.size() / x.size());
    for (std::size_t o = 0; o < out.size(); ++o) {
        for (std::size_t i = 0; i < x.size(); ++i) {
            const double term = static_cast<double>(weights[o * x.size() + i]) * x[i];
            out[o].value += term;
            out[o].magnitude += std::fabs(term);
        }
    }
    return out;
}

inline double silu(double x) { return x / (1.0 + std::exp(-x)); }
inline double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
}

}  // namespace foresay::test
