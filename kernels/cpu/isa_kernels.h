// kernels/cpu/isa_kernels.h: the functions that exist once per instruction set, as a table chosen at run time. The
// sources in kernels/cpu/isa/ are compiled once for each set, each time into a namespace of its own.
//
// Threads:  any; a function touches no memory but its arguments.
#pragma once

#include <cstdint>

#include "kernels/cpu/panel_blocks.h"
#include "kernels/kv_type.h"

namespace foresay::kernels::cpu {

// Activations that share one int8 scale. A scale costs a multiply-add per row and output, so few are better; a scale
// per 256 loses too much accuracy.
inline constexpr int kScaleInputs = 128;

// The activations of up to 16 rows that a linear op reads: quantised to int8, in float32, or both. Rows are
// interleaved, so that a kernel of `stride` rows finds a group of 32 inputs of all rows together. Rows from `rows` on
// are padding with unspecified contents; kernels drop their results.
//   q [K/32, stride, 32]             int8 codes; x is about scale * q
//   scale [K/128, stride]
//   sum [K/32, stride]               sum of the group's codes, exact
//   minus8, minus128 [K/32, stride]  -8 and -128 times that sum, to subtract the zero point of the weights' codes
//   minus32 [K/32, stride, 2]        -32 times the sum of each half of the group, likewise
//   values [K, stride]               float32, for float weights
struct ActivationTile {
    int rows = 0;
    int stride = 0;
    std::int8_t* q = nullptr;
    float* scale = nullptr;
    float* sum = nullptr;
    std::int32_t* minus8 = nullptr;
    std::int32_t* minus128 = nullptr;
    std::int32_t* minus32 = nullptr;
    float* values = nullptr;
};

// Panels [begin, end) of a matrix; see kernels/cpu/panels.h.
struct PanelRange {
    PanelType type;
    const std::uint8_t* data;  // of panel 0
    std::int64_t panel_bytes;
    int blocks;  // of float weights inputs
    int begin, end;
    PackedPanels packed = {};  // of PanelType::packed, whose blocks are groups
};

// Of kernels/ops.h, which the sources of isa/ do not include.
enum class RowActivation : std::uint8_t { silu, gelu_tanh, gelu, clamped_swiglu };

enum class Store : std::uint8_t { set, add };

// Query rows at consecutive positions against one key-value head. kernels/cpu/cpu_memory.h describes the layout of a
// page.
struct AttendTask {
    const float* q;  // [rows, heads, head_dim], rows q_stride apart
    float* out;      // the same, rows out_stride apart
    std::int64_t q_stride, out_stride;
    int rows;   // if more than one: all in one page of positions, and first == 0
    int heads;  // query heads that share the key-value head
    int head_dim;
    int first, last;  // positions attended by row 0, inclusive; row r ends at last + r
    float scale, soft_cap;
    const std::uint8_t* const* k_tiles;  // keys, one pointer per page, starting with page first / kPagePositions
    const std::uint8_t* const* v_tiles;
    float* scratch;  // attend_scratch_floats(head_dim) values
    KvType k_type = KvType::f16, v_type = KvType::f16;
    const float* sinks = nullptr;  // [heads]: scores without a value; null: none
};

// Queries (rows x heads) that a kernel takes at a time.
inline constexpr int kAttendQueries = 8;

constexpr int attend_scratch_floats(int head_dim) { return kAttendQueries * (64 + head_dim + 15); }

struct IsaKernels {
    const char* name;
    int max_tile;  // most rows of a tile for which the linear kernels have registers

    // The stride of a tile of `rows` rows, 1 <= rows <= 16: the next width for which a kernel exists.
    int (*tile_stride)(int rows);
    // y[m, 16 p + o] (=, +=) W x for the tile's rows m and panels p; rows of y are y_stride apart and padded to 16.
    void (*linear)(const PanelRange& w, const ActivationTile& x, float* y, std::int64_t y_stride, Store store);
    // y = activation(gate x) * (up x); both ranges cover the same panels. gelu: tanh form, otherwise silu.
    void (*gated)(const PanelRange& gate, const PanelRange& up, const ActivationTile& x, float* y,
                  std::int64_t y_stride, bool gelu);
    // Quantises x[inputs] into row m of the tile (codes), copies it into `values` (floats), or both. Inputs up to
    // padded_inputs become zeros.
    void (*fill_tile)(const float* x, int inputs, int padded_inputs, bool codes, bool floats, ActivationTile& tile,
                      int m);
    // y = x / rms(x) * weight
    void (*rms_norm)(const float* x, const float* weight, float eps, int n, float* y);
    // y = (x - mean(x)) / deviation(x) * weight [+ bias]
    void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps, int n, float* y);
    // gate[i] = activation(gate[i] + gate_bias[i]) * (up[i] + up_bias[i]); without `up` only the activation. Biases may
    // be null. Arrays are padded to 16 values.
    void (*activate)(float* gate, const float* up, const float* gate_bias, const float* up_bias, int n,
                     RowActivation kind, float limit);
    void (*attend)(const AttendTask& task);
    // Rope: rotates the pairs (2i, 2i+1), or (i, i + pairs), of a head by the angles with these cos and sin.
    void (*rotate)(float* head, const float* cos, const float* sin, int pairs, bool adjacent);
    // out[i] = half(x[i])
    void (*to_half)(const float* x, int n, std::uint16_t* out);
    // The codes of a head's key or value x[n] (kernels/kv_code.h); returns their step, largest magnitude / 127.
    float (*to_kv_codes)(const float* x, int n, std::int8_t* codes);
    // The same for codes of fewer bits (kernels/kv/low_bits.h), of a vector that is rotated already; a code to a byte.
    float (*to_low_kv_codes)(const float* x, int n, int bits, std::uint8_t* codes);
    // Rotates a head's vector x[n] as kernels/kv/low_bits.h defines it.
    void (*rotate_for_cache)(float* x, int n);
    // Reads `bytes` bytes as fast as possible, to measure memory bandwidth. Returns a sum of them, so that the compiler
    // keeps the loads.
    std::uint64_t (*read)(const void* data, std::int64_t bytes);
};

const IsaKernels& avx512_kernels();
const IsaKernels& avx2_kernels();
const IsaKernels& portable_kernels();

}  // namespace foresay::kernels::cpu
