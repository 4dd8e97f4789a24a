// Stages that judge tokens: test() and mask() give the token and the margin that a stage gives which sees every
// candidate and drops those that the rule forbids, wherever they stand in the chain.

#include <gtest/gtest.h>

#include <atomic>
#include <random>

#include "tests/samplers/judging_samplers.h"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

template <typename T>
StageSpec judge() {
    // One name, because it keys the random numbers.
    return {"rule", {}, linked_factory<T>(), StageSpec::OnError::stop};
}

StageSpec stage(const char* name, Parameters parameters = {}) {
    return {name, std::move(parameters), nullptr, StageSpec::OnError::stop};
}

const StageSpec kWarm = stage("temperature", {{"value", 0.8}});
const StageSpec kGreedy = stage("temperature", {{"value", 0.0}});
const StageSpec kTop = stage("top_k", {{"k", std::int64_t{12}}});
const StageSpec kSigma = stage("top_n_sigma", {{"n", 1.3}});
const StageSpec kPenalties = stage("penalties", {{"repeat", 1.5}, {"frequency", 0.5}});

// Chains around the rule.
std::vector<ChainSpec> chains_with(const StageSpec& rule) {
    return {{rule},
            {rule, kGreedy},
            {rule, kWarm},
            {kWarm, rule},
            {rule, kPenalties, kTop, kWarm},
            {kPenalties, rule, stage("top_p", {{"p", 0.9}}), kWarm},
            {rule, stage("min_p", {{"p", 0.05}}), kGreedy},
            {kTop, rule, kWarm},
            {rule, stage("mirostat")},
            {rule, kSigma},
            {kSigma, rule, kWarm},
            {kPenalties, rule, kSigma, kTop, kWarm},
            {kSigma, rule, kPenalties, stage("typical", {{"p", 0.8}}), kWarm},
            {kPenalties, rule, stage("top_k", {{"k", std::int64_t{40}}}), stage("top_p", {{"p", 0.9}}), kWarm}};
}

// How rows were decided where a backend runs what it can.
struct Shares {
    int guesses = 0, right = 0, candidates = 0, rows = 0, failures = 0;
};
Shares shares;

// A backend runs a's plan, or the part of it that `of` compiles, and a goes on from there, on the host.
template <class Compiled>
void expect_planned(Chain& a, const Compiled& of, bool ahead, std::vector<float> row, const Decision& expected) {
    PlanBuffer plan;
    kernels::SamplingScratch scratch;
    if (of.compile(plan) == nullptr) {
        const kernels::SampledToken sampled = kernels::sample_row(row, plan.plan, scratch);
        ASSERT_EQ(sampled.token, expected.token) << "as a plan";
        ASSERT_EQ(sampled.margin, expected.margin);
        return;
    }
    if (!of.compile_prefix(plan)) return;
    kernels::KeptCandidates kept;
    kept.reserve({&plan.plan, 1});
    const kernels::SampledToken guess = kept.sample(row, plan.plan, scratch, 3);
    Decision found = a.decide(kept.at(3), ahead);
    (found.needs_row ? shares.rows : shares.candidates) += 1;
    if (plan.guess) {
        ++shares.guesses;
        shares.right += guess.token == expected.token ? 1 : 0;
    }
    if (found.needs_row) found = a.decide_again(row, ahead);
    ASSERT_EQ(found.token, expected.token) << "from candidates";
    ASSERT_EQ(found.margin, expected.margin);
}

