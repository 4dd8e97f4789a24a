// Law 1 between the decode kernel and mixed_gemm: the bits of a row are the same alone, which the decode kernel
// computes, and among 17 to 600 others, which mixed_gemm does, at any place, in every op and quantisation type, and in
// packed rows of every kind of codes and scales, of which it takes 9 and more.

#include <cstring>
#include <map>
#include <memory>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/mixed_gemm/mixed_gemm.h"
#include "kernels/quant/packing.h"
#include "tests/cuda_linear/device_case.h"

namespace foresay::test {
namespace {

using kernels::TensorView;

constexpr std::int32_t kMost = 600;
const kernels::ModelShape kShape{1, 4096, 32, 8, 128, 28672, 32000};

// A quantisation type, or packed rows: bits of the codes of equal shares of the inputs, and groups of 32 inputs to a
// head. `zeros`: scales with zeros of their own, which only rows with data have.
struct Encoding {
    const char* name;
    QuantType type = QuantType::packed;
    kernels::ScaleForm form = kernels::ScaleForm::f16_minimum;
    std::vector<int> bits = {};
    int heads = 1;
    bool ordered = false, zeros = false;
    float factor = 1.0f;
};

std::vector<Encoding> encodings() {
    using F = kernels::ScaleForm;
    constexpr QuantType packed = QuantType::packed;
    std::vector<Encoding> list;
    for (const QuantType type : {QuantType::q4_0, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k, QuantType::q6_k,
                                 QuantType::f16, QuantType::bf16}) {
        list.push_back({kernels::info(type).name.data(), type});
    }
    for (const Encoding& encoding : std::initializer_list<Encoding>{
             {"packed_q4_1", packed, F::f16_minimum, {4}},
             {"packed_q5_1", packed, F::f16_minimum, {5}},
             {"packed_mlx2", packed, F::f32_minimum, {2}, 2},
             {"packed_mlx3", packed, F::f32_minimum, {3}, 2},
             {"packed_mlx6", packed, F::f32_minimum, {6}, 1, false, false, 0.37f},
             {"packed_int8", packed, F::f32_zero, {8}, 4},
             {"packed_awq", packed, F::f16_zero, {4}, 4, false, true},
             {"packed_hqq3", packed, F::f32_zero, {3}, 1, false, true, -1.7f},
             {"packed_gptq", packed, F::f16_zero, {4}, 4},
             {"packed_gptq_ordered", packed, F::f16_zero, {4}, 4, true},
             {"packed_gptq_ordered_zeros", packed, F::f16_zero, {4}, 4, true, true},
             {"packed_exl2", packed, F::f16_zero, {8, 6, 5, 4, 4, 4, 3, 2}, 4, true},
             // Runs of few blocks, so that slices multiplied at once are of different runs.
             {"packed_runs", packed, F::f16_minimum, {4, 8, 4, 8, 5, 3, 6, 2}, 1},
             {"packed_q2_k", packed, F::k_minimum, {2}, 8},
             {"packed_iq4_xs", packed, F::k_table, {4}, 8},
             {"packed_iq2_iq3", packed, F::k_table, {3}, 8},
             {"packed_nvfp4", packed, F::f32_table, {4}, 1, false, false, 0.37f},
             {"packed_fp8", packed, F::e4m3, {8}, 4},
         }) {
        list.push_back(encoding);
    }
    return list;
}

class MixedRowLaw : public testing::TestWithParam<Encoding> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        workspace = cuda::MixedWorkspace(kShape, kMost);
        ASSERT_NE(workspace.scratch(), nullptr);
    }
    static cuda::LinearCall alone() { return {nullptr, 1, kernels::RowClass::decode, nullptr, true}; }
    cuda::LinearCall among(std::int32_t rows) const {
        return {nullptr, rows, kernels::RowClass::decode, nullptr, true, nullptr, workspace.scratch()};
    }
    // Rows of all kinds: bell-shaped ones, one of zeros, tiny and huge ones, and one whose slices differ by powers.
    std::vector<float> inputs(std::int32_t rows, std::int64_t width) {
        std::vector<float> values = bell(random, static_cast<std::size_t>(rows * width), 3.0f);
        const auto row = [&](std::int32_t t) {
            return std::span(values).subspan(static_cast<std::size_t>(t * width), static_cast<std::size_t>(width));
        };
        for (float& value : row(3)) value = 0.0f;
        for (float& value : row(rows - 2)) value *= 1e-30f;
        for (float& value : row(rows / 2)) value *= 1e9f;
        for (std::size_t i = 0; i < static_cast<std::size_t>(width); ++i) {
            row(7)[i] *= std::ldexp(1.0f, static_cast<int>(i / 64 % 9) - 4);
        }
        return values;
    }
    // launch(call, first, to): rows first ... of the inputs through an op whose outputs are `outs` wide.
    template <class Launch>
    void expect_same_bits(std::int32_t rows, std::int64_t outs, std::initializer_list<std::int32_t> widths,
                          const Launch& launch) {
        const auto each = poisoned(static_cast<std::size_t>(rows * outs));
        for (std::int32_t t = 0; t < rows; ++t) launch(alone(), t, each.data() + t * outs);
        const std::vector<float> want = to_host(each);
        for (float value : want) ASSERT_TRUE(std::isfinite(value));
        for (const std::int32_t width : widths) {
            const std::int32_t first = rows - width;
            const auto together = poisoned(static_cast<std::size_t>(width * outs));
            launch(among(width), first, together.data());
            const std::vector<float> got = to_host(together);
            std::size_t differ = 0, at = got.size();
            for (std::size_t i = 0; i < got.size(); ++i) {
                if (std::memcmp(&got[i], &want[static_cast<std::size_t>(first * outs) + i], sizeof(float)) == 0)
                    continue;
                ++differ;
                at = std::min(at, i);
            }
            ASSERT_EQ(differ, 0u) << outs << " outputs, " << width << " rows; first: row "
                                  << at / static_cast<std::size_t>(outs) << ", output "
                                  << at % static_cast<std::size_t>(outs) << ": " << got[at] << " instead of "
                                  << want[static_cast<std::size_t>(first * outs) + at];
        }
    }

