// Small models inflated to larger shapes compute the small models' functions, in every quantisation type: their
// matrices hold the small ones to twice the precision of the quantisation type, padding adds exactly nothing, and
// logits and choices are those of the small model.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/inflation.h"
#include "core/models/op_maker.h"
#include "core/models/random_blocks.h"
#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using core::ModelConfig;
using core::ModelSource;
using core::TensorName;
using core::TensorShape;
using kernels::QuantType;
using kernels::TensorView;

constexpr QuantType kQuantTypes[] = {QuantType::f32,  QuantType::f16,  QuantType::bf16,
                                     QuantType::q4_0, QuantType::q8_0, QuantType::q4_k,
                                     QuantType::q5_k, QuantType::q6_k, QuantType::mxfp4};

std::string name_of(QuantType quant_type) { return std::string(kernels::info(quant_type).name); }

ModelConfig shape_of(const std::string& name, const kernels::ModelShape& shape) {
    ModelConfig config;
    config.architecture = "llama";
    config.name = name;
    config.shape = shape;
    config.context_length = 131072;
    config.rope.theta = 500000.0f;
    config.rope.scaling = core::RopeScaling::llama3;
    config.rope.factor = 8.0f;
    return config;
}

// Room for the draft with something left over of everything: heads twice as wide, two key-value heads and an odd slot
// in each group, units, a layer and tokens more than it has.
ModelConfig wide_shape() {
    return shape_of(
        "wide",
        {.layers = 4, .d_model = 1024, .heads = 20, .kv_heads = 4, .head_dim = 128, .d_ff = 1792, .vocab = 16448});
}

// The proportions of llama-3.2-1b at half its width, with room for the target.
ModelConfig one_billion_shape() {
    return shape_of(
        "half a 1b",
        {.layers = 13, .d_model = 1024, .heads = 32, .kv_heads = 8, .head_dim = 64, .d_ff = 4096, .vocab = 32064});
}

std::unique_ptr<ModelSource> inflated(const std::string& which, const ModelConfig& shape, QuantType quant_type) {
    return ModelSource::inflate(ModelSource::open(bundled_path(which)), shape, quant_type,
                                core::head_quant_type(quant_type, shape.shape.d_model));
}

// Another source's tensors, changed.
class ChangedSource : public ModelSource {
public:
    explicit ChangedSource(std::unique_ptr<ModelSource> source) : source_(std::move(source)) {
        config_ = source_->config();
        path_ = source_->path();
    }
    TensorView tensor(const TensorName& name, TensorShape shape) override {
        const bool table = name.is_table() || (name.is_head() && config_.tied_head);
        std::vector<std::byte>& bytes = table ? table_ : scratch_.emplace_back();
        return change(name, source_->tensor(name, shape), bytes);
    }
    bool has(const TensorName& name) const override { return source_->has(name); }
    void release() override {
        source_->release();
        scratch_.clear();
    }
    std::int64_t weight_bytes() override { return source_->weight_bytes(); }

protected:
    virtual TensorView change(const TensorName& name, const TensorView& view, std::vector<std::byte>& bytes) = 0;

private:
    std::unique_ptr<ModelSource> source_;
    std::vector<std::byte> table_;
    std::vector<std::vector<std::byte>> scratch_;
};

// Blocks that are zero have the plain codes of zeros.
class PlainZeros final : public ChangedSource {
public:
    using ChangedSource::ChangedSource;
    static inline std::int64_t changed = 0;

private:
    TensorView change(const TensorName&, const TensorView& view, std::vector<std::byte>& bytes) override {
        bytes.assign(view.data, view.data + view.bytes());
        const auto info = kernels::info(view.quant_type);
        std::vector<float> block(static_cast<std::size_t>(info.block_elements)), zeros(block.size());
        std::vector<std::byte> plain(static_cast<std::size_t>(info.block_bytes));
        kernels::quantize_row(view.quant_type, zeros, plain);
        for (std::size_t at = 0; at < bytes.size(); at += plain.size()) {
            kernels::dequantize_row({view.quant_type, 1, info.block_elements, bytes.data() + at}, 0, block);
            if (block != zeros) continue;
            changed += std::memcmp(bytes.data() + at, plain.data(), plain.size()) != 0 ? 1 : 0;
            std::memcpy(bytes.data() + at, plain.data(), plain.size());
        }
        return {view.quant_type, view.rows, view.cols, bytes.data()};
    }
};

