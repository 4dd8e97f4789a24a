#include "kernels/cpu/panels.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "kernels/cpu/thread_pool.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/packing.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels::cpu {
namespace {

using std::uint32_t;
using std::uint8_t;

// Codes move four at a time. A word holds the codes of inputs 4 j to 4 j + 3 of a group, one per byte, and a vector of
// a panel holds one word per output. Masks keep every shift within its byte, so byte order does not matter.
constexpr uint32_t kNibbles = 0x0f0f0f0f;

// The place of a number, as the byte of an int8, in kIq4Numbers; 16: it is none of them.
constexpr std::array<uint8_t, 256> kIq4Place = [] {
    std::array<uint8_t, 256> places{};
    for (uint8_t& place : places) place = 16;
    for (std::size_t i = 0; i < 16; ++i) places[static_cast<uint8_t>(kIq4Numbers[i])] = static_cast<uint8_t>(i);
    return places;
}();

uint32_t word(const void* from) {
    uint32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

void put_word(uint8_t (&vector)[kVectorBytes], int output, uint32_t value) {
    std::memcpy(vector + 4 * output, &value, sizeof value);
}

void or_word(uint8_t (&vector)[kVectorBytes], int output, uint32_t value) {
    put_word(vector, output, word(vector + 4 * output) | value);
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

// A group of 32 codes below 4, 8 or 32.
void put_codes(const uint8_t (&codes)[kGroupInputs], Codes2& out, int output) {
    for (int g = 0; g < 8; ++g) {
        or_word(out.low[g / 4], output, (word(codes + 4 * g) & 0x03030303) << (2 * (g % 4)));
    }
}
void put_codes(const uint8_t (&codes)[kGroupInputs], Codes3& out, int output) {
    for (int g = 0; g < 8; ++g) {
        or_word(out.low[g / 4], output, (word(codes + 4 * g) & 0x03030303) << (2 * (g % 4)));
        or_word(out.third, output, (word(codes + 4 * g) >> 2 & 0x01010101) << g);
    }
}
void put_codes(const uint8_t (&codes)[kGroupInputs], Codes5& out, int output) {
    put_nibbles(codes, false, out.low, output);
    for (int g = 0; g < 8; ++g) or_word(out.fifth, output, (word(codes + 4 * g) >> 4 & 0x01010101) << g);
}
void put_codes(const uint8_t (&codes)[kGroupInputs], Codes4& out, int output) {
    put_nibbles(codes, false, out.low, output);
}

// Two groups of 32 inputs of the type `From`, whose numbers code_of(block, i) turns into unsigned codes.
template <class From, class Block, class CodeOf>
void pack_narrow(const Source& source, std::int64_t block, std::int64_t groups, Block& out, const CodeOf& code_of) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const auto* from = source.block<typename From::Block>(output, group);
            if (!from || group >= groups) continue;
            out.d[half][output] = from->d.bits();
            uint8_t codes[kGroupInputs];
            for (int i = 0; i < kGroupInputs; ++i) codes[i] = static_cast<uint8_t>(code_of(*from, i));
            put_codes(codes, out.codes[half], output);
        }
    }
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ2OfQ4_0& out) {
    pack_narrow<Q4_0>(source, block, groups, out, [](const auto& from, int i) { return Q4_0::code(from, i) - 8 + 2; });
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ3OfQ4_0& out) {
    pack_narrow<Q4_0>(source, block, groups, out, [](const auto& from, int i) { return Q4_0::code(from, i) - 8 + 4; });
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelQ5OfQ8_0& out) {
    pack_narrow<Q8_0>(source, block, groups, out, [](const auto& from, int i) { return from.codes[i] + 16; });
}
void pack(const Source& source, std::int64_t block, std::int64_t groups, PanelIQ4_NL& out) {
    pack_narrow<Q8_0>(source, block, groups, out,
                      [](const auto& from, int i) { return kIq4Place[static_cast<uint8_t>(from.codes[i])]; });
}

