// tests/cuda_linear/device_case.h: what the tests of the device's matrix ops share.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "kernels/cuda/linear.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {

namespace cuda = kernels::cuda;

// Skips the test where there is no device.
#define SKIP_WITHOUT_DEVICE()                                                                \
    do {                                                                                     \
        std::string why;                                                                     \
        if (kernels::cuda_devices(&why).empty()) GTEST_SKIP() << "not run on CUDA: " << why; \
    } while (false)

template <class T>
std::vector<T> to_host(const cuda::DeviceBuffer<T>& buffer) {
    std::vector<T> values(buffer.size());
    cuda::cuda_check(cudaDeviceSynchronize(), "a kernel failed");
    cuda::cuda_check(cudaMemcpy(values.data(), buffer.data(), buffer.bytes(), cudaMemcpyDeviceToHost),
                     "cannot read back");
    return values;
}

inline cuda::DeviceBuffer<float> on_device(const std::vector<float>& values) {
    return cuda::to_device(std::span<const float>(values));
}

// NaN everywhere, so that an output that a kernel does not write shows.
inline cuda::DeviceBuffer<float> poisoned(std::size_t count) {
    return on_device(std::vector<float>(count, std::numeric_limits<float>::quiet_NaN()));
}

inline std::vector<float> dequantized(const kernels::TensorView& view) {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    for (std::int64_t r = 0; r < view.rows; ++r) {
        kernels::dequantize_row(
            view, r,
            std::span(values).subspan(static_cast<std::size_t>(r * view.cols), static_cast<std::size_t>(view.cols)));
    }
    return values;
}

// W x for every row of `x` [rows, cols], in double precision.
inline std::vector<double> product(const kernels::TensorView& view, const std::vector<double>& x) {
    const std::vector<float> weights = dequantized(view);
    const auto cols = static_cast<std::size_t>(view.cols), outs = static_cast<std::size_t>(view.rows);
    std::vector<double> y(x.size() / cols * outs);
    for (std::size_t t = 0; t < x.size() / cols; ++t) {
        for (std::size_t o = 0; o < outs; ++o) {
            double sum = 0;
            for (std::size_t k = 0; k < cols; ++k) sum += static_cast<double>(weights[o * cols + k]) * x[t * cols + k];
            y[t * outs + o] = sum;
        }
    }
    return y;
}

// RMS norm of every row, in double precision.
inline std::vector<double> normed(const std::vector<float>& x, const std::vector<float>& weight, float eps) {
    std::vector<double> y(x.size());
    const std::size_t n = weight.size();
    for (std::size_t t = 0; t < x.size() / n; ++t) {
        double squares = 0;
        for (std::size_t i = 0; i < n; ++i) squares += static_cast<double>(x[t * n + i]) * x[t * n + i];
        const double factor = 1.0 / std::sqrt(squares / static_cast<double>(n) + eps);
        for (std::size_t i = 0; i < n; ++i) y[t * n + i] = x[t * n + i] * factor * weight[i];
    }
    return y;
}

// Length of the difference over length of the truth; NaN counts as 1e30.
template <class A, class B>
double distance(const std::vector<A>& got, const std::vector<B>& truth) {
    EXPECT_EQ(got.size(), truth.size());
    double difference = 0, length = 0;
    for (std::size_t i = 0; i < truth.size(); ++i) {
        const double d = static_cast<double>(got[i]) - static_cast<double>(truth[i]);
        if (!std::isfinite(d)) return 1e30;
        difference += d * d;
        length += static_cast<double>(truth[i]) * static_cast<double>(truth[i]);
    }
    return std::sqrt(difference / length);
}

// Decode rows: inputs of quantised matrices are float16, an error of 2^-12 of each, averaged; float matrices see inputs
// with twice the digits. Prefill rows: inputs and weights are float16, except in float32 matrices, which stay float32.
inline double tolerance(QuantType quant_type, kernels::RowClass row_class = kernels::RowClass::decode) {
    if (row_class == kernels::RowClass::prefill) return quant_type == QuantType::f32 ? 2e-5 : 6e-4;
    return is_float(quant_type) ? 2e-5 : 6e-4;
}

}  // namespace foresay::test
