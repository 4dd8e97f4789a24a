// Branches in one cache: several answers at once, and switching between the branches of a conversation.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <stdexcept>

#include "base/error.h"
#include "samplers/plugin_stage.h"
#include "samplers/sdk/sampler.hpp"
#include "speculative/accept.h"
#include "speculative/drafters/ngram_drafter.h"
#include "tests/kernels/kv_suffix.h"
#include "tests/speculative/support.h"

namespace foresay::test {
namespace {

using speculative::GenerateRequest;
using speculative::GenerateResult;
using speculative::Generator;
using Tokens = std::vector<std::int32_t>;

core::ContextOptions with_branches(std::int32_t length, std::int32_t branches,
                                   kernels::KvFormat format = kernels::KvFormat::f16) {
    core::ContextOptions options = context_options();
    options.kv_format = format;
    options.length = length;
    options.branches = branches;
    return options;
}

Generator plain(core::ContextOptions options) {
    return make_generator(temperature_chain(0.9), sources(nullptr), off(), options);
}

GenerateResult alone(std::uint64_t branch, std::int32_t max_tokens, kernels::KvFormat format = kernels::KvFormat::f16) {
    Generator generator = plain(with_branches(context_options().length, 0, format));
    const Tokens input = prompt();
    GenerateRequest request;
    request.input = input;
    request.max_tokens = max_tokens;
    request.seed = 7;
    request.branch = branch;
    return generator.generate(request);
}

void expect_each_as_alone(core::ContextOptions options, std::int32_t max_tokens, std::int32_t count) {
    Generator generator = plain(options);
    const Tokens input = prompt();
    GenerateRequest request;
    request.input = input;
    request.max_tokens = max_tokens;
    request.seed = 7;
    std::vector<std::uint64_t> branches;
    for (std::int32_t i = 0; i < count; ++i) branches.push_back(static_cast<std::uint64_t>(3 * i));
    std::vector<std::string> streamed(branches.size());
    const auto results = generator.generate_branches(
        request, branches, [&](std::size_t index, const auto& event) { streamed[index] += event.text; });
    ASSERT_EQ(results.size(), branches.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
        const GenerateResult expected = alone(branches[i], max_tokens, options.kv_format);
        EXPECT_EQ(results[i].tokens, expected.tokens) << "branch " << branches[i];
        EXPECT_EQ(results[i].text, expected.text);
        EXPECT_EQ(streamed[i], expected.text);
        EXPECT_EQ(results[i].finish, expected.finish);
    }
    EXPECT_THAT(generator.tokens(), ::testing::ElementsAreArray(input));
}

TEST(Branches, SideBySideEachIsWhatItIsAlone) { expect_each_as_alone(with_branches(512, 8), 40, 5); }

TEST(Branches, SideBySideWithAnEightBitCache) {
    expect_each_as_alone(with_branches(512, 8, kernels::KvFormat::q8), 40, 4);
    // A control: the cache does round. Texts need not show it, logits do.
    const auto logits = [](kernels::KvFormat format) {
        core::Context context(bundled(fast_backend(), "target"), with_branches(512, 0, format));
        EXPECT_TRUE(context.prefill(prompt()));
        const std::span<const float> row = context.logits(0);
        return std::vector<float>(row.begin(), row.end());
    };
    EXPECT_NE(logits(kernels::KvFormat::f16), logits(kernels::KvFormat::q8));
}

TEST(Branches, SideBySideWithFewerThanEightBits) {
    for (const kernels::KvType values : {kernels::KvType::q6, kernels::KvType::q4}) {
        expect_each_as_alone(with_branches(512, 8, kernels::kv_format(kernels::KvType::q4, values)), 40, 4);
    }
    expect_each_as_alone(with_branches(512, 8, kLowBits), 40, 4);
}

// Drafted for or not, by lookups and by the draft model, each is what it is alone, and afterwards the cache holds it.
TEST(Branches, SideBySideEachIsDraftedForAndStaysInTheCache) {
    const Tokens input = prompt();
    const std::vector<std::uint64_t> branches = {0, 1, 2, 3};
    const core::SpeculationMode off_mode = core::SpeculationMode::off;
    // Further rows cost little, and a draft step less than a forward: drafts pay.
    TimedOps target_ops(fast_backend().ops(), 1.0, 0.01), draft_ops(fast_backend().ops(), 0.05, 0.001);
    const auto load = [](const char* name, kernels::Ops& ops) -> std::shared_ptr<const core::Model> {
        return core::Model::load(core::ModelSource::open(bundled_path(name)), ops);
    };
    const auto target = load("target", target_ops), draft = load("draft", draft_ops);
    for (const auto& [options, has_model] : {std::pair(off(), true), std::pair(fixed(4), false),
                                             std::pair(fixed(4), true), std::pair(automatic(), true)}) {
        speculative::GeneratorParts parts;
        parts.target = std::make_unique<core::Context>(target, with_branches(512, 8));
        parts.chain = temperature_chain(0.9);
        parts.make_lookup = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
        if (has_model) {
            parts.make_draft = [&draft](std::int32_t sequences) {
                EXPECT_EQ(sequences, 9);
                return std::make_unique<core::Context>(draft, with_branches(512, sequences - 1));
            };
        }
        parts.tokenizer = &tokenizer();
        parts.speculation = options;
        parts.now = TimedOps::now;
        Generator generator(std::move(parts));
        // Twice: the second time with an expected answer.
        for (const bool predicted : {false, true}) {
            const Tokens expected = alone(2, 40).tokens;
            GenerateRequest request;
            generator.truncate(0);
            request.input = input;
            request.max_tokens = 40;
            request.seed = 7;
            if (predicted) request.prediction = expected;
            const auto results = generator.generate_branches(request, branches);
            std::int64_t accepted = 0, of_model = 0;
            for (std::size_t i = 0; i < results.size(); ++i) {
                EXPECT_EQ(results[i].tokens, alone(branches[i], 40).tokens);
                accepted += results[i].speculation.accepted;
                for (const auto& source : results[i].speculation.sources) {
                    if (source.name == "draft") of_model += source.accepted;
                }
            }
            EXPECT_EQ(accepted > 0, options.mode != off_mode) << results[0].speculation.mode;
            // The draft model finds what lookups do not.
            EXPECT_EQ(of_model > 0, options.mode != off_mode && has_model) << results[0].speculation.mode;
            if (options.mode == core::SpeculationMode::fixed && predicted && !has_model) {
                EXPECT_LT(results[2].speculation.rounds, 16);
            }
            for (const GenerateResult& result : results) {
                Tokens whole = input;
                whole.insert(whole.end(), result.tokens.begin(), result.tokens.end());
                std::vector<std::uint8_t> generated(input.size(), 0);
                generated.resize(whole.size(), 1);
                generator.switch_to(whole, generated);
                EXPECT_EQ(generator.held() + 1, static_cast<std::int32_t>(whole.size()));
            }
        }
    }
}

// What the callback throws comes out, and the generator goes on.
TEST(Branches, SideBySideACallbackMayThrow) {
    Generator generator = plain(with_branches(512, 8));
    const Tokens input = prompt();
    const std::vector<std::uint64_t> branches = {0, 1, 2};
    GenerateRequest request;
    request.input = input;
    request.max_tokens = 30;
    request.seed = 7;
    int tokens = 0;
    const auto throws = [&](std::size_t, const speculative::TokenEvent&) {
        if (++tokens == 10) throw Error("enough");
    };
    EXPECT_THROW(generator.generate_branches(request, branches, throws), Error);
    EXPECT_EQ(tokens, 10);
    generator.truncate(0);
    const auto results = generator.generate_branches(request, branches);
    for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].tokens, alone(branches[i], 30).tokens);
}

