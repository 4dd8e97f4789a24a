// Sampling of a backend against sample_row() on the same logits: every kind of plan, rows with ties and infinities,
// rows that the backend cannot cut short; vocabularies from 1 to 128,256.

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "tests/kernels/tiny_model.h"

namespace foresay::test {
namespace {

using namespace kernels;

constexpr std::int32_t kVocab = 20011;  // several thread blocks of a device, the last one not full
constexpr std::int32_t kRows = 6;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Lists that plans borrow.
struct Lists {
    std::vector<TokenValue> bias;
    std::vector<TokenCount> counts;
    std::vector<std::uint32_t> bits;

    explicit Lists(std::mt19937& random) : bits((kVocab + 31) / 32) {
        for (std::int32_t id = 0; id < kVocab; id += 1 + static_cast<std::int32_t>(random() % 90)) {
            bias.push_back({id, static_cast<float>(random() % 800) * 0.01f - 4.0f});
            counts.push_back({id, 1 + static_cast<std::int32_t>(random() % 5)});
        }
        for (std::uint32_t& word : bits) word = random() | random();
    }
};

SamplingStep temperature(float value) { return {.kind = SamplingStepKind::temperature, .temperature = value}; }
SamplingStep top_k(std::uint32_t k) { return {.kind = SamplingStepKind::top_k, .top_k = k}; }
SamplingStep top_p(float p) { return {.kind = SamplingStepKind::top_p, .top_p = p}; }
SamplingStep penalties_of(const Lists& lists, float presence = 0.0f) {
    return {.kind = SamplingStepKind::penalties,
            .penalties = {.repeat = 1.2f, .frequency = 0.1f, .presence = presence},
            .counts = lists.counts};
}

std::vector<SamplingPlan> plans(const Lists& lists) {
    const SamplingStep bias{.kind = SamplingStepKind::bias, .values = lists.bias};
    const SamplingStep penalties = penalties_of(lists, 0.3f);
    const SamplingStep mask{.kind = SamplingStepKind::mask, .bits = lists.bits};
    const SamplingStep warm = temperature(0.8f), hot = temperature(2.5f);
    const SamplingStep few = top_k(40), one = top_k(1), many = top_k(900), all = top_k(1u << 31);
    const SamplingStep most = top_p(0.9f);
    const SamplingStep min_p{.kind = SamplingStepKind::min_p, .min_p_log = -3.0f};
    const SamplingStep xtc{.kind = SamplingStepKind::xtc,
                           .xtc = {.probability = 0.7f, .threshold = 0.05f, .stream = 3}};
    std::vector<SamplingPlan> out;
    const auto add = [&](std::vector<SamplingStep> steps, std::int32_t cut = 0, std::int32_t cut_at = 0) {
        for (const bool greedy : {false, true}) {
            SamplingPlan plan;
            plan.greedy = greedy;
            plan.cut = cut;
            plan.cut_at = cut_at;
            for (const SamplingStep& s : steps) plan.steps[plan.step_count++] = s;
            out.push_back(plan);
        }
    };
    add({});
    add({warm});
    add({hot});
    add({bias, penalties, mask, warm});
    add({few, most, warm});
    add({one, warm});
    add({penalties, few, most, min_p, warm});
    add({few, bias, mask, penalties, hot, most, few, warm});
    add({mask, bias, few, xtc, warm});
    add({most, warm}, kCandidateCut, 0);
    add({warm, min_p, xtc}, kCandidateCut, 1);
    add({mask, warm}, kCandidateCut, 2);
    add({bias, few, most, warm}, kCandidateCut, 2);
    add({many, most, warm});  // more candidates than a device takes
    add({all, most, hot});
    add({hot, most});  // ranks the whole vocabulary
    return out;
}

// Rows of several kinds.
float value(std::mt19937& random, std::int32_t row, std::int32_t id) {
    const float normal = std::normal_distribution<float>(0.0f, 2.0f)(random);
    switch (row) {
        case 0:
            return normal;
        case 1:
            return std::round(normal);  // many ties
        case 2:
            return 1.5f;  // nothing but ties
        case 3:
            return id % 7 == 0 ? -kInfinity : id == 12345 ? kInfinity : normal;
        case 4:
            return id % 5000 == 3 ? 20.0f + 0.001f * static_cast<float>(id) : normal * 0.01f;
        default:
            return id % 3 == 0 ? std::numeric_limits<float>::quiet_NaN() : id % 3 == 1 ? -kInfinity : -0.0f * normal;
    }
}

class Sampling : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(GetParam()); }
};

