// Stop strings across pushes, overlapping, and against a plain search.
#include "core/text/stop_strings.h"

#include <gtest/gtest.h>

#include <random>

#include "support.h"

namespace foresay::core {
namespace {

struct Outcome {
    std::string shown;
    std::int32_t stop = -1;
};

// The definition: the first end of any stop string, the longest one there.
Outcome by_definition(const std::vector<std::string>& stops, const std::string& text) {
    for (std::size_t end = 1; end <= text.size(); ++end) {
        std::int32_t best = -1;
        for (std::size_t i = 0; i < stops.size(); ++i) {
            if (stops[i].size() > end || text.compare(end - stops[i].size(), stops[i].size(), stops[i]) != 0) continue;
            if (best < 0 || stops[i].size() > stops[static_cast<std::size_t>(best)].size())
                best = static_cast<std::int32_t>(i);
        }
        if (best >= 0) return {text.substr(0, end - stops[static_cast<std::size_t>(best)].size()), best};
    }
    return {text, -1};
}

TEST(StopStrings, HoldsBackWhatMayBecomeAStop) {
    StopStrings stops({"\n\n", "END"});
    EXPECT_EQ(stops.push("a\n"), "a");
    EXPECT_EQ(stops.held_back_bytes(), 1u);
    EXPECT_EQ(stops.push("bE"), "\nb");
    EXPECT_EQ(stops.push("N"), "");
    EXPECT_EQ(stops.push("d E"), "ENd ");
    EXPECT_EQ(stops.push("NDxyz"), "");
    EXPECT_TRUE(stops.stopped());
    EXPECT_EQ(stops.stopped_by(), 1);
    EXPECT_EQ(stops.shown_bytes(), 7u);
    EXPECT_EQ(stops.push("more"), "");
    EXPECT_EQ(stops.flush(), "");
    stops.reset();
    EXPECT_FALSE(stops.stopped());
    EXPECT_EQ(stops.push("EN"), "");
    EXPECT_EQ(stops.flush(), "EN");
}

TEST(StopStrings, NoneShowsEverythingAtOnce) {
    StopStrings stops;
    EXPECT_TRUE(stops.empty());
    EXPECT_EQ(stops.push("anything"), "anything");
    EXPECT_EQ(stops.flush(), "");
}

TEST(StopStrings, AnySplitEqualsTheDefinition) {
    std::mt19937 random(4);
    const auto word = [&](std::size_t longest) {
        std::string out;
        for (std::size_t n = 1 + random() % longest; n > 0; --n) out.push_back(static_cast<char>('a' + random() % 3));
        return out;
    };
    int stopped = 0;
    for (int round = 0; round < 20000; ++round) {
        std::vector<std::string> list;
        for (std::size_t n = random() % 4; n > 0; --n) list.push_back(word(6));
        const std::string text = word(40);
        const Outcome expected = by_definition(list, text);
        StopStrings stops(list);
        std::string shown;
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t length = std::min<std::size_t>(random() % 5, text.size() - at);
            shown.append(stops.push(text.substr(at, length)));
            at += length;
            // Everything that cannot be part of a stop string any more is shown.
            if (!stops.stopped()) {
                std::size_t held = 0;
                for (const std::string& stop : list)
                    for (std::size_t n = 1; n < stop.size() && n <= at; ++n)
                        if (text.compare(at - n, n, stop, 0, n) == 0) held = std::max(held, n);
                ASSERT_EQ(shown.size(), at - held);
            }
        }
        shown.append(stops.flush());
        ASSERT_EQ(shown, expected.shown) << text;
        ASSERT_EQ(stops.stopped(), expected.stop >= 0);
        if (expected.stop >= 0) {
            ASSERT_EQ(list[static_cast<std::size_t>(stops.stopped_by())],
                      list[static_cast<std::size_t>(expected.stop)]);
            ++stopped;
        }
    }
    EXPECT_GT(stopped, 3000);
}

TEST(StopStrings, RefusesEmptyAndEndless) {
    EXPECT_NE(error_of([] { StopStrings s({"a", ""}); }).find("empty"), std::string::npos);
    EXPECT_NE(error_of([] { StopStrings s({std::string(kMaxStopBytes + 1, 'a')}); }).find("longer"), std::string::npos);
}

}  // namespace
}  // namespace foresay::core
