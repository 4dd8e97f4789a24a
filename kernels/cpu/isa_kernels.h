// kernels/cpu/isa_kernels.h: the functions that exist once per instruction set, as a table chosen at run time. The same
// sources (kernels/cpu/isa/) are compiled for each set into a namespace of their own.
//
// Threads:  every function is pure but for the memory it is given.
#pragma once

#include <cstdint>

#include "kernels/quant_type.h"

namespace foresay::kernels::cpu {

// Workspace that share one int8 scale. Each scale costs a multiply-add per row and output; 256 lose too much
// accuracy.
inline constexpr int kScaleInputs = 128;

// The activations that a linear layer multiplies, of up to 16 rows, quantised to int8, in float32, or both. Rows are
// interleaved, so that a kernel of `stride` rows finds everything of a group of 32 inputs together. Rows beyond `rows`
// hold anything; their results are dropped.
//   q [K/32, stride, 32]  int8 codes, x ~= scale * q      scale [K/128, stride]     sum [K/32, stride]  sum(q), exact
//   minus8, minus128 [K/32, stride]  -8 and -128 times sum(q); minus32 [K/32, stride, 2]  -32 times the sum of each
//   half:
//                         what takes the zero point of the weights' codes off an integer sum
//   values [K, stride]    float32, for float weights
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
    QuantType quant_type;
    const std::uint8_t* data;  // of panel 0
    std::int64_t panel_bytes;
    int blocks;
    int begin, end;
};

enum class Store : std::uint8_t { set, add };

// Query rows at consecutive positions against one key-value head. Keys and values of a page as in
// kernels/cpu/cpu_memory.h.
struct AttendTask {
    const float* q;  // [rows, heads, head_dim], rows q_stride apart
    float* out;      // the same, rows out_stride apart
    std::int64_t q_stride, out_stride;
    int rows;   // more than one: all in the same tile of kPagePositions, first = 0
    int heads;  // query heads that share the key-value head
    int head_dim;
    int first, last;  // positions attended by row 0, inclusive; row r ends at last + r
    float scale, soft_cap;
    const std::uint8_t* const* k_tiles;  // keys by page of positions, first page = first / kPagePositions
    const std::uint8_t* const* v_tiles;
    float* scratch;      // attend_scratch_floats(head_dim) values
    bool coded = false;  // int8 codes and steps; otherwise float16
};

// Queries (rows x heads) that a kernel takes at a time.
inline constexpr int kAttendQueries = 8;

constexpr int attend_scratch_floats(int head_dim) { return kAttendQueries * (64 + head_dim + 15); }

struct IsaKernels {
    const char* name;
    int max_tile;  // largest stride that the linear kernels like

    // The stride of a tile of `rows` rows, 1 <= rows <= 16: the next width for which there are kernels.
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
    void (*attend)(const AttendTask& task);
    // Rope: rotates the pairs (2i, 2i+1), or (i, i + pairs), of a head by the angles with these cos and sin.
    void (*rotate)(float* head, const float* cos, const float* sin, int pairs, bool adjacent);
    // out[i] = half(x[i])
    void (*to_half)(const float* x, int n, std::uint16_t* out);
    // The codes of a head's key or value x[n] (kernels/kv_code.h); returns their step, largest magnitude / 127.
    float (*to_kv_codes)(const float* x, int n, std::int8_t* codes);
    // sum of `bytes` bytes as 64-bit words: the fastest read of memory, to measure its bandwidth.
    std::uint64_t (*read)(const void* data, std::int64_t bytes);
};

const IsaKernels& avx512_kernels();
const IsaKernels& avx2_kernels();
const IsaKernels& portable_kernels();

}  // namespace foresay::kernels::cpu
