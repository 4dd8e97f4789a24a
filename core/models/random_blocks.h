// core/models/random_blocks.h: synthetic weights, written directly as quantisation blocks: random ones, and ones whose
// value is zero but whose codes are random, so that they cost as much as real weights.
//
// Threads:  any; a Random belongs to one thread.
// Cost:     about a nanosecond for eight bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/quant_type.h"

namespace foresay::core {

// xorshift64*: fast, and good enough for synthetic weights.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1du;
    }
    float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

private:
    std::uint64_t state_;
};

// Writes one value to `out`. Only for quantisation types whose blocks are single values.
void put_value(kernels::QuantType quant_type, float value, std::byte* out);

// Fills whole blocks with random values of standard deviation `deviation`.
void fill_random(kernels::QuantType quant_type, std::span<std::byte> blocks, float deviation, Random& random);

// Fills whole blocks with values that are exactly zero: scales and minima of a block are 0, its codes random. Only for
// quantisation types that have scales.
void fill_zero_scaled(kernels::QuantType quant_type, std::span<std::byte> blocks, Random& random);

// Randomises the codes of every group of these blocks whose scale is 0. No value changes.
void scramble_zero_scaled(kernels::QuantType quant_type, std::span<std::byte> blocks, Random& random);

}  // namespace foresay::core