// Walks both chains over the same rows, with drafts in between.
void expect_equal(const ChainSpec& one, const ChainSpec& other, const Vocabulary& vocabulary, unsigned seed) {
    Chain a(one, vocabulary), b(other, vocabulary);
    std::mt19937 random(seed);
    std::vector<std::int32_t> prompt = {3, 1, 4, 1, 5};
    a.begin(seed, 1, prompt, 0, seed % 3);
    b.begin(seed, 1, prompt, 0, seed % 3);
    DraftChain draft_a, draft_b, verifying;
    for (int step = 0; step < 12; ++step) {
        draft_a.start(a);
        draft_b.start(b);
        for (int ahead = 0; ahead < 2; ++ahead) {
            std::vector<float> row = random_row(random, vocabulary.size());
            row[0] = -9.0f;
            std::vector<float> same = row;
            const kernels::SampledToken proposed = draft_a.propose(row);
            const kernels::SampledToken whole = draft_b.propose(same);
            // A mask may leave nothing, where a stage that drops everything is left out of a draft.
            ASSERT_TRUE(proposed.token == whole.token || proposed.token < 0) << "step " << step;
            draft_a.advance(whole.token);
            draft_b.advance(whole.token);
        }
        std::vector<float> row = random_row(random, vocabulary.size());
        row[0] = -9.0f;  // the rule always allows it
        std::vector<float> same = row, planned = row;
        const Decision decided = a.decide(row);
        const Decision expected = b.decide(same);
        // A stage that cuts before the rule may leave only what it forbids.
        ASSERT_EQ(decided.failure != nullptr, expected.failure != nullptr) << "step " << step;
        if (decided.failure != nullptr) {
            ++shares.failures;
            a.accept(0);
            b.accept(0);
            continue;
        }
        ASSERT_EQ(decided.token, expected.token) << "step " << step;
        ASSERT_EQ(decided.margin, expected.margin) << "step " << step;
        SCOPED_TRACE("step " + std::to_string(step));
        ASSERT_NO_FATAL_FAILURE(expect_planned(a, a, false, planned, expected));
        verifying.start_to_verify(a);
        ASSERT_TRUE(verifying.complete());
        ASSERT_NO_FATAL_FAILURE(expect_planned(a, verifying, true, planned, expected));
        a.decide(planned);  // what accept() learns from
        a.accept(decided.token);
        b.accept(decided.token);
    }
}

TEST(Judging, TestAndMaskAreStagesThatSeeEverything) {
    for (const std::int32_t size : {1, 7, 257, 1200}) {
        const LetterVocabulary vocabulary(size);
        const auto tests = chains_with(judge<Tester>()), masks = chains_with(judge<Masker>()),
                   both = chains_with(judge<Judge>()), whole = chains_with(judge<WholeDropper>()),
                   best = chains_with(judge<Dropper>());
        for (std::size_t i = 0; i < whole.size(); ++i) {
            for (unsigned seed = 0; seed < 2; ++seed) {
                SCOPED_TRACE("chain " + std::to_string(i) + ", " + std::to_string(size) + " tokens, seed " +
                             std::to_string(seed));
                // After a stage that cuts, the candidates are the same for all kinds.
                const ChainSpec& reference = i == 7 ? best[i] : whole[i];
                ASSERT_NO_FATAL_FAILURE(expect_equal(tests[i], reference, vocabulary, seed));
                ASSERT_NO_FATAL_FAILURE(expect_equal(masks[i], reference, vocabulary, seed));
                ASSERT_NO_FATAL_FAILURE(expect_equal(both[i], reference, vocabulary, seed));
            }
        }
    }
    // Every way was taken, and guesses are made with a chance to be right.
    EXPECT_GT(shares.candidates, 500);
    EXPECT_GT(shares.rows, 100);
    EXPECT_GT(shares.guesses, 10);
    EXPECT_GT(shares.right, 0);
    EXPECT_LT(shares.failures, 100);
}

