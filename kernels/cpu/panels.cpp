#include "kernels/cpu/panels.h"

#include <algorithm>
#include <cstring>

#include "kernels/cpu/thread_pool.h"

namespace foresay::kernels::cpu {
namespace {

using std::uint8_t;
using Codes = uint8_t[kPanelOutputs][kGroupInputs];

// Where code (output, k) of a 32-input group lies: byte within vector k / 4.
constexpr int byte_in_vector(int output, int k) { return 4 * output + k % 4; }

void store_nibbles(const Codes& codes, uint8_t* out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        for (int k = 0; k < 16; ++k) {
            out[64 * (k / 4) + byte_in_vector(output, k)] =
                static_cast<uint8_t>((codes[output][k] & 15) | (codes[output][k + 16] << 4));
        }
    }
}

void store_fifth_bit(const Codes& codes, uint8_t* out) {
    std::memset(out, 0, 64);
    for (int output = 0; output < kPanelOutputs; ++output) {
        for (int k = 0; k < kGroupInputs; ++k) {
            out[byte_in_vector(output, k)] |= static_cast<uint8_t>((codes[output][k] >> 4 & 1) << (k / 4));
        }
    }
}

void store_upper_two_bits(const Codes& codes, uint8_t* out) {
    std::memset(out, 0, 128);
    for (int output = 0; output < kPanelOutputs; ++output) {
        for (int k = 0; k < kGroupInputs; ++k) {
            const int g = k / 4;
            out[64 * (g / 4) + byte_in_vector(output, k)] |=
                static_cast<uint8_t>((codes[output][k] >> 4 & 3) << (2 * (g % 4)));
        }
    }
}

void store_bytes(const Codes& codes, uint8_t* out) {
    for (int output = 0; output < kPanelOutputs; ++output) {
        for (int g = 0; g < 8; ++g) std::memcpy(out + 64 * g + 4 * output, &codes[output][4 * g], 4);
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
        Codes codes = {};
        for (int output = 0; output < kPanelOutputs; ++output) {
            if (!source.rows[output] || group >= groups) continue;
            const uint8_t* from = source.rows[output] + group * 18;
            put_half(from, out + 32 * half, output);
            for (int k = 0; k < 16; ++k) {
                codes[output][k] = from[2 + k] & 15;
                codes[output][k + 16] = from[2 + k] >> 4;
            }
        }
        store_nibbles(codes, out + 64 + 256 * half);
    }
}

void pack_q8_0(const Source& source, std::int64_t block, std::int64_t groups, uint8_t* out) {
    for (int half = 0; half < 2; ++half) {
        const std::int64_t group = 2 * block + half;
        Codes codes;
        std::memset(codes, 128, sizeof codes);
        for (int output = 0; output < kPanelOutputs; ++output) {
            if (!source.rows[output] || group >= groups) continue;
            const uint8_t* from = source.rows[output] + group * 34;
            put_half(from, out + 32 * half, output);
            for (int k = 0; k < 32; ++k) codes[output][k] = from[2 + k] ^ 0x80;
        }
        store_bytes(codes, out + 64 + 512 * half);
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
    Codes codes[8] = {};
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
            for (int k = 0; k < 32; ++k) {
                const uint8_t byte = low[32 * (g / 2) + k];
                codes[g][output][k] = g % 2 ? byte >> 4 : byte & 15;
                if (five) codes[g][output][k] |= static_cast<uint8_t>((high[k] >> g & 1) << 4);
            }
        }
    }
    for (int g = 0; g < 8; ++g) {
        uint8_t* at = out + 256 + group_bytes * g;
        store_nibbles(codes[g], at);
        if (five) store_fifth_bit(codes[g], at + 256);
    }
}

void pack_q6_k(const Source& source, std::int64_t block, uint8_t* out) {
    Codes codes[8] = {};
    for (int output = 0; output < kPanelOutputs; ++output) {
        if (!source.rows[output]) continue;
        const uint8_t* from = source.rows[output] + block * 210;
        put_half(from + 208, out, output);
        for (int s = 0; s < 16; ++s) out[64 + 16 * s + output] = from[192 + s];
        for (int i = 0; i < 256; ++i) {
            const int half = i / 128, r = i % 128, quarter = r / 32, l = r % 32;
            const uint8_t low = from[64 * half + l + 32 * (quarter % 2)];
            const uint8_t high = from[128 + 32 * half + l];
            codes[i / 32][output][i % 32] =
                static_cast<uint8_t>((quarter < 2 ? low & 15 : low >> 4) | (high >> (2 * quarter) & 3) << 4);
        }
    }
    for (int g = 0; g < 8; ++g) {
        store_nibbles(codes[g], out + 320 + 384 * g);
        store_upper_two_bits(codes[g], out + 320 + 384 * g + 256);
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