    // A matrix: random weights made on the device, or rows with data where zeros are to be random.
    TensorView matrix(std::int64_t outs, std::int64_t width) {
        const Encoding& encoding = GetParam();
        if (encoding.type != QuantType::packed) return {encoding.type, outs, width, nullptr};
        const kernels::Packing& packing = packing_of(width);
        TensorView view = {QuantType::packed, outs, width, nullptr, &packing};
        if (!encoding.zeros) return view;
        std::vector<std::byte>& bytes = *rows_.emplace_back(std::make_unique<std::vector<std::byte>>());
        bytes.resize(static_cast<std::size_t>(view.bytes()));
        std::byte* out = bytes.data();
        for (std::int64_t group = 0; group < outs * (width / 32); ++group) {
            out = put_group(packing, static_cast<int>(group % (width / 32)), out);
        }
        EXPECT_EQ(out, bytes.data() + bytes.size());
        view.data = bytes.data();
        return view;
    }
    // The codes of a matrix for such inputs, in one order for all of them.
    const kernels::Packing& packing_of(std::int64_t width) {
        const Encoding& encoding = GetParam();
        const auto [entry, is_new] = packings_.try_emplace(width);
        kernels::Packing& packing = entry->second;
        if (!is_new) return packing;
        packing.form = encoding.form;
        packing.factor = encoding.factor;
        const auto groups = static_cast<std::size_t>(width / 32);
        for (std::size_t g = 0; g < groups; ++g) {
            const int bits = encoding.bits[g * encoding.bits.size() / groups];
            const bool changes = g > 0 && bits != encoding.bits[(g - 1) * encoding.bits.size() / groups];
            const bool head = changes || g % static_cast<std::size_t>(encoding.heads) == 0;
            packing.kinds.push_back(static_cast<std::uint8_t>(bits | (head ? kernels::kHead : 0)));
        }
        for (std::size_t i = 0; i < 16; ++i) packing.table[i] = static_cast<std::int8_t>(random() & 255u);
        for (std::int64_t i = 0; encoding.ordered && i < width; ++i) {
            packing.order.push_back(static_cast<std::int32_t>((i * 1013 + 7) % width));
        }
        return packing;
    }

    cuda::MixedWorkspace workspace;
    Random random{101u + static_cast<unsigned>(GetParam().type) + static_cast<unsigned>(GetParam().bits.size())};

private:
    std::byte* put_group(const kernels::Packing& packing, int group, std::byte* out) {
        const std::uint8_t kind = packing.kind(group);
        const int bits = kind & ~kernels::kHead;
        const float scale = 0.002f + static_cast<float>(random() % 1000) * 4e-6f;
        const auto zero = static_cast<std::int16_t>(random() % (1u << bits));
        if ((kind & kernels::kHead) != 0 && packing.form == kernels::ScaleForm::f16_zero) {
            out = kernels::put_bytes(kernels::put_bytes(out, kernels::f32_to_f16(scale)), zero);
        } else if ((kind & kernels::kHead) != 0) {
            out = kernels::put_bytes(kernels::put_bytes(out, scale), static_cast<float>(zero));
        }
        std::uint8_t codes[32];
        for (std::uint8_t& code : codes) code = static_cast<std::uint8_t>(random() & ((1u << bits) - 1u));
        return kernels::put_codes(out, bits, codes);
    }