// A deviation is that of what earlier tests leave, and later ones judge every token again.
TEST(Judging, TheSpreadIsThatOfTheTokensThatMayFollow) {
    const LetterVocabulary vocabulary(300);
    const StageSpec test = judge<Tester>(), whole = judge<WholeDropper>();
    StageSpec later_test = test, later_whole = whole;
    later_test.name = later_whole.name = "later";
    for (unsigned seed = 0; seed < 12; ++seed) {
        SCOPED_TRACE("seed " + std::to_string(seed));
        ASSERT_NO_FATAL_FAILURE(
            expect_equal({test, kSigma, later_test}, {whole, kSigma, later_whole}, vocabulary, seed));
        ASSERT_NO_FATAL_FAILURE(
            expect_equal({test, kSigma, later_test, kTop}, {whole, kSigma, later_whole, kTop}, vocabulary, seed));
    }
    // What a plan has left out before the deviation, it cannot make good: the row decides.
    PlanBuffer plan;
    Chain before({test, kSigma, kTop}, vocabulary), after({kSigma, test, kTop}, vocabulary);
    before.begin(1, 0, {});
    after.begin(1, 0, {});
    EXPECT_FALSE(before.compile_prefix(plan));
    EXPECT_TRUE(after.compile_prefix(plan));
}

// States that cannot be copied: the draft does without them, the rows that verify it do not.
TEST(Judging, StagesWithoutCopiesVerifyFromCandidates) {
    const LetterVocabulary vocabulary(257);
    const ChainSpec spec = {judge<SoleMasker>(), kPenalties, stage("top_k", {{"k", std::int64_t{40}}}), kWarm};
    Chain sole(spec, vocabulary), other({judge<Masker>(), spec[1], spec[2], spec[3]}, vocabulary);
    EXPECT_EQ(sole.hidden_from_draft(), std::vector<std::string>{"rule"});
    EXPECT_EQ(sole.host_stage(), nullptr);
    DraftChain verifying;
    PlanBuffer plan;
    sole.begin(4, 0, std::vector<std::int32_t>{7, 8});
    other.begin(4, 0, std::vector<std::int32_t>{7, 8});
    std::mt19937 random(9);
    shares = {};
    for (int step = 0; step < 60; ++step) {
        std::vector<float> row(257);
        for (float& logit : row) logit = std::normal_distribution<float>()(random);
        std::vector<float> same = row;
        const Decision expected = other.decide(same);
        verifying.start_to_verify(sole);
        EXPECT_STREQ(verifying.host_stage(), "rule");
        ASSERT_NO_FATAL_FAILURE(expect_planned(sole, sole, false, row, expected));
        ASSERT_NO_FATAL_FAILURE(expect_planned(sole, verifying, true, row, expected));
        sole.accept(expected.token);
        other.accept(expected.token);
    }
    EXPECT_GT(shares.candidates, 0);
    EXPECT_EQ(shares.candidates + shares.rows, 60);
}

struct Seldom {
    static constexpr Info info{"seldom", "1", "Drops one token.", "Apache-2.0"};
    bool test(const Context&, std::int32_t id) const { return id != 77; }
};

// Where a test seldom drops what is likely, the plan's token is the chain's: a forward may start from it.
TEST(Judging, GuessesAreMadeWhereTheyAreLikely) {
    const LetterVocabulary vocabulary(600);
    Chain chain({{"seldom", {}, linked_factory<Seldom>()},
                 kPenalties,
                 stage("top_k", {{"k", std::int64_t{40}}}),
                 stage("top_p", {{"p", 0.95}}),
                 kWarm},
                vocabulary);
    chain.begin(1, 0, std::vector<std::int32_t>{5});
    std::mt19937 random(6);
    PlanBuffer plan;
    kernels::SamplingScratch scratch;
    int right = 0;
    for (int step = 0; step < 50; ++step) {
        std::vector<float> row(600);
        for (float& logit : row) logit = std::normal_distribution<float>()(random);
        ASSERT_TRUE(chain.compile_prefix(plan));
        ASSERT_TRUE(plan.guess);
        EXPECT_EQ(plan.plan.cut, 64);
        std::vector<float> same = row;
        const kernels::SampledToken guess = kernels::sample_row(same, plan.plan, scratch);
        const Decision decided = chain.decide(row);
        right += guess.token == decided.token && guess.margin == decided.margin ? 1 : 0;
        chain.accept(decided.token);
    }
    EXPECT_GE(right, 40);
}