// Fails at the tenth token of an answer to prompt(), on branch 1.
struct FailsOnBranchOne {
    static constexpr foresay::Info info{"failing", "1", "Fails.", "Apache-2.0"};
    FailsOnBranchOne(foresay::detail::NoParameters, foresay::Host) {}
    void process(const foresay::Context& context, foresay::Candidates&) const {
        if (context.branch() == 1 && context.index() >= prompt().size() + 9) throw std::runtime_error("this is it");
    }
};

// A stage that fails ends its own answer, side by side and one by one; the others are what they are alone.
TEST(Branches, AFailureEndsItsOwnAnswer) {
    const Tokens input = prompt();
    const std::vector<std::uint64_t> branches = {0, 1, 2};
    for (const std::int32_t room : {8, 0}) {
        samplers::StageSpec failing = stage("failing");
        failing.factory =
            samplers::make_plugin_factory(&foresay::detail::Adapter<FailsOnBranchOne>::sampler, nullptr, "test");
        Generator generator = make_generator(make_chain({failing, stage("temperature", {{"value", 0.9}})}),
                                             sources(nullptr), off(), with_branches(512, room));
        GenerateRequest request;
        request.input = input;
        request.max_tokens = 30;
        request.seed = 7;
        const auto results = generator.generate_branches(request, branches);
        for (const std::size_t i : {std::size_t{0}, std::size_t{2}}) {
            EXPECT_EQ(results[i].tokens, alone(branches[i], 30).tokens) << room;
            EXPECT_EQ(results[i].error, "") << room;
        }
        EXPECT_EQ(results[1].error, "sampler 'failing' failed: this is it") << room;
        const Tokens whole = alone(1, 30).tokens;
        EXPECT_EQ(results[1].tokens, Tokens(whole.begin(), whole.begin() + 9)) << room;
        EXPECT_THAT(generator.tokens(), ::testing::ElementsAreArray(input));
        // The only answer throws.
        generator.truncate(0);
        request.branch = 1;
        EXPECT_THROW(generator.generate(request), Error);
    }
}