    std::map<std::int64_t, kernels::Packing> packings_;
    std::vector<std::unique_ptr<std::vector<std::byte>>> rows_;
};

// Or else the others would compare the rows of another type.
TEST_P(MixedRowLaw, MatricesKeepTheirType) {
    for (const std::int64_t width : {512, 2048, 4096, 8192, 14336, 28672}) {
        const cuda::PackSource source[] = {{matrix(64, width), {}}};
        const cuda::Panels panels(source, cuda::RowOrder::stacked);
        ASSERT_EQ(panels.parts().size(), 1u);
        EXPECT_EQ(panels.parts()[0].quant_type, GetParam().type) << width << " inputs";
    }
}

TEST_P(MixedRowLaw, Out) {
    struct Shape {
        std::int64_t outs, width;
    };
    for (const Shape shape : {Shape{4096, 4096}, Shape{1024, 14336}, Shape{512, 28672}, Shape{160, 512}}) {
        kernels::MlpOutSpec spec;
        spec.down = matrix(shape.outs, shape.width);
        const cuda::OutLinear op(spec);
        const auto input = on_device(inputs(200, shape.width));
        expect_same_bits(200, shape.outs, {9, 16, 17, 24, 31, 32, 33, 40, 63, 64, 65, 100, 128, 129, 200},
                         [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
                             op.launch(call, {input.data() + first * shape.width, nullptr, to});
                         });
    }
}

// In the memory of a context for so many.
TEST_P(MixedRowLaw, OutOfFewRows) {
    constexpr std::int32_t kRows = 16;
    workspace = cuda::MixedWorkspace(kShape, kRows);
    ASSERT_NE(workspace.scratch(), nullptr);
    struct Shape {
        std::int64_t outs, width;
    };
    for (const Shape shape : {Shape{4096, 4096}, Shape{4096, 28672}, Shape{1120, 8192}, Shape{160, 512}}) {
        kernels::MlpOutSpec spec;
        spec.down = matrix(shape.outs, shape.width);
        const cuda::OutLinear op(spec);
        const auto input = on_device(inputs(kRows, shape.width));
        expect_same_bits(kRows, shape.outs, {9, 10, 11, 12, 13, 14, 15, 16},
                         [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
                             op.launch(call, {input.data() + first * shape.width, nullptr, to});
                         });
    }
}

// Every tile, also where a launch would take another one. Types that lack a tile choose.
TEST_P(MixedRowLaw, TilesAreAlike) {
    struct Shape {
        std::int64_t outs, width;
    };
    using Tile = cuda::MixedTileShape;
    for (const Tile tile :
         {Tile{8, 1, 16}, Tile{4, 2, 16}, Tile{2, 4, 16}, Tile{8, 1, 32}, Tile{4, 2, 32}, Tile{2, 4, 32},
          Tile{4, 1, 64}, Tile{2, 2, 64}, Tile{4, 1, 128}, Tile{4, 2, 64}, Tile{2, 4, 64}, Tile{8, 1, 64}}) {
        SCOPED_TRACE(testing::Message() << int{tile.panels} << " panels, " << int{tile.slices} << " slices, "
                                        << int{tile.columns} << " rows");
        struct Forced {
            explicit Forced(Tile wanted) { cuda::force_mixed_tile(wanted); }
            ~Forced() { cuda::force_mixed_tile({}); }
        } const forced(tile);
        for (const Shape shape : {Shape{1120, 4096}, Shape{512, 14336}, Shape{96, 1536}}) {
            kernels::MlpOutSpec spec;
            spec.down = matrix(shape.outs, shape.width);
            const cuda::OutLinear op(spec);
            const auto input = on_device(inputs(130, shape.width));
            expect_same_bits(130, shape.outs, {9, 16, 17, 33, 64, 65, 100, 130},
                             [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
                                 op.launch(call, {input.data() + first * shape.width, nullptr, to});
                             });
        }
    }
}

// More rows than one launch takes.
TEST_P(MixedRowLaw, OutOfSeveralLaunches) {
    constexpr std::int64_t kOuts = 1024, kWidth = 8192;
    kernels::MlpOutSpec spec;
    spec.down = matrix(kOuts, kWidth);
    const cuda::OutLinear op(spec);
    const auto input = on_device(inputs(kMost, kWidth));
    expect_same_bits(kMost, kOuts, {512, 530, 600}, [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
        op.launch(call, {input.data() + first * kWidth, nullptr, to});
    });
}

