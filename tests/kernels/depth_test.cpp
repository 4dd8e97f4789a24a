// Attention where the work is split: rows at the borders of chunks and after several thousand positions, compared with
// the reference and with single rows, for each KV format.

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/kernels/law_case.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;

struct DepthCase {
    std::string backend;
    KvFormat format;
    std::int32_t head_dim, heads, window;
};

class Depth : public testing::TestWithParam<DepthCase> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam().backend); }

    static constexpr std::int32_t kRows = 16, kDeepest = 9100;
    static constexpr std::int32_t kPages = (kDeepest + kRows + kPagePositions - 1) / kPagePositions;

    TinyConfig config() const {
        const DepthCase& c = GetParam();
        TinyConfig config;
        config.shape = {.layers = 1,
                        .d_model = 40,
                        .heads = c.heads,
                        .kv_heads = 2,
                        .head_dim = c.head_dim,
                        .d_ff = 24,
                        .vocab = 4096};  // so many that the mean of all values is small, and a missing page shows
        config.window = c.window;
        config.kv_format = c.format;
        return config;
    }
    // Pages in shuffled order.
    static std::vector<std::int32_t> pages() {
        std::vector<std::int32_t> list = counting(kPages);
        std::shuffle(list.begin(), list.end(), Random(5));
        return list;
    }
    // Fills keys and values of positions [from, to). Those of the first layer need no attention.
    void fill(TinyRun& run, std::span<const std::int32_t> tokens, std::int32_t from, std::int32_t to) const {
        for (std::int32_t begin = from; begin < to; begin += kRows) {
            const std::int32_t end = std::min(to, begin + kRows);
            std::vector<Row> rows;
            for (std::int32_t p = begin; p < end; ++p)
                rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(p)]), p});
            const SequenceView view = {pages_, begin};
            run.begin({RowClass::decode, false, rows, {&view, 1}, {}});
            run.embed();
            run.keep(0);
            run.residual(0);
        }
    }
    // What attention adds to the rows at position, position + 1, ...; the cache holds what comes before `position`.
    std::vector<std::vector<float>> attend(TinyRun& run, std::span<const std::int32_t> tokens, std::int32_t position,
                                           std::int32_t count) const {
        std::vector<Row> rows;
        for (std::int32_t p = position; p < position + count; ++p) {
            rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(p)]), p});
        }
        const SequenceView view = {pages_, position};
        run.begin({RowClass::decode, false, rows, {&view, 1}, {}});
        run.embed();
        std::vector<std::vector<float>> added;
        for (std::int32_t t = 0; t < count; ++t) added.push_back(run.residual(t));
        run.attention(0);
        for (std::int32_t t = 0; t < count; ++t) {
            std::vector<float>& row = added[static_cast<std::size_t>(t)];
            const std::vector<float> after = run.residual(t);
            for (std::size_t i = 0; i < row.size(); ++i) row[i] = after[i] - row[i];
        }
        return added;
    }

    using Rows = std::vector<std::vector<float>>;
    static constexpr std::int32_t kDepths[] = {30, 120, 2040, 2300, 4090, 8185, 9000}, kWidths[] = {1, 2, 3, 5, 16};

    // What the reference adds, by depth and width: the same for every backend.
    const std::vector<Rows>& expected(const TinyModel& model, std::span<const std::int32_t> tokens) const {
        static std::map<std::tuple<std::string, std::int32_t, std::int32_t, std::int32_t>, std::vector<Rows>> known;
        const DepthCase& c = GetParam();
        std::vector<Rows>& all = known[{cache_name(c.format), c.head_dim, c.heads, c.window}];
        if (!all.empty()) return all;
        TinyRun run(model, reference_ops(), kPages, kRows);
        std::int32_t filled = 0;
        for (const std::int32_t depth : kDepths) {
            fill(run, tokens, std::exchange(filled, depth), depth);
            for (const std::int32_t width : kWidths) all.push_back(attend(run, tokens, depth, width));
        }
        return all;
    }

    const std::vector<std::int32_t> pages_ = pages();
};

TEST_P(Depth, EqualsTheReferenceAndRowsAlone) {
    const TinyModel model(config());
    TinyRun run(model, backend_ops(GetParam().backend, 2), kPages, kRows);
    const auto tokens = random_tokens(8, static_cast<std::size_t>(kDeepest + kRows), model.shape().vocab);
    auto next = expected(model, tokens).begin();
    std::int32_t filled = 0;
    for (const std::int32_t depth : kDepths) {
        fill(run, tokens, std::exchange(filled, depth), depth);
        for (const std::int32_t width : kWidths) {
            SCOPED_TRACE(testing::Message() << "depth " << depth << ", width " << width);
            const Rows& expected = *next++;
            const Rows found = attend(run, tokens, depth, width);
            for (std::int32_t t = 0; t < width; ++t) {
                const auto i = static_cast<std::size_t>(t);
                double error = 0, length = 0;
                for (std::size_t d = 0; d < expected[i].size(); ++d) {
                    error += std::pow(static_cast<double>(found[i][d]) - expected[i][d], 2);
                    length += std::pow(static_cast<double>(expected[i][d]), 2);
                }
                ASSERT_LE(std::sqrt(error), cache_tolerance(GetParam().format) * std::sqrt(length)) << "row " << t;
                // The keys and values of the rows before it are still in the cache.
                ASSERT_NO_FATAL_FAILURE(expect_same_bits(found[i], attend(run, tokens, depth + t, 1).front()))
                    << "row " << t;
            }
        }
    }
}

