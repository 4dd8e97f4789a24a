// Which rows of a text are decode rows (core/models/given_text.h), on a backend with two classes that differ: the whole
// length of a segment decides, so a text that is continued from what a cache holds, cut, forked or parked is, bit for
// bit, a fresh one.

#include "core/models/given_text.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <utility>

#include "kernels/ops_decorator.h"
#include "kernels/split_ops.h"
#include "speculative/branch_cache.h"
#include "speculative/prefix_cache.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using kernels::RowClass;
using speculative::BranchCache;
using Tokens = std::vector<std::int32_t>;

// A host's backend that calls itself a device. Its prefill rows read another token, so that a row of the wrong class
// changes every number that follows from it; and it notes the class of each position.
class TwoClassOps final : public kernels::OpsDecorator {
public:
    explicit TwoClassOps(kernels::Ops& inner, bool once = false) : OpsDecorator(inner), once_(once) {}
    std::int64_t free_memory() const override { return std::int64_t{1} << 40; }
    bool reads_weights_once() const override { return once_; }
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        rows_.assign(batch.rows.begin(), batch.rows.end());
        for (kernels::Row& row : rows_) {
            const auto at = static_cast<std::size_t>(row.position);
            if (at >= classes.size()) classes.resize(at + 1);
            classes[at] = batch.row_class;
            if (batch.row_class == RowClass::prefill) row.token = kernels::TokenRef::id(row.token.value ^ 1);
        }
        kernels::Batch other = batch;
        other.rows = rows_;
        OpsDecorator::begin(workspace, other);
    }
    std::vector<RowClass> classes;

private:
    bool once_;
    std::vector<kernels::Row> rows_;
};

class GivenText : public testing::Test {
protected:
    static constexpr std::int32_t kLength = 512;
    std::int32_t limit() const { return core::short_given_tokens(ops_); }
    std::shared_ptr<const core::Model> model() {
        if (model_ == nullptr) {
            core::ModelConfig config = small_config();
            config.shape.layers = 1;
            model_ = random_model(config, kernels::QuantType::f32, kernels::QuantType::f32, ops_);
        }
        return model_;
    }
    core::Context context(std::int32_t prefill_rows = 64, std::int32_t branches = 0) {
        return core::Context(
            model(), {.length = kLength, .prefill_rows = prefill_rows, .decode_rows = 33, .branches = branches});
    }
    speculative::PrefixCache kept_in(core::Context& target) {
        return speculative::PrefixCache({.cache = &target.cache(), .ops = &target.ops(), .keeps_left = true});
    }
    // Logits after the whole text, bit for bit.
    static std::vector<float> logits(core::Context& of) {
        const std::span<const float> row = of.logits(0);
        return {row.begin(), row.end()};
    }
    std::vector<float> fresh(std::span<const std::int32_t> tokens, std::span<const std::uint8_t> generated) {
        core::Context target = context(256);
        speculative::PrefixCache kept = kept_in(target);
        BranchCache cache(target, kept);
        for (std::size_t i = 0; i < tokens.size(); ++i) cache.append(tokens[i], generated[i] != 0);
        EXPECT_TRUE(cache.evaluate(nullptr));
        return logits(target);
    }
    static Tokens text(std::int32_t count, std::int32_t from = 0) {
        Tokens tokens;
        for (std::int32_t i = 0; i < count; ++i) tokens.push_back((from + i * 7) % 90);
        return tokens;
    }

    TwoClassOps ops_{backends()[1].ops()};
    std::shared_ptr<const core::Model> model_;
};

TEST_F(GivenText, HostsHaveNoShortText) {
    EXPECT_EQ(core::short_given_tokens(backends()[0].ops()), 0);
    EXPECT_EQ(core::short_given_tokens(backends()[1].ops()), 0);
    EXPECT_EQ(limit(), 64);
}

// A text of a list of devices is that of one of them, so its short texts are as long.
TEST_F(GivenText, AListOfDevicesHasTheShortTextOfEach) {
    kernels::Ops& host = backends()[1].ops();
    const auto limit_of = [&](const std::vector<bool>& devices, bool with_host) {
        std::vector<std::shared_ptr<kernels::Ops>> all;
        for (const bool once : devices) all.push_back(std::make_shared<TwoClassOps>(host, once));
        if (with_host) all.emplace_back(std::shared_ptr<void>(), &host);
        return core::short_given_tokens(kernels::SplitOps(std::move(all)));
    };
    EXPECT_EQ(core::short_given_tokens(TwoClassOps(host, true)), 128);
    EXPECT_EQ(limit_of({true, true}, false), 128);
    EXPECT_EQ(limit_of({true}, true), 128);
    EXPECT_EQ(limit_of({false, false}, false), 64);
    EXPECT_EQ(limit_of({true, false}, false), 64);
    EXPECT_EQ(limit_of({}, true), 0);
}

