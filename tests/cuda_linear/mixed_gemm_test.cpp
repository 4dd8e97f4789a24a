// Law 1 between the decode kernel and mixed_gemm: the bits of a row are the same alone, which the decode kernel
// computes, and among 17 to 600 others, which mixed_gemm does, at any place, in every op and quantisation type.

#include <cstring>

#include "kernels/cuda/mixed_gemm/mixed_gemm.h"
#include "tests/cuda_linear/device_case.h"

namespace foresay::test {
namespace {

constexpr std::int32_t kMost = 600;
const kernels::ModelShape kShape{1, 4096, 32, 8, 128, 28672, 32000};

class MixedRowLaw : public testing::TestWithParam<QuantType> {
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

    cuda::MixedWorkspace workspace;
    Random random{101u + static_cast<unsigned>(GetParam())};
};

TEST_P(MixedRowLaw, Out) {
    struct Shape {
        std::int64_t outs, width;
    };
    for (const Shape shape : {Shape{4096, 4096}, Shape{1024, 14336}, Shape{512, 28672}, Shape{160, 512}}) {
        kernels::MlpOutSpec spec;
        spec.down = {GetParam(), shape.outs, shape.width, nullptr};  // random, on the device
        const cuda::OutLinear op(spec);
        const auto input = on_device(inputs(200, shape.width));
        expect_same_bits(200, shape.outs, {17, 24, 31, 32, 33, 40, 63, 64, 65, 100, 128, 129, 200},
                         [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
                             op.launch(call, {input.data() + first * shape.width, nullptr, to});
                         });
    }
}

// More rows than one launch takes.
TEST_P(MixedRowLaw, OutOfSeveralLaunches) {
    constexpr std::int64_t kOuts = 1024, kWidth = 8192;
    kernels::MlpOutSpec spec;
    spec.down = {GetParam(), kOuts, kWidth, nullptr};
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
    spec.down = {GetParam(), kOuts, kWidth, nullptr};
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
        spec.gate = {GetParam(), units, width, nullptr};
        spec.up = spec.gate;
        spec.norm.weight = {QuantType::f32, 1, width, nullptr};
        const cuda::MlpInLinear op(spec);
        const auto x = on_device(inputs(130, width));
        expect_same_bits(130, units, {17, 32, 48, 64, 90, 128, 130},
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
    spec.q = {GetParam(), q, width, nullptr};
    spec.k = {GetParam(), kv, width, nullptr};
    spec.v = {QuantType::q6_k, kv, width, nullptr};
    const std::vector<float> frequencies(64, 0.5f);
    spec.rope = {kernels::RopePairs::half_split, frequencies, 1.0f};
    const cuda::AttentionInLinear op(spec);
    const auto x = on_device(inputs(kRows, width));
    expect_same_bits(kRows, q + 2 * kv, {17, 33, 64, 130},
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
    spec.weight = {GetParam(), kVocab, kWidth, nullptr};
    spec.scale = 0.5f;
    spec.soft_cap = 30.0f;
    const cuda::LmHeadLinear op(spec);
    const auto x = on_device(inputs(kRows, kWidth));
    std::vector<std::int32_t> chosen;
    for (std::int32_t i = 0; i < 40; ++i) chosen.push_back(i * 29 % kRows);
    const auto row = cuda::to_device(std::span<const std::int32_t>(chosen));
    expect_same_bits(40, kVocab, {17, 40}, [&](const cuda::LinearCall& call, std::int32_t first, float* to) {
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
    // A context for fewer rows has no memory for it.
    EXPECT_EQ(cuda::MixedWorkspace(kShape, 16).scratch(), nullptr);
}

INSTANTIATE_TEST_SUITE_P(QuantTypes, MixedRowLaw,
                         testing::Values(QuantType::q4_0, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k,
                                         QuantType::q6_k, QuantType::f16, QuantType::bf16),
                         [](const auto& info) { return std::string(kernels::info(info.param).name); });

}  // namespace
}  // namespace foresay::test