TEST_P(Sampling, IsThatOfSampleRow) {
    TinyConfig config;
    config.shape.vocab = kVocab;
    config.shape.layers = 1;
    const TinyModel model(config);
    TinyRun run(model, backend_ops(GetParam(), 2), 1, kRows);
    std::mt19937 random(7);
    const Lists lists(random);
    Sequence sequence{{0}};
    feed(run, sequence, random_tokens(4, kRows, kVocab), {kRows});
    std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
    for (std::int32_t row = 0; row < kRows; ++row) {
        for (std::int32_t id = 0; id < kVocab; ++id) rows[row][id] = value(random, row, id);
    }
    SamplingScratch scratch;
    std::uint32_t index = 0;
    for (const SamplingPlan& shape : plans(lists)) {
        for (const std::int32_t vocab : {0, 19000, 17}) {
            for (int repeat = 0; repeat < 3; ++repeat) {
                std::vector<SamplingPlan> batch;
                std::vector<std::int32_t> slots;
                for (std::int32_t row = 0; row < kRows; ++row) {
                    const auto logits = run.ops().logits(run.workspace(), row);
                    std::copy(rows[row].begin(), rows[row].end(), logits.begin());
                    SamplingPlan& plan = batch.emplace_back(shape);
                    plan.vocab = vocab;
                    plan.key = {.seed = 77, .branch = 2, .index = ++index};
                    slots.push_back((11 * row + repeat) % kTokenSlots);
                }
                run.ops().sample(run.workspace(), batch, slots);
                for (std::int32_t row = 0; row < kRows; ++row) {
                    std::vector<float> logits = rows[row];
                    const SampledToken expected = sample_row(logits, batch[row], scratch);
                    const SampledToken found = run.ops().sampled(run.workspace(), slots[row]);
                    SCOPED_TRACE(testing::Message()
                                 << "row " << row << ", vocabulary " << vocab << ", " << shape.step_count
                                 << " steps, first of kind " << static_cast<int>(shape.steps[0].kind)
                                 << (shape.greedy ? ", greedy" : ""));
                    ASSERT_EQ(found.token, expected.token);
                    ASSERT_EQ(found.margin, expected.margin);
                }
            }
            // One row alone, as a step of plain decoding samples.
            for (std::int32_t row = 0; row < kRows; ++row) {
                std::vector<float> logits = rows[row];
                const auto first = run.ops().logits(run.workspace(), 0);
                std::copy(logits.begin(), logits.end(), first.begin());
                SamplingPlan plan = shape;
                plan.vocab = vocab;
                plan.key = {.seed = 78, .branch = 1, .index = ++index};
                const std::int32_t slot = row % 2;
                run.ops().sample(run.workspace(), {&plan, 1}, {&slot, 1});
                const SampledToken expected = sample_row(logits, plan, scratch);
                const SampledToken found = run.ops().sampled(run.workspace(), slot);
                SCOPED_TRACE(testing::Message() << "row " << row << " alone, vocabulary " << vocab << ", "
                                                << shape.step_count << " steps" << (shape.greedy ? ", greedy" : ""));
                ASSERT_EQ(found.token, expected.token);
                ASSERT_EQ(found.margin, expected.margin);
            }
        }
    }
}