TEST_P(MixedRowLaw, OutAddsToTheResidual) {
    constexpr std::int64_t kOuts = 512, kWidth = 2048;
    constexpr std::int32_t kRows = 70;
    kernels::MlpOutSpec spec;
    spec.down = matrix(kOuts, kWidth);
    const cuda::OutLinear op(spec);
    const auto input = on_device(inputs(kRows, kWidth));
    const std::vector<float> residual = bell(random, kRows * kOuts, 1.0f);
    const auto one_by_one = on_device(residual), together = on_device(residual);
    for (std::int32_t t = 0; t < kRows; ++t) {
        op.launch(alone(), {input.data() + t * kWidth, one_by_one.data() + t * kOuts, nullptr});
    }
    op.launch(among(kRows), {input.data(), together.data(), nullptr});
    const std::vector<float> want = to_host(one_by_one), got = to_host(together);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
    ASSERT_NE(std::memcmp(got.data(), residual.data(), got.size() * sizeof(float)), 0);
}

TEST_P(MixedRowLaw, MlpIn) {
    for (const auto& [units, width] : {std::pair<std::int64_t, std::int64_t>{2048, 4096}, {1408, 2048}, {512, 8192}}) {
        kernels::MlpInSpec spec;
        spec.gate = matrix(units, width);
        spec.up = matrix(units, width);
        kernels::Packing with_a_factor;
        if (spec.up.packing != nullptr) {
            with_a_factor = *spec.up.packing;
            with_a_factor.factor *= 0.61f;
            spec.up.packing = &with_a_factor;
        }
        spec.norm.weight = {QuantType::f32, 1, width, nullptr};
        const cuda::MlpInLinear op(spec);
        const auto x = on_device(inputs(130, width));
        expect_same_bits(130, units, {9, 16, 17, 32, 48, 64, 90, 128, 130},
                         [&, each = width](const cuda::LinearCall& call, std::int32_t first, float* to) {
                             op.launch(call, {x.data() + first * each, to, nullptr});
                         });
    }
}

TEST_P(MixedRowLaw, AttentionIn) {
    const std::int64_t width = 4096, q = 4096, kv = 1024;
    constexpr std::int32_t kRows = 130;
    kernels::AttentionInSpec spec;
    spec.shape = kShape;
    spec.norm.weight = {QuantType::f32, 1, width, nullptr};
    spec.q = matrix(q, width);
    spec.k = matrix(kv, width);
    // Of another type, but matrices of one op have one order.
    spec.v = GetParam().ordered ? matrix(kv, width) : TensorView{QuantType::q6_k, kv, width, nullptr};
    const std::vector<float> frequencies(64, 0.5f);
    spec.rope = {kernels::RopePairs::half_split, frequencies, 1.0f};
    const cuda::AttentionInLinear op(spec);
    const auto x = on_device(inputs(kRows, width));
    expect_same_bits(kRows, q + 2 * kv, {9, 13, 16, 17, 33, 64, 130},
                     [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
                         cuda::AttentionInLinear::Io io;
                         io.x = x.data() + first * width;
                         io.raw = to;
                         op.launch(call, io);
                     });
    // Into the cache, with rope.
    const cuda::KvLayout layout(kShape, 3);
    std::vector<std::int64_t> cells, v_cells;
    std::vector<float2> turns;
    for (std::int32_t t = 0; t < kRows; ++t) {
        cells.push_back(layout.k_cell(t / 64, t % 64));
        v_cells.push_back(layout.v_cell(t / 64, t % 64));
        for (int i = 0; i < 64; ++i) {
            const float angle = 0.1f * static_cast<float>(t * (i + 1));
            turns.push_back({std::cos(angle), std::sin(angle)});
        }
    }
    const auto cell = cuda::to_device(std::span<const std::int64_t>(cells)),
               v_cell = cuda::to_device(std::span<const std::int64_t>(v_cells));
    const auto rope = cuda::to_device(std::span<const float2>(turns));
    const auto run = [&](bool together) {
        const auto queries = poisoned(kRows * 4096);
        cuda::DeviceBuffer<__half> cache(static_cast<std::size_t>(layout.layer_stride));
        cuda::cuda_check(cudaMemset(cache.data(), 0, cache.bytes()), "cannot clear memory");
        for (std::int32_t t = 0; t < (together ? 1 : kRows); ++t) {
            cuda::AttentionInLinear::Io io;
            io.x = x.data() + t * width;
            io.q = queries.data() + t * q;
            io.kv = cache.data();
            io.cell = cell.data() + t;
            io.v_cell = v_cell.data() + t;
            io.head_stride = layout.head_stride;
            io.rope = rope.data() + t * 64;
            op.launch(together ? among(kRows) : alone(), io);
        }
        const std::vector<float> values = to_host(queries);
        std::vector<std::uint16_t> bits(cache.size());
        cuda::cuda_check(cudaMemcpy(bits.data(), cache.data(), cache.bytes(), cudaMemcpyDeviceToHost),
                         "cannot read back");
        return std::pair(values, bits);
    };
    const auto want = run(false), got = run(true);
    EXPECT_EQ(std::memcmp(got.first.data(), want.first.data(), want.first.size() * sizeof(float)), 0);
    EXPECT_EQ(got.second, want.second);
    EXPECT_TRUE(std::any_of(want.second.begin(), want.second.end(), [](std::uint16_t bits) { return bits != 0; }));
}