// Matrices that read the residual stream, without the part that corrects their rounding.
class WithoutResiduals final : public ChangedSource {
public:
    WithoutResiduals(std::unique_ptr<ModelSource> source, std::int64_t width)
        : ChangedSource(std::move(source)), width_(width) {}

private:
    TensorView change(const TensorName& name, const TensorView& view, std::vector<std::byte>& bytes) override {
        bytes.assign(view.data, view.data + view.bytes());
        if (view.rows > 1 && !name.is_table() && !core::writes_stream(name)) {
            const auto from = static_cast<std::size_t>(kernels::row_bytes(view.quant_type, width_));
            const auto row_bytes = static_cast<std::size_t>(kernels::row_bytes(view.quant_type, view.cols));
            const std::vector<float> zeros(static_cast<std::size_t>(width_));
            for (std::size_t at = from; at < bytes.size(); at += row_bytes) {
                kernels::quantize_row(view.quant_type, zeros, std::span(bytes).subspan(at, from));
            }
        }
        return {view.quant_type, view.rows, view.cols, bytes.data()};
    }
    std::int64_t width_;
};

// The tensor of this name, in the shape that the source's configuration gives it.
TensorView tensor_of(ModelSource& source, const TensorName& name) {
    for (const core::TensorUse& use : core::tensors_of(source.config())) {
        if (use.name.text() == name.text()) return source.tensor(name, use.shape);
    }
    ADD_FAILURE() << "there is no tensor " << name.text();
    return {};
}

std::unique_ptr<core::Context> context_of(std::unique_ptr<ModelSource> source, kernels::Ops& ops) {
    return std::make_unique<core::Context>(core::Model::load(std::shared_ptr<ModelSource>(std::move(source)), ops),
                                           core::ContextOptions{.length = 256, .prefill_rows = 64, .decode_rows = 32});
}

// A golden prompt and the bundled model's continuation.
std::vector<std::int32_t> golden_text(const std::string& which, std::size_t prompt) {
    static const nlohmann::json golden = [] {
        std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/tests/golden/python-coder.json");
        return nlohmann::json::parse(file);
    }();
    const nlohmann::json& row = golden.at("rows").at(prompt);
    std::vector<std::int32_t> tokens = row.at("token_ids"), greedy = row.at(which).at("greedy");
    tokens.insert(tokens.end(), greedy.begin(), greedy.end());
    return tokens;
}

constexpr std::int32_t kTokens = 16384;  // of the bundled pair

// Logits of the last `rows` rows of `tokens`.
std::vector<std::vector<float>> logits_of(core::Context& context, std::span<const std::int32_t> tokens,
                                          std::size_t rows) {
    std::vector<std::vector<float>> all;
    context.truncate(0);
    EXPECT_TRUE(context.prefill(tokens.first(tokens.size() - rows)));
    for (std::size_t at = tokens.size() - rows; at < tokens.size(); at += 32) {
        const auto some = tokens.subspan(at, std::min<std::size_t>(32, tokens.size() - at));
        EXPECT_TRUE(context.decode(some));
        for (std::size_t i = 0; i < some.size(); ++i) {
            const auto row = context.logits(static_cast<std::int32_t>(i)).first(kTokens);
            all.emplace_back(row.begin(), row.end());
        }
    }
    return all;
}

struct Difference {
    double worst = 0.0;    // of two logits
    double typical = 0.0;  // root of the mean square
    double alike = 0.0;    // share of rows with the same best token
};

Difference compare(const std::vector<std::vector<float>>& found, const std::vector<std::vector<float>>& expected) {
    Difference difference;
    double squares = 0.0;
    for (std::size_t r = 0; r < expected.size(); ++r) {
        for (std::size_t t = 0; t < expected[r].size(); ++t) {
            const double apart = std::abs(static_cast<double>(found[r][t]) - static_cast<double>(expected[r][t]));
            difference.worst = std::max(difference.worst, apart);
            squares += apart * apart;
        }
        if (std::ranges::max_element(found[r]) - found[r].begin() ==
            std::ranges::max_element(expected[r]) - expected[r].begin()) {
            difference.alike += 1.0;
        }
    }
    difference.alike /= static_cast<double>(expected.size());
    difference.typical = std::sqrt(squares / static_cast<double>(expected.size() * expected.front().size()));
    return difference;
}