TEST_P(Sampling, KeepsTheCandidatesItChoosesFrom) {
    TinyConfig config;
    config.shape.vocab = kVocab;
    config.shape.layers = 1;
    const TinyModel model(config);
    TinyRun run(model, backend_ops(GetParam(), 2), 1, kRows);
    std::mt19937 random(8);
    const Lists lists(random);
    Sequence sequence{{0}};
    feed(run, sequence, random_tokens(4, kRows, kVocab), {kRows});
    const SamplingStep penalties = penalties_of(lists);
    std::vector<SamplingPlan> heads(5);
    heads[0] = {.cut = kCandidateCut};
    heads[1] = {.cut = kCandidateCut, .cut_at = 1, .step_count = 1, .steps = {penalties}};
    heads[2] = {.cut = kCandidateCut, .cut_at = 1, .step_count = 3, .steps = {temperature(0.7f), penalties, top_k(60)}};
    for (SamplingPlan& head : heads) head.greedy = true;
    // Candidates in the middle, and a token of those that the later steps leave.
    heads[3] = {.cut = 64,
                .cut_at = 1,
                .keep_at = 1,
                .step_count = 4,
                .steps = {penalties, top_k(40), top_p(0.9f), temperature(0.7f)}};
    heads[4] = {
        .cut = 40, .cut_at = 0, .keep_at = 2, .step_count = 3, .steps = {top_p(0.9f), temperature(0.7f), penalties}};
    SamplingScratch scratch;
    for (SamplingPlan& head : heads) {
        head.keep = true;
        std::vector<std::vector<float>> rows(kRows, std::vector<float>(kVocab));
        std::vector<SamplingPlan> batch(kRows, head);
        std::vector<std::int32_t> slots;
        for (std::int32_t row = 0; row < kRows; ++row) {
            for (std::int32_t id = 0; id < kVocab; ++id) rows[row][id] = value(random, row, id);
            const auto logits = run.ops().logits(run.workspace(), row);
            std::copy(rows[row].begin(), rows[row].end(), logits.begin());
            slots.push_back(7 * row + 3);
        }
        run.ops().sample(run.workspace(), batch, slots);
        for (std::int32_t row = 0; row < kRows; ++row) {
            const Candidates expected = candidates_row(rows[row], head, scratch);
            const Candidates found = run.ops().candidates(run.workspace(), slots[row]);
            SCOPED_TRACE(testing::Message() << "row " << row << ", " << head.step_count << " steps");
            // The row is left as the elementwise steps before the cut make it.
            const auto left = run.ops().logits(run.workspace(), row);
            for (std::int32_t id = 0; id < kVocab; ++id) {
                const float want = rows[row][id], got = left[static_cast<std::size_t>(id)];
                ASSERT_TRUE(want == got || (want != want && got != got)) << "id " << id;
            }
            ASSERT_EQ(found.count, expected.count);
            for (std::int32_t i = 0; i < expected.count; ++i) {
                ASSERT_EQ(found.ids[i], expected.ids[i]);
                ASSERT_EQ(found.logits[i], expected.logits[i]);
            }
            SamplingPlan rest = head;
            rest.keep = false;
            for (std::int32_t i = 0; i < std::min(rest.cut_at, rest.step_count); ++i) {
                rest.steps[i] = temperature(1.0f);  // the row has seen them
            }
            const SampledToken chosen = sample_row(rows[row], rest, scratch);
            ASSERT_EQ(run.ops().sampled(run.workspace(), slots[row]).token, chosen.token);
            ASSERT_EQ(run.ops().sampled(run.workspace(), slots[row]).margin, chosen.margin);
        }
    }
}

// ------------------------------------------------------------------- steps by probabilities, entropy and spread

constexpr std::int32_t kLargeVocab = 128256;
constexpr std::int32_t kLargeRows = 8;

