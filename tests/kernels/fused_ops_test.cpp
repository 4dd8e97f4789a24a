// Every op of the fast backends, called through Ops, against the reference backend on the same inputs.

#include <gtest/gtest.h>

#include <tuple>

#include "tests/kernels/tiny_model.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::int32_t kWidths[] = {1, 2, 3, 5, 8, 9, 13, 16, 17, 33, 64};

double length(const std::vector<float>& values) {
    double squares = 0;
    for (const float value : values) squares += static_cast<double>(value) * value;
    return std::sqrt(squares);
}

std::vector<float> minus(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> out(a.size());
    for (std::size_t i = 0; i < a.size(); ++i) out[i] = a[i] - b[i];
    return out;
}

// The largest difference in the current test, as a share of its tolerance.
double worst_share = 0.0;

// `found` lies within `tolerance` of `expected`, relative to the length of `expected`.
void expect_close(const std::vector<float>& expected, const std::vector<float>& found, double tolerance) {
    ASSERT_EQ(expected.size(), found.size());
    ASSERT_GT(length(expected), 0.0);
    const double allowed = tolerance * length(expected), difference = length(minus(found, expected));
    worst_share = std::max(worst_share, difference / allowed);
    // Written so that NaN fails.
    ASSERT_LE(difference, allowed);
}

// Prints how close the tests of a device come to their tolerances, so that these can be tightened.
class WorstShare : public testing::EmptyTestEventListener {
    void OnTestStart(const testing::TestInfo&) override { worst_share = 0.0; }
    void OnTestEnd(const testing::TestInfo& info) override {
        if (worst_share > 0.0 && std::string(info.name()).find("cuda") != std::string::npos)
            std::printf("%s: worst difference is %.3f of its tolerance\n", info.name(), worst_share);
    }
};
const bool kListens = [] {
    testing::UnitTest::GetInstance()->listeners().Append(new WorstShare);
    return true;
}();

// Two backends with the same model and the same batch.
class Pair {
public:
    Pair(const TinyModel& model, const std::string& backend, int threads, std::int32_t max_rows)
        : model_(model),
          reference_(model, reference_ops(), 4, max_rows),
          fast_(model, backend_ops(backend, threads), 4, max_rows) {}

    // Positions that the following batches attend to.
    void fill_cache(std::int32_t positions) {
        const auto tokens = random_tokens(21, static_cast<std::size_t>(positions), model_.shape().vocab);
        for (TinyRun* run : {&reference_, &fast_}) {
            Sequence sequence{pages_};
            feed(*run, sequence, tokens, {16});
        }
        length_ = positions;
    }

    void begin(std::int32_t rows, RowClass row_class = RowClass::decode) {
        const auto tokens =
            random_tokens(static_cast<unsigned>(rows), static_cast<std::size_t>(rows), model_.shape().vocab);
        rows_.clear();
        for (std::int32_t i = 0; i < rows; ++i)
            rows_.push_back({TokenRef::id(tokens[static_cast<std::size_t>(i)]), length_ + i});
        logit_rows_ = counting(rows);
        sequence_ = {pages_, length_};
        for (TinyRun* run : {&reference_, &fast_}) {
            run->begin({row_class, false, rows_, {&sequence_, 1}, logit_rows_});
            run->embed();
        }
        before_ = residuals(reference_);
        const auto embedded = residuals(fast_);
        for (std::size_t t = 0; t < before_.size(); ++t) ASSERT_EQ(before_[t], embedded[t]) << "embed, row " << t;
    }

    // Compares what the ops since begin() have added to each row.
    void expect_added(double tolerance) {
        const auto expected = residuals(reference_), found = residuals(fast_);
        for (std::size_t t = 0; t < expected.size(); ++t) {
            SCOPED_TRACE("row " + std::to_string(t) + " of " + std::to_string(expected.size()));
            ASSERT_NO_FATAL_FAILURE(
                expect_close(minus(expected[t], before_[t]), minus(found[t], before_[t]), tolerance));
        }
    }
    void expect_logits(double tolerance) {
        for (std::int32_t t = 0; t < static_cast<std::int32_t>(rows_.size()); ++t) {
            SCOPED_TRACE("row " + std::to_string(t) + " of " + std::to_string(rows_.size()));
            ASSERT_NO_FATAL_FAILURE(expect_close(reference_.logits(t), fast_.logits(t), tolerance));
        }
    }

