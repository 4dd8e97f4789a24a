// Samplers that break the contract, linked in: each is caught and named, and only for tokens that are emitted.

#include "samplers/plugin_stage.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "samplers/sdk/sampler.hpp"
#include "tests/samplers/support.h"

namespace foresay::samplers {
namespace {

// Without the wrapper.
std::int32_t* ids(foresay::Candidates& candidates) {
    struct Open : foresay::Candidates {
        static foresay_candidates* view(foresay::Candidates& c) { return c.*(&Open::view_); }
    };
    return Open::view(candidates)->ids;
}

// Does what its parameter says, when the history is as long as `at`.
struct Naughty {
    static constexpr Info info{"naughty", "1", "Breaks the contract.", "Apache-2.0"};
    struct Parameters {
        std::string deed = "nothing";
        std::int64_t at = 0;
    };
    static auto parameters() {
        return foresay::parameters(choice("deed", &Parameters::deed,
                                          {"nothing", "throw", "throw_int", "nan", "infinity", "none", "minus_infinity",
                                           "invent", "repeat", "out_of_range"},
                                          "What it does."),
                                   integer("at", &Parameters::at, 0, 1000000, "When."));
    }
    Naughty(Parameters p, Host) : p_(std::move(p)) {}
    void process(const Context& context, foresay::Candidates& candidates) const {
        if (context.index() != static_cast<std::uint64_t>(p_.at)) return;
        if (p_.deed == "throw") throw std::runtime_error("the answer is 42");
        if (p_.deed == "throw_int") throw 42;
        if (p_.deed == "nan") candidates.logit(1) = std::numeric_limits<float>::quiet_NaN();
        if (p_.deed == "infinity") candidates.logit(1) = kInfinity;
        if (p_.deed == "none") candidates.truncate(0);
        if (p_.deed == "minus_infinity") {
            for (std::size_t i = 0; i < candidates.size(); ++i) candidates.logit(i) = -kInfinity;
        }
        if (p_.deed == "invent") ids(candidates)[0] = 9;
        if (p_.deed == "repeat") ids(candidates)[0] = candidates[1].id;
        if (p_.deed == "out_of_range") ids(candidates)[0] = -5;
    }
    Parameters p_;
};

// Answers as its kind says, by the number of its calls or with logits that leave no room for noise.
struct Odd {
    static constexpr Info info{"odd", "1", "Is not a function of its arguments.", "Apache-2.0"};
    struct Parameters {
        std::string kind = "every_third";
    };
    static auto parameters() {
        return foresay::parameters(choice("kind", &Parameters::kind,
                                          {"every_third", "logit", "fails_later", "huge", "tiny", "force", "plain"},
                                          "How it answers."));
    }
    Odd(Parameters p, Host) : p_(std::move(p)) {}
    void process(const Context&, foresay::Candidates& candidates) const {
        ++calls_;
        if (p_.kind == "every_third" && calls_ % 3 == 0) candidates.truncate(1);
        if (p_.kind == "logit") candidates.logit(1) += static_cast<float>(calls_);
        if (p_.kind == "fails_later" && calls_ % 2 == 0) throw std::runtime_error("now it fails");
        for (std::size_t i = 0; i < candidates.size(); ++i) {
            if (p_.kind == "huge") candidates.logit(i) = 1e30f;
            if (p_.kind == "tiny") candidates.logit(i) = -1e30f;
            if (p_.kind == "force") candidates.logit(i) = candidates[i].id < 3 ? 1e9f : candidates[i].logit;
        }
    }
    Parameters p_;
    mutable int calls_ = 0;  // what const does not prevent
};

// Remembers tokens; refuses token 13.
struct Counter {
    static constexpr Info info{"counter", "1", "Bans a token once it has been seen twice.", "Apache-2.0"};
    struct State {
        std::vector<int> seen = std::vector<int>(64, 0);
    };
    Counter(detail::NoParameters, Host) {}
    void accept(State& state, std::int32_t token) const {
        if (token == 13) throw std::runtime_error("thirteen");
        ++state.seen[static_cast<std::size_t>(token)];
    }
    void process(const State& state, const Context&, Mask& candidates) const {
        candidates.drop_if([&](Candidate c) { return state.seen[static_cast<std::size_t>(c.id)] >= 2; });
    }
};

// Not copyable: the draft does without it.
struct Secretive {
    static constexpr Info info{"secretive", "1", "Cannot be cloned.", "Apache-2.0"};
    struct State {
        State() = default;
        State(const State&) = delete;
        State& operator=(const State&) = delete;
        int tokens = 0;
    };
    Secretive(detail::NoParameters, Host) {}
    void accept(State& state, std::int32_t) const { ++state.tokens; }
    void process(const State&, const Context&, Mask& candidates) const { candidates.truncate(1); }
};

struct Dice {
    static constexpr Info info{"dice", "1", "Drops at random.", "Apache-2.0"};
    Dice(detail::NoParameters, Host) {}
    void process(const RandomContext& context, WholeMask& candidates) const {
        candidates.drop_if(
            [&](Candidate c) { return context.uniform(static_cast<std::uint32_t>(c.id)) < 0.5 && c.id != 0; });
    }
};

template <typename T>
std::shared_ptr<const StageFactory> factory() {
    return make_plugin_factory(&detail::Adapter<T>::sampler, nullptr, "test");
}

ChainSpec naughty(const char* deed, StageSpec::OnError policy = StageSpec::OnError::stop) {
    return {{"naughty", {{"deed", std::string(deed)}, {"at", std::int64_t{3}}}, factory<Naughty>(), policy},
            {"top_k", {}}};
}

TEST(PluginStage, TraitsAreDeduced) {
    const auto traits = [](const auto& f) { return f->description().traits; };
    EXPECT_EQ(traits(factory<Naughty>()).memory, StageMemory::stateless);
    EXPECT_FALSE(traits(factory<Naughty>()).masks_only);
    EXPECT_EQ(traits(factory<Counter>()).memory, StageMemory::history);
    EXPECT_TRUE(traits(factory<Counter>()).masks_only);
    EXPECT_TRUE(traits(factory<Counter>()).clonable);
    EXPECT_FALSE(traits(factory<Secretive>()).clonable);
    EXPECT_TRUE(traits(factory<Dice>()).randomised);
    EXPECT_TRUE(traits(factory<Dice>()).whole_vocabulary);
    EXPECT_EQ(traits(find_builtin("mirostat")).memory, StageMemory::feedback);
}

TEST(PluginStage, BreachesAreCaughtAndNamed) {
    const std::pair<const char*, const char*> deeds[] = {
        {"throw", "sampler 'naughty' failed: the answer is 42"},
        {"throw_int", "sampler 'naughty' failed: an exception that is no std::exception"},
        {"nan", "sampler 'naughty' failed: it returned a logit that is not a number, or infinite"},
        {"infinity", "sampler 'naughty' failed: it returned a logit that is not a number, or infinite"},
        {"none", "sampler 'naughty' failed: it left no token after \"bhh\""},
        {"minus_infinity", "sampler 'naughty' failed: it left no token after \"bhh\""},
        {"invent", "sampler 'naughty' failed: it returned a token that it was not given, or one token twice"},
        {"repeat", "sampler 'naughty' failed: it returned a token that it was not given, or one token twice"},
        {"out_of_range", "sampler 'naughty' failed: it returned a token that it was not given, or one token twice"}};
    const LetterVocabulary vocabulary(8);
    for (const auto& [deed, message] : deeds) {
        SCOPED_TRACE(deed);
        Chain chain(naughty(deed), vocabulary);
        Chain skipping(naughty(deed, StageSpec::OnError::skip), vocabulary);
        Chain plain({{"top_k", {}}}, vocabulary);
        for (Chain* each : {&chain, &skipping, &plain}) each->begin(1, 0, {});
        for (int index = 0; index < 6; ++index) {
            const std::vector<float> row = {0.5f, 1.0f, 0.2f, 0.9f, -1.0f, 0.0f, 0.1f, 0.3f};
            std::vector<float> a = row, b = row, c = row;
            const std::int32_t want = plain.decide(c).token;
            const Decision decision = chain.decide(a);
            if (index == 3) {
                ASSERT_NE(decision.failure, nullptr);
                EXPECT_EQ(decision.token, -1);
                EXPECT_EQ(decision.failure->stage, "naughty");
                EXPECT_EQ(decision.failure->message, message);
            } else {
                EXPECT_EQ(decision.failure, nullptr);
                EXPECT_EQ(decision.token, want);
            }
            // Skipping: as if the stage were not there, and counted.
            EXPECT_EQ(skipping.decide(b).token, want);
            for (Chain* each : {&chain, &skipping, &plain}) each->accept(want);
        }
        EXPECT_EQ(skipping.reports()[0].failures, 1);
        EXPECT_EQ(skipping.reports()[0].calls, 6);
    }
}

TEST(PluginStage, FailuresOfADraftChangeNothing) {
    const LetterVocabulary vocabulary(8);
    Chain chain(naughty("throw"), vocabulary);
    chain.begin(1, 0, {});
    DraftChain draft;
    draft.start(chain);
    for (int index = 0; index < 6; ++index) {
        std::vector<float> row(8, 0.0f);
        EXPECT_GE(draft.propose(row).token, 0);  // also where it throws
        draft.advance(0);
    }
    std::vector<float> row(8, 0.0f);
    EXPECT_EQ(chain.decide(row).failure, nullptr);
    EXPECT_EQ(chain.reports()[0].failures, 0);
}

TEST(PluginStage, AFailedStateFailsFromTheNextRowOn) {
    const LetterVocabulary vocabulary(32);
    Chain chain({{"counter", {}, factory<Counter>()}}, vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(32, 0.0f);
    EXPECT_EQ(chain.decide(row).failure, nullptr);
    chain.accept(13);
    const Decision decision = chain.decide(row);
    ASSERT_NE(decision.failure, nullptr);
    EXPECT_EQ(decision.failure->message, "sampler 'counter' failed: thirteen");
    chain.begin(0, 0, {});  // a new generation starts clean
    EXPECT_EQ(chain.decide(row).failure, nullptr);
}

TEST(PluginStage, StatesWalkAndAreCopied) {
    const LetterVocabulary vocabulary(4);
    Chain chain({{"counter", {}, factory<Counter>()}, {"temperature", {{"value", 0.0}}}}, vocabulary);
    chain.begin(0, 0, {});
    const std::vector<float> row = {3.0f, 2.0f, 1.0f, 0.0f};
    const std::int32_t want[] = {0, 0, 1, 1, 2, 2, 3};
    DraftChain draft;
    for (const std::int32_t token : want) {
        draft.start(chain);
        for (int ahead = 0; ahead < 2; ++ahead) {
            std::vector<float> copy = row;
            draft.advance(std::max(0, draft.propose(copy).token));
        }
        std::vector<float> copy = row;
        EXPECT_EQ(chain.decide(copy).token, token);
        chain.accept(token);
    }
}

// A device runs what comes before a host stage and hands over the candidates that it sees.
TEST(PluginStage, GoesOnFromTheCandidatesOfAnotherBackend) {
    const LetterVocabulary vocabulary(12);
    const ChainSpec spec = {{"penalties", {{"repeat", 1.3}}},
                            {"counter", {}, factory<Counter>()},
                            {"top_k", {{"k", std::int64_t{8}}}},
                            {"temperature", {{"value", 0.8}}}};
    Chain whole(spec, vocabulary), split(spec, vocabulary);
    whole.begin(5, 0, {});
    split.begin(5, 0, {});
    std::mt19937 random(3);
    kernels::SamplingScratch scratch;
    PlanBuffer head;
    for (int step = 0; step < 20; ++step) {
        std::vector<float> row(12);
        for (float& logit : row) logit = std::normal_distribution<float>(0.0f, 2.0f)(random);
        std::vector<float> same = row;
        const Decision expected = whole.decide(row);
        ASSERT_TRUE(split.compile_prefix(head));
        EXPECT_TRUE(head.plan.keep);
        const Decision found = split.decide(kernels::candidates_row(same, head.plan, scratch));
        ASSERT_EQ(found.token, expected.token) << "step " << step;
        ASSERT_EQ(found.margin, expected.margin);
        whole.accept(expected.token);
        split.accept(found.token);
    }
    // What sees the whole vocabulary needs the whole row; a chain without host stages needs nothing.
    EXPECT_FALSE(Chain({{"dice", {}, factory<Dice>()}}, vocabulary).compile_prefix(head));
    EXPECT_FALSE(Chain({{"top_k", {}}}, vocabulary).compile_prefix(head));
}

// A draft on a device goes without masks that seldom matter: they would make it wait for the host at every token.
TEST(PluginStage, TheDraftDoesWithoutMasksThatSeldomMatter) {
    const LetterVocabulary vocabulary(12);
    Chain chain({{"counter", {}, factory<Counter>()}, {"temperature", {{"value", 0.0}}}}, vocabulary);
    chain.begin(0, 0, {});
    const auto proposal = [&] {
        DraftChain draft;
        draft.start_without_masks(chain);
        std::vector<float> row = {3.0f, 2.0f, 1.0f, 0.0f};
        return draft.propose(row).token;
    };
    const auto decide = [&] {
        std::vector<float> row = {3.0f, 2.0f, 1.0f, 0.0f};
        const std::int32_t token = chain.decide(row).token;
        chain.accept(token);
        return token;
    };
    EXPECT_EQ(decide(), 0);
    EXPECT_EQ(decide(), 0);
    EXPECT_EQ(proposal(), 0);  // which the mask would drop
    EXPECT_EQ(decide(), 1);    // and has dropped now
    EXPECT_EQ(proposal(), 1);
}

TEST(PluginStage, WhatCannotBeClonedIsHiddenFromTheDraft) {
    const LetterVocabulary vocabulary(50);
    Chain chain({{"secretive", {}, factory<Secretive>()}}, vocabulary);
    EXPECT_EQ(chain.hidden_from_draft(), std::vector<std::string>{"secretive"});
    std::set<std::int32_t> proposed;
    for (std::uint64_t seed = 0; seed < 50; ++seed) {
        chain.begin(seed, 0, {});
        DraftChain draft;
        draft.start(chain);
        std::vector<float> row(50, 0.0f), same(50, 0.0f);
        proposed.insert(draft.propose(row).token);
        EXPECT_EQ(chain.decide(same).token, 0);  // the live chain has it
    }
    EXPECT_GT(proposed.size(), 10u);
}

TEST(PluginStage, RandomNumbersAreKeyed) {
    const LetterVocabulary vocabulary(200);
    Chain a({{"dice", {}, factory<Dice>()}}, vocabulary), b({{"dice", {}, factory<Dice>()}}, vocabulary);
    a.begin(1, 0, {});
    b.begin(1, 0, {});
    int differs = 0;
    for (int i = 0; i < 100; ++i) {
        std::vector<float> row(200, 0.0f), same = row, again = row;
        const std::int32_t token = a.decide(row).token;
        ASSERT_EQ(a.decide(again).token, token);  // nothing runs on
        ASSERT_EQ(b.decide(same).token, token);
        a.accept(token);
        b.accept(token);
        Chain other({{"dice", {}, factory<Dice>()}}, vocabulary);
        other.begin(2, 0, a.history().first(static_cast<std::size_t>(i)));
        std::vector<float> third(200, 0.0f);
        differs += other.decide(third).token != token ? 1 : 0;
    }
    EXPECT_GT(differs, 80);
}

TEST(PluginStage, TwoAnswersToOneQuestionAreAFailure) {
    const LetterVocabulary vocabulary(8);
    for (const char* kind : {"every_third", "logit", "fails_later"}) {
        SCOPED_TRACE(kind);
        Chain chain({{"odd", {{"kind", std::string(kind)}}, factory<Odd>()}}, vocabulary);
        chain.begin(1, 0, {});
        std::string failure;
        for (int index = 0; index < 4 && failure.empty(); ++index) {
            std::vector<float> row = {0.5f, 1.0f, 0.2f, 0.9f, -1.0f, 0.0f, 0.1f, 0.3f};
            const Decision decision = chain.decide(row);
            if (decision.failure != nullptr) failure = decision.failure->message;
            if (decision.token >= 0) chain.accept(decision.token);
        }
        EXPECT_EQ(failure,
                  "sampler 'odd' failed: asked twice about the same candidates, it gave two answers, so the text would "
                  "depend on how it is computed");
    }
    // A pure one is called again ever more seldom: 8 and 16, 32, 64 of 100 calls.
    Chain pure({{"odd", {{"kind", std::string("plain")}}, factory<Odd>()}}, vocabulary);
    pure.begin(1, 0, {});
    for (int index = 0; index < 100; ++index) {
        std::vector<float> row(8, 0.0f);
        const Decision decision = pure.decide(row);
        ASSERT_EQ(decision.failure, nullptr);
        pure.accept(decision.token);
    }
    EXPECT_EQ(pure.reports()[0].calls, 100);
}

TEST(PluginStage, OnlyDifferencesOfLogitsCount) {
    const LetterVocabulary vocabulary(8);
    const auto tokens = [&](const char* kind) {
        Chain chain({{"odd", {{"kind", std::string(kind)}}, factory<Odd>()}}, vocabulary);
        Chain equal({{"temperature", {{"value", 1.0}}}}, vocabulary);
        std::set<std::int32_t> seen;
        chain.begin(7, 0, {});
        equal.begin(7, 0, {});
        for (int index = 0; index < 200; ++index) {
            std::vector<float> row = {0.5f, 1.0f, 0.2f, 0.9f, -1.0f, 0.0f, 0.1f, 0.3f};
            std::vector<float> flat(8, 0.0f);
            const std::int32_t token = chain.decide(row).token;
            const std::int32_t expected = equal.decide(flat).token;
            // The same noise, so the same choice as from equal logits of an ordinary size.
            if (std::string_view(kind) != "force") {
                EXPECT_EQ(token, expected) << index;
            }
            seen.insert(token);
            chain.accept(token);
            equal.accept(token);
        }
        return seen;
    };
    EXPECT_EQ(tokens("huge").size(), 8u);
    EXPECT_EQ(tokens("tiny").size(), 8u);
    EXPECT_EQ(tokens("force"), (std::set<std::int32_t>{0, 1, 2}));
}

TEST(PluginStage, AnExceptionOutOfAFunctionIsAFailure) {
    foresay_sampler leaking = detail::Adapter<Naughty>::sampler;
    leaking.process = [](void*, const void*, const foresay_context*, foresay_candidates*) -> std::int32_t {
        throw std::runtime_error("out of \x1b[31m");
    };
    const LetterVocabulary vocabulary(8);
    Chain chain({{"naughty", {}, make_plugin_factory(&leaking, nullptr, "test")}}, vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(8, 0.0f);
    const Decision decision = chain.decide(row);
    ASSERT_NE(decision.failure, nullptr);
    EXPECT_EQ(decision.failure->message, "sampler 'naughty' failed: it threw an exception: out of ?[31m");
}

// Samplers in plain C, which no wrapper keeps within bounds.
TEST(PluginStage, BreachesOfPlainSamplersAreNamed) {
    using Process = std::int32_t (*)(void*, const void*, const foresay_context*, foresay_candidates*);
    struct Case {
        std::uint32_t flags;
        Process process;
        const char* failure;  // nullptr: none
    };
    const Case cases[] = {
        {0,
         [](void*, const void*, const foresay_context*, foresay_candidates* c) {
             ++c->count;
             return FORESAY_OK;
         },
         "it returned more candidates than it got"},
        {0,
         [](void*, const void*, const foresay_context*, foresay_candidates* c) {
             c->count = 0xffffffffu;
             return FORESAY_OK;
         },
         "it returned more candidates than it got"},
        {FORESAY_MASKS_ONLY,
         [](void*, const void*, const foresay_context*, foresay_candidates* c) {
             c->logits[2] += 0.5f;
             return FORESAY_OK;
         },
         "it changed a logit, though it declares that it only masks"},
        {FORESAY_MASKS_ONLY,
         [](void*, const void*, const foresay_context*, foresay_candidates* c) {
             c->logits[0] = -kInfinity;  // which drops it
             return FORESAY_OK;
         },
         nullptr},
        {0, [](void*, const void*, const foresay_context*, foresay_candidates*) { return FORESAY_FAILED; },
         "it failed and gave no reason"},
        {0, [](void*, const void*, const foresay_context*, foresay_candidates*) { return -7; },
         "it failed and gave no reason"},
        {0,
         [](void*, const void*, const foresay_context*, foresay_candidates* c) {
             std::swap(c->ids[0], c->ids[3]);
             std::swap(c->logits[0], c->logits[3]);
             return FORESAY_OK;
         },
         nullptr},
    };
    const LetterVocabulary vocabulary(8);
    int number = 0;
    for (const Case& c : cases) {
        SCOPED_TRACE(number++);
        foresay_sampler sampler = detail::Adapter<Naughty>::sampler;
        sampler.flags = c.flags;
        sampler.process = c.process;
        Chain chain({{"naughty", {}, make_plugin_factory(&sampler, nullptr, "test")}}, vocabulary);
        chain.begin(0, 0, {});
        std::vector<float> row = {0.5f, 1.0f, 0.2f, 0.9f, -1.0f, 0.0f, 0.1f, 0.3f};
        const Decision decision = chain.decide(row);
        ASSERT_EQ(decision.failure != nullptr, c.failure != nullptr);
        if (c.failure != nullptr) {
            EXPECT_EQ(decision.failure->message, std::string("sampler 'naughty' failed: ") + c.failure);
        }
    }
    const auto error = [&](const foresay_sampler& sampler) -> std::string {
        try {
            Chain chain({{sampler.name, {}, make_plugin_factory(&sampler, nullptr, "test")}}, vocabulary);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "";
    };
    foresay_sampler refuses = detail::Adapter<Naughty>::sampler;
    refuses.create = [](const foresay_host*, const foresay_value*, void**) { return FORESAY_FAILED; };
    EXPECT_EQ(error(refuses), "naughty: it failed and gave no reason");
    foresay_sampler without_state = detail::Adapter<Counter>::sampler;
    without_state.state_create = [](void*, void**) -> std::int32_t { throw 1; };
    EXPECT_EQ(error(without_state), "counter: its state cannot be created: it threw an exception");
}

TEST(PluginStage, UnknownParametersGetSensibleSuggestions) {
    const LetterVocabulary vocabulary(8);
    const auto message = [&](const char* name) -> std::string {
        try {
            Chain chain({{"naughty", {{name, std::int64_t{1}}}, factory<Naughty>()}}, vocabulary);
        } catch (const std::exception& error) {
            return error.what();
        }
        return "";
    };
    const std::string start = "sampler 'naughty' has no parameter '";
    EXPECT_EQ(message("ta"), start + "ta'; it has 'deed', 'at'");
    EXPECT_EQ(message("z"), start + "z'; it has 'deed', 'at'");
    EXPECT_EQ(message("zz"), start + "zz'; it has 'deed', 'at'");
    EXPECT_EQ(message("att"), start + "att'; did you mean 'at'?");
    EXPECT_EQ(message("ded"), start + "ded'; did you mean 'deed'?");
}

// Parameters that no author can mean.
TEST(PluginStage, BrokenParametersAreRefused) {
    const auto message = [](const std::function<void(foresay_parameter&, foresay_parameter&)>& change) -> std::string {
        const foresay_sampler& good = detail::Adapter<Naughty>::sampler;
        std::vector<foresay_parameter> parameters(good.parameters, good.parameters + good.parameter_count);
        foresay_sampler bad = good;
        bad.parameters = parameters.data();
        change(parameters[0], parameters[1]);  // a choice and an integer of at least 0
        try {
            const auto made = make_plugin_factory(&bad, nullptr, "x.so");
            return made->description().parameters[0].doc + made->description().parameters[1].doc;
        } catch (const std::exception& error) {
            return error.what();
        }
    };
    const auto broken = [](const std::string& what) {
        return "x.so: the plugin breaks the sampler contract: " + what + "; ask its author for a corrected build";
    };
    const double nan = std::numeric_limits<double>::quiet_NaN();
    using P = foresay_parameter;
    EXPECT_EQ(message([](P&, P&) {}), "What it does.When.");
    EXPECT_EQ(message([](P&, P& at) { at.fallback.integer = -1; }),
              broken("the default of parameter 'at' is -1; it must be at least 0"));
    EXPECT_EQ(message([](P&, P& at) { at.fallback.integer = 1000001; }),
              broken("the default of parameter 'at' is 1000001; it must be at most 1000000"));
    EXPECT_EQ(message([](P&, P& at) { std::swap(at.min, at.max); }),
              broken("parameter 'at' has a minimum above its maximum"));
    EXPECT_EQ(message([&](P&, P& at) { at.max = nan; }), broken("parameter 'at' has a range that is not of numbers"));
    EXPECT_EQ(message([](P&, P& at) { at.name = "deed"; }), broken("two parameters are called 'deed'"));
    EXPECT_EQ(message([](P& deed, P&) {
                  deed.fallback.text = {"noth", 4};
              }),
              broken("the default of parameter 'deed' is 'noth'; it must be one of 'nothing', 'throw', 'throw_int', "
                     "'nan', 'infinity', 'none', 'minus_infinity', 'invent', 'repeat', 'out_of_range'"));
    EXPECT_EQ(message([&](P&, P& at) {
                  at.type = at.fallback.type = FORESAY_REAL;
                  at.fallback.real = nan;
              }),
              broken("the default of parameter 'at' is not a number"));
    EXPECT_EQ(message([](P& deed, P&) { deed.doc = "\x1b]0;title\a two\nlines\xc2\x9b"; }),
              "?]0;title? two?lines?When.");
}

TEST(PluginStage, BrokenDescriptionsAreRefused) {
    const foresay_sampler good = detail::Adapter<Counter>::sampler;
    const auto message = [](const foresay_sampler& sampler) -> std::string {
        try {
            make_plugin_factory(&sampler, nullptr, "x.so");
        } catch (const std::exception& error) {
            return error.what();
        }
        return "";
    };
    EXPECT_EQ(message(good), "");
    const std::string start = "x.so: the plugin breaks the sampler contract: ";
    const std::string end = "; ask its author for a corrected build";
    foresay_sampler bad = good;
    bad.struct_size = 8;
    EXPECT_EQ(message(bad), start + "a sampler has a wrong struct_size" + end);
    bad = good;
    bad.name = "Upper Case";
    EXPECT_EQ(message(bad),
              start + "a sampler's name is not of 1 to 64 lower-case letters, digits and underscores" + end);
    bad = good;
    bad.process = nullptr;
    EXPECT_EQ(message(bad), start + "process, test and mask are all missing" + end);
    bad = good;
    bad.memory = 7;
    EXPECT_EQ(message(bad), start + "an unknown kind of memory" + end);
    bad = good;
    bad.accept = nullptr;
    EXPECT_EQ(message(bad), start + "a stateful sampler without its state functions" + end);
    bad = good;
    bad.flags = 64;
    EXPECT_EQ(message(bad), start + "unknown flags" + end);
    bad = good;
    bad.flags = 0x10000;  // of a later version, which a host need not know
    EXPECT_EQ(message(bad), "");
    bad = good;
    bad.parameter_count = 1000;
    EXPECT_EQ(message(bad), start + "its parameter list is missing or too long" + end);
}

}  // namespace
}  // namespace foresay::samplers