void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ3OfQ6_K& out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        const auto* from = source.block<Q6_K::Block>(output, block);
        if (!from) continue;
        out.d[output] = from->d.bits();
        for (int s = 0; s < 16; ++s) out.scales[s][output] = from->scales[s];
        for (int g = 0; g < 8; ++g) {
            uint8_t codes[kGroupInputs];
            for (int i = 0; i < kGroupInputs; ++i) {
                codes[i] = static_cast<uint8_t>(Q6_K::code(*from, kGroupInputs * g + i) - 32 + 4);
            }
            put_codes(codes, out.codes[g], output);
        }
    }
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

void pack(const Source& source, std::int64_t block, std::int64_t /*groups*/, PanelQ6_K& out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        const auto* from = source.block<Q6_K::Block>(output, block);
        if (!from) continue;
        out.d[output] = from->d.bits();
        for (int s = 0; s < 16; ++s) out.scales[s][output] = from->scales[s];
        for (int g = 0; g < 8; ++g) {
            const int half = g / 4, quarter = g % 4;
            put_nibbles(from->low + 64 * half + 32 * (quarter % 2), quarter >= 2, out.codes[g].low, output);
            const uint8_t* high = from->high + 32 * half;  // bits 2 q and 2 q + 1 belong to quarter q
            for (int j = 0; j < 8; ++j) {
                or_word(out.codes[g].upper[j / 4], output,
                        (word(high + 4 * j) >> (2 * quarter) & 0x03030303) << (2 * (j % 4)));
            }
        }
    }
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
    for (int b = 0; b < blocks; ++b) pack(source, b, groups, reinterpret_cast<Block*>(out)[b]);
}

// The least and the greatest number of a tensor's codes, and whether all are among those of IQ4_NL.
struct Numbers {
    int least = 0, greatest = 0;
    bool iq4 = true;

    void add(int number) {
        least = std::min(least, number);
        greatest = std::max(greatest, number);
    }
    bool within(int low, int high) const { return least >= low && greatest <= high; }
};

void add_numbers(const Q4_0::Block& block, Numbers& numbers) {
    for (int i = 0; i < Q4_0::kElements; ++i) numbers.add(Q4_0::code(block, i) - 8);
}
void add_numbers(const Q8_0::Block& block, Numbers& numbers) {
    for (const std::int8_t code : block.codes) {
        numbers.add(code);
        numbers.iq4 = numbers.iq4 && kIq4Place[static_cast<uint8_t>(code)] < 16;
    }
}
void add_numbers(const Q6_K::Block& block, Numbers& numbers) {
    for (int i = 0; i < Q6_K::kElements; ++i) numbers.add(Q6_K::code(block, i) - 32);
}

PanelType narrower(QuantType quant_type, const Numbers& numbers) {
    if (quant_type == QuantType::q4_0 && numbers.within(-2, 1)) return PanelType::q2_of_q4_0;
    if (quant_type == QuantType::q4_0 && numbers.within(-4, 3)) return PanelType::q3_of_q4_0;
    if (quant_type == QuantType::q8_0 && numbers.iq4) return PanelType::iq4_nl_of_q8_0;
    if (quant_type == QuantType::q8_0 && numbers.within(-16, 15)) return PanelType::q5_of_q8_0;
    if (quant_type == QuantType::q6_k && numbers.within(-4, 3)) return PanelType::q3_of_q6_k;
    return own_panel_type(quant_type);
}

template <class Type>
PanelType panel_type_of(const TensorView& tensor) {
    const auto* blocks = reinterpret_cast<const typename Type::Block*>(tensor.data);
    Numbers numbers;
    for (std::int64_t b = 0; b < tensor.elements() / Type::kElements; ++b) {
        add_numbers(blocks[b], numbers);
        if (narrower(tensor.quant_type, numbers) == own_panel_type(tensor.quant_type)) break;
    }
    return narrower(tensor.quant_type, numbers);
}

}  // namespace

