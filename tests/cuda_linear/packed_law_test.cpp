// Law 1 of packed rows without a device: what mixed_gemm computes of 11 rows (operands.cuh, packed_tile.cuh) are the
// bits that the decode kernel computes of a few (packed.cuh), in an emulation of their threads. So operands, scales,
// places of blocks and orders of sums are those of one another; whether the device's two matrix instructions add alike
// is for mixed_gemm_test.cpp to say.
#include "tests/cuda_linear/emulated/emulation.h"
// First: it makes host code of what the others have for devices.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "kernels/cuda/decode/packed.cuh"
#include "kernels/cuda/mixed_gemm/sm90a/packed_tile.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kPanels = 2, kRows = 11, kWarps = kPackedWarps;
using Random = std::mt19937;

struct Run {
    CodeKind kind;
    bool apart;
    int blocks;
};
struct Case {
    const char* name;
    PanelScales scales;
    std::vector<Run> runs;
    int inputs;
    bool minimum_is_zero = false, ordered = false;
    float factors[2] = {1.0f, 1.0f};
};

std::vector<Case> cases() {
    using K = CodeKind;
    using P = PanelScales;
    return {
        {"pairs", P::f16_pair, {{K::integer4, true, 25}}, 25 * 64 - 32},  // half a block is missing
        {"order", P::f16, {{K::integer4, false, 20}}, 1280, false, true, {0.37f, 0.37f}},
        {"order_of_whole_k",
         P::f16,
         {{K::integer6, false, 9}, {K::integer4, false, 37}, {K::integer3, false, 18}},
         kSplitInputs,
         false,
         true},
        {"order_of_few_blocks", P::f16_pair, {{K::integer5, false, 5}}, 5 * 64 - 32, true, true},
        {"order_in_parts", P::f16_pair, {{K::integer4, false, 70}}, 4480, true, true},
        {"widths_in_parts",
         P::f16,
         {{K::integer8, false, 9},
          {K::integer6, false, 11},
          {K::integer5, true, 3},
          {K::integer4, false, 25},
          {K::integer3, false, 13},
          {K::integer2, false, 9}},
         4480,
         false,
         true},
        {"short_runs",
         P::f32_pair,
         {{K::integer4, true, 1},
          {K::integer8, true, 1},
          {K::integer3, false, 2},
          {K::integer5, true, 3},
          {K::integer2, true, 1},
          {K::integer6, true, 5},
          {K::integer8, false, 1},
          {K::integer4, false, 10},
          {K::integer3, true, 1},
          {K::integer2, false, 3}},
         28 * 64},
        {"zeros", P::f32_pair, {{K::integer3, true, 20}}, 1280, true, false, {-1.7f, 0.61f}},
        {"bytes", P::f32, {{K::integer8, true, 33}}, 33 * 64},
        {"q2_k", P::k_pair, {{K::halves2, false, 20}}, 1280},
        {"iq4_xs", P::k_table, {{K::table4, false, 20}}, 1280},
        {"iq3", P::k_table, {{K::table3, false, 20}}, 1280},
        {"nvfp4", P::f32_16, {{K::table4, false, 20}}, 1280, false, false, {0.37f, 0.61f}},
        {"fp8", P::f32, {{K::e4m3, false, 20}}, 1280},
        {"few_blocks", P::f16_pair, {{K::integer5, false, 5}}, 320},
    };
}

float uniform(Random& random, float low, float high) {
    return low + (high - low) * static_cast<float>(random() % 100003) / 100003.0f;
}

// A matrix as it lies in the device's memory.
struct Matrix {
    PackedHeader header;
    std::vector<std::uint8_t> bytes;
    int blocks = 0;

