// Law 1 for rows of several sequences in one forward: logits, keys and values of a row have the bits that they have
// when its sequence is alone, whatever the mixture, the widths, the order of the sequences, and whichever rows want
// logits.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cstring>
#include <numeric>
#include <random>

#include "kernels/ops_decorator.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using kernels::RowClass;

constexpr std::int32_t kRows = 64;
constexpr std::int32_t kLogitRows = 24;

// A prompt and what was generated after it.
struct Text {
    std::vector<std::int32_t> tokens;
    std::size_t prompt = 0;

    RowClass row_class(std::size_t i) const { return i < prompt ? RowClass::prefill : RowClass::decode; }
};

// Per token of a text its logits, and per page its K and V in the backend's own order.
struct Bits {
    std::vector<std::vector<float>> logits;
    std::vector<std::vector<std::byte>> pages;
};

std::vector<kernels::TokenRef> refs(std::span<const std::int32_t> tokens) {
    std::vector<kernels::TokenRef> all;
    for (const std::int32_t token : tokens) all.push_back(kernels::TokenRef::id(token));
    return all;
}

// Fills the last page up, for what is left of rejected tokens in it says nothing.
std::vector<std::vector<std::byte>> pages_of(core::Context& context, core::SequenceId sequence) {
    while (context.length(sequence) % kernels::kPagePositions != 0) {
        const kernels::TokenRef filler = kernels::TokenRef::id(1);
        EXPECT_TRUE(context.evaluate(RowClass::decode, std::span(&filler, 1), {}, sequence));
    }
    kernels::KvPages& kv = context.cache().pages();
    const std::int64_t bytes = context.ops().kv_bytes(kv.shape, 1, kv.format);
    std::vector<std::vector<std::byte>> pages;
    const auto whole = static_cast<std::size_t>(context.length(sequence) / kernels::kPagePositions);
    for (const std::int32_t page : context.cache().view(sequence).pages.first(whole)) {
        context.ops().read_page(kv, page, pages.emplace_back(static_cast<std::size_t>(bytes)));
    }
    return pages;
}

struct Case {
    std::size_t backend;
    std::string model;
    kernels::KvFormat kv_format;
};

void PrintTo(const Case& c, std::ostream* out) { *out << backends()[c.backend].name << " " << c.model; }

std::shared_ptr<const core::Model> load(const Case& c, kernels::Ops& ops) {
    if (c.model == "target") return core::Model::load(core::ModelSource::open(bundled_path("target")), ops);
    const kernels::QuantType quant_type = core::quant_type_by_name(c.model);
    return random_model(small_config(), quant_type, core::head_quant_type(quant_type), ops);
}

class MixedBatch : public testing::TestWithParam<Case> {
protected:
    void SetUp() override {
        FORESAY_SKIP_WITHOUT_DEVICE(backends()[GetParam().backend].name);
        model_ = load(GetParam(), backends()[GetParam().backend].ops());
        for (int i = 0; i < 9; ++i) texts_.push_back(random_text());
        for (const Text& text : texts_) alone_.push_back(evaluate_alone(text));
    }

    core::ContextOptions options(std::int32_t sequences) const {
        return {.length = 3 * kernels::kPagePositions,
                .prefill_rows = kRows,
                .decode_rows = kLogitRows,
                .sequences = sequences,
                .kv_format = GetParam().kv_format};
    }

    std::vector<std::int32_t> random_tokens(std::size_t count) {
        std::vector<std::int32_t> tokens(count);
        for (std::int32_t& token : tokens) token = below(model_->config().shape.vocab);
        return tokens;
    }

    Text random_text() {
        const auto prompt = static_cast<std::size_t>(1 + below(90));
        return {.tokens = random_tokens(prompt + static_cast<std::size_t>(below(50))), .prompt = prompt};
    }

    std::int32_t below(std::int32_t limit) {
        return static_cast<std::int32_t>(random_() % static_cast<unsigned>(limit));
    }

    Bits evaluate_alone(const Text& text) const {
        core::Context context(model_, options(1));
        Bits bits;
        for (std::size_t i = 0; i < text.tokens.size(); ++i) {
            const auto row = refs(std::span(text.tokens).subspan(i, 1));
            const std::int32_t first = 0;
            EXPECT_TRUE(context.evaluate(text.row_class(i), row, std::span(&first, 1)));
            const std::span<const float> logits = context.logits(0);
            bits.logits.emplace_back(logits.begin(), logits.end());
        }
        bits.pages = pages_of(context, 0);
        return bits;
    }