    template <class Call>
    void both(const Call& call) {
        call(reference_);
        call(fast_);
    }

private:
    std::vector<std::vector<float>> residuals(const TinyRun& run) const {
        std::vector<std::vector<float>> out;
        for (std::int32_t t = 0; t < static_cast<std::int32_t>(rows_.size()); ++t) out.push_back(run.residual(t));
        return out;
    }

    const TinyModel& model_;
    TinyRun reference_, fast_;
    const std::vector<std::int32_t> pages_ = {2, 0, 3};
    std::int32_t length_ = 0;
    std::vector<Row> rows_;
    std::vector<std::int32_t> logit_rows_;
    SequenceView sequence_;
    std::vector<std::vector<float>> before_;
};

// The row classes that have their own code path.
std::vector<RowClass> classes(const std::string& backend) {
    if (backend == "cuda") return {RowClass::decode, RowClass::prefill};
    return {RowClass::decode};
}

std::string quant_type_name(QuantType quant_type) { return std::string(info(quant_type).name); }

class FusedOps : public testing::TestWithParam<std::tuple<std::string, QuantType>> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(backend()); }
    const std::string& backend() const { return std::get<0>(GetParam()); }
    QuantType quant_type() const { return std::get<1>(GetParam()); }

    // Shapes whose every matrix can be in the quantisation type; odd ones where it allows.
    std::vector<ModelShape> shapes() const {
        if (is_k_quant(quant_type())) return {smallest(quant_type()).shape};
        if (!is_float(quant_type())) {
            return {{.layers = 1, .d_model = 32, .heads = 2, .kv_heads = 1, .head_dim = 16, .d_ff = 32, .vocab = 31},
                    {.layers = 1, .d_model = 96, .heads = 8, .kv_heads = 2, .head_dim = 20, .d_ff = 160, .vocab = 53},
                    {.layers = 1, .d_model = 160, .heads = 3, .kv_heads = 3, .head_dim = 32, .d_ff = 96, .vocab = 64}};
        }
        return {{.layers = 1, .d_model = 33, .heads = 3, .kv_heads = 1, .head_dim = 7, .d_ff = 31, .vocab = 29},
                {.layers = 1, .d_model = 45, .heads = 6, .kv_heads = 2, .head_dim = 20, .d_ff = 65, .vocab = 53},
                {.layers = 1, .d_model = 128, .heads = 4, .kv_heads = 4, .head_dim = 32, .d_ff = 144, .vocab = 64}};
    }

    template <class Body>
    void at_every_shape_and_width(TinyConfig config, const Body& body) {
        for (const ModelShape& shape : shapes()) {
            config.shape = runnable(shape, backend());
            const TinyModel model(config);
            Pair pair(model, backend(), 2, 64);
            pair.fill_cache(50);  // batches begin in one page and end in the next
            for (const std::int32_t width : kWidths) {
                SCOPED_TRACE("width " + std::to_string(width) + ", d_model " + std::to_string(shape.d_model));
                ASSERT_NO_FATAL_FAILURE(pair.begin(width));
                ASSERT_NO_FATAL_FAILURE(body(pair));
            }
        }
    }
};

// The other matrices stay in float32, so that a failure names its op.
TEST_P(FusedOps, AttentionIn) {
    TinyConfig config;
    config.q = config.k = config.v = quant_type();
    at_every_shape_and_width(config, [&](Pair& pair) {
        pair.both([](TinyRun& run) { run.attention(0); });
        pair.expect_added(op_tolerance(backend(), quant_type(), true));
    });
}

TEST_P(FusedOps, AttentionOut) {
    TinyConfig config;
    config.o = quant_type();
    at_every_shape_and_width(config, [&](Pair& pair) {
        pair.both([](TinyRun& run) { run.attention(0); });
        pair.expect_added(op_tolerance(backend(), quant_type(), true));
    });
}