// Where a test leaves fewer candidates than the cut would keep, the row is read only if those that are missing might
// stay.
TEST(Judging, FewCandidatesAreEnoughWhereTheOthersWouldBeDropped) {
    const LetterVocabulary vocabulary(1200);
    const StageSpec test = judge<Tester>();
    const StageSpec cut = stage("top_k", {{"k", std::int64_t{40}}});
    const auto top_p = [](double p) { return stage("top_p", {{"p", p}}); };
    const ChainSpec specs[] = {{test, cut, top_p(0.95), kWarm},
                               {test, cut, top_p(0.5), kWarm},
                               {test, cut, kWarm, top_p(0.9)},
                               {test, cut, stage("min_p", {{"p", 0.05}}), kWarm},
                               {test, cut, kGreedy},
                               {test, cut, stage("top_a", {{"a", 0.2}}), kWarm},
                               {test, cut, kWarm}};
    constexpr std::size_t kDrop = 5;  // so many drop what is missing
    for (std::size_t which = 0; which < std::size(specs); ++which) {
        SCOPED_TRACE("chain " + std::to_string(which));
        Chain chain(specs[which], vocabulary), other(specs[which], vocabulary);
        chain.begin(1, 0, std::vector<std::int32_t>{5});
        other.begin(1, 0, std::vector<std::int32_t>{5});
        std::mt19937 random(7);
        PlanBuffer plan;
        kernels::SamplingScratch scratch;
        kernels::KeptCandidates kept;
        int rows = 0;
        for (int step = 0; step < 300; ++step) {
            // From rows that are nearly flat to rows with one likely token, with and without ties.
            std::vector<float> row(1200);
            const float width = static_cast<float>(step % 6) + 0.05f;
            for (float& logit : row) logit = width * std::normal_distribution<float>()(random);
            if (step % 3 == 0) {
                for (float& logit : row) logit = std::round(logit);
            }
            std::vector<float> same = row;
            const Decision expected = other.decide(same);
            ASSERT_EQ(expected.failure, nullptr);
            ASSERT_TRUE(chain.compile_prefix(plan));
            ASSERT_TRUE(plan.guess);
            kept.reserve({&plan.plan, 1});
            kept.sample(row, plan.plan, scratch, 0);
            Decision found = chain.decide(kept.at(0));
            rows += found.needs_row ? 1 : 0;
            if (found.needs_row) found = chain.decide_again(row);
            ASSERT_EQ(found.token, expected.token) << "step " << step;
            ASSERT_EQ(found.margin, expected.margin) << "step " << step;
            chain.accept(expected.token);
            other.accept(expected.token);
        }
        // Most rows leave fewer than 40 of the 64 that are kept.
        EXPECT_GT(rows, 0);
        if (which < kDrop) {
            EXPECT_LT(rows, 220);
        } else {
            EXPECT_GT(rows, 235);
        }
    }
}

// The comparison can fail: a rule that is left out gives other tokens.
TEST(Judging, TheRuleMatters) {
    const LetterVocabulary vocabulary(257);
    Chain with({judge<Tester>(), kGreedy}, vocabulary), without({kGreedy}, vocabulary);
    std::mt19937 random(1);
    int differs = 0;
    with.begin(1, 0, {});
    without.begin(1, 0, {});
    for (int step = 0; step < 50; ++step) {
        std::vector<float> row = random_row(random, 257), same = row;
        const std::int32_t token = with.decide(row).token;
        differs += token != without.decide(same).token ? 1 : 0;
        with.accept(token);
        without.accept(token);
    }
    EXPECT_GT(differs, 10);
}

