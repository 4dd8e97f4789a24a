// Every op that reads weights on the device against plain loops in double precision: all quantisation types, both
// classes of rows, 1 to 40 of them, shapes that do and do not fill panels and blocks.

#include "tests/cuda_linear/device_case.h"
#include "tests/kernels/oracle.h"

namespace foresay::test {
namespace {

using kernels::NormSpec;
using kernels::RopePairs;
using kernels::TensorView;

class DeviceOps : public testing::TestWithParam<std::tuple<QuantType, kernels::RowClass>> {
protected:
    void SetUp() override {
        SKIP_WITHOUT_DEVICE();
        if (row_class() == kernels::RowClass::decode) return;
        // Inputs and outputs of every case fit.
        workspace = cuda::PrefillWorkspace({1, 9216, 144, 1, 64, 9216, 1}, 64);
        if (workspace.state() == nullptr)
            GTEST_SKIP() << "there is no cuBLASLt here: prefill rows take the decode kernels";
    }
    QuantType quant_type() const { return std::get<0>(GetParam()); }
    kernels::RowClass row_class() const { return std::get<1>(GetParam()); }
    double limit(QuantType of) const { return tolerance(of, row_class()); }
    cuda::PrefillWorkspace workspace;
    Random random{20261121u + static_cast<unsigned>(quant_type())};
    // Widths of inputs: a whole number of blocks, but not always of a warp's share.
    std::vector<std::int64_t> widths() const {
        if (is_k_quant(quant_type())) return {256, 768, 2048, 4352};
        return {32, 160, 896, 2048, 4096, 9216};
    }
    cuda::LinearCall call(std::int32_t rows) { return {nullptr, rows, row_class(), &workspace, true}; }
    // Some inputs far larger than others, as real residual streams have.
    std::vector<float> inputs(std::size_t count) {
        std::vector<float> x = bell(random, count, 1.0f);
        for (std::size_t i = 17; i < count; i += 391) x[i] *= 60.0f;
        return x;
    }
};

TEST_P(DeviceOps, Out) {
    for (const std::int64_t width : widths()) {
        for (const std::int64_t outs : {16, 70, 512}) {
            for (const std::int32_t rows : {1, 3, 8, 16, 19}) {
                const Tensor o = Tensor::random_bits(random, quant_type(), outs, width);
                const std::vector<float> bias = bell(random, static_cast<std::size_t>(outs), 0.5f);
                const std::vector<float> input = inputs(static_cast<std::size_t>(rows * width));
                const std::vector<float> x = bell(random, static_cast<std::size_t>(rows * outs), 1.0f);
                const Tensor b = Tensor::of(QuantType::f32, 1, outs, bias);
                kernels::AttentionOutSpec spec;
                spec.o = o.view();
                spec.bias = b.view();
                const cuda::OutLinear op(spec);
                const auto device_input = on_device(input);
                const auto device_x = on_device(x);
                const auto raw = poisoned(x.size());
                op.launch(call(rows), {device_input.data(), device_x.data(), nullptr});
                op.launch(call(rows), {device_input.data(), nullptr, raw.data()});
                std::vector<double> y = product(o.view(), {input.begin(), input.end()});
                for (std::size_t i = 0; i < y.size(); ++i) y[i] += bias[i % bias.size()];
                ASSERT_LT(distance(to_host(raw), y), limit(quant_type())) << width << " " << outs << " " << rows;
                for (std::size_t i = 0; i < y.size(); ++i) y[i] += x[i];
                ASSERT_LT(distance(to_host(device_x), y), limit(quant_type())) << width << " " << outs << " " << rows;
            }
        }
    }
}

TEST_P(DeviceOps, MlpIn) {
    for (const std::int64_t width : widths()) {
        for (const auto activation : {kernels::Activation::silu, kernels::Activation::gelu_tanh}) {
            const std::int32_t rows = width == 896 ? 11 : 2;
            const std::int64_t units = 200;
            const Tensor gate = Tensor::random(random, quant_type(), units, width);
            const Tensor up = Tensor::random(random, quant_type(), units, width);
            const std::vector<float> weight = bell(random, static_cast<std::uint32_t>(width), 0.1f, 1.0f);
            const Tensor norm = Tensor::of(QuantType::f32, 1, width, weight);
            const std::vector<float> x = inputs(static_cast<std::size_t>(rows * width));
            kernels::MlpInSpec spec;
            spec.gate = gate.view();
            spec.up = up.view();
            spec.norm = {norm.view(), 1e-5f, false};
            spec.activation = activation;
            const cuda::MlpInLinear op(spec);
            const auto device_x = on_device(x);
            const auto ff = poisoned(static_cast<std::size_t>(rows * units));
            op.launch(call(rows), {device_x.data(), ff.data()});
            const std::vector<double> n = normed(x, weight, 1e-5f);
            std::vector<double> g = product(gate.view(), n);
            const std::vector<double> u = product(up.view(), n);
            for (std::size_t i = 0; i < g.size(); ++i) {
                g[i] = (activation == kernels::Activation::silu ? silu(g[i]) : gelu_tanh(g[i])) * u[i];
            }
            ASSERT_LT(distance(to_host(ff), g), 2 * limit(quant_type())) << width;
        }
    }
}

TEST_P(DeviceOps, LmHead) {
    for (const std::int64_t width : widths()) {
        const std::int64_t vocab = 1007;
        const std::int32_t rows = 5;
        const Tensor head = Tensor::random(random, quant_type(), vocab, width);
        const std::vector<float> weight = bell(random, static_cast<std::uint32_t>(width), 0.1f, 1.0f);
        std::vector<float> less_one = weight;
        for (float& w : less_one) w -= 1.0f;
        const Tensor norm = Tensor::of(QuantType::f32, 1, width, less_one);
        const std::vector<float> x = inputs(static_cast<std::size_t>(9 * width));
        const std::vector<std::int32_t> row = {0, 2, 3, 7, 8};
        kernels::LmHeadSpec spec;
        spec.weight = head.view();
        spec.norm = {norm.view(), 1e-6f, true};
        spec.scale = 0.7f;
        spec.soft_cap = 2.0f;
        const cuda::LmHeadLinear op(spec);
        const auto device_x = on_device(x);
        const auto device_row = cuda::to_device(std::span<const std::int32_t>(row));
        const auto logits = poisoned(static_cast<std::size_t>(rows * vocab));
        op.launch(call(rows), {device_x.data(), device_row.data(), logits.data(), vocab});
        std::vector<float> chosen;
        for (const std::int32_t r : row)
            chosen.insert(chosen.end(), x.begin() + r * width, x.begin() + (r + 1) * width);
        std::vector<double> y = product(head.view(), normed(chosen, weight, 1e-6f));
        for (double& value : y) value = 2.0 * std::tanh(0.7 * value / 2.0);
        ASSERT_LT(distance(to_host(logits), y), limit(quant_type())) << width;
    }
}

TEST_P(DeviceOps, AttentionIn) {
    constexpr std::int32_t kHeads = 6, kKvHeads = 2, kHead = 64, kRows = 5, kRotated = 48;
    constexpr std::int64_t q_rows = kHeads * kHead, kv_rows = kKvHeads * kHead;
    for (const RopePairs pairs : {RopePairs::none, RopePairs::adjacent, RopePairs::half_split}) {
        for (const QuantType v_quant_type : {quant_type(), QuantType::q6_k}) {
            const std::int64_t width = 1024;
            const Tensor q = Tensor::random(random, quant_type(), q_rows, width);
            const Tensor k = Tensor::random(random, quant_type(), kv_rows, width);
            const Tensor v = Tensor::random(random, v_quant_type, kv_rows, width);
            const std::vector<float> weight = bell(random, static_cast<std::uint32_t>(width), 0.1f, 1.0f);
            const Tensor norm = Tensor::of(QuantType::f32, 1, width, weight);
            const std::vector<float> k_bias = bell(random, static_cast<std::size_t>(kv_rows), 0.5f);
            const Tensor bias = Tensor::of(QuantType::f32, 1, kv_rows, k_bias);
            const std::vector<float> frequencies(kRotated / 2, 1.0f);
            kernels::AttentionInSpec spec;
            spec.shape = {1, static_cast<std::int32_t>(width), kHeads, kKvHeads, kHead, 1, 1};
            spec.norm = {norm.view(), 1e-5f, false};
            spec.q = q.view();
            spec.k = k.view();
            spec.v = v.view();
            spec.k_bias = bias.view();
            spec.rope = {
                pairs, pairs == RopePairs::none ? std::span<const float>() : std::span<const float>(frequencies), 1.0f};
            const cuda::AttentionInLinear op(spec);
            const std::vector<float> x = inputs(kRows * static_cast<std::size_t>(width));
            std::vector<float2> rope(kRows * kRotated / 2);
            for (float2& rotation : rope) {
                const float angle = bell(random, 1, 2.0f)[0];
                rotation = {std::cos(angle), std::sin(angle)};
            }
            const cuda::KvLayout layout(spec.shape, 1);
            std::vector<std::int64_t> cell, v_cell;
            for (const std::int32_t place : {7, 1, 42, 9, 34}) {
                cell.push_back(layout.k_cell(0, place));
                v_cell.push_back(layout.v_cell(0, place));
            }
            const auto device_x = on_device(x);
            const auto device_rope = cuda::to_device(std::span<const float2>(rope));
            const auto device_cell = cuda::to_device(std::span<const std::int64_t>(cell));
            const auto device_v_cell = cuda::to_device(std::span<const std::int64_t>(v_cell));
            const auto device_q = poisoned(kRows * q_rows);
            const auto raw = poisoned(kRows * (q_rows + 2 * kv_rows));
            const std::vector<__half> blank(static_cast<std::size_t>(layout.page_stride));
            const auto kv = cuda::to_device(std::span<const __half>(blank));
            cuda::AttentionInLinear::Io io;
            io.x = device_x.data();
            io.q = device_q.data();
            io.kv = kv.data();
            io.cell = device_cell.data();
            io.head_stride = layout.head_stride;
            io.v_cell = device_v_cell.data();
            io.rope = pairs == RopePairs::none ? nullptr : device_rope.data();
            op.launch(call(kRows), io);
            io.raw = raw.data();
            op.launch(call(kRows), io);

            const std::vector<double> n = normed(x, weight, 1e-5f);
            std::vector<double> want_q = product(q.view(), n), want_k = product(k.view(), n), want_raw;
            const std::vector<double> want_v = product(v.view(), n);
            for (std::size_t i = 0; i < want_k.size(); ++i) want_k[i] += k_bias[i % k_bias.size()];
            for (std::size_t t = 0; t < kRows; ++t) {
                want_raw.insert(want_raw.end(), want_q.begin() + t * q_rows, want_q.begin() + (t + 1) * q_rows);
                want_raw.insert(want_raw.end(), want_k.begin() + t * kv_rows, want_k.begin() + (t + 1) * kv_rows);
                want_raw.insert(want_raw.end(), want_v.begin() + t * kv_rows, want_v.begin() + (t + 1) * kv_rows);
            }
            const auto rotate = [&](std::vector<double>& rows) {
                if (pairs == RopePairs::none) return;
                const std::size_t heads = rows.size() / kHead;
                for (std::size_t h = 0; h < heads; ++h) {
                    const std::size_t t = h / (heads / kRows);
                    for (std::size_t i = 0; i < kRotated / 2; ++i) {
                        const float2 rotation = rope[t * kRotated / 2 + i];
                        double& a = rows[h * kHead + (pairs == RopePairs::adjacent ? 2 * i : i)];
                        double& b = rows[h * kHead + (pairs == RopePairs::adjacent ? 2 * i + 1 : i + kRotated / 2)];
                        const double x0 = a, x1 = b;
                        a = x0 * rotation.x - x1 * rotation.y;
                        b = x0 * rotation.y + x1 * rotation.x;
                    }
                }
            };
            rotate(want_q);
            rotate(want_k);
            const double most = std::max(limit(quant_type()), limit(v_quant_type));
            ASSERT_LT(distance(to_host(raw), want_raw), most);
            ASSERT_LT(distance(to_host(device_q), want_q), most);
            const std::vector<__half> cache = to_host(kv);
            std::vector<double> got_k, got_v;
            for (std::size_t t = 0; t < kRows; ++t) {
                for (std::size_t i = 0; i < static_cast<std::size_t>(kv_rows); ++i) {
                    const auto head = static_cast<std::int64_t>(i) / kHead * layout.head_stride;
                    const auto d = static_cast<std::int32_t>(i % kHead);
                    const auto of = [&](std::int64_t at) { return __half2float(cache[static_cast<std::size_t>(at)]); };
                    got_k.push_back(of(cell[t] + head + cuda::KvLayout::key_value(d)));
                    got_v.push_back(of(v_cell[t] + head + cuda::KvLayout::value_value(d)));
                }
            }
            ASSERT_LT(distance(got_k, want_k), most + 5e-4) << "the cache holds float16";
            ASSERT_LT(distance(got_v, want_v), most + 5e-4);
        }
    }
}

INSTANTIATE_TEST_SUITE_P(QuantTypes, DeviceOps,
                         testing::Combine(testing::ValuesIn(kAllQuantTypes),
                                          testing::Values(kernels::RowClass::decode, kernels::RowClass::prefill)),
                         [](const auto& info) {
                             return std::string(kernels::info(std::get<0>(info.param)).name) +
                                    (std::get<1>(info.param) == kernels::RowClass::prefill ? "_prefill" : "");
                         });

}  // namespace
}  // namespace foresay::test