    // Evaluates all texts in random forwards, four or fewer at a time, and counts the rows that differ from alone_.
    std::int64_t differences(const std::shared_ptr<const core::Model>& model);

    std::shared_ptr<const core::Model> model_;
    std::vector<Text> texts_;
    std::vector<Bits> alone_;
    std::mt19937 random_{21};
};

// A text on its way through the cache.
struct Running {
    std::size_t text = 0;
    core::SequenceId sequence = 0;
    std::size_t done = 0;
};

std::int64_t MixedBatch::differences(const std::shared_ptr<const core::Model>& model) {
    core::Context context(model, options(4));
    context.cache().drop(0);
    std::vector<Running> running;
    std::int64_t different = 0;
    std::size_t next = 0;
    std::int32_t most_sequences = 0;
    while (next < texts_.size() || !running.empty()) {
        while (running.size() < 4 && next < texts_.size() && (running.empty() || below(3) > 0)) {
            running.push_back({next++, context.cache().create()});
        }
        std::shuffle(running.begin(), running.end(), random_);
        const auto class_of = [&](const Running& r) { return texts_[r.text].row_class(r.done); };
        const RowClass row_class = class_of(running[static_cast<std::size_t>(below(std::ssize(running)))]);
        std::vector<core::Segment> segments;
        std::vector<Running*> owners;
        std::vector<std::vector<kernels::TokenRef>> tokens(running.size());
        std::vector<std::vector<std::int32_t>> logit_rows(running.size());
        std::vector<std::size_t> widths;
        std::int32_t rows_left = kRows, logits_left = kLogitRows;
        for (Running& r : running) {
            if (class_of(r) != row_class || (!segments.empty() && below(4) == 0)) continue;
            const Text& text = texts_[r.text];
            const std::size_t end = row_class == RowClass::prefill ? text.prompt : text.tokens.size();
            const auto most = std::min<std::int32_t>(static_cast<std::int32_t>(end - r.done), rows_left);
            if (most == 0) continue;
            const std::size_t width = static_cast<std::size_t>(1 + below(below(3) == 0 ? most : std::min(most, 7)));
            auto& row = tokens[segments.size()];
            auto& wanted = logit_rows[segments.size()];
            row = refs(std::span(text.tokens).subspan(r.done, width));
            // As in a verification, tokens that will be rejected.
            const std::int32_t spare = rows_left - static_cast<std::int32_t>(width);
            if (row_class == RowClass::decode && spare > 0 && below(2) == 0) {
                const auto room = std::min<std::int32_t>(
                    {3, spare, context.capacity() - context.length(r.sequence) - static_cast<std::int32_t>(width)});
                const auto rejected = refs(random_tokens(static_cast<std::size_t>(below(room + 1))));
                row.insert(row.end(), rejected.begin(), rejected.end());
            }
            for (std::int32_t i = 0; i < std::ssize(row) && logits_left > 0; ++i) {
                if (below(2) == 0) continue;
                wanted.push_back(i);
                --logits_left;
            }
            rows_left -= static_cast<std::int32_t>(row.size());
            widths.push_back(width);
            owners.push_back(&r);
            segments.push_back({.sequence = r.sequence, .tokens = row, .logit_rows = wanted});
        }
        most_sequences = std::max(most_sequences, static_cast<std::int32_t>(segments.size()));
        EXPECT_TRUE(context.evaluate(row_class, segments));
        std::int32_t logit_row = 0;
        for (std::size_t i = 0; i < segments.size(); ++i) {
            Running& r = *owners[i];
            for (const std::int32_t row : logit_rows[i]) {
                const std::span<const float> found = context.logits(logit_row++);
                if (static_cast<std::size_t>(row) >= widths[i]) continue;
                const auto& expected = alone_[r.text].logits[r.done + static_cast<std::size_t>(row)];
                different += std::memcmp(expected.data(), found.data(), expected.size() * sizeof(float)) != 0 ? 1 : 0;
            }
            r.done += widths[i];
            context.truncate(static_cast<std::int32_t>(r.done), r.sequence);
        }
        std::erase_if(running, [&](const Running& r) {
            if (r.done < texts_[r.text].tokens.size()) return false;
            const auto pages = pages_of(context, r.sequence);
            EXPECT_EQ(pages.size(), alone_[r.text].pages.size());
            for (std::size_t i = 0; i < pages.size(); ++i) different += pages[i] != alone_[r.text].pages[i] ? 1 : 0;
            context.cache().drop(r.sequence);
            return true;
        });
    }
    EXPECT_EQ(most_sequences, 4) << "no mixture";
    EXPECT_EQ(context.cache().free_pages(), context.cache().pages().pages);
    return different;
}

