// The line below an answer fits the terminal, and drops what matters least first.
#include "app/statistics.h"

#include <gmock/gmock.h>

#include <gtest/gtest.h>
#include <algorithm>

#include "app/terminal.h"

namespace foresay::app {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

speculative::GenerateResult result() {
    speculative::GenerateResult result;
    result.finish = speculative::FinishReason::stop;
    result.tokens.assign(256, 7);
    result.prefill_ms = 50;
    result.decode_ms = 1800;
    result.decode_tokens_per_second = 141.9;
    result.speculation.rounds = 64;
    result.speculation.drafted = 212;
    result.speculation.accepted = 192;
    return result;
}

std::string line(const speculative::GenerateResult& result, std::size_t columns) {
    return statistics_line(result, 1318, 2048, 62, columns);
}

TEST(StatisticsLine, SaysEverythingWhereThereIsRoom) {
    EXPECT_EQ(line(result(), 120),
              "context 1318/2048 · input 62 at 1240/s · output 256 at 141.9/s · accepted 91 % of 212 drafted, "
              "4.0 tokens per round");
}

TEST(StatisticsLine, SaysHowMuchWasPredicted) {
    speculative::GenerateResult answer = result();
    answer.speculation.sources.push_back({.name = "prediction", .rounds = 9, .drafted = 100, .accepted = 97});
    EXPECT_EQ(line(answer, 160),
              "context 1318/2048 · input 62 at 1240/s · output 256 at 141.9/s · accepted 91 % of 212 drafted "
              "(predicted: 97 of 100), 4.0 tokens per round");
}

TEST(StatisticsLine, FitsEveryTerminal) {
    for (const auto finish :
         {speculative::FinishReason::stop, speculative::FinishReason::length, speculative::FinishReason::cancelled}) {
        speculative::GenerateResult answer = result();
        answer.finish = finish;
        std::size_t before = 0;
        for (std::size_t columns = 36; columns <= 140; ++columns) {
            const std::string text = line(answer, columns);
            EXPECT_LE(columns_of(text), columns) << text;
            EXPECT_THAT(text, StartsWith("context 1318/2048"));
            EXPECT_GE(columns_of(text), before) << "more room never says less: " << text;
            before = columns_of(text);
        }
    }
}

TEST(StatisticsLine, ReadsTheSameAtEveryWidth) {
    const std::string whole = line(result(), 140);
    for (std::size_t columns = 36; columns <= 140; ++columns) {
        // Each part is there, is a beginning of what it is where there is room, or is missing.
        const std::string shown = line(result(), columns);
        for (std::size_t at = 0; at < shown.size();) {
            const std::size_t end = std::min(shown.find(" · ", at), shown.size());
            EXPECT_THAT(whole, HasSubstr(shown.substr(at, end - at))) << columns;
            at = end + std::string(" · ").size();
        }
    }
}

TEST(StatisticsLine, KeepsWhyTheTextEndsLongest) {
    speculative::GenerateResult answer = result();
    EXPECT_EQ(line(answer, 79), "context 1318/2048 · input 62 at 1240/s · output 256 at 141.9/s · accepted 91 %");
    EXPECT_EQ(line(answer, 60), "context 1318/2048 · output 256 at 141.9/s · accepted 91 %");
    EXPECT_EQ(line(answer, 41), "context 1318/2048 · output 256 at 141.9/s");
    answer.finish = speculative::FinishReason::length;
    EXPECT_EQ(line(answer, 41), "context 1318/2048 · cut at the limit");
    answer.finish = speculative::FinishReason::cancelled;
    EXPECT_THAT(line(answer, 1), HasSubstr("cancelled"));
}

}  // namespace
}  // namespace foresay::app
