// kernels/cuda/weights/packed_format.h: panels of packed rows (kernels/quant/packing.h), whose layout is data: what the
// kernels must know lies before the panels.
//
// Layout:   [PackedHeader] [order: u16 for each input, if inputs have one] [panels]. A panel is 32 rows
//           (panel_format.h); a block 64 inputs of them: the planes of its codes, then its scales. Neighbouring blocks
//           of one kind are a run; runs are consecutive, and panels alike. Planes by the bits of a code, 256 bytes for
//           each; places as in panel_format.h:
//             2  two bits            4  nibbles            6  nibbles, two bits
//             3  two bits, one bit   5  nibbles, one bit   8  bytes
//           Codes of tables have places of their own (TableCodePlace), four in 16 bits as selectors of bytes.
//           Scales by PanelScales. Numbers of rows lie in the order of Place::row_slot(), so a lane reads those of its
//           four rows at once. "each group": of 32 inputs, or of 64 where both share a head (PackedRun::apart false).
//             f16       f16 s of each group                               64 bytes a group
//             f16_pair  f16 s, f16 m of each group                       128
//             f32       f32 s of each group                              128
//             f32_pair  f32 s, f32 m of each group                       256
//             k_pair    f16 d, f16 dmin; a byte for each 16 inputs       256 bytes a block
//             k_table   f32 d; an i8 for each 16 inputs                  256
//             f32_16    f32 s for each 16 inputs                         512
//           value = factor * (s * (number - zero) + m), where `zero` is the run's, or m with kMinimumIsZero.
// Lossless: every code and every scale is kept as the packed rows have it. A group whose neighbour has more bits takes
//           as many, and its codes move with the zero of the run.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/weights/panel_format.h"
#include "kernels/host_device.h"

