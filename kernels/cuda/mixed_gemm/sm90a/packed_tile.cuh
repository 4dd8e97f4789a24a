// kernels/cuda/mixed_gemm/sm90a/packed_tile.cuh: mixed_gemm of packed rows (kernels/quant/packing.h), whose blocks are
// not alike: where they lie, and how a warp multiplies one.
//
// Blocks:   a matrix begins with a header, whose runs say what codes and how many bytes each block has
//           (weights/packed_format.h). Producers copy neighbouring blocks of a panel as one piece; a warp finds its own
//           in that by the same header.
// Kinds:    a warp jumps to the code of a block's kind, as the decode kernel does. All of a warpgroup have the same
//           block, so they meet at the matrix instructions of one case.
// Products: as decode/packed.cuh: they begin with the middle of the codes times the sums of the inputs, 16 or 32 inputs
//           follow, one fma adds them with their scale, another one the minimum times the sum. What mma.sync computes
//           there from operands in registers wgmma computes here from operand B in shared memory, with equal bits.
// Floor:    bytes: the matrix once, from memory or L2, for every tile of 16, 32 or 64 rows of the batch. Instructions
//           of a warp for 16 packed rows and 64 inputs: 240 to 425 with 32 rows of the batch, 305 to 590 with 64, by
//           the kind; with 16 about 35 to 110 fewer than with 32. These count: all of 8B issues in 2.8 or 3.8 ms on 132
//           multiprocessors, and reading its 4.5 bits takes 1.0 to 1.5. The decode kernel unpacks a block once for 8
//           rows.
// Registers: two products at once, N / 2 sums each, besides those of the slice and the total. The loop over blocks does
//           not spill.
#pragma once

#include "kernels/cuda/decode/packed_header.cuh"
#include "kernels/cuda/device/wgmma.cuh"
#include "kernels/cuda/mixed_gemm/mixed_gemm.cuh"
#include "kernels/cuda/mixed_gemm/sm90a/tile_blocks.cuh"
#include "kernels/cuda/weights/packed_codes.cuh"

namespace foresay::kernels::cuda {

// Blocks by number, from the header's copy in shared memory. Keeps the number of the last run and not the run, which
// would take registers that products need.
class PackedRuns {
public:
    explicit __device__ PackedRuns(std::uint32_t shared) : header_(shared + kMixedRingAt) {}
    __device__ const SharedHeader& header() const { return header_; }
    __device__ PackedRun of(int block) {
        PackedRun run = header_.run(number_);
        if (block < run.first || block >= run.end) run = header_.run(number_ = header_.run_of(0, block));
        return run;
    }
    // From the beginning of the panel, in bytes.
    __device__ std::uint32_t offset(int block) {
        const PackedRun run = of(block);
        return run.offset + static_cast<std::uint32_t>((block - run.first) * run.bytes());
    }

private:
    SharedHeader header_;
    int number_ = 0;
};

template <>
class PanelBlocks<QuantType::packed> {
public:
    static __device__ void start(const MixedArgs& args, std::uint32_t shared, int lane) {
        const SharedHeader header(shared + kMixedRingAt);
        if (lane < SharedHeader::kWords) header.put(lane, SharedHeader::word(args.step.panels, lane));
    }
    __device__ PanelBlocks(const MixedArgs& args, std::uint32_t shared)
        : runs_(shared),
          panels_(args.step.panels + runs_.header().panels_at()),
          panel_bytes_(runs_.header().panel_bytes()) {}
    __device__ std::int64_t panel_bytes() const { return panel_bytes_; }
    // Runs follow one another, so neighbours are neighbours in memory, whatever their kinds.
    __device__ const std::uint8_t* find(int panel, int block, int blocks, std::uint32_t& bytes) {
        const std::uint32_t begin = runs_.offset(block), last = runs_.offset(block + blocks - 1);
        bytes = last - begin + static_cast<std::uint32_t>(runs_.of(block + blocks - 1).bytes());
        return panels_ + panel * std::int64_t{panel_bytes_} + begin;
    }

private:
    PackedRuns runs_;
    const std::uint8_t* panels_;
    std::uint32_t panel_bytes_;
};

// What the blocks of a matrix have in common.
struct PackedTile {
    SharedHeader header;
    int tile, lane;
    PanelScales scales;
    bool minimum_is_zero;
    float factor;  // of the lane's packed rows
    __device__ bool pairs() const { return scales == PanelScales::f16_pair || scales == PanelScales::f32_pair; }
};

// The operands of eights of rows of the batch, as operands.cuh lays them out: what a lane needs of them itself.
template <int N>
struct PackedImages {
    using Image = OperandImage<QuantType::packed>;
    std::uint32_t address;
    int lane;

