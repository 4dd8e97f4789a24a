#include "kernels/cpu/panels.h"

#include <algorithm>
#include <cstring>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/panel_codes.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/narrow_codes.h"
#include "kernels/quant/pack_codes.h"
#include "kernels/quant/packing.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"
#include "kernels/quant/square.h"

namespace foresay::kernels::cpu {
namespace {

using std::uint32_t;
using std::uint8_t;

// Codes move four at a time. A word holds the codes of inputs 4 j to 4 j + 3 of a group, one per byte, and a vector of
// a panel holds one word per output. Masks keep every shift within its byte, so byte order does not matter.
constexpr uint32_t kNibbles = 0x0f0f0f0f;

uint32_t word(const void* from) {
    uint32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

void put_word(uint8_t (&vector)[kVectorBytes], int output, uint32_t value) {
    std::memcpy(vector + 4 * output, &value, sizeof value);
}

// Moves the 32 four-bit codes of a group, stored in the low or the high nibbles of 32 bytes. A byte of the panel holds
// inputs k and k + 16.
void put_nibbles(const uint8_t* bytes, bool high, uint8_t (&low)[4][kVectorBytes], int output) {
    for (int j = 0; j < 4; ++j) {
        const uint32_t first = word(bytes + 4 * j), second = word(bytes + 16 + 4 * j);
        put_word(low[j], output,
                 high ? (first >> 4 & kNibbles) | (second & ~kNibbles) : (first & kNibbles) | (second & kNibbles) << 4);
    }
}

// The rows of one panel in the file. Rows beyond the matrix are null and become zeros.
struct Source {
    const uint8_t* rows[kPanelOutputs];

    // Block `index` of the row of `output`; null beyond the matrix.
    template <class Block>
    const Block* block(int output, std::int64_t index) const {
        return rows[output] ? reinterpret_cast<const Block*>(rows[output]) + index : nullptr;
    }
};

// The rows of panel `p`, which take `row` bytes each.
Source source_of(const TensorView& tensor, int p, std::int64_t row) {
    Source source = {};
    for (int output = 0; output < kPanelOutputs; ++output) {
        const std::int64_t r = static_cast<std::int64_t>(p) * kPanelOutputs + output;
        if (r < tensor.rows) source.rows[output] = reinterpret_cast<const uint8_t*>(tensor.data) + r * row;
    }
    return source;
}

// Each pack() fills in block `block` of a panel, which is all zeros before. `groups`: quantisation blocks of a row in
// the file.
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ4_0& out) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = source.block<Q4_0::Block>(output, group);
            if (!from || group >= groups) continue;
            out.d[half][output] = from->d.bits();
            // The file pairs inputs k and k + 16 as well.
            for (int j = 0; j < 4; ++j) put_word(out.codes[half].low[j], output, word(from->codes + 4 * j));
        }
    }
}

void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ8_0& out) {
    constexpr uint32_t kZero = 0x80808080;  // codes are stored with 128 added
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = group < groups ? source.block<Q8_0::Block>(output, group) : nullptr;
            if (from) out.d[half][output] = from->d.bits();
            for (int j = 0; j < 8; ++j) {
                put_word(out.codes[half].vectors[j], output, from ? word(from->codes + 4 * j) ^ kZero : kZero);
            }
        }
    }
}

void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelMXFP4& out) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = source.block<MXFP4::Block>(output, group);
            if (!from || group >= groups) continue;
            out.d[half][output] = static_cast<std::uint16_t>(f32_bits(MXFP4::half_scale(from->exponent)) >> 16);
            // The file pairs inputs k and k + 16, as Q4_0.
            for (int j = 0; j < 4; ++j) put_word(out.codes[half].low[j], output, word(from->codes + 4 * j));
        }
    }
}

