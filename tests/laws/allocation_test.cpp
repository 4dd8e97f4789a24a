// Steady-state decoding allocates nothing, speculation included.

#include <gtest/gtest.h>

#include <new>

#include "speculative/drafters/ngram_drafter.h"
#include "tests/speculative/batch_support.h"
#include "tests/support/allocated.h"

namespace foresay::test {
namespace {

std::unique_ptr<samplers::Chain> usual_chain(double temperature) {
    return make_chain({stage("penalties", {{"repeat", 1.05}}), stage("top_k"), stage("top_p"),
                       stage("temperature", {{"value", temperature}})});
}

// Calls the operators, which a compiler may not leave out, unlike the pair of a new and a delete expression.
TEST(Allocation, CountingWorks) {
    const std::int64_t before = allocations();
    ::operator delete(::operator new(1000));
    ::operator delete[](::operator new[](1000));
    EXPECT_EQ(allocations() - before, 2);
}

TEST(Allocation, DecodingAForwardAllocatesNothing) {
    core::Context context(bundled(fast_backend(), "target"), context_options());
    const auto input = prompt();
    ASSERT_TRUE(context.prefill(input));
    const std::vector<std::int32_t> rows = {5, 6, 7, 8, 9, 10, 11, 12};
    const std::int32_t length = context.length();
    std::int64_t before = 0;
    for (int step = 0; step < 110; ++step) {
        if (step == 10) before = allocations();
        ASSERT_TRUE(context.decode(std::span(rows).first(static_cast<std::size_t>(1 + step % 8))));
        context.logits(0);
        context.truncate(step % 2 == 0 ? length : context.length() - step % 8);
    }
    EXPECT_EQ(allocations() - before, 0);
}

class Counter final : public speculative::Sink {
public:
    void token(const speculative::TokenEvent&) override { ++tokens; }
    void end(const speculative::BatchEnd&) override {}
    int tokens = 0;
};

TEST(Allocation, ABatchAllocatesNothingPerToken) {
    speculative::BatchGenerator batch = make_batch(for_sequences(4));
    Counter sinks[4];
    for (std::uint64_t i = 0; i < 4; ++i) {
        batch.add({.input = prompt(),
                   .chain = usual_chain(0.6),
                   .max_tokens = 200,
                   .seed = i,
                   .stop = {"never seen in any text"},
                   .ignore_eos = true},
                  sinks[i]);
    }
    while (sinks[3].tokens < 40) ASSERT_TRUE(batch.step());
    const std::int64_t before = allocations();
    while (sinks[3].tokens < 190) batch.step();
    EXPECT_EQ(allocations() - before, 0);
    while (batch.step()) {
    }
    for (const Counter& sink : sinks) EXPECT_GE(sink.tokens, 200);
}

struct Case {
    const char* name;
    speculative::SpeculationOptions speculation;
    double temperature;
    bool ngram = false;
};

class GenerationAllocates : public testing::TestWithParam<Case> {};

TEST_P(GenerationAllocates, NothingPerToken) {
    const Case& c = GetParam();
    core::ContextOptions options = context_options();
    options.length = 1024;
    auto drafters = sources(model_drafter(bundled(fast_backend(), "draft"), options),
                            c.ngram ? speculative::make_ngram_drafter(options.length) : nullptr);
    speculative::Generator generator =
        make_generator(usual_chain(c.temperature), std::move(drafters), c.speculation, options);
    const std::vector<std::string> stops = {"never seen in any text"};
    // The first generation warms up, as a first turn does; the second is counted from its twentieth token on.
    const auto input = prompt();
    generator.generate({.input = input, .max_tokens = 300, .seed = 1, .stop = stops, .ignore_eos = true});
    generator.truncate(0);
    int seen = 0;
    std::int64_t at_20 = 0;
    std::int64_t at_end = 0;
    generator.generate({.input = input, .max_tokens = 250, .seed = 1, .stop = stops, .ignore_eos = true},
                       [&](const speculative::TokenEvent& event) {
                           if (event.token < 0) return;
                           ++seen;
                           if (seen == 20) at_20 = allocations();
                           if (seen == 240) at_end = allocations();
                       });
    EXPECT_EQ(seen, 250);
    EXPECT_EQ(at_end - at_20, 0);
}

INSTANTIATE_TEST_SUITE_P(Modes, GenerationAllocates,
                         testing::Values(Case{"off", off(), 0.6}, Case{"off_greedy", off(), 0.0},
                                         Case{"fixed_1", fixed(1), 0.6}, Case{"fixed_4", fixed(4), 0.6},
                                         Case{"fixed_16", fixed(16), 0.6}, Case{"automatic", automatic(), 0.6},
                                         Case{"automatic_greedy", automatic(), 0.0},
                                         Case{"ngram", automatic(), 0.6, true},
                                         Case{"ngram_greedy", automatic(), 0.0, true}),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace foresay::test