std::vector<DepthCase> depth_cases() {
    std::vector<DepthCase> cases;
    for (const std::string& backend : fast_backends()) {
        for (const KvFormat format : {KvFormat::f16, KvFormat::q8}) {
            cases.push_back({backend, format, 64, 8, 0});
            cases.push_back({backend, format, 128, 2, 0});
            cases.push_back({backend, format, 20, 10, 3000});
        }
        cases.push_back({backend, kLowBits, 64, 8, 0});
        cases.push_back({backend, kv_format(KvType::q8, KvType::q6), 80, 2, 0});
        cases.push_back({backend, kv_format(KvType::q4, KvType::q8), 20, 10, 3000});
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(All, Depth, testing::ValuesIn(depth_cases()), [](const auto& info) {
    return info.param.backend + "_" + cache_name(info.param.format) + "_" + std::to_string(info.param.head_dim) +
           (info.param.window > 0 ? "_window" : "");
});

class Formats : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam()); }
};

TEST_P(Formats, EightBitsTakeHalfOfSixteen) {
    Ops& ops = backend_ops(GetParam(), 1);
    TinyConfig config;
    config.shape.head_dim = 64;
    const TinyModel model(config);
    const auto kv = ops.allocate_kv(model.shape(), 3, KvFormat::q8);
    EXPECT_EQ(kv->format, KvFormat::q8);
    EXPECT_EQ(kv->bytes, ops.kv_bytes(model.shape(), 3, KvFormat::q8));
    if (GetParam() == "reference") return;  // keeps float32 of either
    // A byte a value, and four for each head's vector.
    EXPECT_EQ(kv->bytes, ops.kv_bytes(model.shape(), 3, KvFormat::f16) * 68 / 128);
}

TEST_P(Formats, BytesOfFewerBits) {
    if (GetParam() == "reference") GTEST_SKIP() << "the reference keeps float32 of any format";
    if (GetParam() == "cuda") GTEST_SKIP() << "pages are padded on CUDA";
    Ops& ops = backend_ops(GetParam(), 1);
    const KvShape shape(std::vector<KvLayer>{{3, 128}, {1, 64}});
    const std::int64_t vectors = 2 * 3 * kPagePositions, narrow = 2 * kPagePositions;  // of keys and values in a page
    EXPECT_EQ(ops.kv_bytes(shape, 1, kv_format(KvType::q4, KvType::q4)), vectors * (64 + 4) + narrow * (32 + 4));
    EXPECT_EQ(ops.kv_bytes(shape, 1, kv_format(KvType::q6, KvType::q6)), vectors * (96 + 4) + narrow * (48 + 4));
    EXPECT_EQ(ops.kv_bytes(shape, 1, kv_format(KvType::q8, KvType::q4)),
              vectors / 2 * (128 + 4 + 64 + 4) + narrow / 2 * (64 + 4 + 32 + 4));
    // At least 3.5 times as many positions as float16.
    EXPECT_GE(2 * ops.kv_bytes(shape, 1, KvFormat::f16), 7 * ops.kv_bytes(shape, 1, kv_format(KvType::q4, KvType::q4)));
    try {
        ops.kv_bytes(KvShape(std::vector<KvLayer>{{2, 30}}), 1, kv_format(KvType::q8, KvType::q4));
        FAIL() << "heads of 30 values have no whole groups";
    } catch (const Error& error) {
        EXPECT_STREQ(error.what(),
                     "a KV cache of k=q8,v=q4 needs attention heads whose width is a multiple of 4, and this model has "
                     "heads of 30; use f16 or q8");
    }
}

// The specification of KvFormat::q8: a stored value is within half a code of the given one.
TEST(CodeFormat, KeepsHalfACode) {
    const TinyModel halves([] {
        TinyConfig config;
        config.q = config.k = config.v = config.o = QuantType::f32;
        return config;
    }());
    TinyConfig with_codes = halves.config();
    with_codes.kv_format = KvFormat::q8;
    const TinyModel codes(with_codes);
    TinyRun one(halves, reference_ops(), 2, 16), two(codes, reference_ops(), 2, 16);
    const auto tokens = random_tokens(4, 100, halves.shape().vocab);
    Sequence a{{0, 1}}, b{{0, 1}};
    const auto expected = feed(one, a, tokens, {16}), found = feed(two, b, tokens, {16});
    double error = 0, length = 0;
    for (std::size_t d = 0; d < expected.back().residual.size(); ++d) {
        error += std::pow(static_cast<double>(found.back().residual[d]) - expected.back().residual[d], 2);
        length += std::pow(static_cast<double>(expected.back().residual[d]), 2);
    }
    EXPECT_GT(error, 0.0);  // it does round
    EXPECT_LT(std::sqrt(error), 0.02 * std::sqrt(length));
    // Each bit less doubles the step.
    double before = error;
    for (const KvType type : {KvType::q6, KvType::q4}) {
        TinyConfig fewer = halves.config();
        fewer.kv_format = kv_format(type, type);
        const TinyModel model(fewer);
        TinyRun run(model, reference_ops(), 2, 16);
        Sequence sequence{{0, 1}};
        const auto rows = feed(run, sequence, tokens, {16});
        double now = 0;
        for (std::size_t d = 0; d < rows.back().residual.size(); ++d) {
            now += std::pow(static_cast<double>(rows.back().residual[d]) - expected.back().residual[d], 2);
        }
        EXPECT_GT(now, 4 * before) << name(fewer.kv_format);
        EXPECT_LT(now, 64 * before) << name(fewer.kv_format);
        before = now;
    }
}

INSTANTIATE_TEST_SUITE_P(All, Formats, testing::ValuesIn([] {
                             std::vector<std::string> names = fast_backends();
                             names.push_back("reference");
                             return names;
                         }()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