    Matrix(const Case& of, Random& random) {
        header.scales = of.scales;
        header.flags = of.minimum_is_zero ? kMinimumIsZero : 0;
        header.factor[0] = of.factors[0];
        header.factor[1] = of.factors[1];
        for (std::uint8_t& number : header.table) number = static_cast<std::uint8_t>(random());
        for (const Run& wanted : of.runs) {
            PackedRun& run = header.runs[header.run_count++];
            run.first = static_cast<std::uint16_t>(blocks);
            run.end = static_cast<std::uint16_t>(blocks += wanted.blocks);
            run.kind = wanted.kind;
            run.apart = wanted.apart;
            run.lines = static_cast<std::uint8_t>(packed_block_bytes(wanted.kind, of.scales, wanted.apart) / 64);
            run.offset = header.panel_bytes;
            const bool centred = of.scales == PanelScales::f16 || of.scales == PanelScales::f32;
            run.zero = centred ? static_cast<float>(1 << (code_bits(run.kind) - 1)) : 0.0f;
            header.panel_bytes += static_cast<std::uint32_t>(wanted.blocks * run.bytes());
        }
        std::vector<std::uint16_t> order(of.ordered ? static_cast<std::size_t>(of.inputs) : 0);
        std::iota(order.begin(), order.end(), std::uint16_t{0});
        std::shuffle(order.begin(), order.end(), random);
        header.panels_at = static_cast<std::uint32_t>((sizeof header + 2 * order.size() + 127) / 128 * 128);
        bytes.resize(header.panels_at + kPanels * header.panel_bytes);
        std::memcpy(bytes.data(), &header, sizeof header);
        std::memcpy(bytes.data() + kOrderAt, order.data(), 2 * order.size());
        for (std::uint32_t panel = 0; panel < kPanels; ++panel) {
            for (int r = 0; r < header.run_count; ++r) {
                const PackedRun& run = header.runs[r];
                for (int i = 0; i < run.end - run.first; ++i) {
                    fill(of, run.kind, run.bytes(),
                         bytes.data() + header.panels_at + panel * header.panel_bytes + run.offset + i * run.bytes(),
                         random);
                }
            }
        }
    }

private:
    static void fill(const Case& of, CodeKind kind, int size, std::uint8_t* to, Random& random) {
        const int codes = code_bits(kind) * 64;
        for (int i = 0; i < size / 4; ++i) {
            const bool pair = i % 2 != 0, factors = i - codes < 32;
            const auto number = [&](float most) { return std::bit_cast<std::uint32_t>(uniform(random, -most, most)); };
            const auto half = [&](float most) { return std::uint32_t{f32_to_f16(uniform(random, -most, most))}; };
            const auto zero = static_cast<float>(random() % 17);
            auto word = static_cast<std::uint32_t>(random());
            if (i < codes) {
                if (kind == CodeKind::e4m3) word &= 0xbfbfbfbfu;  // no NaN
            } else if (of.scales == PanelScales::f16) {
                word = half(0.1f) | half(0.1f) << 16;
            } else if (of.scales == PanelScales::f16_pair) {
                word = half(0.1f) | (of.minimum_is_zero ? std::uint32_t{f32_to_f16(zero)} : half(1.0f)) << 16;
            } else if (of.scales == PanelScales::f32_pair && pair) {
                word = of.minimum_is_zero ? std::bit_cast<std::uint32_t>(zero) : number(1.0f);
            } else if (of.scales == PanelScales::k_pair) {
                if (factors) word = half(0.1f) | half(0.1f) << 16;
            } else if (of.scales == PanelScales::k_table) {
                if (factors) word = number(0.01f);
            } else {
                word = number(0.1f);
            }
            std::memcpy(to + 4 * i, &word, sizeof word);
        }
    }
};

// Sums of each packed row and row of the batch, and squares of each slice.
struct Sums {
    explicit Sums(int slices)
        : sums(kPanels * kPanelRows * kRows, NAN), squares(static_cast<std::size_t>(slices * kRows), NAN) {}
    std::vector<float> sums, squares;

    void add(int part, int packed, int row, float value) {
        float& to = sums[static_cast<std::size_t>(packed * kRows + row)];
        to = part == 0 ? value : to + value;
    }
};

// Where things lie in the emulated shared memory: what operands B are, in the first 256 KiB.
constexpr std::uint32_t kStageAt = 8 << 10, kImagesAt = kStageAt + kPanels * 4 * kMostPackedBytes;
constexpr std::int32_t kOperandsAt = 512 << 10, kStatsAt = 640 << 10;
constexpr std::uint32_t kHeaderAt = 704 << 10;
constexpr std::uint32_t kWeightsAt = 1 << 20;