// ------------------------------------------------------------------------------------------------------------ weights

class EachQuantType : public testing::TestWithParam<QuantType> {};

std::string quant_type_name(const testing::TestParamInfo<QuantType>& info) { return name_of(info.param); }

INSTANTIATE_TEST_SUITE_P(QuantTypes, EachQuantType, testing::ValuesIn(kQuantTypes), quant_type_name);

class EachQuantised : public testing::TestWithParam<QuantType> {};

INSTANTIATE_TEST_SUITE_P(QuantTypes, EachQuantised,
                         testing::Values(QuantType::q4_0, QuantType::q8_0, QuantType::q4_k, QuantType::q5_k,
                                         QuantType::q6_k),
                         quant_type_name);

// Relative error of the weights of one row, main part alone and with what was left over.
struct RowError {
    double alone = 0.0, together = 0.0, size = 0.0;
};

void add_error(const core::InflatedColumns& columns, const std::vector<float>& large, const std::vector<float>& small,
               float factor, RowError& error) {
    for (const auto& segment : columns.segments) {
        for (std::int64_t i = 0; i < segment.count; ++i) {
            const double wanted = static_cast<double>(factor * small[static_cast<std::size_t>(segment.source + i)]);
            double sum = 0.0;
            for (const std::int64_t copy : segment.copies) {
                sum += static_cast<double>(large[static_cast<std::size_t>(copy + i)]);
            }
            const auto first = static_cast<double>(large[static_cast<std::size_t>(segment.copies.front() + i)]);
            error.alone += std::pow(first - wanted, 2);
            error.together += std::pow(sum - wanted, 2);
            error.size += wanted * wanted;
        }
    }
}

TEST_P(EachQuantType, HoldsTheSmallMatrixInParts) {
    // Of the first part of each weight and of all its parts, relative to the weights; a weight of `down` has two parts
    // in this shape, the others three. The draft's own quantisation type is Q8_0.
    struct Bounds {
        double least_alone, most_of_three, most_of_two;
    };
    const std::map<QuantType, Bounds> bounds = {
        {QuantType::f32, {0.0, 1e-7, 1e-7}},    {QuantType::f16, {1e-4, 1e-6, 1e-6}},
        {QuantType::bf16, {1e-3, 1e-6, 3e-6}},  {QuantType::q4_0, {0.05, 0.001, 0.01}},
        {QuantType::q8_0, {0.0, 1e-6, 1e-6}},   {QuantType::q4_k, {0.05, 0.001, 0.01}},
        {QuantType::q5_k, {0.02, 1e-4, 0.003}}, {QuantType::q6_k, {0.01, 2e-5, 0.001}},
        {QuantType::mxfp4, {0.08, 0.005, 0.03}}};
    const auto [least_alone, most_of_three, most_of_two] = bounds.at(GetParam());
    const auto small = ModelSource::open(bundled_path("draft"));
    const auto large = inflated("draft", wide_shape(), GetParam());
    const core::Inflation inflation(small->config(), wide_shape(), "the draft");
    for (const std::string_view part :
         {"attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up", "attn_output", "ffn_down", "output"}) {
        if (part == "output" && GetParam() != QuantType::q8_0) continue;  // often in another quantisation type
        const TensorName name{.layer = part == "output" ? -1 : 1, .part = part};
        const bool writes = core::writes_stream(name);
        const TensorView from = tensor_of(*small, name), to = tensor_of(*large, name);
        std::vector<float> small_row(static_cast<std::size_t>(from.cols)), row(static_cast<std::size_t>(to.cols));
        RowError error;
        std::set<std::int64_t> rows_found;
        for (std::int64_t r = 0; r < to.rows; ++r) {
            const core::InflatedRow source =
                writes ? core::InflatedRow{core::InflatedRow::Kind::small, r % from.rows, 1.0f}
                       : inflation.row(name, r);
            if (source.kind != core::InflatedRow::Kind::small) continue;
            rows_found.insert(source.row);
            kernels::dequantize_row(to, r, row);
            kernels::dequantize_row(from, source.row, small_row);
            add_error(writes ? inflation.writer(name) : inflation.reader(), row, small_row, source.factor, error);
        }
        EXPECT_EQ(static_cast<std::int64_t>(rows_found.size()), from.rows);
        EXPECT_GT(error.size, 0.0);
        const std::string what = name_of(GetParam()) + ", " + std::string(part);
        EXPECT_GE(std::sqrt(error.alone / error.size), least_alone) << what;
        EXPECT_LE(std::sqrt(error.together / error.size), part == "ffn_down" ? most_of_two : most_of_three) << what;
    }
}

