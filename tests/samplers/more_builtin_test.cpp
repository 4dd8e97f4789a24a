// Built-in samplers on cases computed by hand.

#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// The letters, and a last token that ends the text.
class EndingVocabulary : public LetterVocabulary {
public:
    explicit EndingVocabulary(std::int32_t size = 8) : LetterVocabulary(size) {}
    bool ends_text(std::int32_t id) const override { return id == size() - 1; }
    std::string_view text(std::int32_t id) const override {
        return ends_text(id) ? std::string_view() : id == 1 && newline ? "\n" : LetterVocabulary::text(id);
    }
    std::string_view control_text(std::int32_t id) const override { return ends_text(id) ? "<end>" : ""; }
    std::int32_t find_control(std::string_view name) const override { return name == "<end>" ? size() - 1 : -1; }
    bool newline = false;  // "b" is a line break
};

// One stage, and what it makes of rows.
class One {
public:
    One(const char* name, const Parameters& stated, std::int32_t size = 8)
        : vocabulary_(size), factory_(find_builtin(name)) {
        EXPECT_NE(factory_, nullptr) << name;
        stage_ = factory_->create(complete_parameters(factory_->description(), stated), vocabulary_);
        state_ = stage_->make_state();
    }
    void begin(const std::vector<std::int32_t>& history, std::size_t answer) {
        history_ = history;
        EXPECT_EQ(state_->begin(history, answer), "");
    }
    void accept(const AcceptedToken& token) { EXPECT_EQ(state_->accept(token), ""); }
    // The logits that are left, best first before the stage; ids are 0, 1, ...
    std::vector<float> left(const std::vector<float>& logits) {
        std::vector<float> left;
        for (const Entry& entry : run(logits)) left.push_back(entry.logit);
        return left;
    }
    std::vector<int> left_ids(const std::vector<float>& logits) {
        std::vector<int> left;
        for (const Entry& entry : run(logits)) left.push_back(entry.id);
        return left;
    }
    // What is added to tokens, of stages that add.
    std::vector<std::pair<int, float>> added() {
        std::vector<kernels::TokenCount> none;
        const kernels::SamplingStep step = stage_->step(state_.get(), none);
        EXPECT_EQ(step.kind, kernels::SamplingStepKind::bias);
        std::vector<std::pair<int, float>> values;
        for (const kernels::TokenValue& value : step.values) values.emplace_back(value.token, value.value);
        return values;
    }
    bool idle() const { return stage_->idle(); }
    EndingVocabulary& vocabulary() { return vocabulary_; }

private:
    std::vector<Entry> run(std::vector<float> logits) {
        std::vector<std::int32_t> ids(logits.size());
        for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(i);
        kernels::Candidates list{ids.data(), logits.data(), static_cast<std::int32_t>(ids.size())};
        kernels::SamplingScratch scratch;
        if (stage_->kind() == StageKind::step) {
            std::vector<kernels::TokenCount> none;
            scratch.start(list);
            scratch.apply(stage_->step(state_.get(), none), {});
            list = scratch.list();
        } else {
            EXPECT_EQ(stage_->process(state_.get(), {.history = history_}, list), "");
        }
        return entries_of(list);
    }

    EndingVocabulary vocabulary_;
    std::shared_ptr<const StageFactory> factory_;
    std::unique_ptr<Stage> stage_;
    std::unique_ptr<StageState> state_;
    std::vector<std::int32_t> history_;
};

std::vector<float> logs(const std::vector<double>& probabilities) {
    std::vector<float> logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}
const std::vector<float> kHalves = logs({0.5, 0.25, 0.125, 0.125});  // entropy: 1.75 bits
using Ids = std::vector<int>;
using Added = std::vector<std::pair<int, float>>;

void expect_near(const std::vector<float>& found, const std::vector<double>& expected, double most = 1e-4) {
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], most) << i;
}

TEST(MoreBuiltin, OffByDefault) {
    for (const char* name : {"typical", "tfs", "top_a", "top_n_sigma", "epsilon_cutoff", "eta_cutoff", "smoothing",
                             "skew", "dynatemp", "dry", "min_length", "no_repeat_ngram"}) {
        EXPECT_TRUE(One(name, {}).idle()) << name;
    }
    EXPECT_TRUE(One("adaptive_p", {{"target", -1.0}}).idle());
    EXPECT_FALSE(One("adaptive_p", {}).idle());
}

