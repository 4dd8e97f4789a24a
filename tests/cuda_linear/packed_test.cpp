// Packed rows on the device: values bit for bit, products of every form and width against double precision, the same
// bits at every number of rows, stacks whose matrices differ.

#include <bit>
#include <cstring>
#include <utility>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/prefill/dequantize_packed.h"
#include "kernels/quant/packed_panels.h"
#include "tests/cuda_linear/device_case.h"
#include "tests/kernels/packed_case.h"

namespace foresay::test {
namespace {

using kernels::Packing;
using kernels::ScaleForm;
using kernels::TensorView;
using packed::H;
using packed::Kind;
using packed::Packed;

// The kinds of the CPU's test, and those that only the device treats apart.
std::vector<Kind> device_kinds() {
    std::vector<Kind> kinds = packed::kinds();
    kinds.push_back({"exl2_long",
                     ScaleForm::f16_zero,
                     {8 | H, 6 | H, 5 | H, 5, 4 | H, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 3 | H, 3, 3, 3, 3, 3, 2 | H, 2},
                     24 * 32,
                     1.0f,
                     true});
    kinds.push_back({"five_bits", ScaleForm::f16_zero, {5 | H, 5}, 128});
    kinds.push_back({"many_runs", ScaleForm::f16_minimum, {4 | H, 4, 8 | H, 8}, 64 * 32});
    return kinds;
}

class PackedOnDevice : public testing::TestWithParam<Kind> {
protected:
    void SetUp() override { SKIP_WITHOUT_DEVICE(); }
    // The kind with at least `inputs` inputs. Where widths of codes change, each lasts longer.
    static Kind wide(std::int64_t inputs) {
        Kind kind = GetParam();
        const std::int64_t step = kind.inputs;
        while (kind.inputs < inputs) kind.inputs += step;
        if (kind.ordered) kind.kinds = stretched(kind.kinds, kind.inputs / 32);
        return kind;
    }
    static std::vector<std::uint8_t> stretched(const std::vector<std::uint8_t>& kinds, std::int64_t groups) {
        std::vector<std::uint8_t> longer;
        const auto count = static_cast<std::size_t>(groups);
        for (std::size_t g = 0; g < count; ++g) {
            const std::size_t from = g * kinds.size() / count;
            const bool same = g > 0 && from == (g - 1) * kinds.size() / count && g % 4 != 0;
            longer.push_back(static_cast<std::uint8_t>((kinds[from] & 15) | (same ? 0 : H)));
        }
        return longer;
    }
    static bool has_runs_for(const Kind& kind) { return std::string_view(kind.name) != "many_runs"; }
    Random random_{5};
};

// Every weight, through the panels and back.
TEST_P(PackedOnDevice, PanelsKeepEveryValue) {
    for (const std::int64_t rows : {1, 37, 96}) {
        const Packed matrix(GetParam(), rows, random_);
        const cuda::PackSource source[] = {{matrix.view(), {}}};
        const cuda::Panels panels(source, cuda::RowOrder::stacked);
        ASSERT_EQ(panels.parts().size(), 1u);
        const cuda::Panels::Part& part = panels.parts()[0];
        if (!has_runs_for(GetParam())) {
            EXPECT_EQ(part.quant_type, QuantType::f32) << "more runs than a header holds";
            continue;
        }
        ASSERT_EQ(part.quant_type, QuantType::packed);
        const std::int64_t most = part.panels * 32 * kernels::packed_panel_row_bytes(matrix.packing, matrix.cols);
        const std::int64_t before = 256 + static_cast<std::int64_t>(matrix.packing.order.size()) * 2 + 128;
        EXPECT_LE(static_cast<std::int64_t>(part.data.bytes()), most + before) << "what memory estimates count";
        const std::int64_t stride = part.blocks * 64;
        const auto out = poisoned(static_cast<std::size_t>(part.panels * 32 * stride));
        cuda::launch_dequantize_packed_f32(nullptr, part, 0, part.panels, out.data(), stride);
        const std::vector<float> got = to_host(out);
        const std::vector<std::int32_t>& order = matrix.packing.order;
        EXPECT_EQ(cuda::packed_order(part) != nullptr, !order.empty());
        for (std::int64_t r = 0; r < rows; ++r) {
            for (std::int64_t i = 0; i < matrix.cols; ++i) {
                const std::int64_t input = order.empty() ? i : order[static_cast<std::size_t>(i)];
                ASSERT_EQ(
                    std::bit_cast<std::uint32_t>(got[static_cast<std::size_t>(r * stride + i)]),
                    std::bit_cast<std::uint32_t>(matrix.values[static_cast<std::size_t>(r * matrix.cols + input)]))
                    << "row " << r << " place " << i;
            }
        }
    }
}

// Experts stay packed as well, and take what memory estimates count.
TEST_P(PackedOnDevice, ExpertsStayPacked) {
    if (!has_runs_for(GetParam())) return;
    const Packed one(GetParam(), 70, random_);
    Packed two(GetParam(), 70, random_);
    two.packing.table = one.packing.table;
    const TensorView views[] = {one.view(), two.view()};
    const cuda::ExpertForm form = cuda::form_of_experts(views, {});
    ASSERT_EQ(form.quant_type, QuantType::packed);
    const cuda::ExpertPanels panels(views, {}, form);
    const std::int64_t rows = 2 * 96 * kernels::packed_panel_row_bytes(one.packing, one.cols);
    EXPECT_LE(panels.bytes(), rows + 256 + 4 * one.cols + 16);
}

// One matrix by decode rows and by prompts, in its own order of inputs.
TEST_P(PackedOnDevice, ProductsEqualPlainOnes) {
    constexpr std::int32_t kRows = 17;
    for (const auto& [rows, inputs] : {std::pair<std::int64_t, std::int64_t>{96, 64}, {416, 2048}, {64, 9000}}) {
        const Packed matrix(wide(inputs), rows, random_);
        const std::vector<float> x = bell(random_, static_cast<std::size_t>(kRows * matrix.cols), 1.0f);
        const cuda::OutLinear op(matrix.view());
        const auto input = on_device(x);
        cuda::PrefillWorkspace workspace(
            {1, static_cast<std::int32_t>(matrix.cols), 8, 8, 64, static_cast<std::int32_t>(matrix.cols), 1}, 64);
        const std::vector<double> truth = product(matrix.view(), std::vector<double>(x.begin(), x.end()));
        for (const kernels::RowClass row_class : {kernels::RowClass::decode, kernels::RowClass::prefill}) {
            for (const std::int32_t many : {1, 2, 5, 8, kRows}) {
                const auto raw = poisoned(static_cast<std::size_t>(many * rows));
                op.launch({nullptr, many, row_class, &workspace, true}, {input.data(), nullptr, raw.data()});
                const std::vector<double> want(truth.begin(), truth.begin() + many * rows);
                EXPECT_LT(distance(to_host(raw), want), 1.2e-3)
                    << rows << " x " << matrix.cols << ", " << many << " rows, class " << static_cast<int>(row_class);
            }
        }
    }
}

// Gate and up interleave, with factors of their own, after a norm.
TEST_P(PackedOnDevice, GateAndUpShareAPanel) {
    const Packed gate(wide(256), 100, random_);
    Packed up(wide(256), 100, random_);
    up.packing.order = gate.packing.order;
    up.packing.table = gate.packing.table;
    if (up.packing.form == ScaleForm::f32_table) up.packing.factor = 0.61f;
    const std::vector<float> weight = bell(random_, static_cast<std::size_t>(gate.cols), 0.1f, 1.0f);
    kernels::MlpInSpec spec;
    spec.gate = gate.view();
    spec.up = up.view();
    const Tensor norm = Tensor::of(QuantType::f32, 1, gate.cols, weight);
    spec.norm.weight = norm.view();
    spec.norm.eps = 1e-5f;
    const cuda::MlpInLinear op(spec);
    constexpr std::int32_t kRows = 7;
    const std::vector<float> x = bell(random_, static_cast<std::size_t>(kRows * gate.cols), 0.02f);
    const std::vector<double> seen = normed(x, weight, spec.norm.eps);
    const std::vector<double> gates = product(gate.view(), seen), ups = product(up.view(), seen);
    std::vector<double> want(gates.size());
    for (std::size_t i = 0; i < want.size(); ++i) want[i] = gates[i] / (1.0 + std::exp(-gates[i])) * ups[i];
    const auto input = on_device(x);
    const auto ff = poisoned(want.size());
    op.launch({nullptr, kRows, kernels::RowClass::decode, nullptr, true}, {input.data(), ff.data(), nullptr});
    EXPECT_LT(distance(to_host(ff), want), 4e-3);
}

// Law 1, on widths that split K and on shapes of models.
TEST_P(PackedOnDevice, RowsDoNotSeeTheirNeighbours) {
    Kind kind = GetParam();
    Packing packing = Packed(kind, 1, random_).packing;
    packing.order.clear();
    constexpr std::int32_t kMost = 64;
    for (const auto& [outs, width] : {std::pair<std::int64_t, std::int64_t>{512, 2048}, {4096, 4096}, {1024, 14336}}) {
        if (!has_runs_for(kind)) continue;
        if (kind.ordered) {
            packing.order.resize(static_cast<std::size_t>(width));
            for (std::int64_t i = 0; i < width; ++i) {
                packing.order[static_cast<std::size_t>(i)] = static_cast<std::int32_t>((i * 37 + 11) % width);
            }
            packing.kinds = stretched(packing.kinds, width / 32);
        }
        kernels::MlpOutSpec spec;
        spec.down = {QuantType::packed, outs, width, nullptr, &packing};  // random, on the device
        const cuda::OutLinear op(spec);
        const std::vector<float> rows = bell(random_, static_cast<std::size_t>(kMost * width), 3.0f);
        const auto input = on_device(rows);
        const auto alone = poisoned(static_cast<std::size_t>(kMost * outs));
        for (std::int32_t t = 0; t < kMost; ++t) {
            op.launch({nullptr, 1, kernels::RowClass::decode, nullptr, true},
                      {input.data() + t * width, nullptr, alone.data() + t * outs});
        }
        const std::vector<float> want = to_host(alone);
        for (const float value : want) ASSERT_TRUE(std::isfinite(value));
        for (const std::int32_t many : {2, 3, 4, 5, 7, 8, 9, 16, 17, 40, 64}) {
            const std::int32_t first = kMost - many;
            const auto together = poisoned(static_cast<std::size_t>(many * outs));
            op.launch({nullptr, many, kernels::RowClass::decode, nullptr, true},
                      {input.data() + first * width, nullptr, together.data()});
            const std::vector<float> got = to_host(together);
            ASSERT_EQ(std::memcmp(got.data(), want.data() + first * outs, got.size() * sizeof(float)), 0)
                << outs << " x " << width << ", " << many << " rows";
        }
        // Prompts have bits of their own, likewise independent.
        cuda::PrefillWorkspace workspace({1, 4096, 32, 8, 128, 14336, 1}, kMost);
        const auto prompt = poisoned(static_cast<std::size_t>(kMost * outs));
        op.launch({nullptr, kMost, kernels::RowClass::prefill, &workspace, true},
                  {input.data(), nullptr, prompt.data()});
        const std::vector<float> all = to_host(prompt);
        const auto few = poisoned(static_cast<std::size_t>(5 * outs));
        op.launch({nullptr, 5, kernels::RowClass::prefill, &workspace, true},
                  {input.data() + 20 * width, nullptr, few.data()});
        const std::vector<float> got = to_host(few);
        ASSERT_EQ(std::memcmp(got.data(), all.data() + 20 * outs, got.size() * sizeof(float)), 0) << "prompts";
    }
}

INSTANTIATE_TEST_SUITE_P(All, PackedOnDevice, testing::ValuesIn(device_kinds()),
                         [](const auto& info) { return std::string(info.param.name); });

// Gate and up whose codes differ in width, with heads of their own: both keep every value in the panels of the pair.
TEST(PackedStacks, GateAndUpOfOtherWidthsShareAPanel) {
    SKIP_WITHOUT_DEVICE();
    Random random(12);
    struct Pair {
        const char* name;
        Kind gate, up;
    };
    const std::vector<std::uint8_t> many = {6 | H, 6, 5 | H, 5, 4 | H, 4, 4, 4, 3 | H, 2 | H};
    const std::vector<std::uint8_t> few = {4 | H, 4, 4 | H, 4 | H, 3 | H, 3, 3, 3, 2 | H, 2};
    for (const Pair& pair : {Pair{"zeros",
                                  {"", ScaleForm::f16_zero, many, 320, 1.0f, true},
                                  {"", ScaleForm::f16_zero, few, 320, 1.0f, true}},
                             Pair{"centred",
                                  {"", ScaleForm::f16_zero, many, 320, 1.0f, true, true},
                                  {"", ScaleForm::f16_zero, few, 320, 1.0f, true, true}},
                             Pair{"one centred",
                                  {"", ScaleForm::f32_zero, {8 | H, 8, 8, 8}, 352, 1.0f, false, true},
                                  {"", ScaleForm::f32_zero, {3 | H}, 352}},
                             Pair{"minimum",
                                  {"", ScaleForm::f16_minimum, {4 | H, 4, 4, 4}, 256},
                                  {"", ScaleForm::f16_minimum, {8 | H, 8}, 256}}}) {
        SCOPED_TRACE(pair.name);
        const Packed gate(pair.gate, 50, random);
        Packed up(pair.up, 50, random);
        // In the order of gate: the values of a place stay with it.
        const std::vector<std::int32_t> own = std::exchange(up.packing.order, gate.packing.order);
        const auto place_of = [&](const Packed& matrix, std::int64_t place) {
            const std::vector<std::int32_t>& order = &matrix == &gate ? gate.packing.order : own;
            return order.empty() ? place : order[static_cast<std::size_t>(place)];
        };
        const cuda::PackSource sources[] = {{gate.view(), {}}, {up.view(), {}}};
        const cuda::Panels panels(sources, cuda::RowOrder::interleaved);
        ASSERT_EQ(panels.parts().size(), 1u);
        const cuda::Panels::Part& part = panels.parts()[0];
        ASSERT_EQ(part.quant_type, QuantType::packed);
        const std::int64_t stride = part.blocks * 64;
        const auto out = poisoned(static_cast<std::size_t>(part.panels * 32 * stride));
        cuda::launch_dequantize_packed_f32(nullptr, part, 0, part.panels, out.data(), stride);
        const std::vector<float> got = to_host(out);
        for (std::int64_t r = 0; r < 100; ++r) {
            const Packed& matrix = r % 2 == 0 ? gate : up;
            for (std::int64_t i = 0; i < matrix.cols; ++i) {
                const float want = matrix.values[static_cast<std::size_t>(r / 2 * matrix.cols + place_of(matrix, i))];
                ASSERT_EQ(std::bit_cast<std::uint32_t>(got[static_cast<std::size_t>(r * stride + i)]),
                          std::bit_cast<std::uint32_t>(want))
                    << "row " << r << " place " << i;
            }
        }
    }
}

// Matrices of one op keep their own packing; where only some have an order, those are unpacked.
TEST(PackedStacks, PartsFollowThePackings) {
    SKIP_WITHOUT_DEVICE();
    Random random(11);
    const Kind four{"four", ScaleForm::f16_minimum, {4 | H}, 256}, five{"five", ScaleForm::f16_minimum, {5 | H}, 256};
    const Kind ordered{"ordered", ScaleForm::f16_zero, {4 | H}, 256, 1.0f, true};
    const Packed a(four, 64, random), b(four, 32, random), c(five, 32, random), d(ordered, 32, random);
    const auto types = [](std::initializer_list<const Packed*> matrices) {
        std::vector<cuda::PackSource> sources;
        for (const Packed* matrix : matrices) sources.push_back({matrix->view(), {}});
        std::vector<QuantType> found;
        const cuda::Panels panels(sources, cuda::RowOrder::stacked);
        for (const cuda::Panels::Part& part : panels.parts()) found.push_back(part.quant_type);
        return found;
    };
    EXPECT_EQ(types({&a, &b, &c}), (std::vector{QuantType::packed, QuantType::packed}));
    EXPECT_EQ(types({&a, &d}), (std::vector{QuantType::packed, QuantType::f32}));
    EXPECT_EQ(types({&d}), (std::vector{QuantType::packed}));
}

}  // namespace
}  // namespace foresay::test