TEST_P(EachQuantised, WhatCountsForNothingIsExactlyZeroAndLooksLikeWeights) {
    const QuantType quant_type = GetParam();
    constexpr std::int64_t kCols = 4096;
    std::vector<std::byte> bytes(static_cast<std::size_t>(kernels::row_bytes(quant_type, kCols)));
    core::Random random(5);
    core::fill_zero_scaled(quant_type, bytes, random);
    std::vector<float> values(kCols);
    kernels::dequantize_row({quant_type, 1, kCols, bytes.data()}, 0, values);
    for (const float value : values) ASSERT_EQ(value, 0.0f);
    EXPECT_GT(std::set<std::byte>(bytes.begin(), bytes.end()).size(), 200u) << "all kinds of bytes";
}

TEST_P(EachQuantType, RandomCodesUnderZeroScalesKeepEveryValue) {
    const QuantType quant_type = GetParam();
    constexpr std::size_t kCols = 1024;
    std::vector<float> values(kCols), before(kCols), after(kCols);
    core::Random random(6);
    for (std::size_t i = 0; i < kCols; ++i) {
        if (i / 48 % 3 == 0 || i / 256 == 2) continue;  // groups that are zero, whole and in part, and a whole block
        values[i] = random.uniform();
        if (i / 256 == 3) values[i] = -0.25f;  // only minima
    }
    std::vector<std::byte> bytes(static_cast<std::size_t>(kernels::row_bytes(quant_type, kCols)));
    kernels::quantize_row(quant_type, values, bytes);
    kernels::dequantize_row({quant_type, 1, kCols, bytes.data()}, 0, before);
    const std::vector<std::byte> plain = bytes;
    core::scramble_zero_scaled(quant_type, bytes, random);
    kernels::dequantize_row({quant_type, 1, kCols, bytes.data()}, 0, after);
    EXPECT_EQ(before, after);
    EXPECT_EQ(plain == bytes, kernels::info(quant_type).block_elements == 1);
}

TEST_P(EachQuantType, ExtraLayersAddNothing) {
    const auto large = inflated("draft", wide_shape(), GetParam());
    const core::Inflation inflation(ModelSource::open(bundled_path("draft"))->config(), wide_shape(), "the draft");
    for (const std::string_view part : {"attn_output", "ffn_down"}) {
        const TensorName name{.layer = 3, .part = part};
        const TensorView view = tensor_of(*large, name);
        std::vector<float> row(static_cast<std::size_t>(view.cols));
        for (const std::int64_t r : {std::int64_t{0}, view.rows - 1}) {
            kernels::dequantize_row(view, r, row);
            const bool cancels = kernels::info(GetParam()).block_elements == 1;
            for (const auto& [first, second] : inflation.writer(name).equal) {
                const float a = row[static_cast<std::size_t>(first)], b = row[static_cast<std::size_t>(second)];
                ASSERT_EQ(a, -b);
                ASSERT_EQ(a != 0.0f, cancels) << "column " << first;
            }
            ASSERT_NEAR(std::accumulate(row.begin(), row.end(), 0.0), 0.0, 1e-9);
        }
    }
}

// ------------------------------------------------------------------------------------------------------------- models

// The draft's own logits, of its weights as they are.
const std::vector<std::vector<float>>& draft_logits() {
    static const auto logits =
        logits_of(*context_of(ModelSource::decoded(ModelSource::open(bundled_path("draft"))), fast_backend().ops()),
                  golden_text("draft", 0), 96);
    return logits;
}