// Pages for two or three branches at a time: the others wait.
TEST(Branches, InGroupsWhereTheCacheIsSmall) { expect_each_as_alone(with_branches(256, 8), 60, 7); }

TEST(Branches, OneByOneWhereTheCacheHasNone) { expect_each_as_alone(with_branches(512, 0), 24, 3); }

TEST(Branches, AreCancelledTogetherAndKeepWhatTheyHave) {
    Generator generator = plain(with_branches(512, 8));
    const Tokens input = prompt();
    std::atomic<bool> cancel{false};
    GenerateRequest request;
    request.input = input;
    request.max_tokens = 100;
    request.seed = 7;
    request.cancel = &cancel;
    const std::vector<std::uint64_t> branches = {0, 1, 2};
    int generated = 0;
    const auto results = generator.generate_branches(request, branches, [&](std::size_t, const auto&) {
        if (++generated == 10) cancel = true;
    });
    for (const GenerateResult& result : results) {
        EXPECT_GT(result.tokens.size(), 0u);
        EXPECT_LT(result.tokens.size(), 10u);
        EXPECT_EQ(result.finish, speculative::FinishReason::cancelled);
    }
}

// A text as a caller keeps it who switches between several.
struct Document {
    Tokens tokens;
    std::vector<std::uint8_t> generated;
    void add(const Tokens& more, std::uint8_t kind) {
        tokens.insert(tokens.end(), more.begin(), more.end());
        generated.resize(tokens.size(), kind);
    }
};

void expect_switching_back_finds_the_cache(kernels::KvFormat format) {
    Generator generator = plain(with_branches(512, 4, format));
    Document start;
    start.add(prompt(), 0);
    GenerateRequest request;
    request.max_tokens = 30;
    request.seed = 7;
    std::vector<Document> documents(3, start);
    for (std::uint64_t branch = 0; branch < 3; ++branch) {
        generator.switch_to(start.tokens, start.generated);
        request.branch = branch;
        documents[branch].add(generator.generate(request).tokens, 1);
    }
    for (int round = 0; round < 2; ++round) {
        for (const Document& document : documents) {
            generator.switch_to(document.tokens, document.generated);
            EXPECT_EQ(generator.held() + 1, static_cast<std::int32_t>(document.tokens.size()));
        }
    }
    // Each continues as in a generator that never switched.
    for (const Document& document : documents) {
        Document longer = document;
        longer.add(tokenizer().encode("\nimport os\n", {false, true}), 0);
        generator.switch_to(longer.tokens, longer.generated);
        const Tokens switched = generator.generate(request).tokens;
        Generator fresh = plain(with_branches(512, 0, format));
        fresh.switch_to(longer.tokens, longer.generated);
        EXPECT_EQ(switched, fresh.generate(request).tokens);
    }
}