TEST_P(FusedOps, MlpIn) {
    TinyConfig config;
    config.gate = config.up = quant_type();
    at_every_shape_and_width(config, [&](Pair& pair) {
        pair.both([](TinyRun& run) { run.mlp(0); });
        pair.expect_added(op_tolerance(backend(), quant_type(), false));
    });
}

TEST_P(FusedOps, MlpOut) {
    TinyConfig config;
    config.down = quant_type();
    at_every_shape_and_width(config, [&](Pair& pair) {
        pair.both([](TinyRun& run) { run.mlp(0); });
        pair.expect_added(op_tolerance(backend(), quant_type(), false));
    });
}

TEST_P(FusedOps, LmHead) {
    TinyConfig config;
    config.head = quant_type();
    at_every_shape_and_width(config, [&](Pair& pair) {
        pair.both([](TinyRun& run) { run.lm_head(); });
        pair.expect_logits(op_tolerance(backend(), quant_type(), false));
    });
}

// Tables, norms and biases may be quantised like matrices. begin() compares the table.
TEST_P(FusedOps, QuantisedTableNormsAndBiases) {
    TinyConfig config;
    config.table = quant_type();
    config.biases = config.post_norms = config.plus_one = true;
    config.embed_scale = 0.7f;
    config.shape = smallest(quant_type(), backend()).shape;
    if (!is_float(quant_type())) config.shape.kv_heads = config.shape.heads;  // biases are whole blocks
    if (quant_type() == QuantType::q4_0 || quant_type() == QuantType::q8_0) config.shape.head_dim = 32;
    config.vectors = quant_type();
    const TinyModel model(config);
    Pair pair(model, backend(), 2, 16);
    for (const std::int32_t width : {1, 5, 16}) {
        ASSERT_NO_FATAL_FAILURE(pair.begin(width));
        pair.both([](TinyRun& run) { run.attention(0); });
        ASSERT_NO_FATAL_FAILURE(pair.expect_added(kHalfCacheOp));
        ASSERT_NO_FATAL_FAILURE(pair.begin(width));
        pair.both([](TinyRun& run) { run.mlp(0); });
        ASSERT_NO_FATAL_FAILURE(pair.expect_added(kFloatOp));
    }
}

INSTANTIATE_TEST_SUITE_P(All, FusedOps,
                         testing::Combine(testing::ValuesIn(fast_backends()), testing::ValuesIn(kAllQuantTypes)),
                         [](const auto& info) {
                             return std::get<0>(info.param) + "_" + quant_type_name(std::get<1>(info.param));
                         });

struct Feature {
    const char* name;
    void (*set)(TinyConfig&);
};

const Feature kFeatures[] = {
    {"plain", [](TinyConfig&) {}},
    {"no_rope", [](TinyConfig& c) { c.pairs = RopePairs::none; }},
    {"adjacent_rope", [](TinyConfig& c) { c.pairs = RopePairs::adjacent; }},
    {"partial_adjacent_rope",
     [](TinyConfig& c) {
         c.pairs = RopePairs::adjacent;
         c.rope_dims = c.shape.head_dim / 4 * 2;
     }},
    {"partial_rope_with_attention_factor",
     [](TinyConfig& c) {
         c.rope_dims = c.shape.head_dim / 4 * 2;
         c.attention_factor = 1.3f;
     }},
    {"biases", [](TinyConfig& c) { c.biases = true; }},
    {"head_norms", [](TinyConfig& c) { c.head_norms = true; }},
    {"post_norms", [](TinyConfig& c) { c.post_norms = true; }},
    {"norms_plus_one", [](TinyConfig& c) { c.plus_one = c.head_norms = c.post_norms = c.biases = c.gelu = true; }},
    {"gelu", [](TinyConfig& c) { c.gelu = true; }},
    {"window_of_1", [](TinyConfig& c) { c.window = 1; }},
    {"window_of_5", [](TinyConfig& c) { c.window = 5; }},
    {"window_of_70", [](TinyConfig& c) { c.window = 70; }},
    {"window_beyond_all", [](TinyConfig& c) { c.window = 1000; }},
    {"soft_caps",
     [](TinyConfig& c) {
         c.score_cap = 1.5f;
         c.logit_cap = 1.0f;
     }},
    {"scales",
     [](TinyConfig& c) {
         c.embed_scale = 6.5f;
         c.logit_scale = 0.125f;
     }},
};