// Two groups of 32 inputs of the type `From`, whose numbers codes_of(block, codes) turns into unsigned codes.
template <class From, class Block, class CodesOf>
void pack_narrow(const Source& source, std::int64_t block, std::int64_t groups, Block& out, const CodesOf& codes_of) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        if (group >= groups) continue;
        PanelGroup words;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = source.block<typename From::Block>(output, group);
            if (!from) {
                words.clear(output);
                continue;
            }
            out.d[half][output] = from->d.bits();
            uint8_t codes[kGroupInputs];
            codes_of(*from, codes);
            words.set(output, codes);
        }
        put(words, out.codes[half]);
    }
}
// The numbers of a block, with `middle` added.
template <int kMiddle>
void codes_from(const Q4_0::Block& block, uint8_t (&codes)[kGroupInputs]) {
    for (int j = 0; j < 16; ++j) {
        codes[j] = static_cast<uint8_t>((block.codes[j] & 15) - 8 + kMiddle);
        codes[j + 16] = static_cast<uint8_t>((block.codes[j] >> 4) - 8 + kMiddle);
    }
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ2OfQ4_0& out) {
    pack_narrow<Q4_0>(source, block, groups, out, codes_from<2>);
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ3OfQ4_0& out) {
    pack_narrow<Q4_0>(source, block, groups, out, codes_from<4>);
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ5OfQ8_0& out) {
    pack_narrow<Q8_0>(source, block, groups, out, [](const Q8_0::Block& from, uint8_t(&codes)[kGroupInputs]) {
        for (int i = 0; i < kGroupInputs; ++i) codes[i] = static_cast<uint8_t>(from.codes[i] + 16);
    });
}
// A number of the table has as many below it as its place says; comparing runs on vectors, and a table does not.
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelIQ4_NL& out) {
    pack_narrow<Q8_0>(source, block, groups, out, [](const Q8_0::Block& from, uint8_t(&codes)[kGroupInputs]) {
        for (uint8_t& code : codes) code = 0;
        for (int place = 1; place < 16; ++place) {
            for (int i = 0; i < kGroupInputs; ++i) {
                codes[i] = static_cast<uint8_t>(codes[i] + (from.codes[i] >= kIq4Numbers[place] ? 1 : 0));
            }
        }
    });
}

void put_scales(const KScales& from, PairScales (&out)[4], int output) {
    for (int g = 0; g < KScales::kGroups; ++g) {
        const int scale = from.scale(g), minimum = from.minimum(g);
        PairScales& pair = out[g / 2];
        pair.low[g % 2][output] = static_cast<uint8_t>((scale & 15) | (minimum & 15) << 4);
        pair.high[output] = static_cast<uint8_t>(pair.high[output] | (scale >> 4 | minimum >> 4 << 2) << (4 * (g % 2)));
    }
}

void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ4_K& out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        const auto* from = source.block<Q4_K::Block>(output, block);
        if (!from) continue;
        out.d[output] = from->d.bits();
        out.dmin[output] = from->dmin.bits();
        put_scales(from->scales, out.scales, output);
        for (int g = 0; g < 8; ++g) put_nibbles(from->codes + 32 * (g / 2), g % 2 == 1, out.codes[g].low, output);
    }
}

void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ5_K& out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        const auto* from = source.block<Q5_K::Block>(output, block);
        if (!from) continue;
        out.d[output] = from->d.bits();
        out.dmin[output] = from->dmin.bits();
        put_scales(from->scales, out.scales, output);
        for (int g = 0; g < 8; ++g) {
            put_nibbles(from->low + 32 * (g / 2), g % 2 == 1, out.codes[g].low, output);
            uint32_t bits = 0;
            for (int j = 0; j < 8; ++j) bits |= (word(from->high + 4 * j) >> g & 0x01010101) << j;
            put_word(out.codes[g].fifth, output, bits);
        }
    }
}

// The codes of values 32 g to 32 g + 31.
GroupBytes codes_of(const Q6_K::Block& block, int g) {
    const int half = g / 4, quarter = g % 4;
    GroupBytes low, high;
    std::memcpy(&low, block.low + half * 64 + quarter % 2 * 32, sizeof low);
    std::memcpy(&high, block.high + half * 32, sizeof high);
    for (int e = 0; e < 4; ++e) {
        low.eights[e] =
            (low.eights[e] >> (quarter / 2 * 4) & eight_of(15)) | (high.eights[e] >> (2 * quarter) & eight_of(3)) << 4;
    }
    return low;
}
// Codes of which kLess is taken: the panel's have a smaller middle.
template <int kLess, class Block>
void pack_q6_k(const Source& source, std::int64_t block, Block& out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        const auto* from = source.block<Q6_K::Block>(output, block);
        if (!from) continue;
        out.d[output] = from->d.bits();
        for (int s = 0; s < 16; ++s) out.scales[s][output] = from->scales[s];
    }
    for (int g = 0; g < 8; ++g) {
        PanelGroup words;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = source.block<Q6_K::Block>(output, block);
            if (!from) {
                words.clear(output);
                continue;
            }
            GroupBytes codes = codes_of(*from, g);
            for (std::uint64_t& eight : codes.eights) eight -= eight_of(kLess);
            words.set(output, codes);
        }
        put(words, out.codes[g]);
    }
}
void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ6_K& out) {
    pack_q6_k<0>(source, block, out);
}
void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ3OfQ6_K& out) {
    pack_q6_k<32 - 4>(source, block, out);
}