// Those of the draft in the wide shape.
const std::vector<std::vector<float>>& inflated_logits(QuantType quant_type) {
    static std::map<QuantType, std::vector<std::vector<float>>> known;
    if (!known.contains(quant_type)) {
        const auto context = context_of(inflated("draft", wide_shape(), quant_type), fast_backend().ops());
        known[quant_type] = logits_of(*context, golden_text("draft", 0), 96);
    }
    return known[quant_type];
}

TEST_P(EachQuantType, ComputesTheDraftsFunction) {
    const Difference difference = compare(inflated_logits(GetParam()), draft_logits());
    std::printf("%s: worst %.5f, typical %.5f, alike %.4f\n", name_of(GetParam()).c_str(), difference.worst,
                difference.typical, difference.alike);
    // Beside float weights only keys and values are rounded, to float16; quantised weights meet inputs that are rounded
    // to int8 on the processor, as the small model's own do.
    const bool rounds = kernels::info(GetParam()).block_elements > 1 || fast_backend().name == "cuda";
    EXPECT_LE(difference.worst, rounds ? 0.9 : 0.02);
    EXPECT_LE(difference.typical, rounds ? 0.1 : 0.001);
    EXPECT_GE(difference.alike, rounds ? 0.97 : 0.999);
}

TEST_P(EachQuantised, CodesUnderZeroScalesChangeNoBit) {
    auto plain = std::make_unique<PlainZeros>(inflated("draft", wide_shape(), GetParam()));
    PlainZeros::changed = 0;
    const auto expected = logits_of(*context_of(std::move(plain), fast_backend().ops()), golden_text("draft", 0), 96);
    EXPECT_GT(PlainZeros::changed, 1000);
    const auto& found = inflated_logits(GetParam());
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t r = 0; r < found.size(); ++r) {
        EXPECT_EQ(std::memcmp(found[r].data(), expected[r].data(), found[r].size() * sizeof(float)), 0);
    }
}

// Without the inputs' rounding, what is left over of the weights is all the difference there is.
TEST(Inflation, ResidualsAreWhatMakesItTheSameFunction) {
    kernels::Ops& reference = backends().front().ops();
    const auto text = golden_text("draft", 0);
    const std::span<const std::int32_t> start = std::span(text).first(12);
    const auto expected =
        logits_of(*context_of(ModelSource::decoded(ModelSource::open(bundled_path("draft"))), reference), start, 4);
    const auto with = compare(
        logits_of(*context_of(inflated("draft", wide_shape(), QuantType::q4_0), reference), start, 4), expected);
    auto source = std::make_unique<WithoutResiduals>(inflated("draft", wide_shape(), QuantType::q4_0), 256);
    const auto without = compare(logits_of(*context_of(std::move(source), reference), start, 4), expected);
    std::printf("typical difference %.5f, without residuals %.5f\n", with.typical, without.typical);
    EXPECT_LT(with.typical, 0.04);
    EXPECT_GT(without.typical, 10 * with.typical);
}

TEST(Inflation, CopiesOfTheResidualStreamStayEqual) {
    for (const QuantType quant_type : {QuantType::f16, QuantType::q4_k}) {
        const auto context = context_of(inflated("draft", wide_shape(), quant_type), fast_backend().ops());
        logits_of(*context, golden_text("draft", 0), 32);
        for (const std::int32_t row : {0, 31}) {
            const auto stream = context->ops().residual(context->workspace(), row);
            ASSERT_EQ(stream.size(), 1024u);
            for (std::size_t i = 256; i < stream.size(); ++i) ASSERT_EQ(stream[i], stream[i % 256]) << "column " << i;
        }
    }
}

TEST(Inflation, TheTargetInTheProportionsOfA1bWritesTheGoldenTexts) {
    const auto context = context_of(inflated("target", one_billion_shape(), QuantType::q4_0), fast_backend().ops());
    const std::shared_ptr<const core::Model> small = bundled(fast_backend(), "target");
    core::Context original(small, {.length = 256, .prefill_rows = 64, .decode_rows = 32});
    double alike = 0.0;
    for (const std::size_t prompt : {0u, 1u, 2u}) {
        const auto text = golden_text("target", prompt);
        const auto difference = compare(logits_of(*context, text, 96), logits_of(original, text, 96));
        std::printf("prompt %zu: worst %.4f, typical %.4f, alike %.4f\n", prompt, difference.worst, difference.typical,
                    difference.alike);
        EXPECT_LE(difference.worst, 1.2);  // the inputs' rounding, on both sides
        alike += difference.alike / 3;
    }
    EXPECT_GE(alike, 0.98);
}