namespace foresay::kernels::cuda {

// What a code is and how often scales change; with the widths, all that the kernels are compiled for.
enum class CodeKind : std::uint8_t {
    integer2,
    integer3,
    integer4,
    integer5,
    integer6,
    integer8,
    halves2,  // integers whose scales change every 16 inputs
    table3,   // likewise
    table4,
    e4m3,
};
FORESAY_HOST_DEVICE constexpr int code_bits(CodeKind kind) {
    switch (kind) {
        case CodeKind::integer2:
        case CodeKind::halves2:
            return 2;
        case CodeKind::integer3:
        case CodeKind::table3:
            return 3;
        case CodeKind::integer4:
        case CodeKind::table4:
            return 4;
        case CodeKind::integer5:
            return 5;
        case CodeKind::integer6:
            return 6;
        case CodeKind::integer8:
        case CodeKind::e4m3:
            return 8;
    }
    return 0;
}
constexpr bool is_table(CodeKind kind) { return kind == CodeKind::table3 || kind == CodeKind::table4; }
constexpr bool has_halves(CodeKind kind) { return kind == CodeKind::halves2 || is_table(kind); }
enum class PanelScales : std::uint8_t { f16, f16_pair, f32, f32_pair, k_pair, k_table, f32_16 };
// Bytes of the scales of a group, or of a block where they are no groups'.
constexpr int scale_bytes(PanelScales scales) {
    switch (scales) {
        case PanelScales::f16:
            return 64;
        case PanelScales::f16_pair:
        case PanelScales::f32:
            return 128;
        case PanelScales::f32_pair:
        case PanelScales::k_pair:
        case PanelScales::k_table:
            return 256;
        case PanelScales::f32_16:
            return 512;
    }
    return 0;
}
constexpr bool of_groups(PanelScales scales) { return scales <= PanelScales::f32_pair; }

// Bytes of a panel that the decode kernel copies at once, at most, by whether shared memory is little (gemv.h).
constexpr int packed_chunk_bytes(bool little_shared) { return (little_shared ? 10 : 40) * 1024; }
inline constexpr int kPackedWarps = 16;

// Blocks [first, end) of a panel. 16 bytes, which a thread reads at once.
struct PackedRun {
    std::uint16_t first = 0, end = 0;
    std::uint8_t lines = 0;  // of 64 bytes, of a block
    CodeKind kind = CodeKind::integer4;
    bool apart = false;  // the two groups of a block have scales of their own
    std::uint8_t unused = 0;
    std::uint32_t offset = 0;  // of block `first` in its panel
    float zero = 0;
    FORESAY_HOST_DEVICE int bytes() const { return lines * 64; }  // of a block
};
static_assert(sizeof(PackedRun) == 16);

inline constexpr int kMaxRuns = 10;
inline constexpr std::uint32_t kMinimumIsZero = 1;

struct alignas(128) PackedHeader {
    std::uint32_t panel_bytes = 0;
    std::uint32_t panels_at = 0;  // bytes from the header
    PanelScales scales = PanelScales::f16;
    std::uint8_t flags = 0;
    std::uint16_t run_count = 0;
    float factor[2] = {1.0f, 1.0f};  // of even and odd packed rows: interleaved matrices may differ
    std::uint32_t chunk = 0;         // blocks that the decode kernel copies at once (packed_chunk_blocks())
    std::uint32_t unused[2] = {};
    std::uint8_t table[16] = {};  // numbers plus 128
    PackedRun runs[kMaxRuns];
};
static_assert(offsetof(PackedHeader, table) % 16 == 0 && offsetof(PackedHeader, runs) % 16 == 0);
static_assert(sizeof(PackedHeader) == 256);
inline constexpr std::uint32_t kOrderAt = sizeof(PackedHeader);

FORESAY_HOST_DEVICE constexpr int packed_block_bytes(CodeKind kind, PanelScales scales, bool apart) {
    return code_bits(kind) * 256 + scale_bytes(scales) * (of_groups(scales) && apart ? 2 : 1);
}
// From the scales of a block's first group to those of its second, which may be the same.
FORESAY_HOST_DEVICE inline int bytes_apart(const PackedRun& run) {
    return run.apart ? (run.bytes() - code_bits(run.kind) * 256) / 2 : 0;
}
// No block is larger.
inline constexpr int kMostPackedBytes = packed_block_bytes(CodeKind::integer8, PanelScales::f32_pair, true);

// Of a table's code: the nibble that its bits belong to among the four of a half word (which order of c makes the words
// of bytes of PanelQ8_0), and the bits of it in the planes.
FORESAY_HOST_DEVICE constexpr int table_nibble(const Place& p) { return p.c / 2 + 2 * (p.c % 2); }
FORESAY_HOST_DEVICE constexpr BitPlace table4_place(const Place& p) {
    return {p.t * 128 + p.lane() * 4 + 2 * p.g + p.h, 16 * p.s + 4 * table_nibble(p)};
}
// The lower two bits of a code of three, in the plane of two bits, and the upper one.
FORESAY_HOST_DEVICE constexpr BitPlace table3_lower_place(const Place& p) {
    return {p.t * 64 + p.lane() * 2 + p.g, 16 * p.h + 2 * p.s + 4 * table_nibble(p)};
}
FORESAY_HOST_DEVICE constexpr BitPlace table3_upper_place(const Place& p) {
    return {p.lane() * 2 + p.t, 16 * p.g + 2 * p.h + p.s + 4 * table_nibble(p)};
}

// visit_code_kind(kind, body) calls body with the kind as a constant. Inlined always: the bodies of decode kernels are
// so long that the compiler would call it, with their sums in memory.
template <CodeKind kKind>
struct CodeKindConstant {
    static constexpr CodeKind value = kKind;
    FORESAY_HOST_DEVICE constexpr operator CodeKind() const { return kKind; }
};
template <class Body>
[[gnu::always_inline]] FORESAY_HOST_DEVICE inline void visit_code_kind(CodeKind kind, const Body& body) {
    switch (kind) {
        case CodeKind::integer2:
            return body(CodeKindConstant<CodeKind::integer2>());
        case CodeKind::integer3:
            return body(CodeKindConstant<CodeKind::integer3>());
        case CodeKind::integer4:
            return body(CodeKindConstant<CodeKind::integer4>());
        case CodeKind::integer5:
            return body(CodeKindConstant<CodeKind::integer5>());
        case CodeKind::integer6:
            return body(CodeKindConstant<CodeKind::integer6>());
        case CodeKind::integer8:
            return body(CodeKindConstant<CodeKind::integer8>());
        case CodeKind::halves2:
            return body(CodeKindConstant<CodeKind::halves2>());
        case CodeKind::table3:
            return body(CodeKindConstant<CodeKind::table3>());
        case CodeKind::table4:
            return body(CodeKindConstant<CodeKind::table4>());
        case CodeKind::e4m3:
            return body(CodeKindConstant<CodeKind::e4m3>());
    }
}

}  // namespace foresay::kernels::cuda