    // Operands B, of 16 inputs each.
    __device__ WgmmaOperands operands() const { return {address, 128, Image::kBytes}; }
    // Sums of 16 inputs (Image::kSumsAt) or 32 (kGroupSumsAt), for the lane's two columns of eight j.
    __device__ float2 sums(int at, int number, int j) const {
        std::uint32_t a, b;
        load_shared2(a, b, address + static_cast<std::uint32_t>(j * Image::kBytes + at + number * 32 + lane % 4 * 8));
        return {__uint_as_float(a), __uint_as_float(b)};
    }
    // What products begin with.
    __device__ void begin(float (&d)[N / 2], float middle, int at, int number) const {
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            const float2 of = sums(at, number, j);
            d[4 * j] = d[4 * j + 2] = middle * of.x;
            d[4 * j + 1] = d[4 * j + 3] = middle * of.y;
        }
    }
    // to += m times the sum of the inputs, for packed rows r and r + 8.
    __device__ void add_minimum(float (&to)[N / 2], const float (&m)[2], int at, int number) const {
#pragma unroll
        for (int j = 0; j < N / 8; ++j) {
            const float2 of = sums(at, number, j);
            to[4 * j] = fmaf(m[0], of.x, to[4 * j]);
            to[4 * j + 1] = fmaf(m[0], of.y, to[4 * j + 1]);
            to[4 * j + 2] = fmaf(m[1], of.x, to[4 * j + 2]);
            to[4 * j + 3] = fmaf(m[1], of.y, to[4 * j + 3]);
        }
    }
};

// Kinds whose scales change every 16 inputs: a product for each.
template <CodeKind kKind, int N>
__device__ __forceinline__ void multiply_packed_halves(const SharedBlock& block, const PackedTile& matrix, float middle,
                                                       const PackedImages<N>& images, float (&sums)[N / 2]) {
    using Image = OperandImage<QuantType::packed>;
    constexpr bool kBegins = is_table(kKind);
    const float unit = kCodeUnit<kKind> * matrix.factor;
    uint4 table = {};
    if constexpr (is_table(kKind)) table = matrix.header.table();
    float s[2][4], m[2][4];
    load_halves(block, matrix.scales, code_bits(kKind) * 256, matrix.tile, matrix.lane, s, m);
    const WgmmaOperands operands = images.operands();
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        std::uint32_t p[2][4], a[2][4];
        load_pairs<kKind>(block, matrix.tile, g, matrix.lane, table, p);
        float d[2][N / 2];
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            step_operand(p, step, a[step]);
            if constexpr (kBegins) images.begin(d[step], middle, Image::kSumsAt, 2 * g + step);
        }
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            keep_registers(a[step]);
            if constexpr (kBegins) keep_registers(d[step]);
        }
        wgmma_fence();
#pragma unroll
        for (int step = 0; step < 2; ++step) wgmma<kBegins>(d[step], a[step], operands.at((2 * g + step) * 256));
        wgmma_commit();
        wgmma_wait();
#pragma unroll
        for (int step = 0; step < 2; ++step) {
            const int u = 2 * g + step;
            keep_registers(d[step]);
            add_product(sums, d[step], {s[0][u] * unit, s[1][u] * unit});
            if constexpr (!is_table(kKind)) {
                images.add_minimum(sums, {m[0][u] * matrix.factor, m[1][u] * matrix.factor}, Image::kSumsAt, u);
            }
        }
    }
}

