// Law 1 for prefill rows on the device: the bits of a row are the same in batches of 1 to 2,048 rows, at any place,
// beside any neighbours. Shapes are those of real models: whether a library's algorithm keeps the law shows only
// there.

#include <cstring>

#include "tests/cuda_linear/device_case.h"

namespace foresay::test {
namespace {

constexpr std::int32_t kMost = 2048;
constexpr std::int32_t kWidths[] = {1, 5, 63, 64, 65, 128, 300, 1500};

class PrefillRowLaw : public testing::TestWithParam<QuantType> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        workspace = cuda::PrefillWorkspace({1, 4096, 32, 8, 128, 14336, 1}, kMost);
        if (workspace.state() == nullptr)
            GTEST_SKIP() << "there is no cuBLASLt here: prefill rows take the decode kernels";
    }
    cuda::LinearCall call(std::int32_t rows) { return {nullptr, rows, kernels::RowClass::prefill, &workspace, true}; }

    // launch(first, rows, to) puts rows first ... of the inputs through an op whose outputs are `outs` wide.
    template <class Launch>
    void expect_same_bits(std::int64_t outs, const Launch& launch) {
        const auto all = poisoned(static_cast<std::size_t>(kMost * outs));
        launch(0, kMost, all.data());
        const std::vector<float> want = to_host(all);
        for (float value : want) ASSERT_TRUE(std::isfinite(value));
        for (const std::int32_t width : kWidths) {
            for (const std::int32_t first : {0, 37, kMost - width}) {
                if (first + width > kMost) continue;
                const auto some = poisoned(static_cast<std::size_t>(width * outs));
                launch(first, width, some.data());
                const std::vector<float> got = to_host(some);
                ASSERT_EQ(std::memcmp(got.data(), want.data() + first * outs, got.size() * sizeof(float)), 0)
                    << outs << " outputs, " << width << " rows from row " << first;
            }
        }
    }

    cuda::PrefillWorkspace workspace;
    Random random{77u + static_cast<unsigned>(GetParam())};
};

TEST_P(PrefillRowLaw, Out) {
    for (const auto& [outs, width] : {std::pair<std::int64_t, std::int64_t>{4096, 4096}, {4096, 14336}, {1024, 512}}) {
        kernels::MlpOutSpec spec;
        spec.down = {GetParam(), outs, width, nullptr};  // random, on the device
        const cuda::OutLinear op(spec);
        const auto input = on_device(bell(random, static_cast<std::size_t>(kMost * width), 3.0f));
        expect_same_bits(outs, [&, inputs = width](std::int32_t first, std::int32_t rows, float* to) {
            op.launch(call(rows), {input.data() + first * inputs, nullptr, to});
        });
    }
}

TEST_P(PrefillRowLaw, MlpIn) {
    for (const auto& [units, width] : {std::pair<std::int64_t, std::int64_t>{14336, 4096}, {8192, 2048}}) {
        kernels::MlpInSpec spec;
        spec.gate = {GetParam(), units, width, nullptr};
        spec.up = spec.gate;
        spec.norm.weight = {QuantType::f32, 1, width, nullptr};
        const cuda::MlpInLinear op(spec);
        const auto x = on_device(bell(random, static_cast<std::size_t>(kMost * width), 3.0f));
        expect_same_bits(units, [&, inputs = width](std::int32_t first, std::int32_t rows, float* to) {
            op.launch(call(rows), {x.data() + first * inputs, to, nullptr});
        });
    }
}

TEST_P(PrefillRowLaw, AttentionIn) {
    const std::int64_t width = 4096, q = 4096, kv = 1024;
    kernels::AttentionInSpec spec;
    spec.shape = {1, 4096, 32, 8, 128, 14336, 1};
    spec.norm.weight = {QuantType::f32, 1, width, nullptr};
    spec.q = {GetParam(), q, width, nullptr};
    spec.k = {GetParam(), kv, width, nullptr};
    spec.v = {QuantType::q6_k, kv, width, nullptr};
    const cuda::AttentionInLinear op(spec);
    const auto x = on_device(bell(random, static_cast<std::size_t>(kMost * width), 3.0f));
    expect_same_bits(q + 2 * kv, [&](std::int32_t first, std::int32_t rows, float* to) {
        cuda::AttentionInLinear::Io io;
        io.x = x.data() + first * width;
        io.raw = to;
        op.launch(call(rows), io);
    });
}