namespace {

// Field `offset` of `bytes` bytes of the heads of 16 rows.
std::uint8_t* put_field(const std::byte* const (&heads)[kPanelOutputs], int offset, int bytes, std::uint8_t* out) {
    for (const std::byte* head : heads) {
        if (head != nullptr) std::memcpy(out, head + offset, static_cast<std::size_t>(bytes));
        out += bytes;
    }
    return out;
}
std::uint8_t* put_floats(const std::byte* const (&heads)[kPanelOutputs], int offset, float factor, std::uint8_t* out) {
    for (const std::byte* head : heads) {
        float value = 0.0f;
        if (head != nullptr) std::memcpy(&value, head + offset, sizeof value);
        value *= factor;
        std::memcpy(out, &value, sizeof value);
        out += sizeof value;
    }
    return out;
}

std::uint8_t* put_heads(ScaleForm form, float factor, const std::byte* const (&heads)[kPanelOutputs],
                        std::uint8_t* out) {
    switch (form) {
        case ScaleForm::f16_minimum:
            return put_field(heads, 2, 2, put_field(heads, 0, 2, out));
        case ScaleForm::f16_zero: {
            out = put_field(heads, 0, 2, out);
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
            return put_field(heads, 4, 4, put_field(heads, 0, 4, out));
        case ScaleForm::f32_table:
            return put_floats(heads, 4, factor, put_floats(heads, 0, factor, out));
        case ScaleForm::e4m3:
            return put_floats(heads, 0, 256.0f, out);
        case ScaleForm::k_minimum:
            out = put_field(heads, 2, 2, put_field(heads, 0, 2, out));
            break;
        case ScaleForm::k_table:
            out = put_field(heads, 0, 4, out);
            break;
    }
    for (int sixteen = 0; sixteen < 2 * kGroupsOfKHead; ++sixteen) out = put_field(heads, 4 + sixteen, 1, out);
    return out;
}

void put_codes(const uint8_t (&codes)[kGroupInputs], Codes6& out, int output) {
    put_nibbles(codes, false, out.low, output);
    for (int g = 0; g < 8; ++g) {
        or_word(out.upper[g / 4], output, (word(codes + 4 * g) >> 4 & 0x03030303) << (2 * (g % 4)));
    }
}
void put_codes(const uint8_t (&codes)[kGroupInputs], Codes8& out, int output) {
    for (int g = 0; g < 8; ++g) put_word(out.vectors[g], output, word(codes + 4 * g));
}

void put_group(ScaleForm form, int bits, const uint8_t (&codes)[kGroupInputs], uint8_t* out, int output) {
    if (form == ScaleForm::e4m3) {
        for (int i = 0; i < kGroupInputs; ++i) out[kPanelOutputs * i + output] = codes[i];
        return;
    }
    switch (bits) {
        case 2:
            return put_codes(codes, *reinterpret_cast<Codes2*>(out), output);
        case 3:
            return put_codes(codes, *reinterpret_cast<Codes3*>(out), output);
        case 4:
            return put_codes(codes, *reinterpret_cast<Codes4*>(out), output);
        case 5:
            return put_codes(codes, *reinterpret_cast<Codes5*>(out), output);
        case 6:
            return put_codes(codes, *reinterpret_cast<Codes6*>(out), output);
        default:
            return put_codes(codes, *reinterpret_cast<Codes8*>(out), output);
    }
}

// The panel of 16 packed rows; null ones are beyond the matrix and become zeros.
void pack_rows(const Packing& packing, const Source& source, std::int64_t groups, uint8_t* out) {
    std::vector<PackedRow> rows;
    std::vector<int> outputs;
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (source.rows[output] == nullptr) continue;
        rows.emplace_back(packing, reinterpret_cast<const std::byte*>(source.rows[output]));
        outputs.push_back(output);
    }
    for (std::int64_t g = 0; g < groups; ++g) {
        const std::uint8_t kind = packing.kind(g);
        const int bits = kind & ~kHead;
        const std::byte* heads[kPanelOutputs] = {};
        uint8_t codes[kPanelOutputs][kGroupInputs];
        for (std::size_t r = 0; r < rows.size(); ++r) {
            const PackedGroup group = rows[r].next();
            group.unpack(codes[r]);
            heads[outputs[r]] = group.head;
        }
        if ((kind & kHead) != 0) out = put_heads(packing.form, packing.factor, heads, out);
        for (std::size_t r = 0; r < rows.size(); ++r) put_group(packing.form, bits, codes[r], out, outputs[r]);
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
