#include "kernels/cpu/panels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/thread_pool.h"

namespace foresay::kernels::cpu {
namespace {

using std::uint32_t;
using std::uint8_t;

// Codes move four at a time: a word holds those of inputs 4 j to 4 j + 3 of a group, one in each byte, and a vector of a
// panel holds such a word for each of its outputs. Shifts stay within bytes by their masks, so byte order does not matter.
constexpr uint32_t kNibbles = 0x0f0f0f0f;

uint32_t word(const uint8_t* from) {
    uint32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

// Vector `vector` of a group's codes, for one output.
void put_word(uint8_t* out, int vector, int output, uint32_t value) {
    std::memcpy(out + 64 * vector + 4 * output, &value, sizeof value);
}

void or_word(uint8_t* out, int vector, int output, uint32_t value) {
    put_word(out, vector, output, word(out + 64 * vector + 4 * output) | value);
}

// The 32 four-bit codes of a group, which lie in the lower or the upper halves of 32 bytes. A byte of the panel holds
// inputs k and k + 16.
void put_nibbles(const uint8_t* bytes, bool upper, uint8_t* out, int output) {
    for (int j = 0; j < 4; ++j) {
        const uint32_t first = word(bytes + 4 * j), second = word(bytes + 16 + 4 * j);
        put_word(
            out, j, output,
            upper ? (first >> 4 & kNibbles) | (second & ~kNibbles) : (first & kNibbles) | (second & kNibbles) << 4);
    }
}

// The rows of one panel in the file; rows beyond the matrix are null and become zeros.
struct Source {
    const uint8_t* rows[kPanelOutputs];
};

void put_half(const uint8_t* from, uint8_t* out, int output) { std::memcpy(out + 2 * output, from, 2); }

void pack_q4_0(const Source& source, std::int64_t block, std::int64_t groups, uint8_t* out) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            if (!source.rows[output] || group >= groups) continue;
            const uint8_t* from = source.rows[output] + group * 18;
            put_half(from, out + 32 * half, output);
            // The file pairs inputs k and k + 16 as well.
            for (int j = 0; j < 4; ++j) put_word(out + 64 + 256 * half, j, output, word(from + 2 + 4 * j));
        }
    }
}

void pack_q8_0(const Source& source, std::int64_t block, std::int64_t groups, uint8_t* out) {
    constexpr uint32_t kZero = 0x80808080;  // codes are stored with 128 added
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        for (int output = 0; output < kPanelOutputs; ++output) {
            const bool absent = !source.rows[output] || group >= groups;
            const uint8_t* from = absent ? nullptr : source.rows[output] + group * 34;
            if (from) put_half(from, out + 32 * half, output);
            for (int j = 0; j < 8; ++j) {
                put_word(out + 64 + 512 * half, j, output, from ? word(from + 2 + 4 * j) ^ kZero : kZero);
            }
        }
    }
}

// The 6-bit scale and minimum of group g from the 12 bytes of a K-quant super-block.
void scale_and_min(const uint8_t* packed, int g, uint8_t& scale, uint8_t& min) {
    if (g < 4) {
        scale = packed[g] & 63;
        min = packed[g + 4] & 63;
    } else {
        scale = static_cast<uint8_t>((packed[g + 4] & 15) | (packed[g - 4] >> 6 << 4));
        min = static_cast<uint8_t>((packed[g + 4] >> 4) | (packed[g] >> 6 << 4));
    }
}