// f16, bf16 and f32: numbers are copied unchanged.
template <class Block>
void pack_values(const Source& source, std::int64_t input, Block& out) {
    const std::int64_t offset = input * static_cast<std::int64_t>(sizeof out.values[0]);
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (!source.rows[output]) continue;
        std::memcpy(out.values + output, source.rows[output] + offset, sizeof out.values[0]);
    }
}
void pack(const Source& source, std::int64_t input, std::int64_t /*groups*/, PanelF16& out) {
    pack_values(source, input, out);
}
void pack(const Source& source, std::int64_t input, std::int64_t /*groups*/, PanelF32& out) {
    pack_values(source, input, out);
}

template <class Block>
void pack_panel(const TensorView& tensor, const Source& source, int blocks, uint8_t* out) {
    const std::int64_t groups = tensor.cols / info(tensor.quant_type).block_elements;
    int b = 0;
    if constexpr (std::is_same_v<Block, PanelF16>) {  // an input each
        for (; b + kPanelOutputs <= blocks; b += kPanelOutputs) {
            Square<std::uint16_t> square = {};
            for (int output = 0; output < kPanelOutputs; ++output) {
                const uint8_t* const row = source.rows[output];
                if (row) std::memcpy(square.row(output), row + 2 * b, sizeof(Block));
            }
            square.transpose();
            std::memcpy(out + b * std::int64_t{sizeof(Block)}, square.values, sizeof square.values);
        }
    }
    for (; b < blocks; ++b) pack(source, b, groups, reinterpret_cast<Block*>(out)[b]);
}

// What the codes of a tensor use of their type's range.
struct Numbers {
    CodeRange range = {.least = 0, .greatest = 0, .iq4 = true};

    void add(int number) {
        range.least = std::min(range.least, number);
        range.greatest = std::max(range.greatest, number);
    }
};

// The least and the greatest of many codes, byte by byte: a block's go to the places of the block before it, so that
// the loops run on vectors and nothing is summed up until all have been seen. `middle` is what zero is stored as.
struct Extremes {
    uint8_t least[kGroupInputs], greatest[kGroupInputs];

    explicit Extremes(uint8_t middle) {
        std::ranges::fill(least, middle);
        std::ranges::fill(greatest, middle);
    }
    void add(const uint8_t (&codes)[kGroupInputs]) {
        for (int i = 0; i < kGroupInputs; ++i) least[i] = std::min(least[i], codes[i]);
        for (int i = 0; i < kGroupInputs; ++i) greatest[i] = std::max(greatest[i], codes[i]);
    }
    void add_to(Numbers& numbers, int middle) const {
        numbers.add(*std::ranges::min_element(least) - middle);
        numbers.add(*std::ranges::max_element(greatest) - middle);
    }
};

