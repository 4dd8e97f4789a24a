// kernels/cuda/memory/low_codes.h: where the codes of a page and head lie in a cache in which keys or values have fewer
// than 8 bits, and what they stand for.
//
// Layout:   planes, one after the other: K, V, then for each position two floats, K's and V's extreme (of 8 bits: its
//           largest magnitude).
//   K       the order of KvFragmentOrder with runs of 16 values of a key. 8 bits: 16 bytes a run. Else 8 bytes a run
//           with the low four bits: values j and j + 4 in byte j % 4 + j / 8 * 4; then, of 6 bits, a plane with 4 bytes
//           a run: the high bits of values j, j + 4, j + 8, j + 12 in byte j.
//   V       8 bits: as KvFormat::q8 has it. Else a byte for each position, 64 of them in a row, with the low bits of
//           values d and d + 8 of a sixteen; then, of 6 bits, a plane likewise with the high bits of d, d + 8, d + 16
//           and d + 24 of 32 values.
//           So a byte holds one position, and what writes a position reads nothing.
// Values:   (code - zero) * factor * scale.
#pragma once

#include <cstdint>

#include "kernels/cuda/memory/kv_pool.h"

namespace foresay::kernels::cuda {

struct LowCodes {
    std::int32_t width, k_bits, v_bits;

    FORESAY_HOST_DEVICE constexpr LowCodes(std::int32_t w, std::int32_t k, std::int32_t v)
        : width(w), k_bits(k), v_bits(v) {}
    FORESAY_HOST_DEVICE constexpr explicit LowCodes(const KvLayout& layout)
        : LowCodes(layout.width, layout.k_bits, layout.v_bits) {}

    // The code of 0, and what a code is multiplied by besides its scale.
    FORESAY_HOST_DEVICE static constexpr std::int32_t zero(std::int32_t bits) { return 1 << (bits - 1); }
    FORESAY_HOST_DEVICE static constexpr float factor(std::int32_t bits) {
        return bits == 8 ? 1.0f / kLargestCode : -1.0f / static_cast<float>(zero(bits));
    }

    // In bytes: where V begins, and the scales of a position.
    FORESAY_HOST_DEVICE constexpr std::int32_t values() const { return kPagePositions / 8 * width * k_bits; }
    FORESAY_HOST_DEVICE constexpr std::int32_t scales(std::int32_t place) const {
        return kPagePositions / 8 * width * (k_bits + v_bits) + 8 * place;
    }
    FORESAY_HOST_DEVICE constexpr std::int32_t bytes() const { return scales(kPagePositions); }

    // The number of the run that holds value d of a key.
    FORESAY_HOST_DEVICE static constexpr std::int32_t run(std::int32_t width, std::int32_t place, std::int32_t d) {
        const KvFragmentOrder order{16, width};
        return (order.key_place(place) + order.key_value(d)) / 16;
    }
    // Bytes of a run in the first plane, and where the second one begins.
    FORESAY_HOST_DEVICE constexpr std::int32_t run_bytes() const { return k_bits == 8 ? 16 : 8; }
    FORESAY_HOST_DEVICE constexpr std::int32_t high_keys() const { return kPagePositions * width / 2; }

    // The byte with the bits of value d at a place: of 8 bits or the low four of less (`high` false), or the high ones.
    FORESAY_HOST_DEVICE constexpr std::int32_t value(std::int32_t place, std::int32_t d, bool high) const {
        if (high) return values() + kPagePositions * width / 2 + (d / 32 * 8 + d % 8) * kPagePositions + place;
        const std::int32_t row = v_bits == 8 ? d / 16 * 16 + d % 16 : d / 16 * 8 + d % 8;
        return values() + row * kPagePositions + place;
    }

    FORESAY_HOST_DEVICE std::int32_t key_code(const unsigned char* page, std::int32_t place, std::int32_t d) const {
        const std::int32_t r = run(width, place, d), j = d % 16;
        if (k_bits == 8) return page[16 * r + j];
        const std::int32_t low = page[8 * r + j / 8 * 4 + j % 4] >> (j / 4 % 2 * 4) & 15;
        return k_bits == 4 ? low : low | (page[high_keys() + 4 * r + j % 4] >> (j / 4 * 2) & 3) << 4;
    }
    FORESAY_HOST_DEVICE std::int32_t value_code(const unsigned char* page, std::int32_t place, std::int32_t d) const {
        if (v_bits == 8) return page[value(place, d, false)];
        const std::int32_t low = page[value(place, d, false)] >> (d / 8 % 2 * 4) & 15;
        return v_bits == 4 ? low : low | (page[value(place, d, true)] >> (d / 8 % 4 * 2) & 3) << 4;
    }
    // The number at value d of a key, or of a value vector.
    FORESAY_HOST_DEVICE float number(const unsigned char* page, bool is_value, std::int32_t place,
                                     std::int32_t d) const {
        const std::int32_t bits = is_value ? v_bits : k_bits;
        const std::int32_t code = is_value ? value_code(page, place, d) : key_code(page, place, d);
        const float scale = reinterpret_cast<const float*>(page + scales(place))[is_value ? 1 : 0];
        return static_cast<float>(code - zero(bits)) * (scale * factor(bits));
    }
};

}  // namespace foresay::kernels::cuda