// `rows` rows from `first` on by the multiplying warps of the decode kernel; the epilogue's additions.
void decode(const Matrix& matrix, GemvOp op, const float* norm, int first, int rows, Sums& to) {
    static const float4 zeros = {};
    auto* const shared = reinterpret_cast<char*>(emulated::shared_memory);
    std::memcpy(emulated::shared_memory + kWeightsAt, matrix.bytes.data() + matrix.header.panels_at,
                matrix.bytes.size() - matrix.header.panels_at);
    std::memcpy(emulated::shared_memory + kHeaderAt, &matrix.header, sizeof matrix.header);
    op.x += static_cast<std::int64_t>(first) * op.inputs;
    GemvPlan plan;
    plan.zeros = &zeros.x;
    plan.upper_rows_at = kOperandsAt;
    plan.upper_rows_bytes = packed_operand_bytes(rows);
    plan.row_stats_at = kStatsAt;
    // Nothing is written after what gemv_plan_test finds a plan to have room for.
    auto* const end = emulated::shared_memory + kOperandsAt +
                      std::max(kWarps * plan.upper_rows_bytes, packed_rows_together(rows) * kPackedPassageBytes);
    auto* const stats = emulated::shared_memory + kStatsAt;
    ASSERT_LT(end, stats);
    std::fill(emulated::shared_memory + kOperandsAt, stats, std::byte{0x7f});
    for (int part = 0; part < op.split; ++part) {
        const PartBlocks blocks(op, part);
        std::vector<float> slices(kPanels * kPanelRows * kWarps * 8);
        const auto slice = [&](int packed, int warp, int row) -> float& {
            return slices[static_cast<std::size_t>((packed * kWarps + warp) * 8 + row)];
        };
        emulated::run(32 * kWarps, [&] {
            const int warp = emulated::number() / 32, lane = emulated::number() % 32;
            PackedOperand in;
            const SharedHeader header(kHeaderAt);
            const bool ordered = header.panels_at() != sizeof(PackedHeader);
            const auto* const order = reinterpret_cast<const std::uint16_t*>(matrix.bytes.data() + kOrderAt);
            in.load(
                op, op.x, norm, blocks.first, blocks.count, rows, plan, shared,
                [&] { return ordered ? order : nullptr; }, [] {});
            const PackedMatrix common{header, header.scales(), header.minimum_is_zero(),
                                      header.factor(thread_index() / 4)};
            for (int panel = 0; panel < kPanels; ++panel) {
                float sums[2][1][4] = {};
                for (int j = 0; warp + kWarps * j < blocks.count; ++j) {
                    const int block = blocks.first + warp + kWarps * j;
                    const PackedRun run = header.run(header.run_of(0, block));
                    const SharedBlock memory{
                        kWeightsAt + static_cast<std::uint32_t>(panel) * matrix.header.panel_bytes + run.offset +
                        static_cast<std::uint32_t>((block - run.first) * run.bytes())};
                    visit_code_kind(run.kind, [&](auto kind) {
                        if (rows == 1) {
                            multiply_packed<kind.value, true>(memory, common, bytes_apart(run), run.zero, in, 2 * j,
                                                              lane, sums);
                        } else {
                            multiply_packed<kind.value, false>(memory, common, bytes_apart(run), run.zero, in, 2 * j,
                                                               lane, sums);
                        }
                    });
                }
                for (int i = 0; i < 8; ++i) {
                    const int row = lane % 4 * 2 + i % 2;
                    if (row >= rows) continue;
                    slice(panel * kPanelRows + i / 4 * 16 + i / 2 % 2 * 8 + lane / 4, warp, row) =
                        sums[i / 4][0][i % 4] * row_stats(shared, plan, warp)[row];
                }
            }
        });
        EXPECT_TRUE(std::all_of(end, stats, [](std::byte b) { return b == std::byte{0x7f}; }));
        for (int row = 0; row < rows; ++row) {
            for (int packed = 0; packed < kPanels * kPanelRows; ++packed) {
                float sum = 0.0f;
                for (int warp = 0; warp < kWarps; ++warp) sum += slice(packed, warp, row);
                to.add(part, packed, first + row, sum);
            }
            for (int warp = 0; norm != nullptr && warp < kWarps; ++warp) {
                to.squares[static_cast<std::size_t>((part * kWarps + warp) * kRows + first + row)] =
                    row_stats(shared, plan, warp)[16 + row];
            }
        }
    }
}

