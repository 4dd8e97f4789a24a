// Outputs of a layer divided over backends, as several GPUs would divide them (docs/decisions/025-several-devices.md):
// each has some attention heads with their keys and values, some rows of gate and up, some of the LM head, and makes
// the numbers that the whole makes, bit for bit. Dividing inputs, and adding partial sums, gives other bits.
//
// O and down are products of the same kind, whose inputs would have to be gathered first.

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "kernels/cpu/isa_select.h"
#include "tests/kernels/tiny_model.h"

namespace foresay::test {
namespace {

using kernels::ModelShape;
using kernels::TensorView;

constexpr std::int32_t kWidth = 512, kHeads = 8, kHeadDim = 64, kInner = 512, kVocab = 320, kMostRows = 64;
static_assert(kHeads * kHeadDim == kWidth && kInner == kWidth, "what a device makes is read back in x");

TensorView rows_of(const Tensor& matrix, std::int32_t first, std::int32_t count) {
    TensorView view = matrix.view();
    view.data += first * view.row_bytes();
    view.rows = count;
    return view;
}

// [kWidth, count]: a product with it puts `count` numbers into x from `first` on, and zeros elsewhere.
Tensor selector(std::int32_t first, std::int32_t count) {
    std::vector<float> values(static_cast<std::size_t>(kWidth) * static_cast<std::size_t>(count));
    for (std::int32_t i = 0; i < count; ++i) values[static_cast<std::size_t>((first + i) * count + i)] = 1.0f;
    return Tensor::of(QuantType::f32, kWidth, count, values);
}

struct Weights {
    explicit Weights(QuantType quant_type) {
        Random random(7);
        norm = Tensor::random(random, QuantType::f32, 1, kWidth, 0.1f, 1.0f);
        for (Tensor* matrix : {&q, &k, &v, &o, &gate, &up}) {
            *matrix = Tensor::random(random, quant_type, kWidth, kWidth);
        }
        head = Tensor::random(random, quant_type, kVocab, kWidth);
        x = bell(random, static_cast<std::size_t>(kMostRows) * kWidth, 1.0f);
    }
    Tensor norm, q, k, v, o, gate, up, head;
    std::vector<float> x;
};

// The same for all instruction sets.
const Weights& weights_of(QuantType quant_type) {
    static std::map<QuantType, Weights> all;
    return all.try_emplace(quant_type, quant_type).first->second;
}

// What is made of one part, of each row.
struct Made {
    std::vector<float> attended, inner, logits;
    std::vector<float> projected;  // O's sum over the attended values of the part: a partial sum; none: not cut there
};

// The part [first, first + count) of heads, of rows of gate and up, and of the LM head.
struct Part {
    std::int32_t first = 0, count = 0;
};
Part share(std::int32_t whole, const std::vector<int>& shares, std::size_t i) {
    const int all = std::accumulate(shares.begin(), shares.end(), 0);
    const auto before = std::accumulate(shares.begin(), shares.begin() + static_cast<std::ptrdiff_t>(i), 0);
    const std::int32_t first = whole * before / all;
    return {first, whole * (before + shares[i]) / all - first};
}

class Device {
public:
    Device(kernels::Ops& ops, const Weights& weights, Part heads, Part inner, Part vocab)
        : ops_(ops), weights_(weights), heads_(heads), inner_(inner) {
        const ModelShape shape = {.layers = 1,
                                  .d_model = kWidth,
                                  .heads = heads.count,
                                  .kv_heads = heads.count,
                                  .head_dim = kHeadDim,
                                  .d_ff = inner.count,
                                  .vocab = vocab.count};
        const kernels::NormSpec norm{.weight = weights.norm.view()};
        const auto of_heads = [&](const Tensor& matrix) {
            return rows_of(matrix, heads.first * kHeadDim, heads.count * kHeadDim);
        };
        kernels::AttentionInSpec in{.shape = shape, .norm = norm};
        in.q = of_heads(weights.q);
        in.k = of_heads(weights.k);
        in.v = of_heads(weights.v);
        attention_in_ = ops.prepare(in);
        attend_ = ops.prepare(kernels::AttendSpec{.shape = shape, .scale = 0.125f});
        const Tensor heads_out = selector(heads.first * kHeadDim, heads.count * kHeadDim);
        attended_ = ops.prepare(kernels::AttentionOutSpec{.shape = shape, .o = heads_out.view()});
        divide_inputs(shape);
        mlp_in_ = ops.prepare(kernels::MlpInSpec{.shape = shape,
                                                 .norm = norm,
                                                 .gate = rows_of(weights.gate, inner.first, inner.count),
                                                 .up = rows_of(weights.up, inner.first, inner.count)});
        const Tensor inner_out = selector(inner.first, inner.count);
        mlp_out_ = ops.prepare(kernels::MlpOutSpec{.shape = shape, .down = inner_out.view()});
        head_ = ops.prepare(kernels::LmHeadSpec{
            .shape = shape, .norm = norm, .weight = rows_of(weights.head, vocab.first, vocab.count)});
        kv_ = ops.allocate_kv(shape, 1, kernels::KvFormat::f16);
        workspace_ = ops.allocate_workspace(shape, kMostRows, kMostRows);
    }