// A mask runs within a plan, so a device needs no host for it.
TEST(Judging, MasksArePartOfThePlan) {
    const LetterVocabulary vocabulary(100);
    EXPECT_EQ(Chain({judge<Masker>(), kTop}, vocabulary).host_stage(), nullptr);
    EXPECT_EQ(Chain({judge<Judge>(), kTop}, vocabulary).host_stage(), nullptr);
    EXPECT_STREQ(Chain({judge<Tester>(), kTop}, vocabulary).host_stage(), "rule");
}

std::atomic<std::int64_t> asked{0};

// Does what its parameter says.
struct Odd {
    static constexpr Info info{"odd", "1", "Judges wrongly.", "Apache-2.0"};
    struct Parameters {
        std::string deed = "nothing";
    };
    static auto parameters() {
        return foresay::parameters(choice(
            "deed", &Parameters::deed, {"nothing", "count", "throw", "none", "neighbours", "calls", "even"}, "What."));
    }
    Odd(Parameters p, Host) : p_(std::move(p)) {}
    bool test(const Context&, std::int32_t id) const {
        ++asked;
        if (p_.deed == "throw") throw std::runtime_error("it cannot say");
        if (p_.deed == "none") return false;
        if (p_.deed == "neighbours") {
            const bool keep = before_ < id;
            before_ = id;
            return keep;
        }
        if (p_.deed == "calls") return ++calls_ % 3 != 0;
        return p_.deed != "even" || id % 2 == 0;
    }
    Parameters p_;
    mutable std::int32_t before_ = 0, calls_ = 0;  // what const does not prevent
};

struct OddMask : Odd {
    static constexpr Info info{"odd", "1", "Judges wrongly, as bits.", "Apache-2.0"};
    OddMask(Parameters p, Host host) : Odd(std::move(p), host), size_(host.vocabulary_size()) {}
    bool test(const Context&, std::int32_t) const = delete;
    void mask(const Context& context, Bits& bits) const {
        for (std::int32_t id = 0; id < size_; ++id) {
            if (Odd::test(context, id)) bits.allow(id);
        }
    }
    std::int32_t size_;
};

// Even ids, as a mask that is made once. The last word has 25 tokens of 601.
struct PreparedMask {
    static constexpr Info info{"odd", "1", "Even ids.", "Apache-2.0"};
    explicit PreparedMask(Host host) : words_((static_cast<std::size_t>(host.vocabulary_size()) + 31) / 32) {
        Bits even(words_.data(), words_.size());
        for (std::int32_t id = 0; id < host.vocabulary_size(); id += 2) even.allow(id);
    }
    void mask(const Context&, Bits& bits) const { bits.copy(words_); }
    std::vector<std::uint32_t> words_;
};

template <typename T>
StageSpec odd(const char* deed, StageSpec::OnError policy = StageSpec::OnError::stop) {
    return {"odd", {{"deed", std::string(deed)}}, linked_factory<T>(), policy};
}

template <typename T>
std::string failure_of(const char* deed, const ChainSpec& after) {
    const LetterVocabulary vocabulary(601);
    ChainSpec spec = {odd<T>(deed)};
    spec.insert(spec.end(), after.begin(), after.end());
    Chain chain(spec, vocabulary);
    chain.begin(1, 0, std::vector<std::int32_t>{7, 8, 9});
    std::mt19937 random(2);
    for (int step = 0; step < 4; ++step) {
        std::vector<float> row(601);
        for (float& logit : row) logit = std::normal_distribution<float>()(random);
        const Decision decision = chain.decide(row);
        if (decision.failure != nullptr) return decision.failure->message;
        chain.accept(decision.token);
    }
    return "none";
}