// The others: a product for each 32 inputs.
template <CodeKind kKind, int N>
__device__ __forceinline__ void multiply_packed_groups(const SharedBlock& block, const PackedTile& matrix,
                                                       const PackedRun& run, float middle,
                                                       const PackedImages<N>& images, float (&sums)[N / 2]) {
    using Image = OperandImage<QuantType::packed>;
    constexpr bool kBegins = kKind != CodeKind::e4m3;
    constexpr int kScales = code_bits(kKind) * 256;
    const bool pairs = kKind != CodeKind::e4m3 && matrix.pairs();
    const float unit = kCodeUnit<kKind> * matrix.factor;
    float s[2][2], m[2][2], d[2][N / 2];
    std::uint32_t a[2][2][4];
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        if (g == 0 || run.apart) {
            load_tile_scales(block, matrix.scales, kScales + (g == 1 ? scale_bytes(matrix.scales) : 0), matrix.tile,
                             matrix.lane, s[g], m[g]);
            if (pairs) {
#pragma unroll
                for (int h = 0; h < 2; ++h) {
                    if (matrix.minimum_is_zero) m[g][h] *= -s[g][h];
                    m[g][h] *= matrix.factor;
                }
            }
#pragma unroll
            for (int h = 0; h < 2; ++h) s[g][h] *= unit;
        } else {
#pragma unroll
            for (int h = 0; h < 2; ++h) s[1][h] = s[0][h], m[1][h] = m[0][h];
        }
    }
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        std::uint32_t p[2][4];
        load_pairs<kKind>(block, matrix.tile, g, matrix.lane, {}, p);
        step_operand(p, 0, a[g][0]);
        step_operand(p, 1, a[g][1]);
        if constexpr (kBegins) images.begin(d[g], middle, Image::kGroupSumsAt, g);
    }
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        keep_registers(a[g][0]);
        keep_registers(a[g][1]);
        if constexpr (kBegins) keep_registers(d[g]);
    }
    const WgmmaOperands operands = images.operands();
    wgmma_fence();
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        wgmma<kBegins>(d[g], a[g][0], operands.at(2 * g * 256));
        wgmma<true>(d[g], a[g][1], operands.at((2 * g + 1) * 256));
    }
    wgmma_commit();
    wgmma_wait();
#pragma unroll
    for (int g = 0; g < 2; ++g) {
        keep_registers(d[g]);
        add_product(sums, d[g], s[g]);
        if (pairs) images.add_minimum(sums, m[g], Image::kGroupSumsAt, g);
    }
}

template <>
struct TileBlocks<QuantType::packed> {
    __device__ TileBlocks(std::uint32_t shared, int /*tile*/, int /*lane*/) : runs_(shared) {}
    template <int N, bool kTwo>
    __device__ __forceinline__ void multiply(std::uint32_t at, int block, int slice, std::uint32_t images,
                                             float (&sums)[N / 2]) {
        static_assert(kTwo, "packed rows have no tile of one product at a time");
        // The piece begins with the block of its first slice, which may belong to an earlier run.
        const std::uint32_t begin = slice > 0 ? runs_.offset(block - slice) : 0;
        const std::uint32_t place = slice > 0 ? runs_.offset(block) - begin : 0;
        const PackedRun run = runs_.of(block);
        const SharedBlock memory{at + place};
        // Asked for again with each block, because between blocks they would take registers that products need.
        const auto thread = static_cast<int>(thread_index()), lane = thread % 32;
        const SharedHeader& header = runs_.header();
        const PackedTile matrix{header,          thread / 32 % 2,          lane,
                                header.scales(), header.minimum_is_zero(), header.factor(thread_index() / 4)};
        const PackedImages<N> operands{images, lane};
        visit_code_kind(run.kind, [&](auto kind) {
            constexpr CodeKind kKind = decltype(kind)::value;
            const float middle = (is_table(kKind) ? -128.0f : -run.zero) / kCodeUnit<kKind>;
            if constexpr (has_halves(kKind)) {
                multiply_packed_halves<kKind, N>(memory, matrix, middle, operands, sums);
            } else {
                multiply_packed_groups<kKind, N>(memory, matrix, run, middle, operands, sums);
            }
        });
    }

private:
    PackedRuns runs_;
};

}  // namespace foresay::kernels::cuda