// ---------------------------------------------------------------------------------------------------------- refusals

std::string refusal(const ModelConfig& small, const ModelConfig& shape) {
    try {
        core::Inflation(small, shape, "small.gguf");
    } catch (const Error& error) {
        return error.what();
    }
    return "accepted";
}

TEST(Inflation, SaysInOneSentenceWhyAShapeCannotHoldAModel) {
    const ModelConfig draft = ModelSource::open(bundled_path("draft"))->config();
    const ModelConfig target = ModelSource::open(bundled_path("target"))->config();
    const auto changed = [](ModelConfig config, auto change) {
        change(config);
        return config;
    };
    const struct {
        ModelConfig small, shape;
        std::string sentence;
    } cases[] = {
        {changed(draft, [](ModelConfig& c) { c.architecture = "qwen2"; }), wide_shape(), "only Llama models"},
        {changed(draft, [](ModelConfig& c) { c.qkv_bias = true; }), wide_shape(), "it has biases"},
        {target, core::published_shape("qwen2.5-coder-1.5b"), "a head of its own"},
        {draft, core::published_shape("qwen2.5-coder-0.5b"), "a head of its own"},
        {target, changed(wide_shape(), [](ModelConfig& c) { c.shape.d_model = 768; }), "width of 512 does not go into"},
        {target, changed(wide_shape(), [](ModelConfig& c) { c.shape.d_model = 512; }), "twice or more"},
        {draft, changed(wide_shape(), [](ModelConfig& c) { c.shape.head_dim = 96; }), "64 dimensions"},
        {draft, changed(wide_shape(), [](ModelConfig& c) { c.shape.heads = 4; }), "serves 2 query heads"},
        {target, changed(one_billion_shape(), [](ModelConfig& c) { c.shape.heads = 8, c.shape.kv_heads = 4; }),
         "room for them once"},
        {target, changed(wide_shape(), [](ModelConfig& c) { c.shape.kv_heads = 2; }), "4 key-value heads"},
        {draft, changed(wide_shape(), [](ModelConfig& c) { c.shape.d_ff = 1280; }), "feed-forward width of 768"},
        {draft, changed(wide_shape(), [](ModelConfig& c) { c.shape.layers = 2; }), "3 layers"},
        {draft, changed(wide_shape(), [](ModelConfig& c) { c.shape.vocab = 16000; }), "16384 tokens"},
    };
    for (const auto& one : cases) {
        const std::string found = refusal(one.small, one.shape);
        EXPECT_THAT(found, testing::HasSubstr(one.sentence));
        EXPECT_THAT(found, testing::StartsWith("small.gguf cannot be inflated to "));
    }
    EXPECT_EQ(refusal(draft, wide_shape()), "accepted");
    EXPECT_EQ(refusal(target, one_billion_shape()), "accepted");
}

// None of their weights is made here.
TEST(Inflation, PublishedShapesHoldTheBundledPair) {
    for (const char* shape : {"llama-3.2-1b", "llama-3.1-8b", "llama-3.1-70b", "qwen2.5-coder-7b", "qwen2.5-coder-14b",
                              "qwen2.5-coder-32b"}) {
        for (const char* which : {"target", "draft"}) {
            for (const QuantType quant_type : kQuantTypes) {
                const auto source = ModelSource::inflate(ModelSource::open(bundled_path(which)), shape, quant_type);
                const auto plain = ModelSource::random(shape, quant_type, true);
                EXPECT_EQ(source->config().shape.vocab, plain->config().shape.vocab);
                EXPECT_EQ(source->config().context_length, 2048);
                EXPECT_EQ(source->config().rope.theta, 10000.0f);
                EXPECT_NE(source->gguf(), nullptr);
                EXPECT_THAT(source->path(), testing::HasSubstr(std::string("inflated to ") + shape));
                // All but the embedding table, of which a step reads a row, takes the bytes of the shape.
                EXPECT_EQ(source->weight_bytes() - source->embedding_bytes(),
                          plain->weight_bytes() - plain->embedding_bytes());
            }
        }
    }
}

}  // namespace
}  // namespace foresay::test