    Made make(std::int32_t count) {
        std::vector<kernels::Row> rows(static_cast<std::size_t>(count));
        const std::vector<std::int32_t> numbers = counting(count);
        for (std::int32_t t = 0; t < count; ++t) rows[static_cast<std::size_t>(t)].position = t;
        const std::vector<std::int32_t> pages = {0};
        const kernels::SequenceView sequence{pages, 0};
        const std::span<const float> x(weights_.x.data(), static_cast<std::size_t>(count) * kWidth);
        const std::vector<float> zeros(x.size());
        Made made;
        const auto read = [&](Part part) {
            std::vector<float> all(x.size()), own;
            ops_.read_rows(*workspace_, all);
            for (std::int32_t t = 0; t < count; ++t) {
                const auto begin = all.begin() + std::ptrdiff_t{t} * kWidth + part.first;
                own.insert(own.end(), begin, begin + part.count);
            }
            return own;
        };
        ops_.begin(*workspace_, {.rows = rows, .sequences = std::span(&sequence, 1), .logit_rows = numbers});
        ops_.write_rows(*workspace_, x);
        ops_.attention_in(*attention_in_, *workspace_, *kv_, 0);
        ops_.attend(*attend_, *workspace_, *kv_, 0);
        ops_.write_rows(*workspace_, zeros);
        ops_.attention_out(*attended_, *workspace_);
        made.attended = read({heads_.first * kHeadDim, heads_.count * kHeadDim});
        if (project_ != nullptr) {
            ops_.write_rows(*workspace_, zeros);
            ops_.attention_out(*project_, *workspace_);
            made.projected = read({0, kWidth});
        }
        ops_.write_rows(*workspace_, x);
        ops_.mlp_in(*mlp_in_, *workspace_);
        ops_.write_rows(*workspace_, zeros);
        ops_.mlp_out(*mlp_out_, *workspace_);
        made.inner = read(inner_);
        ops_.write_rows(*workspace_, x);
        ops_.lm_head(*head_, *workspace_);
        for (std::int32_t t = 0; t < count; ++t) {
            const std::span<float> logits = ops_.logits(*workspace_, t);
            made.logits.insert(made.logits.end(), logits.begin(), logits.end());
        }
        return made;
    }

private:
    // O with the columns of this part's heads, where they are whole blocks and whole groups of the CPU's activations.
    void divide_inputs(const ModelShape& shape) {
        const TensorView all = weights_.o.view();
        const std::int64_t block = std::max<std::int64_t>(128, kernels::info(all.quant_type).block_elements);
        const std::int64_t cols = heads_.count * kHeadDim;
        if (cols % block != 0 || heads_.first * kHeadDim % block != 0) return;
        const auto bytes = static_cast<std::size_t>(kernels::row_bytes(all.quant_type, cols));
        const std::int64_t from = kernels::row_bytes(all.quant_type, heads_.first * kHeadDim);
        columns_.resize(kWidth * bytes);
        for (std::int32_t r = 0; r < kWidth; ++r) {
            std::memcpy(columns_.data() + static_cast<std::size_t>(r) * bytes, all.data + r * all.row_bytes() + from,
                        bytes);
        }
        project_ = ops_.prepare(
            kernels::AttentionOutSpec{.shape = shape, .o = {all.quant_type, kWidth, cols, columns_.data()}});
    }

