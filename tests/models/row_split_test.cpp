// What each device has of a model whose layers are divided by outputs: bytes, shares and words.
#include "core/models/row_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/models/layer_split.h"
#include "tests/models/family_models.h"
#include "tests/support/error_of.h"

namespace foresay::test {
namespace {

using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Shares = std::vector<std::int32_t>;

constexpr std::int64_t kGib = std::int64_t{1} << 30;

std::unique_ptr<core::ModelSource> family(const std::string& name) {
    return core::ModelSource::random(config_of(family_json(name)), kernels::QuantType::q8_0, kernels::QuantType::q8_0);
}

// A device that has all shares has what one device has.
TEST(RowSplit, AllSharesAreTheWholeModel) {
    for (const std::string& name : family_names()) {
        if (name.starts_with("olmo")) continue;
        const auto source = family(name);
        const core::ModelBytes whole = core::model_bytes(*source);
        const core::RowBytes one = core::row_bytes(*source, Shares{1, 0, 0});
        const std::int64_t layers = std::accumulate(whole.layers.begin(), whole.layers.end(), std::int64_t{0});
        const std::int64_t tables = source->per_layer_table_bytes();
        EXPECT_EQ(one.tables, whole.embedding + tables) << name;
        EXPECT_LT(one.weights[1], one.weights[0] / 2) << name;  // norms and a router, on every device
        if (whole.everywhere > 0) continue;  // what layers take of embeddings of their own is counted elsewhere there
        EXPECT_EQ(one.weights[0], layers + whole.head) << name;
        EXPECT_EQ(one.read[0], core::read_bytes(whole, 0, static_cast<std::int32_t>(whole.layers.size()))) << name;
    }
}

TEST(RowSplit, WeightsAreDivided) {
    const auto source = core::ModelSource::open(bundled_path("target"));
    const core::RowBytes whole = core::row_bytes(*source, Shares{1, 0});
    const core::RowBytes halves = core::row_bytes(*source, Shares{1, 1});
    const core::RowBytes uneven = core::row_bytes(*source, Shares{1, 2});
    EXPECT_EQ(halves.weights[0] + halves.weights[1], whole.weights[0] + whole.weights[1]);
    EXPECT_EQ(uneven.weights[0] + uneven.weights[1], whole.weights[0] + whole.weights[1]);
    EXPECT_NEAR(static_cast<double>(halves.weights[0]) / static_cast<double>(halves.weights[1]), 1.0, 0.15);
    EXPECT_LT(uneven.weights[0], halves.weights[0]);
    EXPECT_EQ(halves.read, halves.weights);
    const core::RowBytes more = core::row_bytes(*source, Shares{1, 3}, 4000);
    EXPECT_EQ(more.weights[0] - core::row_bytes(*source, Shares{1, 3}).weights[0], 1000);
}

// A row reads K of E experts, wherever they are.
TEST(RowSplit, ExpertsAreRead) {
    const auto source = family("qwen3_moe");
    const core::RowBytes halves = core::row_bytes(*source, Shares{1, 1});
    EXPECT_LT(halves.read[0], halves.weights[0]);
    EXPECT_LT(halves.read[1], halves.weights[1]);
}

TEST(RowSplit, WhatCannotBeDividedSaysSo) {
    EXPECT_THAT(error_of([] {
                    core::row_bytes(*family("olmo2"), Shares{1, 1});
                }),
                HasSubstr("its heads cannot be divided; use runtime.split_mode = \"layer\""));
}

TEST(RowSplit, SharesAreEqualWhereThereIsRoom) {
    const auto shares = [](std::vector<std::int64_t> gib, std::int64_t needed) {
        for (std::int64_t& memory : gib) memory *= kGib;
        return core::choose_shares(gib, needed * kGib);
    };
    EXPECT_THAT(shares({24, 80}, 40), ElementsAre(1, 1));
    EXPECT_THAT(shares({24, 24}, 48), ElementsAre(1, 1));
    EXPECT_THAT(shares({12, 24}, 30), ElementsAre(12 * 1024, 24 * 1024));
    EXPECT_THAT(shares({0, 24}, 20), ElementsAre(0, 24 * 1024));
    EXPECT_THAT(shares({0, 0, 0, 0}, 20), Each(1));
}

TEST(RowSplit, SaysWhatADeviceHas) {
    core::ModelConfig config = small_config();  // 2 KV heads, width 256, 512 inner values, vocabulary 512
    EXPECT_EQ(core::row_share_text(config, Shares{1, 1}, 1),
              "1 of 2 KV heads, 128 of 256 rows of O and down, 256 of 512 of gate and up, 256 of 512 of the LM head");
    EXPECT_THAT(core::row_share_text(config_of(family_json("qwen3_moe")), Shares{1, 1}, 0), HasSubstr(" experts, "));
}

}  // namespace
}  // namespace foresay::test