class Features : public testing::TestWithParam<std::tuple<std::string, Feature>> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(std::get<0>(GetParam())); }
    // All ops of one layer and the LM head, for every head width and every number of query heads per key-value head.
    void check() {
        const auto& [backend, feature] = GetParam();
        for (const std::int32_t head_dim : {16, 20, 32, 64, 128}) {
            for (const std::int32_t group : {1, 2, 3, 4, 7, 8}) {
                TinyConfig config;
                config.shape = {.layers = 1,
                                .d_model = 40,
                                .heads = 2 * group,
                                .kv_heads = 2,
                                .head_dim = head_dim,
                                .d_ff = 24,
                                .vocab = 30};
                feature.set(config);
                const TinyModel model(config);
                Pair pair(model, backend, 1, 16);
                pair.fill_cache(75);
                for (const RowClass row_class : classes(backend)) {
                    for (const std::int32_t width : {1, 4, 9}) {
                        SCOPED_TRACE(testing::Message()
                                     << "head_dim " << head_dim << ", " << group << " heads per key, width " << width
                                     << (row_class == RowClass::prefill ? ", input" : ""));
                        ASSERT_NO_FATAL_FAILURE(pair.begin(width, row_class));
                        pair.both([](TinyRun& run) { run.attention(0); });
                        ASSERT_NO_FATAL_FAILURE(pair.expect_added(kHalfCacheOp));
                        ASSERT_NO_FATAL_FAILURE(pair.begin(width, row_class));
                        pair.both([](TinyRun& run) { run.mlp(0); });
                        ASSERT_NO_FATAL_FAILURE(pair.expect_added(kFloatOp));
                        pair.both([](TinyRun& run) { run.lm_head(); });
                        ASSERT_NO_FATAL_FAILURE(pair.expect_logits(kFloatOp));
                    }
                }
            }
        }
    }
};

TEST_P(Features, EqualTheReference) { check(); }

INSTANTIATE_TEST_SUITE_P(All, Features,
                         testing::Combine(testing::ValuesIn(fast_backends()), testing::ValuesIn(kFeatures)),
                         [](const auto& info) { return std::get<0>(info.param) + "_" + std::get<1>(info.param).name; });

class Mixed : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam()); }
};

TEST_P(Mixed, QuantTypesMayDifferWithinAnOp) {
    for (int first = 0; first < kQuantTypes; ++first) {
        for (const int step : {1, 3}) {
            const QuantType q = kAllQuantTypes[first], v = kAllQuantTypes[(first + step) % kQuantTypes];
            TinyConfig config;
            config.shape = smallest(QuantType::q4_k).shape;
            config.q = q;
            config.k = QuantType::bf16;
            config.v = v;
            config.gate = v;
            config.up = q;
            const TinyModel model(config);
            Pair pair(model, GetParam(), 2, 8);
            pair.fill_cache(5);
            for (const std::int32_t width : {1, 6}) {
                SCOPED_TRACE(quant_type_name(q) + " and " + quant_type_name(v));
                ASSERT_NO_FATAL_FAILURE(pair.begin(width));
                pair.both([](TinyRun& run) { run.attention(0); });
                ASSERT_NO_FATAL_FAILURE(pair.expect_added(op_tolerance(GetParam(), QuantType::q4_0, true)));
                ASSERT_NO_FATAL_FAILURE(pair.begin(width));
                pair.both([](TinyRun& run) { run.mlp(0); });
                ASSERT_NO_FATAL_FAILURE(pair.expect_added(op_tolerance(GetParam(), QuantType::q4_0, false)));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Mixed, testing::ValuesIn(fast_backends()), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