// Of `count` neighbouring blocks.
void add_numbers(const Q4_0::Block* blocks, std::int64_t count, Numbers& numbers) {
    Extremes extremes(8);
    for (std::int64_t b = 0; b < count; ++b) {
        uint8_t codes[kGroupInputs];
        codes_from<8>(blocks[b], codes);
        extremes.add(codes);
    }
    extremes.add_to(numbers, 8);
}
void add_numbers(const Q8_0::Block* blocks, std::int64_t count, Numbers& numbers) {
    Extremes extremes(128);
    uint8_t all = 1;  // are numbers of IQ4_NL
    for (std::int64_t b = 0; b < count; ++b) {
        uint8_t codes[kGroupInputs];
        for (int i = 0; i < kGroupInputs; ++i) codes[i] = static_cast<uint8_t>(blocks[b].codes[i] ^ 0x80);
        extremes.add(codes);
        if (!numbers.range.iq4) continue;
        uint8_t some[kGroupInputs] = {};
        for (const std::int8_t number : kIq4Numbers) {
            const auto code = static_cast<uint8_t>(number ^ 0x80);
            for (int i = 0; i < kGroupInputs; ++i) some[i] = static_cast<uint8_t>(some[i] | (codes[i] == code ? 1 : 0));
        }
        for (const uint8_t one : some) all &= one;
        if (all == 0) numbers.range.iq4 = false;
    }
    extremes.add_to(numbers, 128);
}
void add_numbers(const Q6_K::Block* blocks, std::int64_t count, Numbers& numbers) {
    Extremes extremes(32);
    for (std::int64_t b = 0; b < count; ++b) {
        for (int g = 0; g < Q6_K::kElements / kGroupInputs; ++g) {
            const GroupBytes group = codes_of(blocks[b], g);
            uint8_t codes[kGroupInputs];
            std::memcpy(codes, &group, sizeof codes);
            extremes.add(codes);
        }
    }
    extremes.add_to(numbers, 32);
}

PanelType narrower(QuantType quant_type, const Numbers& numbers) {
    const int bits = narrow_bits(quant_type, numbers.range);
    if (bits == 0) return own_panel_type(quant_type);
    if (quant_type == QuantType::q6_k) return PanelType::q3_of_q6_k;
    if (quant_type == QuantType::q4_0) return bits == 2 ? PanelType::q2_of_q4_0 : PanelType::q3_of_q4_0;
    return bits == 4 ? PanelType::iq4_nl_of_q8_0 : PanelType::q5_of_q8_0;
}
// What estimates say of a block's values is what panels have.
template <class Panel>
constexpr bool takes(QuantType type, int elements, int bits) {
    return sizeof(Panel) == narrow_block_bytes(type, bits) * kPanelOutputs * (Panel::kInputs / elements);
}
static_assert(takes<PanelQ2OfQ4_0>(QuantType::q4_0, 32, 2) && takes<PanelQ3OfQ4_0>(QuantType::q4_0, 32, 3) &&
              takes<PanelIQ4_NL>(QuantType::q8_0, 32, 4) && takes<PanelQ5OfQ8_0>(QuantType::q8_0, 32, 5) &&
              takes<PanelQ3OfQ6_K>(QuantType::q6_k, 256, 3));

template <class Type>
PanelType panel_type_of(const TensorView& tensor) {
    constexpr std::int64_t kAtOnce = 256;  // blocks; the first one alone decides most tensors
    const auto* blocks = reinterpret_cast<const typename Type::Block*>(tensor.data);
    const std::int64_t count = tensor.elements() / Type::kElements;
    Numbers numbers;
    for (std::int64_t b = 0; b < count;) {
        const std::int64_t some = b == 0 ? 1 : std::min(kAtOnce, count - b);
        add_numbers(blocks + b, some, numbers);
        if (narrower(tensor.quant_type, numbers) == own_panel_type(tensor.quant_type)) break;
        b += some;
    }
    return narrower(tensor.quant_type, numbers);
}

using Heads = const std::byte* const (&)[kPanelOutputs];

// The field of kBytes bytes at `offset` of the heads of 16 rows.
template <int kBytes>
std::uint8_t* put_field(Heads heads, int offset, std::uint8_t* out) {
    for (const std::byte* head : heads) {
        if (head != nullptr) std::memcpy(out, head + offset, kBytes);
        out += kBytes;
    }
    return out;
}
std::uint8_t* put_floats(Heads heads, int offset, float factor, std::uint8_t* out) {
    for (const std::byte* head : heads) {
        float value = 0.0f;
        if (head != nullptr) std::memcpy(&value, head + offset, sizeof value);
        value *= factor;
        std::memcpy(out, &value, sizeof value);
        out += sizeof value;
    }
    return out;
}
// The bytes of each 16 inputs, which begin at byte 4.
std::uint8_t* put_sixteens(Heads heads, std::uint8_t* out) {
    static_assert(2 * kGroupsOfKHead == kPanelOutputs && kPanelOutputs == kSquare);
    Square<uint8_t> square = {};
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (heads[output] != nullptr) std::memcpy(square.row(output), heads[output] + 4, 16);
    }
    square.transpose();
    std::memcpy(out, square.values, sizeof square.values);
    return out + sizeof square.values;
}