TEST(MoreBuiltin, Typical) {
    // Surprises of 1, 2, 3, 3 bits, so their distances to 1.75 are 0.75,
    // 0.25, 1.25, 1.25.
    EXPECT_EQ(One("typical", {{"p", 0.2}}).left_ids(kHalves), Ids{1});
    EXPECT_EQ(One("typical", {{"p", 0.5}}).left_ids(kHalves), (Ids{0, 1}));
    EXPECT_EQ(One("typical", {{"p", 0.8}}).left_ids(kHalves), (Ids{0, 1, 2}));
}

TEST(MoreBuiltin, TopA) {
    EXPECT_EQ(One("top_a", {{"a", 0.6}}).left_ids(kHalves), (Ids{0, 1}));  // 0.6 * 0.25 = 0.15
    EXPECT_EQ(One("top_a", {{"a", 0.4}}).left_ids(kHalves), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(One("top_a", {{"a", 1.0}}).left_ids(logs({0.9, 0.1})), Ids{0});
}

TEST(MoreBuiltin, TailFree) {
    // Differences 0.2, 0, 0.1, 0.05, 0; their differences 0.2, 0.1, 0.05, 0.05, of 0.4 in all: 0.5, 0.75, 0.875, 1.
    const std::vector<float> row = logs({0.4, 0.2, 0.2, 0.1, 0.05, 0.05});
    EXPECT_EQ(One("tfs", {{"z", 0.4}}).left_ids(row), Ids{0});
    EXPECT_EQ(One("tfs", {{"z", 0.6}}).left_ids(row), (Ids{0, 1}));
    EXPECT_EQ(One("tfs", {{"z", 0.8}}).left_ids(row), (Ids{0, 1, 2}));
    EXPECT_EQ(One("tfs", {{"z", 0.9}}).left_ids(row), (Ids{0, 1, 2, 3}));
    EXPECT_EQ(One("tfs", {{"z", 0.1}}).left({1.0f, 0.0f}).size(), 2u);
}

TEST(MoreBuiltin, TopNSigma) {
    const std::vector<float> row = {4.0f, 2.0f, 0.0f, -2.0f, -4.0f};  // a deviation of sqrt(8) = 2.828
    EXPECT_EQ(One("top_n_sigma", {{"n", 0.5}}).left_ids(row), Ids{0});
    EXPECT_EQ(One("top_n_sigma", {{"n", 1.0}}).left_ids(row), (Ids{0, 1}));
    EXPECT_EQ(One("top_n_sigma", {{"n", 1.5}}).left_ids(row), (Ids{0, 1, 2}));
    // Of the whole row: it acts before the cut.
    EXPECT_TRUE(find_builtin("top_n_sigma")->description().traits.whole_vocabulary);
}

TEST(MoreBuiltin, DynamicTemperature) {
    const Parameters range = {{"min", 0.5}, {"max", 2.0}};
    expect_near(One("dynatemp", range).left({1.0f, 1.0f}), {0.5, 0.5});
    expect_near(One("dynatemp", range).left({100.0f, 0.0f}), {200.0, 0.0}, 1e-2);
    // 1.75 of 2 bits, squared: 0.765625 of the way from 1 to 3.
    const std::vector<float> bent = One("dynatemp", {{"min", 1.0}, {"max", 3.0}, {"exponent", 2.0}}).left(kHalves);
    EXPECT_NEAR(bent[1], std::log(0.25) / 2.53125, 1e-4);
    EXPECT_THROW(One("dynatemp", {{"min", 2.0}, {"max", 1.0}}), Error);
}

TEST(MoreBuiltin, Smoothing) {
    expect_near(One("smoothing", {{"factor", 0.5}}).left({3.0f, 1.0f, -1.0f}), {3.0, 1.0, -5.0});
    expect_near(One("smoothing", {{"factor", 0.5}, {"curve", 3.0}}).left({3.0f, 1.0f, -1.0f}), {3.0, -1.0, -29.0});
    expect_near(One("smoothing", {{"factor", 1.0}, {"curve", 2.0}}).left({2.0f, 0.0f}), {2.0, 2.0 - 2.0 - 4.0});
}

TEST(MoreBuiltin, EpsilonAndEta) {
    EXPECT_EQ(One("epsilon_cutoff", {{"epsilon", 0.2}}).left_ids(kHalves), (Ids{0, 1}));
    EXPECT_EQ(One("epsilon_cutoff", {{"epsilon", 0.9}}).left_ids(kHalves), Ids{0});
    // exp(-entropy) = 2^-1.75 = 0.2973; the least of 0.36 and 0.6 * 0.2973 =
    // 0.178, of 0.09 and 0.0892.
    EXPECT_EQ(One("eta_cutoff", {{"eta", 0.36}}).left_ids(kHalves), (Ids{0, 1}));
    EXPECT_EQ(One("eta_cutoff", {{"eta", 0.09}}).left_ids(kHalves).size(), 4u);
}

TEST(MoreBuiltin, Skew) {
    // Cumulated 0.5, 0.75, 0.875, 1; squared 0.25, 0.5625, 0.765625, 1.
    const std::vector<float> row = One("skew", {{"skew", std::log(2.0)}}).left(kHalves);
    expect_near(row, {std::log(0.25), std::log(0.3125), std::log(0.203125), std::log(0.234375)});
    EXPECT_GT(One("skew", {{"skew", -1.0}}).left(kHalves)[0], kHalves[0]);
}

TEST(MoreBuiltin, AdaptiveP) {
    One stage("adaptive_p", {{"target", 0.5}, {"decay", 0.9}});
    stage.begin({1, 2}, 2);
    // The target itself: 5; 0.25 away from it: 0.8333 widths, 5 - 10 * 0.6944
    // / 1.8333.
    expect_near(stage.left(kHalves), {5.0, 1.21212, 5.0 - 10.0 * 1.5625 / 2.25, 5.0 - 10.0 * 1.5625 / 2.25});
    // A draft's supposition changes nothing.
    const float unknown = std::nanf("");
    stage.accept({0, true, unknown, unknown});
    EXPECT_NEAR(stage.left(kHalves)[0], 5.0, 1e-4);
    // One token of 0.9 beside a past of weight 9 and mean 0.5: mean 0.54, so 0.46
    // is aimed at.
    stage.accept({0, false, -3.0f, std::log(0.9f)});
    EXPECT_NEAR(stage.left(kHalves)[0], 5.0 - 10.0 * (0.04 / 0.3) * (0.04 / 0.3) / (1.0 + 0.04 / 0.3), 1e-3);
    stage.begin({}, 0);
    EXPECT_NEAR(stage.left(kHalves)[0], 5.0, 1e-4);
}

TEST(MoreBuiltin, Mirostat1) {
    // Zipf with exponent 2, so k = sqrt(2^mu / (1 - 1/8)) and mu = 2 tau at
    // first.
    std::vector<float> row;
    for (int i = 1; i <= 8; ++i) row.push_back(static_cast<float>(-2.0 * std::log(i)));
    const auto kept = [&](double tau) {
        One stage("mirostat_1", {{"tau", tau}});
        stage.begin({}, 0);
        return stage.left_ids(row).size();
    };
    EXPECT_EQ(kept(1.0), 2u);  // sqrt(4 / 0.875) = 2.14
    EXPECT_EQ(kept(1.5), 3u);  // 3.02
    EXPECT_EQ(kept(2.0), 4u);  // 4.28
    One stage("mirostat_1", {{"tau", 1.0}, {"eta", 0.5}});
    stage.begin({}, 0);
    stage.accept({0, false, static_cast<float>(-3.0 * std::log(2.0)), 0.0f});  // 3 bits: mu falls by 1
    EXPECT_EQ(stage.left_ids(row).size(), 1u);                                 // sqrt(2 / 0.875) = 1.51
}

TEST(MoreBuiltin, MinLength) {
    One stage("min_length", {{"tokens", std::int64_t{2}}});
    stage.begin({1, 2, 3}, 3);
    EXPECT_EQ(stage.added(), (Added{{7, -kInfinity}}));
    stage.accept({1, false, 0.0f, 0.0f});
    EXPECT_EQ(stage.added().size(), 1u);
    stage.accept({1, false, 0.0f, 0.0f});
    EXPECT_TRUE(stage.added().empty());
    stage.begin({1, 2, 3}, 1);  // two tokens of the answer are there already
    EXPECT_TRUE(stage.added().empty());
    EXPECT_TRUE(One("min_length", {}).idle());
}

TEST(MoreBuiltin, NoRepeatNgram) {
    One pairs("no_repeat_ngram", {{"size", std::int64_t{2}}});
    pairs.begin({0, 1, 2, 0}, 0);
    EXPECT_EQ(pairs.added(), (Added{{1, -kInfinity}}));
    pairs.accept({3, false, 0.0f, 0.0f});
    EXPECT_TRUE(pairs.added().empty());
    pairs.accept({0, false, 0.0f, 0.0f});
    EXPECT_EQ(pairs.added(), (Added{{1, -kInfinity}, {3, -kInfinity}}));
    One triples("no_repeat_ngram", {{"size", std::int64_t{3}}});
    triples.begin({0, 1, 2, 0, 1}, 0);
    EXPECT_EQ(triples.added(), (Added{{2, -kInfinity}}));
    One window("no_repeat_ngram", {{"size", std::int64_t{2}}, {"window", std::int64_t{3}}});
    window.begin({0, 1, 2, 0}, 0);
    EXPECT_TRUE(window.added().empty());
    One single("no_repeat_ngram", {{"size", std::int64_t{1}}});
    single.begin({5, 2, 5}, 0);
    EXPECT_EQ(single.added(), (Added{{2, -kInfinity}, {5, -kInfinity}}));
    EXPECT_TRUE(One("no_repeat_ngram", {}).idle());
}

TEST(MoreBuiltin, Dry) {
    const auto dry = [](double allowed, const char* breaker) {
        return Parameters{{"multiplier", 1.5},
                          {"base", 2.0},
                          {"allowed_length", static_cast<std::int64_t>(allowed)},
                          {"breakers", std::vector<std::string>{breaker}}};
    };
    // "0 2 3" was followed by 4: three tokens, one more than are allowed, so 1.5
    // * 2.
    One stage("dry", dry(2, "\n"));
    stage.begin({0, 2, 3, 4, 0, 2, 3}, 0);
    EXPECT_EQ(stage.added(), (Added{{4, -3.0f}}));
    One strict("dry", dry(1, "\n"));
    strict.begin({3, 5, 0, 2, 3, 4, 0, 2, 3}, 0);
    EXPECT_EQ(strict.added(), (Added{{4, -6.0f}, {5, -1.5f}}));  // lengths of 3 and 1
    One longer("dry", dry(4, "\n"));
    longer.begin({0, 2, 3, 4, 0, 2, 3}, 0);
    EXPECT_TRUE(longer.added().empty());
    // Nothing reaches across a breaker: "d" here.
    One broken("dry", dry(2, "d"));
    broken.begin({0, 3, 1, 2, 4, 0, 3, 1, 2}, 0);
    EXPECT_EQ(broken.added(), (Added{{4, -1.5f}}));
    // As llama.cpp counts "a b c c b c y a b c": c continues "a b c", b continues "c", y continues "b c".
    One several("dry", dry(1, "h"));
    several.begin({0, 1, 2, 2, 1, 2, 5, 0, 1, 2}, 0);
    EXPECT_EQ(several.added(), (Added{{1, -1.5f}, {2, -6.0f}, {5, -3.0f}}));
    // A text of one token: the whole of it but the last token came before.
    One same("dry", dry(2, "h"));
    same.begin({4, 4, 4, 4, 4, 4}, 0);
    EXPECT_EQ(same.added(), (Added{{4, -1.5f * 8.0f}}));
    // A breaker is not lowered itself, and one that no token contains is refused.
    One breaker("dry", dry(1, "c"));
    breaker.begin({0, 2, 4, 0}, 0);
    EXPECT_TRUE(breaker.added().empty());
    EXPECT_THROW(One("dry", dry(1, "zz")), Error);
    EXPECT_TRUE(One("dry", {}).idle());
}

TEST(MoreBuiltin, BiasByText) {
    One stage("logit_bias", {{"tokens", std::vector<std::int64_t>{3}},
                             {"values", std::vector<double>{1.0}},
                             {"texts", std::vector<std::string>{"c", "<end>"}},
                             {"text_values", std::vector<double>{-2.0, 0.5}}});
    EXPECT_EQ(stage.added(), (Added{{2, -2.0f}, {3, 1.0f}, {7, 0.5f}}));
    EXPECT_THROW(
        One("logit_bias", {{"texts", std::vector<std::string>{"zzz"}}, {"text_values", std::vector<double>{1.0}}}),
        Error);
    EXPECT_THROW(One("logit_bias", {{"texts", std::vector<std::string>{"c"}}}), Error);
}

}  // namespace
}  // namespace foresay::samplers
