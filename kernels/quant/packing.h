// kernels/quant/packing.h: rows whose layout is data: codes of any width under scales of any form, for formats of files
// that no type of their own exists for.
//
// Layout:   a row is a sequence of groups of 32 inputs, a group its 32 codes as a stream of bits, the lowest first: 4
//           bytes for each bit of a code. Before a group whose scales are not those of the group before lies a head:
//             f16_minimum  f16 d, f16 m                     value = d * code + m
//             f32_minimum  f32 d, f32 m                     value = d * code + m
//             f16_zero     f16 d, i16 zero                  value = d * (code - zero)
//             f32_zero     f32 d, f32 zero                  value = d * (code - zero)
//             k_minimum    f16 d, f16 dmin, 16 bytes        value = (d * low half) * code - dmin * high half; a byte
//                                                           for each 16 inputs
//             k_table      f32 d, 16 bytes i8 scales        value = (d * scale) * table[code]
//             f32_table    f32 s, f32 t                     value = s * table[code]; t for the second 16 inputs
//             e4m3         f32 d                            value = d * number; the code is a float of 8 bits
//           and every value is multiplied by `factor`. Heads of the k forms hold what eight groups need.
// Precision: each product and sum rounds to float32 once, in the order above, which is that of the formats.
// Threads:  any; everything here is immutable once made.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "kernels/quant/f16.h"
#include "kernels/quant/scale_form.h"
#include "kernels/quant_type.h"

namespace foresay::kernels {

struct Packing {
    ScaleForm form = ScaleForm::f16_minimum;
    // Of each group: the bits of its codes (2, 3, 4, 5, 6 or 8), and kHead. Repeats when a row has more groups.
    std::vector<std::uint8_t> kinds;
    std::array<std::int8_t, 16> table{};  // of the table forms
    float factor = 1.0f;
    // Which input of the matrix stands at each place of a row; empty: each at its own.
    std::vector<std::int32_t> order = {};
    // A type with blocks of its own that holds every value, for backends without kernels for packed rows: float32,
    // bfloat16, Q8_0 (of f16_zero in no order), or Q6_K (of k_table with d of float16).
    QuantType plain = QuantType::f32;

    std::uint8_t kind(std::int64_t group) const { return kinds[static_cast<std::size_t>(group) % kinds.size()]; }
};

// The bits that codes below 2^bits take.
constexpr int packed_bits(int bits) { return bits <= 2 ? 2 : bits == 7 ? 8 : bits; }

// The number of a float of eight bits with four of exponent (bias 7); 0x7f and 0xff are NaN.
float e4m3_value(std::uint8_t code);

// The head and the codes of one group of a row.
struct PackedGroup {
    const std::byte* head = nullptr;  // of this group or of one before
    int index = 0;                    // how many groups before this one have the same head
    int bits = 0;
    const std::byte* codes = nullptr;

    void unpack(std::uint8_t (&out)[kPackedGroup]) const;
};

// Walks the groups of a row.
class PackedRow {
public:
    PackedRow(const Packing& packing, const std::byte* row) : packing_(packing), at_(row) {}
    PackedGroup next() {
        const std::uint8_t kind = packing_.kinds[kind_++];
        if (kind_ == packing_.kinds.size()) kind_ = 0;
        if ((kind & kHead) != 0) {
            head_ = at_;
            since_head_ = 0;
            at_ += head_bytes(packing_.form);
        }
        const int bits = kind & ~kHead;
        const PackedGroup group{head_, since_head_++, bits, at_};
        at_ += bits * (kPackedGroup / 8);
        return group;
    }

private:
    const Packing& packing_;
    const std::byte* at_;
    const std::byte* head_ = nullptr;
    int since_head_ = 0;
    std::size_t kind_ = 0;  // of the next group
};

// The exact path.
void dequantize_packed(const Packing& packing, const std::byte* row, std::span<float> out);

// A row in packing.plain; `out` holds row_bytes(packing.plain, cols) bytes.
void unpack_to_plain(const Packing& packing, const std::byte* row, std::int64_t cols, std::byte* out);

// Whether every value is finite.
bool packed_is_finite(const Packing& packing, const std::byte* row, std::int64_t cols);

// Writers: each returns where the next piece goes.
template <class T>
std::byte* put_bytes(std::byte* out, const T& value) {
    std::memcpy(out, &value, sizeof value);
    return out + sizeof value;
}
std::byte* put_codes(std::byte* out, int bits, const std::uint8_t (&codes)[kPackedGroup]);

}  // namespace foresay::kernels
