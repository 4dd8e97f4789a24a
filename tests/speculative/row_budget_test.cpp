// Which drafted rows of many sequences a forward verifies, when drafting pauses, and what one more token promises.
#include "speculative/row_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "speculative/draft_gain.h"

namespace foresay::speculative {
namespace {

TEST(RowBudget, TakesWhatTheBestOfAllPlansTakes) {
    std::mt19937 random(3);
    const auto uniform = [&] { return std::uniform_real_distribution<double>(0.0, 1.0)(random); };
    int drafts = 0;
    for (int round = 0; round < 300; ++round) {
        CostModel costs(24);
        double ms = 1.0;
        for (std::int32_t rows = 1; rows <= 24; ++rows) {  // in steps, as a device's
            if (rows % 4 == 1) ms += uniform();
            costs.calibrate(rows, ms);
        }
        const std::int32_t base = 1 + static_cast<std::int32_t>(random() % 4);
        const double value = (0.5 + 3.0 * uniform()) * base / costs.verify_ms(base);
        std::vector<std::vector<double>> chances(3);
        std::vector<DraftedRow> rows;
        for (std::size_t i = 0; i < chances.size(); ++i) {
            double chance = 1.0;
            for (unsigned depth = random() % 5; depth > 0; --depth) {
                chance *= uniform();
                rows.push_back({static_cast<std::int32_t>(i), static_cast<std::int32_t>(chances[i].size()), chance});
                chances[i].push_back(chance);
            }
        }
        const auto gain = [&](const std::vector<std::size_t>& plan) {
            double tokens = 0.0;
            std::int32_t width = base;
            for (std::size_t i = 0; i < plan.size(); ++i) {
                for (std::size_t depth = 0; depth < plan[i]; ++depth) tokens += chances[i][depth];
                width += static_cast<std::int32_t>(plan[i]);
            }
            return tokens - value * (costs.verify_ms(width) - costs.verify_ms(base));
        };
        double best = 0.0;
        for (std::size_t a = 0; a <= chances[0].size(); ++a) {
            for (std::size_t b = 0; b <= chances[1].size(); ++b) {
                for (std::size_t c = 0; c <= chances[2].size(); ++c) best = std::max(best, gain({a, b, c}));
            }
        }
        const std::size_t worth = rows_worth(rows, costs, base, value);
        std::vector<std::size_t> plan(3);
        for (std::size_t i = 0; i < worth; ++i) {
            const auto sequence = static_cast<std::size_t>(rows[i].sequence);
            EXPECT_EQ(rows[i].depth, static_cast<std::int32_t>(plan[sequence]++)) << "not a beginning of its draft";
        }
        EXPECT_GE(gain(plan), best - 0.06) << "round " << round;
        drafts += worth > 0 ? 1 : 0;
    }
    EXPECT_GT(drafts, 50);
    EXPECT_LT(drafts, 290);
}

TEST(RowBudget, TheLedgerPausesDraftsThatLoseTimeAndEndsThePauseOfThoseThatGain) {
    RowLedger ledger;
    int allowed = 0;
    for (int round = 0; round < 1000; ++round) {
        if (!ledger.allows()) continue;
        ++allowed;
        ledger.note(4, 4, 1.5, 1.0);  // half a forward lost each time
    }
    EXPECT_LT(allowed, 60);
    EXPECT_GT(allowed, 5);
    RowLedger gaining;
    allowed = 0;
    for (int round = 0; round < 1000; ++round) {
        if (!gaining.allows()) continue;
        ++allowed;
        gaining.note(6, 4, 1.2, 1.0);
    }
    EXPECT_EQ(allowed, 1000);
    gaining.charge(10.0);
    EXPECT_FALSE(gaining.allows()) << "a loss that no round shows";
}

// Of two texts whose drafts are as likely, the one after few positions has the row; and where many positions cost more
// than the token brings, the other has none at all.
TEST(RowBudget, ARowBehindManyPositionsIsWorthLess) {
    CostModel costs(8);
    for (std::int32_t rows = 1; rows <= 8; ++rows) costs.calibrate(rows, 1.0 + 0.1 * rows);
    costs.calibrate_attention(1e-4, 1e-4);
    const auto drafts = [&](std::int32_t far) {
        std::vector<DraftedRow> rows;
        for (std::int32_t depth = 0; depth < 2; ++depth) {
            rows.push_back({0, depth, depth == 0 ? 0.9 : 0.8, costs.further_row_ms(far)});
            rows.push_back({1, depth, depth == 0 ? 0.9 : 0.8, costs.further_row_ms(100)});
        }
        return rows;
    };
    std::vector<DraftedRow> near = drafts(200);
    EXPECT_EQ(rows_worth(near, costs, 2, 1.0), 4u);
    EXPECT_EQ(near[0].sequence, 1);
    std::vector<DraftedRow> far = drafts(8000);  // 0.8 ms, and 0.1 as any row
    EXPECT_EQ(rows_worth(far, costs, 2, 1.0), 2u);
    EXPECT_EQ(far[0].sequence, 1);
    EXPECT_EQ(far[1].sequence, 1);
    EXPECT_EQ(far[1].depth, 1);
}

CostModel straight_costs(double row_ms) {
    CostModel costs(64);
    for (std::int32_t rows = 1; rows <= 64; ++rows) costs.calibrate(rows, 1.0 + row_ms * (rows - 1));
    return costs;
}

Acceptance accepting(double rate) {
    Acceptance acceptance;
    std::mt19937 random(9);
    for (int i = 0; i < 2000; ++i) {
        const bool right = std::uniform_real_distribution<double>(0.0, 1.0)(random) < rate;
        acceptance.observe(0, View::alone, 1.2f, right);
    }
    return acceptance;
}

// Where every token is right and rows are free, each of them is a token; the steps between are paid.
TEST(DraftGain, IsWhatTheTokensBringLessTheirTime) {
    const CostModel free = straight_costs(0.0);
    const Acceptance sure = accepting(1.0);
    EXPECT_NEAR(draft_gain(sure, free, {.further = 4, .value = 1.0}), 4.0, 0.3);
    EXPECT_NEAR(draft_gain(sure, free, {.further = 4, .step_ms = 0.5, .value = 1.0}), 2.5, 0.3);
    EXPECT_NEAR(draft_gain(sure, free, {.further = 4, .survival = 0.5, .value = 1.0}), 2.0, 0.2);
    EXPECT_LT(draft_gain(accepting(0.3), free, {.further = 4, .value = 1.0}), 1.2);
    EXPECT_NEAR(draft_gain(sure, free, {.further = 4, .own_ms = 0.5, .value = 1.0}), 2.0, 0.3);
    // A draft may always end, so a loss is not counted.
    EXPECT_EQ(draft_gain(sure, straight_costs(3.0), {.further = 4, .value = 1.0}), 0.0);
    EXPECT_EQ(draft_gain(sure, free, {.further = 0, .value = 1.0}), 0.0);
    EXPECT_EQ(draft_gain(sure, free, {.rows = 64, .further = 4, .value = 1.0}), 0.0) << "no row is left";
}

// A device computes rows in tiles: the next row is free, and the one after it costs a tile. Texts that draft side by
// side share the tile; one alone has its free row.
TEST(DraftGain, TextsShareTheRowsThatTheyAdd) {
    CostModel tiles(64);
    for (std::int32_t rows = 1; rows <= 64; ++rows) tiles.calibrate(rows, 1.0 + 0.9 * ((rows - 1) / 8));
    const Acceptance sure = accepting(1.0);
    const double alone = draft_gain(sure, tiles, {.rows = 7, .texts = 1, .further = 1, .value = 1.0});
    const double beside = draft_gain(sure, tiles, {.rows = 7, .texts = 4, .further = 1, .value = 1.0});
    EXPECT_NEAR(alone, 1.0, 0.1);
    EXPECT_NEAR(beside, 1.0 - 0.9 / 4, 0.1);
    EXPECT_LT(draft_gain(sure, tiles, {.rows = 8, .texts = 1, .further = 1, .value = 1.0}), beside);
}

}  // namespace
}  // namespace foresay::speculative