std::uint8_t* put_heads(ScaleForm form, float factor, Heads heads, std::uint8_t* out) {
    switch (form) {
        case ScaleForm::f16_minimum:
            return put_field<2>(heads, 2, put_field<2>(heads, 0, out));
        case ScaleForm::f16_zero: {
            out = put_field<2>(heads, 0, out);
            for (const std::byte* head : heads) {
                std::int16_t zero = 0;
                if (head != nullptr) std::memcpy(&zero, head + 2, sizeof zero);
                const std::uint16_t half = f32_to_f16(static_cast<float>(zero));
                std::memcpy(out, &half, sizeof half);
                out += sizeof half;
            }
            return out;
        }
        case ScaleForm::f32_minimum:
        case ScaleForm::f32_zero:
            return put_field<4>(heads, 4, put_field<4>(heads, 0, out));
        case ScaleForm::f32_table:
            return put_floats(heads, 4, factor, put_floats(heads, 0, factor, out));
        case ScaleForm::e4m3:
            return put_floats(heads, 0, 256.0f, out);
        case ScaleForm::k_minimum:
            return put_sixteens(heads, put_field<2>(heads, 2, put_field<2>(heads, 0, out)));
        case ScaleForm::k_table:
            return put_sixteens(heads, put_field<4>(heads, 0, out));
    }
    return out;
}

// The vectors of codes of a number of bits.
template <int kBits>
struct PanelCodes;
template <>
struct PanelCodes<2> : std::type_identity<Codes2> {};
template <>
struct PanelCodes<3> : std::type_identity<Codes3> {};
template <>
struct PanelCodes<4> : std::type_identity<Codes4> {};
template <>
struct PanelCodes<5> : std::type_identity<Codes5> {};
template <>
struct PanelCodes<6> : std::type_identity<Codes6> {};
template <>
struct PanelCodes<8> : std::type_identity<Codes8> {};

// The codes that lie `at` bytes into each of 16 rows; zeros where there is no row.
template <int kBits>
void put_packed_group(const Source& source, std::int64_t at, uint8_t* out) {
    PanelGroup words;
    for (int output = 0; output < kPanelOutputs; ++output) {
        const uint8_t* const row = source.rows[output];
        words.set(output, row ? split_group<kBits>(reinterpret_cast<const std::byte*>(row + at)) : GroupBytes{});
    }
    put(words, *reinterpret_cast<typename PanelCodes<kBits>::type*>(out));
}

// The same of floats of eight bits, whose panels are bytes (input, output).
void put_float_group(const Source& source, std::int64_t at, uint8_t* out) {
    for (int half = 0; half < 2; ++half) {
        Square<uint8_t> square = {};
        for (int output = 0; output < kPanelOutputs; ++output) {
            const uint8_t* const row = source.rows[output];
            if (row) std::memcpy(square.row(output), row + at + 16 * half, 16);
        }
        square.transpose();
        std::memcpy(out + half * sizeof square.values, square.values, sizeof square.values);
    }
}

// The panel of 16 packed rows, which have the same fields at the same places; null ones are beyond the matrix and
// become zeros.
void pack_rows(const Packing& packing, const Source& source, std::int64_t groups, uint8_t* out) {
    std::int64_t at = 0;  // in each row
    std::size_t next_kind = 0;
    for (std::int64_t g = 0; g < groups; ++g) {
        const std::uint8_t kind = packing.kinds[next_kind++];
        if (next_kind == packing.kinds.size()) next_kind = 0;
        if ((kind & kHead) != 0) {
            const std::byte* heads[kPanelOutputs] = {};
            for (int output = 0; output < kPanelOutputs; ++output) {
                const uint8_t* const row = source.rows[output];
                if (row) heads[output] = reinterpret_cast<const std::byte*>(row + at);
            }
            out = put_heads(packing.form, packing.factor, heads, out);
            at += head_bytes(packing.form);
        }
        const int bits = kind & ~kHead;
        if (packing.form == ScaleForm::e4m3) {
            put_float_group(source, at, out);
        } else {
            with_bits(bits,
                      [&]<int kBits>(std::integral_constant<int, kBits>) { put_packed_group<kBits>(source, at, out); });
        }
        at += bits * (kPackedGroup / 8);
        out += kVectorBytes * bits;
    }
}