TEST(Judging, WrongJudgesAreNamed) {
    const std::string start = "sampler 'odd' failed: ";
    const std::string twice =
        start +
        "asked twice about the same candidates, it gave two answers, so the text would depend on how it is "
        "computed";
    const std::string none = start + "it left no token after \"hij\"";
    for (const ChainSpec& after : {ChainSpec{}, ChainSpec{kTop, kWarm}, ChainSpec{stage("mirostat")}}) {
        EXPECT_EQ(failure_of<Odd>("nothing", after), "none");
        EXPECT_EQ(failure_of<Odd>("throw", after), start + "it cannot say");
        EXPECT_EQ(failure_of<Odd>("none", after), none);
        EXPECT_EQ(failure_of<Odd>("neighbours", after), twice);
        EXPECT_EQ(failure_of<Odd>("calls", after), twice);
        EXPECT_EQ(failure_of<OddMask>("nothing", after), "none");
        EXPECT_EQ(failure_of<OddMask>("throw", after), start + "it cannot say");
        EXPECT_EQ(failure_of<OddMask>("none", after), none);
        EXPECT_EQ(failure_of<OddMask>("calls", after), twice);
    }
}

TEST(Judging, AMaskThatWasMadeBeforeDecidesAsOneOfSingleBits) {
    const LetterVocabulary vocabulary(601);
    Chain made({{"odd", {}, linked_factory<PreparedMask>()}, kWarm}, vocabulary),
        single({odd<OddMask>("even"), kWarm}, vocabulary);
    std::mt19937 random(6);
    for (Chain* chain : {&made, &single}) chain->begin(1, 0, {});
    for (int step = 0; step < 30; ++step) {
        const std::vector<float> row = random_row(random, 601);
        std::vector<float> a = row, b = row;
        const Decision decided = made.decide(a);
        ASSERT_EQ(decided.failure, nullptr);
        ASSERT_EQ(decided.token, single.decide(b).token);
        ASSERT_EQ(decided.token % 2, 0);
        for (Chain* chain : {&made, &single}) chain->accept(decided.token);
    }
}

TEST(Judging, SkippedJudgesLeaveTheRowAsItWas) {
    const LetterVocabulary vocabulary(600);
    for (const char* deed : {"throw", "none"}) {
        for (const bool cut : {false, true}) {
            SCOPED_TRACE(deed);
            ChainSpec rest = {judge<Tester>(), kWarm};
            if (cut) rest.push_back(kTop);
            ChainSpec spec = rest;
            spec.insert(spec.begin() + 1, odd<Odd>(deed, StageSpec::OnError::skip));
            Chain skipping(spec, vocabulary), plain(rest, vocabulary);
            skipping.begin(4, 0, {});
            plain.begin(4, 0, {});
            std::mt19937 random(5);
            for (int step = 0; step < 8; ++step) {
                std::vector<float> row = random_row(random, 600), same = row;
                const Decision decision = skipping.decide(row);
                ASSERT_EQ(decision.failure, nullptr);
                ASSERT_EQ(decision.token, plain.decide(same).token);
                skipping.accept(decision.token);
                plain.accept(decision.token);
            }
            EXPECT_EQ(skipping.reports()[1].failures, 8);
        }
    }
}

// Before a top_k, a test is asked about the tokens that can stay, not about the vocabulary.
TEST(Judging, AsksAboutFewTokens) {
    const LetterVocabulary vocabulary(20000);
    Chain chain({odd<Odd>("even"), stage("top_k", {{"k", std::int64_t{40}}}), kWarm}, vocabulary);
    Chain free({odd<Odd>("even"), kWarm}, vocabulary);
    std::mt19937 random(3);
    const auto mean = [&](Chain& one) {
        one.begin(1, 0, {});
        for (int step = 0; step < 100; ++step) {
            if (step == 50) asked = 0;
            std::vector<float> row(20000);
            for (float& logit : row) logit = std::normal_distribution<float>()(random);
            const std::int32_t token = one.decide(row).token;
            EXPECT_EQ(token % 2, 0);
            one.accept(token);
        }
        return static_cast<double>(asked) / 50.0;
    };
    EXPECT_LE(mean(chain), 100.0);  // half of them may not follow; some calls are made twice
    EXPECT_LE(mean(free), 60.0);
}

}  // namespace
}  // namespace foresay::samplers