    kernels::Ops& ops_;
    const Weights& weights_;
    Part heads_, inner_;
    std::vector<std::byte> columns_;
    std::unique_ptr<kernels::PreparedOp> attention_in_, attend_, attended_, project_, mlp_in_, mlp_out_, head_;
    std::unique_ptr<kernels::KvPages> kv_;
    std::unique_ptr<kernels::Workspace> workspace_;
};

// Appends, of each of `count` rows, the numbers of every part.
std::vector<float> joined(const std::vector<Made>& parts, std::vector<float> Made::*member, std::int32_t count) {
    std::vector<float> all;
    for (std::int32_t t = 0; t < count; ++t) {
        for (const Made& part : parts) {
            const std::vector<float>& from = part.*member;
            const std::size_t each = from.size() / static_cast<std::size_t>(count);
            const auto begin = from.begin() + static_cast<std::ptrdiff_t>(each * static_cast<std::size_t>(t));
            all.insert(all.end(), begin, begin + static_cast<std::ptrdiff_t>(each));
        }
    }
    return all;
}

bool same(const std::vector<float>& a, const std::vector<float>& b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// The control: inputs are divided, and partial sums added. The numbers are the same but for rounding.
void expect_other_bits(const std::vector<Made>& parts, const Made& whole, const std::string& what) {
    std::vector<float> sum(whole.projected.size());
    for (const Made& part : parts) {
        if (part.projected.empty()) return;
        for (std::size_t at = 0; at < sum.size(); ++at) sum[at] += part.projected[at];
    }
    double apart = 0.0;
    for (std::size_t at = 0; at < sum.size(); ++at) {
        apart = std::max(apart, std::abs(static_cast<double>(sum[at]) - whole.projected[at]));
    }
    EXPECT_GT(apart, 0.0) << what;
    EXPECT_LT(apart, 1e-3) << what;
}

class OutputSplit : public testing::TestWithParam<std::string> {};

TEST_P(OutputSplit, PartsMakeTheBytesOfTheWhole) {
    // Each device has a thread of its own; the whole has two.
    kernels::Ops& whole_ops = cpu_ops(GetParam(), 2);
    kernels::Ops& part_ops = cpu_ops(GetParam(), 1);
    const std::vector<std::int32_t> widths =
        GetParam() == "portable" ? std::vector<std::int32_t>{1, 17} : std::vector<std::int32_t>{1, 3, 8, 17, kMostRows};
    for (const QuantType quant_type : kAllQuantTypes) {
        const Weights& weights = weights_of(quant_type);
        Device whole(whole_ops, weights, {0, kHeads}, {0, kInner}, {0, kVocab});
        for (const std::vector<int>& shares :
             {std::vector<int>{1, 1}, std::vector<int>{1, 2}, std::vector<int>(4, 1), std::vector<int>(8, 1)}) {
            std::vector<std::unique_ptr<Device>> devices;
            for (std::size_t i = 0; i < shares.size(); ++i) {
                devices.push_back(std::make_unique<Device>(part_ops, weights, share(kHeads, shares, i),
                                                           share(kInner, shares, i), share(kVocab, shares, i)));
            }
            for (const std::int32_t rows : widths) {
                const Made expected = whole.make(rows);
                std::vector<Made> parts;
                for (const auto& device : devices) parts.push_back(device->make(rows));
                const auto text = [&] {
                    return std::string(kernels::info(quant_type).name) + ", " + std::to_string(shares.size()) +
                           " parts, " + std::to_string(rows) + " rows";
                };
                EXPECT_TRUE(same(joined(parts, &Made::attended, rows), expected.attended)) << text();
                EXPECT_TRUE(same(joined(parts, &Made::inner, rows), expected.inner)) << text();
                EXPECT_TRUE(same(joined(parts, &Made::logits, rows), expected.logits)) << text();
                // Four parts have a group of activations each, and the portable kernels add groups one after the other.
                if (parts.size() == 2) expect_other_bits(parts, expected, text());
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Sets, OutputSplit, testing::ValuesIn(kernels::cpu::usable_isas()),
                         [](const auto& info) { return test_name(info.param); });

}  // namespace
}  // namespace foresay::test
