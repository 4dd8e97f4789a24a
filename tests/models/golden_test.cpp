// The models of tests/golden and the bundled pair against logits and greedy tokens that float32 forwards of other
// software computed.

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/models/backends.h"
#include "tests/models/checked_ops.h"

namespace foresay::test {
namespace {

using nlohmann::json;

json read_json(const std::string& path) {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/tests/golden/" + path);
    EXPECT_TRUE(file) << path;
    return json::parse(file);
}

std::int32_t argmax(std::span<const float> logits) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < logits.size(); ++i) {
        if (logits[i] > logits[best]) best = i;
    }
    return static_cast<std::int32_t>(best);
}

// The difference of two logits; infinite when `found` is no number.
double apart(float found, double expected) {
    return std::isfinite(found) ? std::abs(found - expected) : std::numeric_limits<double>::infinity();
}

// Feeds the expected tokens; wherever the expected margin leaves no doubt, the argmax must be the expected one. Returns
// the number of such steps.
int expect_greedy(core::Context& context, const std::vector<std::int32_t>& expected, const std::vector<double>& margins,
                  double open_margin, std::size_t steps, const std::string& what) {
    int compared = 0;
    for (std::size_t step = 0; step < std::min(steps, expected.size()); ++step) {
        if (margins[step] >= open_margin) {
            EXPECT_EQ(argmax(context.logits(0)), expected[step]) << what << ", greedy step " << step;
            ++compared;
        }
        EXPECT_TRUE(context.decode(std::span(&expected[step], 1)));
    }
    return compared;
}

// Where `backend` leaves the reference on a prompt: the op to look at when its logits are wrong.
std::string parting(const Backend& backend, const std::string& path, const std::vector<std::int32_t>& prompt,
                    double tolerance) {
    if (backend.name == "reference") return "the reference itself is off";
    CheckedOps both(backends().front().ops(), backend.ops(), tolerance);
    core::Context context(core::Model::load(core::ModelSource::open(path), both),
                          {.length = static_cast<std::int32_t>(prompt.size()), .prefill_rows = 64, .decode_rows = 4});
    EXPECT_TRUE(context.prefill(prompt));
    return both.difference() ? "the first op that differs from the reference is " + both.difference()->text()
                             : "no op differs from the reference by more than " + std::to_string(tolerance);
}

class BundledPair : public testing::TestWithParam<std::tuple<std::size_t, std::string>> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(backends()[std::get<0>(GetParam())].name); }
};

TEST_P(BundledPair, LogitsAndGreedyTokens) {
    const Backend& backend = backends()[std::get<0>(GetParam())];
    const std::string which = std::get<1>(GetParam());
    core::Context context(bundled(backend, which), {.length = 512, .prefill_rows = 64, .decode_rows = 4});
    int greedy_steps = 0;
    double worst = 0.0;
    const json golden_file = read_json("python-coder.json");
    for (const json& row : golden_file["rows"]) {
        const std::string id = row["id"];
        context.truncate(0);
        ASSERT_TRUE(context.prefill(row["token_ids"].get<std::vector<std::int32_t>>()));
        const std::span<const float> logits = context.logits(0);
        const json& golden = row[which];
        ASSERT_EQ(golden["last_logits_top"].size(), 16u);
        double difference = 0.0;
        for (const json& entry : golden["last_logits_top"])
            difference = std::max(difference, apart(logits[entry[0].get<std::size_t>()], entry[1]));
        EXPECT_LE(difference, backend.logit_tolerance)
            << id << ": " << parting(backend, bundled_path(which), row["token_ids"], backend.op_tolerance);
        worst = std::max(worst, difference);
        greedy_steps +=
            expect_greedy(context, golden["greedy"], golden["greedy_margin"], 0.3, backend.greedy_steps, id);
    }
    EXPECT_GT(greedy_steps, 6 * 12);
    RecordProperty("worst_logit_difference", std::to_string(worst));
    std::printf("%s %s: worst logit difference %.4f, %d greedy steps compared\n", backend.name.c_str(), which.c_str(),
                worst, greedy_steps);
}

INSTANTIATE_TEST_SUITE_P(Backends, BundledPair,
                         testing::Combine(testing::Range<std::size_t>(0, backends().size()),
                                          testing::Values("target", "draft")),
                         [](const auto& info) {
                             return backends()[std::get<0>(info.param)].name + "_" + std::get<1>(info.param);
                         });

class TinyModels : public testing::TestWithParam<std::tuple<std::size_t, std::string>> {
protected:
    void SetUp() override { FORESAY_SKIP_WITHOUT_DEVICE(backends()[std::get<0>(GetParam())].name); }
};

TEST_P(TinyModels, LogitsAndGreedyTokens) {
    const Backend& backend = backends()[std::get<0>(GetParam())];
    const std::string folder = "tiny/" + std::get<1>(GetParam());
    const json golden = read_json(folder + "/golden.json");
    const std::string path = std::string(FORESAY_SOURCE_DIR) + "/tests/golden/" + folder;
    core::Context context(core::Model::load(core::ModelSource::open(path), backend.ops()),
                          {.length = 128, .prefill_rows = 64, .decode_rows = 64});
    const std::vector<std::int32_t> ids = golden["input_ids"];
    const std::vector<std::int32_t> positions = golden["positions"];
    std::vector<kernels::TokenRef> refs;
    for (const std::int32_t id : ids) refs.push_back(kernels::TokenRef::id(id));
    ASSERT_TRUE(context.evaluate(kernels::RowClass::prefill, refs, positions));
    double range = 0.0, worst = 0.0;  // `worst` as a share of the range
    for (std::size_t p = 0; p < positions.size(); ++p) {
        const std::vector<double> expected = golden["logits"][p];
        const auto [low, high] = std::ranges::minmax(expected);
        range = high - low;
        const std::span<const float> logits = context.logits(static_cast<std::int32_t>(p));
        for (std::size_t token = 0; token < expected.size(); ++token)
            worst = std::max(worst, apart(logits[token], expected[token]) / range);
    }
    std::printf("%s %s: worst logit difference %.5f %% of the range\n", backend.name.c_str(), folder.c_str(),
                100.0 * worst);
    ASSERT_LE(worst, backend.tiny_tolerance) << parting(backend, path, ids, 2.0 * backend.tiny_tolerance);
    context.truncate(0);
    ASSERT_TRUE(context.prefill(ids));
    EXPECT_GT(expect_greedy(context, golden["greedy_next"], golden["greedy_margin"],
                            2.0 * backend.range_tolerance * range, 24, folder),
              0);
}

INSTANTIATE_TEST_SUITE_P(Backends, TinyModels,
                         testing::Combine(testing::Range<std::size_t>(0, backends().size()),
                                          testing::Values("llama2", "llama3", "qwen2")),
                         [](const auto& info) {
                             return backends()[std::get<0>(info.param)].name + "_" + std::get<1>(info.param);
                         });

}  // namespace
}  // namespace foresay::test
