// Which drafted rows of many sequences a forward verifies, and when drafting pauses.
#include "speculative/row_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

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
}

}  // namespace
}  // namespace foresay::speculative