// A matrix that multiplies rows twice in a row finds weights of the first time: all of them, or of float32 one of two
// slabs. They are its own, in workspaces that share memory as well.
TEST_P(PrefillRowLaw, WeightsThatAreLeftChangeNothing) {
    constexpr std::int32_t kRows = 65;
    constexpr std::int64_t kWidth = 4096;
    std::weak_ptr<cuda::PrefillWorkspace::State> memory;
    const kernels::ModelShape shape{1, 4096, 32, 8, 128, 14336, 1};
    cuda::PrefillWorkspace first(shape, kRows, memory);
    cuda::PrefillWorkspace second(shape, 2 * kRows, memory);  // grows
    ASSERT_EQ(first.state(), second.state());
    const auto matrix = [&](std::int64_t units) {
        kernels::MlpInSpec spec;
        spec.gate = spec.up = {GetParam(), units, kWidth, nullptr};
        spec.norm.weight = {QuantType::f32, 1, kWidth, nullptr};
        return cuda::MlpInLinear(spec);
    };
    const cuda::MlpInLinear a = matrix(14336), b = matrix(12288);
    const auto x = on_device(bell(random, 2 * kRows * kWidth, 3.0f));
    const auto rows_of = [&](const cuda::MlpInLinear& op, cuda::PrefillWorkspace& in, bool later) {
        const auto units = poisoned(static_cast<std::size_t>(kRows) * (&op == &a ? 14336 : 12288));
        cuda::LinearCall launch = call(kRows);
        launch.workspace = &in;
        op.launch(launch, {x.data() + (later ? kRows * kWidth : 0), units.data(), nullptr});
        return to_host(units);
    };
    const auto a_first = rows_of(a, first, false), b_first = rows_of(b, first, false);
    const auto a_later = rows_of(a, first, true), b_later = rows_of(b, first, true);
    ASSERT_NE(a_first, a_later);
    for (int round = 0; round < 2; ++round) {
        EXPECT_EQ(rows_of(a, first, false), a_first) << round;
        EXPECT_EQ(rows_of(a, second, true), a_later) << round;
        EXPECT_EQ(rows_of(a, first, false), a_first) << round;
        EXPECT_EQ(rows_of(b, second, false), b_first) << round;
        EXPECT_EQ(rows_of(b, first, true), b_later) << round;
    }
}

// mlp_in may hand its rows to mlp_out directly, not through memory: the output is the same, bit for bit.
TEST_P(PrefillRowLaw, HandingOverChangesNothing) {
    constexpr std::int32_t kRows = 100;
    constexpr std::int64_t kWidth = 512, kUnits = 1280;
    kernels::MlpInSpec in_spec;
    in_spec.gate = {GetParam(), kUnits, kWidth, nullptr};
    in_spec.up = in_spec.gate;
    in_spec.norm.weight = {QuantType::f32, 1, kWidth, nullptr};
    kernels::MlpOutSpec out_spec;
    out_spec.down = {GetParam(), kWidth, kUnits, nullptr};
    const cuda::MlpInLinear in(in_spec);
    const cuda::OutLinear out(out_spec);
    const std::vector<float> rows = bell(random, kRows * kWidth, 3.0f);
    const auto x = on_device(rows);
    const auto through_memory = on_device(rows), handed_over = on_device(rows);
    const auto ff = poisoned(kRows * kUnits), untouched = poisoned(kRows * kUnits);
    in.launch(call(kRows), {x.data(), ff.data(), nullptr});
    out.launch(call(kRows), {ff.data(), through_memory.data(), nullptr});
    in.launch(call(kRows), {x.data(), untouched.data(), &out});
    out.launch(call(kRows), {untouched.data(), handed_over.data(), nullptr});
    const std::vector<float> want = to_host(through_memory), got = to_host(handed_over);
    ASSERT_EQ(std::memcmp(got.data(), want.data(), got.size() * sizeof(float)), 0);
    ASSERT_NE(std::memcmp(got.data(), rows.data(), got.size() * sizeof(float)), 0);
    // What was handed over is used once.
    out.launch(call(kRows), {ff.data(), handed_over.data(), nullptr});
    out.launch(call(kRows), {ff.data(), through_memory.data(), nullptr});
    ASSERT_EQ(to_host(handed_over), to_host(through_memory));
}

// The memory estimate before a model is loaded relies on it.
TEST(PrefillWorkspace, TakesWhatItSays) {
    SKIP_WITHOUT_DEVICE();
    const kernels::ModelShape shape{1, 4096, 32, 8, 128, 14336, 1};
    const std::int64_t said = cuda::PrefillWorkspace::bytes(shape, kMost);
    if (said == 0) GTEST_SKIP() << "there is no cuBLASLt here: prefill rows take the decode kernels";
    const auto free_bytes = [] {
        std::size_t free = 0, total = 0;
        cuda::cuda_check(cudaMemGetInfo(&free, &total), "cannot ask for free memory");
        return static_cast<std::int64_t>(free);
    };
    cuda::PrefillWorkspace(shape, kMost);           // what the library takes at its first use is not counted here
    constexpr std::int64_t kGranularity = 2 << 20;  // of each of four allocations
    std::vector<std::int64_t> taken;
    const auto right = [&](std::int64_t bytes) { return bytes >= said && bytes <= said + 4 * kGranularity; };
    // Other programs on the device take and give memory meanwhile.
    while (taken.size() < 20 && (taken.empty() || !right(taken.back()))) {
        const std::int64_t before = free_bytes();
        const cuda::PrefillWorkspace workspace(shape, kMost);
        taken.push_back(before - free_bytes());
    }
    EXPECT_TRUE(right(taken.back())) << said << " bytes were said, and taken: " << testing::PrintToString(taken);
}

INSTANTIATE_TEST_SUITE_P(QuantTypes, PrefillRowLaw, testing::ValuesIn(kAllQuantTypes),
                         [](const auto& info) { return std::string(kernels::info(info.param).name); });

}  // namespace
}  // namespace foresay::test