TEST_P(MixedRowLaw, LmHeadOfChosenRows) {
    constexpr std::int64_t kWidth = 2048, kVocab = 5003;
    constexpr std::int32_t kRows = 70;
    kernels::LmHeadSpec spec;
    spec.norm.weight = {QuantType::f32, 1, kWidth, nullptr};
    spec.weight = matrix(kVocab, kWidth);
    spec.scale = 0.5f;
    spec.soft_cap = 30.0f;
    const cuda::LmHeadLinear op(spec);
    const auto x = on_device(inputs(kRows, kWidth));
    std::vector<std::int32_t> chosen;
    for (std::int32_t i = 0; i < 40; ++i) chosen.push_back(i * 29 % kRows);
    const auto row = cuda::to_device(std::span<const std::int32_t>(chosen));
    expect_same_bits(40, kVocab, {9, 16, 17, 40}, [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
        op.launch(call, {x.data(), row.data() + first, to, kVocab});
    });
}

// Which rows it takes: the cases above would hold without it, too.
TEST(MixedGemm, TakesManyRowsWhereTheDeviceHasWgmma) {
    SKIP_WITHOUT_DEVICE();
    bool takes = false;
#ifdef FORESAY_HAVE_SM90A
    takes = kernels::cuda_devices().front().capability == 90;
#endif
    const cuda::MixedWorkspace workspace(kShape, kMost);
    cuda::GemvOp op;
    op.inputs = 4096;
    op.blocks = 4096 / 64;
    op.panel_count = 128;
    const auto rows = [&](QuantType type, std::int32_t of) {
        return cuda::mixed_rows(type, op, of, *workspace.scratch());
    };
    EXPECT_EQ(rows(QuantType::q4_0, 17), takes ? 17 : 0);
    EXPECT_EQ(rows(QuantType::q4_0, 64), takes ? 64 : 0);
    EXPECT_EQ(rows(QuantType::q4_0, 600), takes ? 512 : 0);
    EXPECT_EQ(rows(QuantType::q4_0, 16), 0);
    EXPECT_EQ(rows(QuantType::f32, 64), 0);
    EXPECT_EQ(rows(QuantType::mxfp4, 64), 0);
    EXPECT_EQ(rows(QuantType::packed, 8), 0);
    EXPECT_EQ(rows(QuantType::packed, 9), takes ? 9 : 0);
    EXPECT_EQ(rows(QuantType::packed, 16), takes ? 16 : 0);
    EXPECT_EQ(rows(QuantType::packed, 17), takes ? 17 : 0);
    EXPECT_EQ(rows(QuantType::packed, 64), takes ? 64 : 0);
    EXPECT_EQ(rows(QuantType::packed, 600), takes ? 512 : 0);
    // A context for few rows has memory for every op of its shape, and one for fewer has none.
    const cuda::MixedWorkspace few(kShape, 16);
    ASSERT_NE(few.scratch(), nullptr);
    EXPECT_LT(cuda::MixedWorkspace::bytes(kShape, 16), cuda::MixedWorkspace::bytes(kShape, 17) / 8);
    for (const auto& [outs, inputs] :
         {std::pair{4096 + 2 * 1024, 4096}, {4096, 4096}, {2 * 28672, 4096}, {4096, 28672}, {32000, 4096}}) {
        op.inputs = inputs;
        op.blocks = inputs / 64;
        op.panel_count = outs / cuda::kPanelRows;
        EXPECT_EQ(cuda::mixed_rows(QuantType::packed, op, 16, *few.scratch()), takes ? 16 : 0) << outs << " " << inputs;
    }
    EXPECT_EQ(cuda::MixedWorkspace(kShape, 8).scratch(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(Encodings, MixedRowLaw, testing::ValuesIn(encodings()),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace foresay::test