TEST(Branches, SwitchingBackFindsTheCacheAsItWas) { expect_switching_back_finds_the_cache(kernels::KvFormat::f16); }
TEST(Branches, SwitchingBackFindsAnEightBitCacheAsItWas) {
    expect_switching_back_finds_the_cache(kernels::KvFormat::q8);
}
TEST(Branches, SwitchingBackFindsACacheOfFewerBitsAsItWas) { expect_switching_back_finds_the_cache(kLowBits); }

// More branches than fit: the oldest lose their cache, and no text changes.
TEST(Branches, OldOnesMakeRoomForNewOnes) {
    Generator generator = plain(with_branches(192, 3));
    Document start;
    start.add(prompt(), 0);
    GenerateRequest request;
    request.max_tokens = 100;
    request.seed = 7;
    for (int round = 0; round < 2; ++round) {
        for (std::uint64_t branch = 0; branch < 6; ++branch) {
            generator.switch_to(start.tokens, start.generated);
            request.branch = branch;
            EXPECT_EQ(generator.generate(request).tokens, alone(branch, 100).tokens);
        }
    }
}

TEST(Branches, WithADraftModelTheTextIsTheSame) {
    Generator generator = make_generator(temperature_chain(0.9), model_drafter(bundled(fast_backend(), "draft")),
                                         fixed(4), with_branches(512, 4));
    Document start;
    start.add(prompt(), 0);
    GenerateRequest request;
    request.max_tokens = 40;
    request.seed = 7;
    for (const std::uint64_t branch : {0, 1, 0, 2, 1}) {
        generator.switch_to(start.tokens, start.generated);
        request.branch = branch;
        EXPECT_EQ(generator.generate(request).tokens, alone(branch, 40).tokens);
    }
}

TEST(Branches, VisitedLogitsAreThoseThatWereSampled) {
    Generator generator = make_generator(temperature_chain(0.0), sources(nullptr), off(), context_options());
    const Tokens input = prompt();
    GenerateRequest request;
    request.input = input;
    request.max_tokens = 50;
    const Tokens generated = generator.generate(request).tokens;
    const Tokens sequence(generator.tokens().begin(), generator.tokens().end());
    std::int32_t expected = static_cast<std::int32_t>(input.size());
    generator.visit_logits(expected, [&](std::int32_t index, std::span<const float> logits) {
        EXPECT_EQ(index, expected++);
        const auto best = std::max_element(logits.begin(), logits.begin() + tokenizer().vocab_size());
        EXPECT_EQ(best - logits.begin(), sequence[static_cast<std::size_t>(index)]);
    });
    EXPECT_EQ(expected, static_cast<std::int32_t>(sequence.size()));
    EXPECT_EQ(Tokens(generator.tokens().begin(), generator.tokens().end()), sequence);
    // The text continues as if the logits had not been read.
    request.input = {};
    const Tokens more = generator.generate(request).tokens;
    Generator other = make_generator(temperature_chain(0.0), sources(nullptr), off(), context_options());
    request.input = input;
    request.max_tokens = 100;
    const Tokens whole = other.generate(request).tokens;
    EXPECT_TRUE(std::equal(more.begin(), more.end(), whole.begin() + static_cast<std::ptrdiff_t>(generated.size())));
}

TEST(FiniteLogits, NotANumberAndInfinityAreFound) {
    std::vector<float> logits(1000, -3.0f);
    EXPECT_TRUE(speculative::all_finite(logits));
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        for (const std::size_t place : {std::size_t{0}, std::size_t{513}, std::size_t{999}}) {
            logits[place] = bad;
            EXPECT_FALSE(speculative::all_finite(logits));
            logits[place] = std::numeric_limits<float>::max();
        }
    }
}

}  // namespace
}  // namespace foresay::test
