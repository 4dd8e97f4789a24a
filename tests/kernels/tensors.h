// tests/kernels/tensors.h: weights made for a test: random numbers in any quantisation type, owned.
//
// Layout:   the data of every tensor lies at an odd address, as it may in a mapped file. Nothing may assume alignment.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant_type.h"

namespace foresay::test {

using kernels::QuantType;

inline constexpr QuantType kAllQuantTypes[kernels::kQuantTypes] = {
    QuantType::f32,  QuantType::f16,  QuantType::bf16, QuantType::q4_0,  QuantType::q8_0,
    QuantType::q4_k, QuantType::q5_k, QuantType::q6_k, QuantType::mxfp4,
};

inline bool is_float(QuantType quant_type) { return kernels::info(quant_type).block_elements == 1; }
inline bool is_k_quant(QuantType quant_type) { return kernels::info(quant_type).block_elements == 256; }

using Random = std::mt19937;

// Numbers of a bell curve by the sum of twelve uniforms, the same on every standard library.
inline std::vector<float> bell(Random& random, std::size_t count, float spread, float centre = 0.0f) {
    std::vector<float> values(count);
    for (float& value : values) {
        double sum = -6.0;
        for (int i = 0; i < 12; ++i) sum += static_cast<double>(random()) / 4294967296.0;
        value = centre + spread * static_cast<float>(sum);
    }
    return values;
}

class Tensor {
public:
    Tensor() = default;

    static Tensor of(QuantType quant_type, std::int64_t rows, std::int64_t cols, const std::vector<float>& values) {
        Tensor tensor(quant_type, rows, cols);
        const auto row = static_cast<std::size_t>(kernels::row_bytes(quant_type, cols));
        for (std::int64_t r = 0; r < rows; ++r) {
            kernels::quantize_row(quant_type, std::span(values).subspan(static_cast<std::size_t>(r * cols), cols),
                                  {tensor.data() + r * static_cast<std::int64_t>(row), row});
        }
        return tensor;
    }

    static Tensor random(Random& random, QuantType quant_type, std::int64_t rows, std::int64_t cols,
                         float spread = 0.0f, float centre = 0.0f) {
        if (spread == 0.0f) spread = 1.0f / std::sqrt(static_cast<float>(cols));
        return of(quant_type, rows, cols, bell(random, static_cast<std::size_t>(rows * cols), spread, centre));
    }

    // Blocks of random bits: every code, every scale and minimum, signs included, that a file may hold. Only the
    // floating point numbers are chosen, so that they are finite.
    static Tensor random_bits(Random& random, QuantType quant_type, std::int64_t rows, std::int64_t cols) {
        if (is_float(quant_type)) return Tensor::random(random, quant_type, rows, cols, 1.0f);
        Tensor tensor(quant_type, rows, cols);
        const std::int64_t bytes = tensor.view().bytes(), block = kernels::info(quant_type).block_bytes;
        for (std::int64_t i = 0; i < bytes; ++i) tensor.data()[i] = static_cast<std::byte>(random() & 255u);
        for (std::int64_t at = 0; at < bytes; at += block) {
            if (quant_type == QuantType::mxfp4) {
                tensor.data()[at] = static_cast<std::byte>(118 + random() % 8);  // the exponent
                continue;
            }
            tensor.put_half(at + (quant_type == QuantType::q6_k ? block - 2 : 0), random);
            if (quant_type == QuantType::q4_k || quant_type == QuantType::q5_k) tensor.put_half(at + 2, random);
        }
        return tensor;
    }

    kernels::TensorView view() const {
        if (!bytes_) return {};
        return {quant_type_, rows_, cols_, data()};
    }
    // The same numbers at an address that is a multiple of 16.
    kernels::TensorView aligned_view(std::vector<std::byte>& storage) const {
        storage.assign(data(), data() + view().bytes());
        return {quant_type_, rows_, cols_, storage.data()};
    }

    // All values, row by row.
    std::vector<float> values() const {
        std::vector<float> out(static_cast<std::size_t>(rows_ * cols_));
        for (std::int64_t r = 0; r < rows_; ++r)
            kernels::dequantize_row(view(), r, std::span(out).subspan(static_cast<std::size_t>(r * cols_), cols_));
        return out;
    }

private:
    Tensor(QuantType quant_type, std::int64_t rows, std::int64_t cols)
        : quant_type_(quant_type),
          rows_(rows),
          cols_(cols),
          bytes_(std::make_unique<std::byte[]>(
              static_cast<std::size_t>(rows * kernels::row_bytes(quant_type, cols) + 1))) {}

    std::byte* data() const { return bytes_.get() + 1; }
    void put_half(std::int64_t at, Random& random) {
        const float magnitude = 0.01f + static_cast<float>(random() % 1000) / 10000.0f;
        const std::uint16_t half = kernels::f32_to_f16(random() % 4 == 0 ? -magnitude : magnitude);
        std::memcpy(data() + at, &half, sizeof half);
    }

    QuantType quant_type_ = QuantType::f32;
    std::int64_t rows_ = 0, cols_ = 0;
    std::shared_ptr<std::byte[]> bytes_;
};

}  // namespace foresay::test