TEST_P(MixedBatch, RowsHaveTheBitsThatTheyHaveAlone) {
    for (int schedule = 0; schedule < 4; ++schedule) EXPECT_EQ(differences(model_), 0) << "schedule " << schedule;
}

// A control: lets the first row of a batch with several sequences read the pages of another one.
class NeighboursPages final : public kernels::OpsDecorator {
public:
    explicit NeighboursPages(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        views_.assign(batch.sequences.begin(), batch.sequences.end());
        kernels::Batch wrong = batch;
        if (views_.size() > 1 && views_[1].pages.size() >= views_[0].pages.size()) {
            views_[0] = views_[1];
            wrong.sequences = views_;
        }
        OpsDecorator::begin(workspace, wrong);
    }

private:
    std::vector<kernels::SequenceView> views_;
};

TEST_P(MixedBatch, AForwardThatReadsANeighboursPagesIsNoticed) {
    NeighboursPages wrong(backends()[GetParam().backend].ops());
    EXPECT_GT(differences(load(GetParam(), wrong)), 0);
}

std::vector<Case> cases() {
    std::vector<Case> all;
    for (std::size_t backend = 0; backend < backends().size(); ++backend) {
        for (const auto format : kCacheFormats) {
            all.push_back({backend, "f32", format});
            if (backend == 0) continue;
            for (const char* model : {"q8_0", "q4_k", "target"}) all.push_back({backend, model, format});
        }
    }
    return all;
}

INSTANTIATE_TEST_SUITE_P(Models, MixedBatch, testing::ValuesIn(cases()), [](const auto& info) {
    const std::string suffix = cache_suffix(info.param.kv_format);
    return backends()[info.param.backend].name + "_" + info.param.model + (suffix.empty() ? "" : "_kv" + suffix);
});

// Four pages, three of them in use: one more row for each of two sequences does not fit, for either of them it does.
TEST(SegmentsOfAForward, DoNotFitOrFitTogether) {
    const auto model =
        random_model(small_config(), kernels::QuantType::q8_0, kernels::QuantType::q8_0, backends()[1].ops());
    core::Context context(model, {.length = 256, .prefill_rows = 64, .sequences = 1, .branches = 2});
    const std::vector<kernels::TokenRef> page(64, kernels::TokenRef::id(3));
    for (int i = 0; i < 2; ++i) ASSERT_GE(context.cache().create(), 0);
    for (core::SequenceId sequence = 0; sequence < 3; ++sequence) {
        ASSERT_TRUE(context.evaluate(RowClass::prefill, page, {}, sequence));
    }
    ASSERT_EQ(context.cache().free_pages(), 1);
    const auto one = std::span(page).first(1);
    const std::vector<core::Segment> both = {{.sequence = 2, .tokens = one, .logit_rows = {}},
                                             {.sequence = 1, .tokens = one, .logit_rows = {}}};
    EXPECT_FALSE(context.evaluate(RowClass::decode, both));
    for (core::SequenceId sequence = 0; sequence < 3; ++sequence) EXPECT_EQ(context.length(sequence), 64);
    EXPECT_EQ(context.cache().free_pages(), 1);
    EXPECT_TRUE(context.evaluate(RowClass::decode, std::span(both).last(1)));
    EXPECT_EQ(context.length(1), 65);
    EXPECT_FALSE(context.evaluate(RowClass::decode, both));
    EXPECT_EQ(context.length(1), 65);
}

TEST(SegmentsOfAForward, TwoOfOneSequenceAreABug) {
    const auto model =
        random_model(small_config(), kernels::QuantType::q8_0, kernels::QuantType::q8_0, backends()[1].ops());
    core::Context context(model, {.length = 64, .sequences = 1});
    const std::vector<kernels::TokenRef> tokens(2, kernels::TokenRef::id(3));
    const std::vector<core::Segment> twice(2, {.sequence = 0, .tokens = tokens, .logit_rows = {}});
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    EXPECT_DEATH(context.evaluate(RowClass::decode, twice), "comes twice in one forward");
}

}  // namespace
}  // namespace foresay::test