PanelMatrix pack_packed(const TensorView& tensor, Arena& arena, ThreadPool& pool) {
    const Packing& packing = *tensor.packing;
    check(packing.factor == 1.0f || packing.form == ScaleForm::f32_table, "a factor of a form that has none");
    PanelMatrix matrix;
    matrix.quant_type = tensor.quant_type;
    matrix.type = PanelType::packed;
    matrix.outputs = tensor.rows;
    matrix.inputs = tensor.cols;
    matrix.panels = static_cast<int>(round_up(tensor.rows, kPanelOutputs) / kPanelOutputs);
    matrix.blocks = static_cast<int>(tensor.cols / kPackedGroup);
    const std::int64_t row = tensor.row_bytes();
    matrix.panel_bytes = kPanelOutputs * row;
    matrix.memory = arena.allocate(matrix.panels * matrix.panel_bytes);
    matrix.kinds_of_groups = packing.kinds;
    matrix.packed.form = packing.form;
    matrix.packed.period = static_cast<int>(packing.kinds.size());
    for (std::size_t i = 0; i < packing.table.size(); ++i) {
        matrix.packed.table[i] = static_cast<uint8_t>(packing.table[i] + 128);
    }
    matrix.order = packing.order;
    auto* out = reinterpret_cast<uint8_t*>(matrix.memory.data);
    pool.run(matrix.panels, 1, [&](int begin, int end, int) {
        for (int p = begin; p < end; ++p) {
            pack_rows(packing, source_of(tensor, p, row), matrix.blocks, out + p * matrix.panel_bytes);
        }
    });
    return matrix;
}

}  // namespace

PanelType panel_type(const TensorView& tensor) {
    if (tensor.data == nullptr) return own_panel_type(tensor.quant_type);
    if (tensor.quant_type == QuantType::q4_0) return panel_type_of<Q4_0>(tensor);
    if (tensor.quant_type == QuantType::q8_0) return panel_type_of<Q8_0>(tensor);
    if (tensor.quant_type == QuantType::q6_k) return panel_type_of<Q6_K>(tensor);
    return own_panel_type(tensor.quant_type);
}

std::int64_t packed_bytes(const TensorView& tensor) {
    if (tensor.packing != nullptr) return round_up(tensor.rows, kPanelOutputs) * tensor.row_bytes();
    const PanelFormat format = panel_format(panel_type(tensor));
    return round_up(tensor.rows, kPanelOutputs) / kPanelOutputs *
           (round_up(tensor.cols, format.block_inputs) / format.block_inputs) * format.block_bytes;
}

PanelMatrix pack(const TensorView& tensor, Arena& arena, ThreadPool& pool) {
    if (tensor.packing != nullptr) return pack_packed(tensor, arena, pool);
    PanelMatrix matrix;
    matrix.quant_type = tensor.quant_type;
    matrix.type = panel_type(tensor);
    const PanelFormat format = panel_format(matrix.type);
    matrix.outputs = tensor.rows;
    matrix.inputs = tensor.cols;
    matrix.panels = static_cast<int>(round_up(tensor.rows, kPanelOutputs) / kPanelOutputs);
    matrix.blocks = static_cast<int>(round_up(tensor.cols, format.block_inputs) / format.block_inputs);
    matrix.panel_bytes = static_cast<std::int64_t>(matrix.blocks) * format.block_bytes;
    matrix.memory = arena.allocate(matrix.panels * matrix.panel_bytes);  // zeroed: missing outputs have scale 0
    const std::int64_t row = row_bytes(tensor.quant_type, tensor.cols);
    auto* out = reinterpret_cast<uint8_t*>(matrix.memory.data);
    pool.run(matrix.panels, 1, [&](int begin, int end, int) {
        for (int p = begin; p < end; ++p) {
            const Source source = source_of(tensor, p, row);
            visit_panel_type(matrix.type, [&]<class Block>(const Block&) {
                pack_panel<Block>(tensor, source, matrix.blocks, out + p * matrix.panel_bytes);
            });
        }
    });
    return matrix;
}

}  // namespace foresay::kernels::cpu