// q4_k and q5_k share everything but the fifth bit.
void pack_k45(const Source& source, std::int64_t block, bool five, uint8_t* out) {
    const int source_bytes = five ? 176 : 144, group_bytes = five ? 320 : 256;
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (!source.rows[output]) continue;
        const uint8_t* from = source.rows[output] + block * source_bytes;
        const uint8_t* low = from + (five ? 48 : 16);
        const uint8_t* high = from + 16;  // five: 32 bytes, bit g of byte k belongs to group g
        put_half(from, out, output);
        put_half(from + 2, out + 32, output);
        for (int g = 0; g < 8; ++g) {
            uint8_t scale, min;
            scale_and_min(from + 4, g, scale, min);
            uint8_t* scales = out + 64 + 48 * (g / 2);
            scales[16 * (g % 2) + output] = static_cast<uint8_t>((scale & 15) | (min << 4));
            scales[32 + output] |= static_cast<uint8_t>(((scale >> 4) | (min >> 4 << 2)) << (4 * (g % 2)));
            uint8_t* codes = out + 256 + group_bytes * g;
            put_nibbles(low + 32 * (g / 2), g % 2 == 1, codes, output);
            if (!five) continue;
            uint32_t bits = 0;
            for (int j = 0; j < 8; ++j) bits |= (word(high + 4 * j) >> g & 0x01010101) << j;
            put_word(codes + 256, 0, output, bits);
        }
    }
}

void pack_q6_k(const Source& source, std::int64_t block, uint8_t* out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (!source.rows[output]) continue;
        const uint8_t* from = source.rows[output] + block * 210;
        put_half(from + 208, out, output);
        for (int s = 0; s < 16; ++s) out[64 + 16 * s + output] = from[192 + s];
        for (int g = 0; g < 8; ++g) {
            const int half = g / 4, quarter = g % 4;
            uint8_t* codes = out + 320 + 384 * g;
            put_nibbles(from + 64 * half + 32 * (quarter % 2), quarter >= 2, codes, output);
            const uint8_t* high = from + 128 + 32 * half;  // bits 2 q and 2 q + 1 belong to quarter q
            for (int j = 0; j < 8; ++j) {
                or_word(codes + 256, j / 4, output,
                        (word(high + 4 * j) >> (2 * quarter) & 0x03030303) << (2 * (j % 4)));
            }
        }
    }
}

void pack_values(const Source& source, std::int64_t input, int value_bytes, uint8_t* out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (!source.rows[output]) continue;
        std::memcpy(out + value_bytes * output, source.rows[output] + input * value_bytes,
                    static_cast<std::size_t>(value_bytes));
    }
}

void pack_panel(const TensorView& tensor, const Source& source, int blocks, uint8_t* out) {
    const int bytes = panel_format(tensor.encoding).block_bytes;
    const std::int64_t groups = tensor.cols / kGroupInputs;
    for (std::int64_t b = 0; b < blocks; ++b, out += bytes) {
        switch (tensor.encoding) {
            case Encoding::q4_0:
                pack_q4_0(source, b, groups, out);
                break;
            case Encoding::q8_0:
                pack_q8_0(source, b, groups, out);
                break;
            case Encoding::q4_k:
                pack_k45(source, b, false, out);
                break;
            case Encoding::q5_k:
                pack_k45(source, b, true, out);
                break;
            case Encoding::q6_k:
                pack_q6_k(source, b, out);
                break;
            case Encoding::f16:
            case Encoding::bf16:
                pack_values(source, b, 2, out);
                break;
            case Encoding::f32:
                pack_values(source, b, 4, out);
                break;
        }
    }
}

}  // namespace

std::int64_t packed_bytes(const TensorView& tensor) {
    const PanelFormat format = panel_format(tensor.encoding);
    return round_up(tensor.rows, kPanelOutputs) / kPanelOutputs *
           (round_up(tensor.cols, format.block_inputs) / format.block_inputs) * format.block_bytes;
}

PanelMatrix pack(const TensorView& tensor, Arena& arena, ThreadPool& pool) {
    const PanelFormat format = panel_format(tensor.encoding);
    PanelMatrix matrix;
    matrix.encoding = tensor.encoding;
    matrix.outputs = tensor.rows;
    matrix.inputs = tensor.cols;
    matrix.panels = static_cast<int>(round_up(tensor.rows, kPanelOutputs) / kPanelOutputs);
    matrix.blocks = static_cast<int>(round_up(tensor.cols, format.block_inputs) / format.block_inputs);
    matrix.panel_bytes = static_cast<std::int64_t>(matrix.blocks) * format.block_bytes;
    matrix.memory = arena.allocate(packed_bytes(tensor));  // zeroed: missing outputs have scale 0
    const std::int64_t row = row_bytes(tensor.encoding, tensor.cols);
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