// The rows above, and two of extremes.
float large_value(std::mt19937& random, std::int32_t row, std::int32_t id) {
    const float largest = std::numeric_limits<float>::max();
    if (row < 6) return value(random, row, id);
    const std::uint32_t kind = random() % 5;
    if (row == 6)
        return kind == 0 ? largest : kind == 1 ? -largest : kind == 2 ? 1e-45f : 1e30f / static_cast<float>(id + 1);
    return id % 997 == 0 ? 3.0f : -kInfinity;  // few, and alike
}

// Every step, from what changes nothing to what leaves the best alone.
std::vector<SamplingStep> steps_by_distribution() {
    using Kind = SamplingStepKind;
    std::vector<SamplingStep> out;
    for (const double limit : {0.0, 0.02, 0.3, 0.9, 1.0}) {
        for (const Kind kind : {Kind::tfs, Kind::typical, Kind::top_a, Kind::top_n_sigma})
            out.push_back({.kind = kind, .limit = limit});
    }
    for (const double limit : {1e-12, 0.0003, 0.02, 1.0}) {
        for (const Kind kind : {Kind::epsilon_cutoff, Kind::eta_cutoff}) out.push_back({.kind = kind, .limit = limit});
    }
    for (const double limit : {2.5, 100.0}) out.push_back({.kind = Kind::top_n_sigma, .limit = limit});
    for (const DynamicTemperature range : {DynamicTemperature{.min = 0.01, .max = 0.01, .exponent = 1.0f},
                                           DynamicTemperature{.min = 0.5, .max = 2.0, .exponent = 0.7f},
                                           DynamicTemperature{.min = 0.01, .max = 10.0, .exponent = 10.0f}})
        out.push_back({.kind = Kind::dynatemp, .dynatemp = range});
    for (const Smoothing curve : {Smoothing{.factor = 0.2f, .square = 0.5f, .cube = 0.5f},
                                  Smoothing{.factor = 10.0f, .square = 0.0f, .cube = 1.0f},
                                  Smoothing{.factor = 1e-3f, .square = 1.0f, .cube = 0.0f}})
        out.push_back({.kind = Kind::smoothing, .smoothing = curve});
    return out;
}

// Plans around one of them: after a cut to the most and to a few candidates, which they leave in the slot, too; and a
// spread on the row as well, with nothing that cuts, with a cut, and between other steps.
std::vector<SamplingPlan> plans_around(const SamplingStep& step, const Lists& lists) {
    std::vector<SamplingPlan> out;
    const SamplingStep penalties = penalties_of(lists, 0.3f);
    out.push_back({.cut = kCandidateCut, .keep = true, .step_count = 1, .steps = {step}});
    out.push_back({.cut = 37,
                   .cut_at = 1,
                   .keep = true,
                   .step_count = 4,
                   .steps = {penalties, step, temperature(0.7f), top_p(0.95f)}});
    out.push_back({.cut = kCandidateCut, .step_count = 3, .steps = {temperature(1.5f), step, step}});
    if (step.kind != SamplingStepKind::top_n_sigma) return out;
    out.push_back({.step_count = 1, .steps = {step}});
    out.push_back({.step_count = 3, .steps = {penalties, step, temperature(2.0f)}});
    out.push_back({.cut = 60, .cut_at = 2, .keep = true, .step_count = 3, .steps = {step, penalties, top_p(0.9f)}});
    out.push_back({.cut = kCandidateCut,
                   .cut_at = 3,
                   .keep = true,
                   .step_count = 4,
                   .steps = {{.kind = SamplingStepKind::mask, .bits = lists.bits}, step, temperature(0.6f), step}});
    return out;
}

