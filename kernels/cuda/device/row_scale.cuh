// kernels/cuda/device/row_scale.cuh: the power of two that a row of activations is multiplied by before it is rounded
// to float16 or codes, and the one that scales the sums back.
//
// The row's largest magnitude ends up between 2^13 and 2^14. Powers of two are exact, so the order of scaling and
// adding does not matter.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

// The largest magnitude of `most` and four inputs.
__device__ inline float larger_magnitude(float most, float4 a) {
    return fmaxf(most, fmaxf(fmaxf(fabsf(a.x), fabsf(a.y)), fmaxf(fabsf(a.z), fabsf(a.w))));
}

// The exponent is at least 20, so that rows of zeros have a finite scale, and with kOfInfinities at most 254, so that
// the scale of an infinity is a number too.
template <bool kOfInfinities>
struct RowScale {
    int exponent;
    // `most`: the bits of the row's largest magnitude.
    __device__ explicit RowScale(std::uint32_t most) : exponent(max(static_cast<int>(most >> 23), 20)) {
        if (kOfInfinities) exponent = min(exponent, 254);
    }
    __device__ float up() const { return __uint_as_float(static_cast<std::uint32_t>(267 - exponent) << 23); }
    __device__ float back() const { return __uint_as_float(back_exponent() << 23); }
    __device__ std::uint32_t back_exponent() const { return static_cast<std::uint32_t>(exponent - 13); }
};

}  // namespace foresay::kernels::cuda