TEST_F(GivenText, TheLengthOfASegmentDecidesTheClassOfItsRows) {
    for (const std::int32_t count : {1, limit(), limit() + 1, 200}) {
        core::Context target = context();
        ops_.classes.clear();
        ASSERT_TRUE(core::evaluate_given(target, text(count)));
        EXPECT_THAT(ops_.classes, testing::Each(core::class_of_given(count, limit()))) << count << " tokens";
        EXPECT_EQ(std::ssize(ops_.classes), count);
    }
    // Segments between generated tokens are counted by themselves.
    core::Context target = context();
    speculative::PrefixCache kept = kept_in(target);
    BranchCache cache(target, kept);
    std::vector<RowClass> expected;
    ops_.classes.clear();
    for (const auto& [count, generated] : {std::pair(150, false), {9, true}, {64, false}, {3, true}, {65, false}}) {
        for (const std::int32_t token : text(count)) cache.append(token, generated);
        const RowClass row_class = generated ? RowClass::decode : core::class_of_given(count, limit());
        expected.insert(expected.end(), static_cast<std::size_t>(count), row_class);
    }
    ASSERT_TRUE(cache.evaluate(nullptr));
    EXPECT_EQ(ops_.classes, expected);
    // Their logits come from the same rows.
    const std::vector<RowClass> all = std::exchange(ops_.classes, {});
    std::int32_t seen = 0;
    cache.visit_logits(1, [&](std::int32_t, std::span<const float>) { ++seen; });
    EXPECT_EQ(seen, cache.size() - 1);
    ops_.classes.resize(all.size(), all.back());  // no token comes after the last one
    EXPECT_EQ(ops_.classes, all);
    // What does not fit leaves the context as it was.
    EXPECT_FALSE(core::evaluate_given(target, text(kLength)));
    EXPECT_EQ(target.length(), cache.size() - 1);
}

// The law, and what notices a breach: the classes have other bits, and so has a text of which a cache has kept rows of
// a shorter segment.
TEST_F(GivenText, RowsOfTheOtherClassAreNoticed) {
    const Tokens tokens = text(limit() + 40);
    const std::vector<std::uint8_t> given(tokens.size(), 0);
    const std::vector<float> expected = fresh(tokens, given);
    core::Context target = context();
    ASSERT_TRUE(target.prefill(tokens));
    EXPECT_EQ(logits(target), expected);
    target.truncate(0);
    ASSERT_TRUE(target.decode(std::span(tokens).first(40), 0));
    ASSERT_TRUE(target.prefill(std::span(tokens).subspan(40)));
    EXPECT_NE(logits(target), expected);
}

TEST_F(GivenText, ATextContinuedFromTheCacheIsAFreshOne) {
    std::mt19937 random(7);
    const auto below = [&](std::int32_t count) { return static_cast<std::int32_t>(random() % count); };
    core::Context target = context(48, 3);
    speculative::PrefixCache kept = kept_in(target);
    BranchCache cache(target, kept);
    std::vector<std::pair<Tokens, std::vector<std::uint8_t>>> earlier;
    std::int32_t longer = 0, shorter = 0;  // segments that changed their class
    for (std::int32_t round = 0; round < 120; ++round) {
        const auto classes = [&] { return std::vector(ops_.classes.begin(), ops_.classes.begin() + cache.held()); };
        switch (below(4)) {
            case 0:
                cache.truncate(below(cache.size() + 1));
                break;
            case 1:
                if (!earlier.empty()) {
                    const auto& [tokens, generated] = earlier[static_cast<std::size_t>(below(std::ssize(earlier)))];
                    cache.switch_to(tokens, generated);
                }
                break;
            default:
                break;
        }
        const std::int32_t room = kLength - 40 - cache.size();
        for (const std::int32_t token : text(std::clamp(1 + below(90), 0, std::max(0, room)), round)) {
            cache.append(token, false);
        }
        if (cache.size() == 0) continue;
        const std::vector<RowClass> before = classes();
        std::atomic<bool> cancel = below(5) == 0;
        if (cancel) {
            EXPECT_FALSE(cache.evaluate(&cancel));
        }
        ASSERT_TRUE(cache.evaluate(nullptr, below(3) == 0 ? 1 + below(64) : 0));
        for (std::size_t i = 0; i < before.size(); ++i) {
            if (before[i] == ops_.classes[i]) continue;
            ++(before[i] == RowClass::decode ? longer : shorter);
            break;
        }
        ASSERT_EQ(logits(target), fresh(cache.tokens(), cache.generated())) << "round " << round;
        earlier.emplace_back(Tokens(cache.tokens().begin(), cache.tokens().end()),
                             std::vector<std::uint8_t>(cache.generated().begin(), cache.generated().end()));
        // A branch that goes on by itself and is parked.
        if (below(4) == 0 && cache.room_for_branches(1, 1) > 0) {
            const core::SequenceId fork = target.fork(cache.id());
            const std::int32_t token = 5;
            const kernels::TokenRef row = kernels::TokenRef::id(token);
            ASSERT_TRUE(target.evaluate(RowClass::decode, std::span(&row, 1), {}, fork));
            earlier.push_back(earlier.back());
            earlier.back().first.push_back(token);
            earlier.back().second.push_back(1);
            const std::vector<RowClass> rows = core::classes_of(earlier.back().second, limit());
            kept.keep(fork, {earlier.back().first, rows, {}});
        }
        // Some tokens are generated, with drafts that are rejected.
        for (std::int32_t i = below(6); i > 0; --i) {
            cache.append(below(90), true);
            const kernels::TokenRef rows[] = {kernels::TokenRef::id(cache.tokens().back()), kernels::TokenRef::id(3)};
            if (i > 1) {
                cache.make_room(2);
                ASSERT_TRUE(target.decode(rows, -1, cache.lend()));
            }
            if (i > 1) target.truncate(cache.size(), cache.id());
        }
    }
    EXPECT_GT(longer, 5);
    EXPECT_GT(shorter, 2);
}