// All rows by mixed_gemm: the operands, then a warpgroup with kSlices slices at once, which one does here in turn.
template <int N, int kSlices>
void multiply_together(const Matrix& matrix, const GemvOp& op, const float* norm, Sums& to) {
    using Image = OperandImage<QuantType::packed>;
    constexpr int kEights = (kRows + 7) / 8;
    static_assert(kEights <= N / 8);
    const auto bytes_of = [](int images) { return static_cast<std::size_t>(images * Image::kBytes); };
    std::vector<std::uint8_t> operands(bytes_of(matrix.blocks * kEights), 0xff);
    std::vector<float> squares(static_cast<std::size_t>(op.split * kWarps * 8 * kEights));
    OperandCall call;
    call.op = op;
    call.norm = norm;
    call.panels = matrix.bytes.data();
    call.rows = kRows;
    call.eights = kEights;
    call.operands = operands.data();
    call.squares = squares.data();
    for (unsigned eight = 0; eight < kEights; ++eight) {
        for (int y = 0; y < op.split * kWarps / operand_warps(QuantType::packed); ++y) {
            emulated::block_index = {eight, static_cast<unsigned>(y)};
            emulated::run(32 * operand_warps(QuantType::packed), [&] { make_operands<QuantType::packed>(call); });
        }
    }
    for (int i = 0; norm != nullptr && i < op.split * kWarps * kRows; ++i) {
        to.squares[static_cast<std::size_t>(i)] =
            squares[static_cast<std::size_t>(i / kRows * 8 * kEights + i % kRows)];
    }
    MixedArgs args;
    args.op = op;
    args.step.panels = matrix.bytes.data();
    for (int part = 0; part < op.split; ++part) {
        const PartBlocks blocks(op, part);
        emulated::run(128, [&] {
            const int warp = emulated::number() / 32, lane = emulated::number() % 32, panel = warp / 2;
            if (warp == 0) PanelBlocks<QuantType::packed>::start(args, 0, lane);
            emulated::meet(emulated::cta);
            PanelBlocks<QuantType::packed> places(args, 0);
            std::vector<TileBlocks<QuantType::packed>> weights(kSlices, {0, warp % 2, lane});
            float total[N / 2] = {};
            for (int w = 0; w < std::min(kWarps, blocks.count); w += kSlices) {
                float sums[kSlices][N / 2] = {};
                for (int first = w; first < blocks.count; first += kWarps) {
                    const int here = std::min(kSlices, blocks.count - first), block = blocks.first + first;
                    emulated::meet(emulated::cta);
                    if (emulated::number() == 0) {
                        std::memset(emulated::shared_memory + kStageAt, 0xff, kImagesAt - kStageAt);
                        for (int p = 0; p < kPanels; ++p) {
                            std::uint32_t bytes = 0;
                            const std::uint8_t* const from = places.find(p, block, here, bytes);
                            ASSERT_LE(bytes, static_cast<std::uint32_t>(kSlices * kMostPackedBytes));
                            std::memcpy(emulated::shared_memory + kStageAt + p * kSlices * kMostPackedBytes, from,
                                        bytes);
                        }
                        for (int s = 0; s < here; ++s) {
                            std::memcpy(emulated::shared_memory + kImagesAt + bytes_of(s * (N / 8)),
                                        operands.data() + bytes_of((block + s) * kEights), bytes_of(kEights));
                        }
                    }
                    emulated::meet(emulated::cta);
                    for (int s = 0; s < here; ++s) {
                        const auto images = kImagesAt + static_cast<std::uint32_t>(bytes_of(s * (N / 8)));
                        weights[static_cast<std::size_t>(s)].multiply<N, true>(
                            kStageAt + static_cast<std::uint32_t>(panel * kSlices * kMostPackedBytes), block + s, s,
                            images, sums[s]);
                        if (first + s + kWarps < blocks.count) continue;
                        for (int i = 0; i < N / 2; ++i) {  // the slice ends
                            const auto at =
                                static_cast<std::uint32_t>(i / 4 * Image::kBytes + Image::kBackAt + lane % 4 * 8);
                            std::uint32_t back[2];
                            load_shared2(back[0], back[1], images + at);
                            sums[s][i] *= __uint_as_float(back[i % 2]);
                        }
                    }
                }
                for (int s = 0; s < std::min(kSlices, blocks.count - w); ++s) {
                    for (int i = 0; i < N / 2; ++i) total[i] += sums[s][i];
                }
            }
            for (int i = 0; i < N / 2; ++i) {
                const int row = i / 4 * 8 + lane % 4 * 2 + i % 2;
                if (row < kRows) to.add(part, warp * 16 + i / 2 % 2 * 8 + lane / 4, row, total[i]);
            }
        });
    }
}

class PackedLaw : public testing::TestWithParam<Case> {};

// kRows rows, a norm's weight, and the op of a matrix that multiplies them.
struct Inputs {
    std::vector<float4> fours;  // aligned as a device's memory is
    float* weight;
    GemvOp op;