TEST_P(Sampling, OfStepsByDistributionIsThatOfSampleRow) {
    TinyConfig config;
    config.shape.vocab = kLargeVocab;
    config.shape.layers = 1;
    const TinyModel model(config);
    TinyRun run(model, backend_ops(GetParam(), 2), 1, kLargeRows);
    std::mt19937 random(9);
    const Lists lists(random);  // of the first ids: bits say that others are dropped
    Sequence sequence{{0}};
    feed(run, sequence, random_tokens(4, kLargeRows, kLargeVocab), {kLargeRows});
    std::vector<std::vector<float>> rows(kLargeRows, std::vector<float>(kLargeVocab));
    for (std::int32_t row = 0; row < kLargeRows; ++row) {
        for (std::int32_t id = 0; id < kLargeVocab; ++id) rows[row][id] = large_value(random, row, id);
    }
    SamplingScratch scratch;
    // Row `row` of the model's logits becomes rows[from], and sampling from it must do what sample_row() does.
    const auto fill = [&](std::int32_t row, std::int32_t from, std::int32_t vocab) {
        const auto logits = run.ops().logits(run.workspace(), row);
        std::copy_n(rows[from].begin(), vocab > 0 ? vocab : kLargeVocab, logits.begin());
    };
    const auto expect_sampled = [&](std::int32_t from, const SamplingPlan& plan, std::int32_t slot) {
        std::vector<float> logits = rows[from];
        const SampledToken expected = sample_row(logits, plan, scratch);
        const SampledToken found = run.ops().sampled(run.workspace(), slot);
        ASSERT_EQ(found.token, expected.token);
        ASSERT_EQ(found.margin, expected.margin);
        if (!plan.keep) return;
        logits = rows[from];
        const Candidates list = candidates_row(logits, plan, scratch);
        const Candidates kept = run.ops().candidates(run.workspace(), slot);
        ASSERT_EQ(kept.count, list.count);
        for (std::int32_t i = 0; i < list.count; ++i) {
            ASSERT_EQ(kept.ids[i], list.ids[i]);
            ASSERT_EQ(kept.logits[i], list.logits[i]);
        }
    };
    std::uint32_t index = 0;
    for (const SamplingStep& step : steps_by_distribution()) {
        for (const SamplingPlan& shape : plans_around(step, lists)) {
            for (const std::int32_t vocab : {1, 257, 32000, 0}) {
                SCOPED_TRACE(testing::Message()
                             << "kind " << static_cast<int>(step.kind) << ", limit " << step.limit << ", "
                             << shape.step_count << " steps, cut " << shape.cut << ", vocabulary " << vocab);
                std::vector<SamplingPlan> batch(kLargeRows, shape);
                std::vector<std::int32_t> slots;
                for (std::int32_t row = 0; row < kLargeRows; ++row) {
                    fill(row, row, vocab);
                    batch[row].vocab = vocab;
                    batch[row].greedy = row % 4 == 3;
                    batch[row].key = {.seed = 79, .branch = 1, .index = ++index};
                    slots.push_back((5 * row + 2) % kTokenSlots);
                }
                run.ops().sample(run.workspace(), batch, slots);
                for (std::int32_t row = 0; row < kLargeRows; ++row) {
                    SCOPED_TRACE("row " + std::to_string(row));
                    ASSERT_NO_FATAL_FAILURE(expect_sampled(row, batch[row], slots[row]));
                }
                // One row alone: a plan without lists travels with the launch then.
                const std::int32_t alone = static_cast<std::int32_t>(++index / kLargeRows % kLargeRows), slot = 1;
                SCOPED_TRACE("row " + std::to_string(alone) + " alone");
                fill(0, alone, vocab);
                run.ops().sample(run.workspace(), {&batch[alone], 1}, {&slot, 1});
                ASSERT_NO_FATAL_FAILURE(expect_sampled(alone, batch[alone], slot));
            }
        }
    }
}

INSTANTIATE_TEST_SUITE_P(All, Sampling, testing::ValuesIn(fast_backends()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Plain, Sampling, testing::Values("reference"), [](const auto& info) { return info.param; });

}  // namespace
}  // namespace foresay::test