// ----------------------------------------------------------------------------------------------------------- batches

TEST(GivenTextInBatches, SharesRowsOfTheSameClassAlone) {
    const Tokens tokens = [] {
        Tokens all(300);
        std::iota(all.begin(), all.end(), 0);
        return all;
    }();
    // Texts whose first tokens are given.
    const auto common = [&](std::size_t a, std::size_t b, bool agree) {
        const auto rows = [](std::size_t given) {
            std::vector<std::uint8_t> generated(given, 0);
            generated.resize(300, 1);
            return core::classes_of(generated, 64);
        };
        const std::vector<RowClass> here = rows(a), there = rows(b);
        return speculative::common_prefix({std::span(tokens).first(250), here, ""}, {tokens, there, ""}, agree);
    };
    EXPECT_EQ(common(200, 200, false), 250);
    EXPECT_EQ(common(200, 230, false), 200);
    EXPECT_EQ(common(50, 60, false), 250);  // two short prompts: decode rows throughout
    EXPECT_EQ(common(64, 65, false), 0);
    EXPECT_EQ(common(200, 30, false), 0);
    EXPECT_EQ(common(64, 65, true), 250);
}

// Texts whose prompts and answers begin alike, some with short prompts and some with long ones, one after the other and
// beside each other.
class GivenTextInBatches_Model : public testing::Test {
protected:
    Tokens prompt(std::size_t count) const {
        std::string text;
        while (text.size() < 8 * count)
            text += "def read_" + std::to_string(text.size()) + "(path):\n    return path\n";
        Tokens tokens = tokenizer().encode(text);
        tokens.resize(count);
        return tokens;
    }
    // How many of the texts are not what they are alone.
    int different(bool classes_agree, std::int32_t short_given) {
        core::ContextOptions options = for_sequences(3, 256);
        options.branches = 4;
        speculative::BatchParts parts = batch_parts(options, model_);
        parts.classes_agree = classes_agree;
        parts.short_given = short_given;
        speculative::BatchGenerator batch(std::move(parts));
        std::vector<Tokens> inputs = {prompt(40), prompt(100), prompt(64), prompt(65), prompt(130)};
        std::deque<Recorder> recorders;
        const auto add = [&](const Tokens& input) {
            batch.add(
                {.input = input, .chain = temperature_chain(0.8), .max_tokens = 12, .seed = 3, .ignore_eos = true},
                recorders.emplace_back());
        };
        add(inputs[0]);
        while (batch.step()) {
        }
        // A second turn: the first prompt, its answer, and more. It is short still; with more it is not.
        for (const std::size_t more : {5u, 40u}) {
            inputs.push_back(inputs[0]);
            inputs.back().insert(inputs.back().end(), recorders[0].tokens.begin(), recorders[0].tokens.end());
            const Tokens rest = prompt(more);
            inputs.back().insert(inputs.back().end(), rest.begin(), rest.end());
        }
        for (std::size_t i = 1; i < inputs.size(); ++i) add(inputs[i]);
        while (batch.step()) {
        }
        int count = 0;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
            speculative::Generator alone =
                make_generator(temperature_chain(0.8), sources(nullptr), off(), for_sequences(1, 256), model_);
            const auto expected =
                alone.generate({.input = inputs[i], .max_tokens = 12, .seed = 3, .ignore_eos = true}).tokens;
            EXPECT_EQ(expected.size(), 12u);
            count += recorders[i].tokens == expected ? 0 : 1;
        }
        cached_ = batch.counters().cached_tokens;
        return count;
    }
    TwoClassOps ops_{backends()[1].ops()};
    std::shared_ptr<const core::Model> model_ =
        core::Model::load(core::ModelSource::open(bundled_path("target")), ops_);
    std::int64_t cached_ = 0;
};

TEST_F(GivenTextInBatches_Model, EachTextIsWhatItIsAlone) {
    const std::int32_t limit = core::short_given_tokens(ops_);
    EXPECT_EQ(different(false, limit), 0);
    EXPECT_GT(cached_, 0);
    // Controls: a batch that shares rows whatever their class, and one that has another rule than the generator.
    EXPECT_GT(different(true, limit), 0);
    EXPECT_GT(different(false, 0), 0);
}

}  // namespace
}  // namespace foresay::test