    Inputs(const Matrix& matrix, int of_a_row, Random& random)
        : fours(static_cast<std::size_t>(of_a_row / 4 * (kRows + 1))) {
        const auto inputs = static_cast<std::size_t>(of_a_row);
        float* const x = &fours[0].x;
        for (std::size_t i = 0; i < kRows * inputs; ++i) {
            const std::size_t row = i / inputs;
            x[i] = row == 3 ? 0.0f : uniform(random, -3.0f, 3.0f) * (row == 5 ? 1e9f : row == 6 ? 1e-30f : 1.0f);
        }
        weight = x + kRows * inputs;
        for (std::size_t i = 0; i < inputs; ++i) weight[i] = uniform(random, 0.5f, 1.5f);
        op.x = x;
        op.inputs = of_a_row;
        op.blocks = matrix.blocks;
        op.split = (op.inputs + kSplitInputs - 1) / kSplitInputs;
        op.blocks_each = op.blocks / op.split;
        op.blocks_more = op.blocks % op.split;
    }
};

void expect_same_bits(const Sums& got, const Sums& want, bool has_squares) {
    EXPECT_EQ(std::memcmp(got.sums.data(), want.sums.data(), 4 * got.sums.size()), 0);
    if (!has_squares) return;
    EXPECT_EQ(std::memcmp(got.squares.data(), want.squares.data(), 4 * got.squares.size()), 0);
}

TEST_P(PackedLaw, ManyRowsHaveTheBitsOfFew) {
    Random random(7);
    const Matrix matrix(GetParam(), random);
    const Inputs inputs(matrix, GetParam().inputs, random);
    const GemvOp& op = inputs.op;
    const float* const weight = inputs.weight;
    std::vector<const float*> norms = {weight};
    if (GetParam().ordered) norms.push_back(nullptr);
    for (const float* const norm : norms) {
        const int slices = op.split * kWarps;
        Sums want(slices);
        for (int row = 0; row < kRows;) {
            const int rows = row == 0 ? 1 : std::min(8, kRows - row);
            decode(matrix, op, norm, row, rows, want);
            row += rows;
        }
        for (const float sum : want.sums) ASSERT_TRUE(std::isfinite(sum));
        const auto expect_the_same = [&](const auto& multiply) {
            Sums got(slices);
            multiply(got);
            expect_same_bits(got, want, norm != nullptr);
        };
        expect_the_same([&](Sums& to) { multiply_together<32, 1>(matrix, op, norm, to); });
        if (norm != weight) continue;
        expect_the_same([&](Sums& to) { multiply_together<16, 1>(matrix, op, norm, to); });
        expect_the_same([&](Sums& to) { multiply_together<16, 4>(matrix, op, norm, to); });
        expect_the_same([&](Sums& to) { multiply_together<32, 4>(matrix, op, norm, to); });
        expect_the_same([&](Sums& to) { multiply_together<64, 2>(matrix, op, norm, to); });
    }
}

// Also where the rows come late, word by word, and whichever warp is ahead of the others.
TEST_P(PackedLaw, ARowHasItsBitsAmongOneToEight) {
    Random random(8);
    const Matrix matrix(GetParam(), random);
    Inputs inputs(matrix, GetParam().inputs, random);
    const float* const norm = inputs.weight;
    const int slices = inputs.op.split * kWarps;
    Sums want(slices);
    for (int row = 0; row < kRows; ++row) decode(matrix, inputs.op, norm, row, 1, want);
    inputs.op.x_flagged = true;
    for (int together = 1; together <= kPackedRows; ++together) {
        SCOPED_TRACE(together);
        if (together != 4 && !GetParam().ordered) continue;
        emulated::last_warp_is_ahead = together % 2 == 0;
        Sums got(slices);
        for (int row = 0; row < kRows; row += together) {
            words_asked_for = 0;
            words_late = static_cast<unsigned>(2 * together * inputs.op.inputs);  // a second look finds some
            decode(matrix, inputs.op, norm, row, std::min(together, kRows - row), got);
        }
        expect_same_bits(got, want, true);
    }
    emulated::last_warp_is_ahead = false;
    words_late = 0;
}

INSTANTIATE_TEST_SUITE_P(All, PackedLaw, testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(PackedBlocks, NoneIsLargerThanAStageHasRoomFor) {
    for (int kind = 0; kind <= static_cast<int>(CodeKind::e4m3); ++kind) {
        for (int scales = 0; scales <= static_cast<int>(PanelScales::f32_16); ++scales) {
            EXPECT_LE(packed_block_bytes(static_cast<CodeKind>(kind), static_cast<PanelScales>(scales), true),
                      kMostPackedBytes);
        }
    }
}

}  // namespace
}  // namespace foresay::kernels::cuda
