// The line of a transfer: share, rate and time left.
#include "app/transfer_progress.h"

#include <gtest/gtest.h>

namespace foresay::app {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr std::int64_t kMiB = 1 << 20;

TEST(TransferProgress, KnowsTheRateOfTheLastSeconds) {
    const TransferRate::Clock::time_point start{};
    TransferRate rate;
    rate.update(0, start);
    rate.update(kMiB, start + milliseconds(100));
    EXPECT_FALSE(rate.bytes_per_second()) << "too early to say";
    rate.update(10 * kMiB, start + seconds(1));
    EXPECT_EQ(rate.bytes_per_second(), 10.0 * kMiB);
    EXPECT_EQ(rate.seconds_left(30 * kMiB), 2.0);
    // Then it is slower; what was long ago no longer counts.
    for (int i = 2; i <= 20; ++i) rate.update((9 + i) * kMiB, start + seconds(i));
    EXPECT_EQ(rate.bytes_per_second(), 1.0 * kMiB);
    // It stands still.
    for (int i = 21; i <= 40; ++i) rate.update(29 * kMiB, start + seconds(i));
    EXPECT_EQ(rate.bytes_per_second(), 0.0);
    EXPECT_FALSE(rate.seconds_left(30 * kMiB));
    // It begins again.
    rate.update(0, start + seconds(41));
    EXPECT_FALSE(rate.bytes_per_second());
}

TEST(TransferProgress, FitsTheTerminal) {
    TransferRate rate;
    rate.update(0, {});
    rate.update(50 * kMiB, TransferRate::Clock::time_point{} + seconds(1));
    const auto line = [&](std::size_t columns) {
        return TransferProgress::line("ann/model:Q4_0", 50 * kMiB, 200 * kMiB, rate, columns);
    };
    EXPECT_EQ(line(100), "ann/model:Q4_0 [#######.......................] 25 % of 200.0 MiB, 50.0 MiB/s, 3 s left");
    EXPECT_EQ(line(80), "ann/model:Q4_0 [#####.................] 25 % of 200.0 MiB, 50.0 MiB/s, 3 s left");
    EXPECT_EQ(line(60), "ann/model:Q4_0 25 % of 200.0 MiB, 50.0 MiB/s, 3 s left");
    EXPECT_EQ(line(50), "...l:Q4_0 25 % of 200.0 MiB, 50.0 MiB/s, 3 s left");
    for (std::size_t columns = 0; columns < 120; ++columns) EXPECT_LE(line(columns).size(), columns);
}

TEST(TransferProgress, SaysDurations) {
    EXPECT_EQ(duration_text(0.2), "1 s");
    EXPECT_EQ(duration_text(59), "59 s");
    EXPECT_EQ(duration_text(60.5), "2 min");
    EXPECT_EQ(duration_text(3600), "1 h 0 min");
    EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

}  // namespace
}  // namespace foresay::app
