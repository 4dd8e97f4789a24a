#include "kernels/cpu/panels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/thread_pool.h"
#include "kernels/quant/mxfp4.h"
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

void pack_panel(const TensorView& tensor, const Source& source, int blocks, uint8_t* out) {
    switch (tensor.quant_type) {
        case QuantType::q4_0:
            return pack_panel<PanelQ4_0>(tensor, source, blocks, out);
        case QuantType::q8_0:
            return pack_panel<PanelQ8_0>(tensor, source, blocks, out);
        case QuantType::q4_k:
            return pack_panel<PanelQ4_K>(tensor, source, blocks, out);
        case QuantType::q5_k:
            return pack_panel<PanelQ5_K>(tensor, source, blocks, out);
        case QuantType::q6_k:
            return pack_panel<PanelQ6_K>(tensor, source, blocks, out);
        case QuantType::mxfp4:
            return pack_panel<PanelMXFP4>(tensor, source, blocks, out);
        case QuantType::f16:
        case QuantType::bf16:
            return pack_panel<PanelF16>(tensor, source, blocks, out);
        case QuantType::f32:
            return pack_panel<PanelF32>(tensor, source, blocks, out);
    }
}

}  // namespace

std::int64_t packed_bytes(const TensorView& tensor) {
    const PanelFormat format = panel_format(tensor.quant_type);
    return round_up(tensor.rows, kPanelOutputs) / kPanelOutputs *
           (round_up(tensor.cols, format.block_inputs) / format.block_inputs) * format.block_bytes;
}

PanelMatrix pack(const TensorView& tensor, Arena& arena, ThreadPool& pool) {
    const PanelFormat format = panel_format(tensor.quant_type);
    PanelMatrix matrix;
    matrix.quant_type = tensor.quant_type;
    matrix.outputs = tensor.rows;
    matrix.inputs = tensor.cols;
    matrix.panels = static_cast<int>(round_up(tensor.rows, kPanelOutputs) / kPanelOutputs);
    matrix.blocks = static_cast<int>(round_up(tensor.cols, format.block_inputs) / format.block_inputs);
    matrix.panel_bytes = static_cast<std::int64_t>(matrix.blocks) * format.block_bytes;
    matrix.memory = arena.allocate(packed_bytes(tensor));  // zeroed: missing outputs have scale 0
    const std::int64_t row = row_bytes(tensor.quant_type, tensor.cols);
    auto* out = reinterpret_cast<uint8_t*>(matrix.memory.data);
    pool.run(matrix.panels, 1, [&](int begin, int end, int) {
        for (int p = begin; p < end; ++p) {
            Source source = {};
            for (int output = 0; output < kPanelOutputs; ++output) {
                const std::int64_t r = static_cast<std::int64_t>(p) * kPanelOutputs + output;
                if (r < tensor.rows) source.rows[output] = reinterpret_cast<const uint8_t*>(tensor.data) + r * row;
            }
            pack_panel(tensor, source, matrix.blocks, out + p * matrix.panel_bytes);
        }
    });
    return matrix;
}

}  // namespace foresay::kernels::cpu
