// Stages that judge tokens: the host drops what may not follow, and a device runs ahead meanwhile.
#include <gtest/gtest.h>

#include "kernels/ops_decorator.h"
#include "tests/samplers/judging_samplers.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;

// Counts forwards, and rows of logits that the host has read.
class CountedReads final : public kernels::OpsDecorator {
public:
    explicit CountedReads(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        ++forwards;
        OpsDecorator::begin(workspace, batch);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t row) override {
        ++read_rows;
        return OpsDecorator::logits(workspace, row);
    }
    std::int32_t forwards = 0, read_rows = 0;
};

// Drops the tokens of one remainder: seldom likely ones, or often.
template <int kParts>
struct Dropping {
    static constexpr foresay::Info info{"dropping", "1", "Drops tokens of one remainder.", "Apache-2.0"};
    bool test(const foresay::Context&, std::int32_t id) const { return id % kParts != 1; }
};

std::unique_ptr<samplers::Chain> judged_chain(int which) {
    static const std::shared_ptr<const samplers::StageFactory> factories[] = {
        samplers::linked_factory<Dropping<2000>>(), samplers::linked_factory<Dropping<4>>(),
        samplers::linked_factory<samplers::Tester>(), samplers::linked_factory<samplers::SoleMasker>()};
    samplers::StageSpec judge = stage("rule");
    judge.factory = factories[which];
    return make_chain({judge, stage("penalties", {{"frequency", 0.2}}), stage("top_k", {{"k", std::int64_t{40}}}),
                       stage("temperature", {{"value", 0.8}})});
}

// A device samples what the host is likely to choose, and goes on from there. No row of logits crosses where enough of
// the candidates may follow, and every text is the one that the host samples from whole rows.
TEST(JudgedTexts, ADeviceRunsAheadOfStagesThatJudge) {
    constexpr std::int32_t kTokens = 40;
    const std::vector<std::int32_t> input = prompt();
    CountedReads counted(fast_backend().ops());
    const auto model = core::Model::load(core::ModelSource::open(bundled_path("target")), counted);
    const auto draft = bundled(fast_backend(), "draft");
    std::vector<std::vector<std::int32_t>> texts;
    for (int which = 0; which < 4; ++which) {
        SCOPED_TRACE(which);
        const bool often = which == 1 || which == 2;
        const speculative::GenerateRequest wanted{.input = input, .max_tokens = kTokens, .seed = 5, .ignore_eos = true};
        counted.forwards = 0;
        counted.read_rows = 0;
        speculative::Generator plain =
            make_generator(judged_chain(which), sources(nullptr), off(), context_options(), model);
        texts.push_back(plain.generate(wanted).tokens);
        if (counted.asynchronous()) {
            EXPECT_LT(counted.read_rows, often ? kTokens : 1);
            if (which == 0) {
                EXPECT_LE(counted.forwards, kTokens + 8) << "few guesses are wrong";
            }
        }
        // On the host. Another device may round otherwise.
        if (fast_backend().name != "cuda") {
            speculative::Generator host = make_generator(judged_chain(which), sources(nullptr), off(),
                                                         context_options(), bundled(backends()[1], "target"));
            EXPECT_EQ(host.generate(wanted).tokens, texts.back());
        }
        counted.read_rows = 0;
        speculative::Generator drafting =
            make_generator(judged_chain(which), sources(model_drafter(draft)), fixed(3), context_options(), model);
        const speculative::GenerateResult drafted = drafting.generate(wanted);
        EXPECT_EQ(drafted.tokens, texts.back());
        EXPECT_GT(drafted.speculation.accepted, 0);
        if (counted.asynchronous() && which == 0) {
            EXPECT_EQ(counted.read_rows, 0);
        }
        // A draft does without what seldom drops a likely token, on the host, too.
        if (which < 2) {
            const std::int64_t judged = drafting.chain().reports().front().draft_calls;
            EXPECT_EQ(judged > 0, which == 1) << judged;
        }
    }
    // All together.
    BatchGenerator batch(batch_parts(for_sequences(4), model));
    std::deque<Recorder> sinks(4);
    counted.read_rows = 0;
    for (int which = 0; which < 4; ++which) {
        batch.add({.input = input,
                   .chain = judged_chain(which),
                   .max_tokens = kTokens,
                   .seed = 5,
                   .stop = {},
                   .ignore_eos = true},
                  sinks[static_cast<std::size_t>(which)]);
    }
    while (batch.step()) {
    }
    for (std::size_t which = 0; which < 4; ++which) EXPECT_EQ(sinks[which].tokens, texts[which]) << which;
    if (counted.asynchronous()) {
        EXPECT_LT(counted.read_rows, 2 * kTokens);
    }
    EXPECT_TRUE(no_page_is_lost(batch));
}

}  // namespace
}  // namespace foresay::test
