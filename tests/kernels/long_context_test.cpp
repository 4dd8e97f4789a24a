// Attention of rows after up to 41,000 positions, compared with the reference and with single rows: both row classes,
// each KV format. The depths lie at the borders of the regimes in which a device cuts contexts into chunks
// (kernels/cuda/attention/attention.h), and in the last regime.
//
// The reference alone takes seconds to fill its cache, so its rows are computed once for all backends.

#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "tests/kernels/law_case.h"
#include "tests/kernels/tolerances.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::int32_t kDepths[] = {16380, 32765, 41000};
constexpr std::int32_t kFillRows = 256, kWide = 20;
constexpr std::int32_t kPages = (kDepths[2] + kWide + kPagePositions - 1) / kPagePositions;
constexpr RowClass kClasses[] = {RowClass::decode, RowClass::prefill};

using Rows = std::vector<std::vector<float>>;

struct LongCase {
    std::string backend;
    KvFormat format;
};

// One sequence of a model of one layer.
class LongRun {
public:
    LongRun(const TinyModel& model, Ops& ops) : run_(model, ops, kPages, kFillRows) {
        std::shuffle(pages_.begin(), pages_.end(), Random(5));  // pages lie anywhere
        tokens_ = random_tokens(8, static_cast<std::size_t>(kDepths[2] + kWide), model.shape().vocab);
    }

    // Fills keys and values of the positions up to `depth`. Those of the first layer need no attention.
    void fill(std::int32_t depth) {
        while (filled_ < depth) {
            begin(RowClass::decode, filled_, std::min(kFillRows, depth - filled_));
            run_.keep(0);
            filled_ += static_cast<std::int32_t>(rows_.size());
            run_.residual(0);  // makes a device run it
        }
    }
    // What attention adds to `count` rows from `position` on.
    Rows attend(RowClass row_class, std::int32_t position, std::int32_t count) {
        begin(row_class, position, count);
        Rows added;
        for (std::int32_t t = 0; t < count; ++t) added.push_back(run_.residual(t));
        run_.attention(0);
        for (std::int32_t t = 0; t < count; ++t) {
            std::vector<float>& row = added[static_cast<std::size_t>(t)];
            const std::vector<float> after = run_.residual(t);
            for (std::size_t i = 0; i < row.size(); ++i) row[i] = after[i] - row[i];
        }
        return added;
    }

private:
    void begin(RowClass row_class, std::int32_t position, std::int32_t count) {
        rows_.clear();
        for (std::int32_t p = position; p < position + count; ++p)
            rows_.push_back({TokenRef::id(tokens_[static_cast<std::size_t>(p)]), p});
        view_ = {pages_, position};
        run_.begin({row_class, false, rows_, {&view_, 1}, {}});
        run_.embed();
    }

    TinyRun run_;
    std::vector<std::int32_t> pages_ = counting(kPages), tokens_;
    std::int32_t filled_ = 0;
    std::vector<Row> rows_;
    SequenceView view_;
};

const TinyModel& model(KvFormat format) {
    static std::map<KvFormat, TinyModel> models;
    const auto found = models.find(format);
    if (found != models.end()) return found->second;
    TinyConfig config;
    // So many tokens that the mean of all values is small: a page that attention misses moves a row by some per cent.
    config.shape = {.layers = 1, .d_model = 40, .heads = 4, .kv_heads = 1, .head_dim = 64, .d_ff = 24, .vocab = 16384};
    config.kv_format = format;
    return models.emplace(format, TinyModel(config)).first->second;
}

// The reference's rows at every depth; it has no row classes.
const std::vector<Rows>& expected(KvFormat format) {
    static std::map<KvFormat, std::vector<Rows>> known;
    std::vector<Rows>& rows = known[format];
    if (!rows.empty()) return rows;
    LongRun reference(model(format), reference_ops());
    for (const std::int32_t depth : kDepths) {
        reference.fill(depth);
        rows.push_back(reference.attend(RowClass::decode, depth, kWide));
    }
    return rows;
}

class LongContext : public testing::TestWithParam<LongCase> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam().backend); }
};

TEST_P(LongContext, EqualsTheReferenceAndRowsAlone) {
    const auto& [backend, format] = GetParam();
    LongRun run(model(format), backend_ops(backend, 2));
    double worst = 0.0;
    for (std::size_t d = 0; d < std::size(kDepths); ++d) {
        const std::int32_t depth = kDepths[d];
        run.fill(depth);
        for (const RowClass row_class : kClasses) {
            for (const std::int32_t width : {1, 3, kWide}) {
                SCOPED_TRACE(testing::Message() << "depth " << depth << ", width " << width
                                                << (row_class == RowClass::prefill ? ", prefill" : ", decode"));
                const Rows found = run.attend(row_class, depth, width);
                for (std::int32_t t = 0; t < width; ++t) {
                    const auto i = static_cast<std::size_t>(t);
                    const std::vector<float>& wanted = expected(format)[d][i];
                    double error = 0, length = 0;
                    for (std::size_t k = 0; k < wanted.size(); ++k) {
                        error += std::pow(static_cast<double>(found[i][k]) - wanted[k], 2);
                        length += std::pow(static_cast<double>(wanted[k]), 2);
                    }
                    worst = std::max(worst, std::sqrt(error / length));
                    // Written so that NaN fails.
                    ASSERT_LE(std::sqrt(error / length), cache_tolerance(format)) << "row " << t;
                }
                // The rows before the last are in the cache now: alone, the last row must have the same bits as beside
                // them.
                ASSERT_NO_FATAL_FAILURE(
                    expect_same_bits(found.back(), run.attend(row_class, depth + width - 1, 1).front()));
            }
        }
    }
    std::printf("%s: worst difference %.2e of a row, %.2e allowed\n", backend.c_str(), worst, cache_tolerance(format));
}

std::vector<LongCase> long_cases() {
    std::vector<LongCase> cases;
    for (const std::string& backend : fast_backends()) {
        for (const KvFormat format : {KvFormat::f16, KvFormat::q8}) cases.push_back({backend, format});
    }
    return cases;
}

INSTANTIATE_TEST_SUITE_P(All, LongContext, testing::ValuesIn(long_cases()), [](const auto& info) {
    return info.param.backend + (info.param.format == KvFormat::q8 ? "_q8" : "_f16");
});

}  // namespace
}  // namespace foresay::test
