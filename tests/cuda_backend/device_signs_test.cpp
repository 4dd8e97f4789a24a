// What a device shows of itself, with devices of the host: how far its stream has come (stream_marks.h), and whether
// its words arrive at another one (peer_pattern.h).

#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <vector>

#include "kernels/cuda/decode/link_failure.h"
#include "kernels/cuda/device/peer_pattern.h"
#include "kernels/cuda/device/stream_marks.h"

namespace foresay::test {
namespace {

using kernels::cuda::kMostStreamMarks;
using kernels::cuda::kPatternWords;

// A stream that has come so far, and an event of it.
struct Stream {
    mutable int enqueued = 0;
    int run = 0;
};
struct Event {
    void record(const Stream& on) {
        stream = &on;
        at = ++on.enqueued;
    }
    bool has_come() const { return stream->run >= at; }
    const Stream* stream = nullptr;
    int at = 0;
};

TEST(StreamMarks, TellHowFarTheStreamHasCome) {
    Stream stream;
    kernels::cuda::StreamMarks<Event> marks;
    EXPECT_EQ(marks.unreached(), 0);
    for (int round = 0; round < 50; ++round) {
        marks.mark(stream);
        marks.mark(stream);
        marks.mark(stream);
        EXPECT_EQ(marks.unreached(), 3);
        stream.run += 2;
        EXPECT_EQ(marks.unreached(), 1);
        ++stream.run;
        EXPECT_EQ(marks.unreached(), 0);
    }
}

TEST(StreamMarks, TooManyAreFewer) {
    Stream stream;
    kernels::cuda::StreamMarks<Event> marks;
    for (int i = 0; i < 3 * kMostStreamMarks; ++i) marks.mark(stream);
    EXPECT_EQ(marks.unreached(), kMostStreamMarks);
    stream.run = 3 * kMostStreamMarks - 1;
    EXPECT_EQ(marks.unreached(), 1) << "the last one is what it is about";
    ++stream.run;
    EXPECT_EQ(marks.unreached(), 0);
}

using Words = std::vector<std::uint32_t>;

TEST(PeerPattern, OnlyWhatArrivesAsItWasDoes) {
    using kernels::cuda::pattern_arrives;
    EXPECT_TRUE(pattern_arrives(1, [](const Words& words, Words& to) {
        to = words;
        return true;
    }));
    EXPECT_FALSE(pattern_arrives(1, [](const Words&, Words&) { return true; })) << "nothing has arrived";
    EXPECT_FALSE(pattern_arrives(1, [](const Words& words, Words& to) {
        to = words;
        return false;
    })) << "the copy has failed";
    EXPECT_FALSE(pattern_arrives(1, [](const Words& words, Words& to) {
        to.assign(words.size(), 0xffffffffu);
        return true;
    })) << "what a bus reads that is not there";
    EXPECT_FALSE(pattern_arrives(1, [](const Words& words, Words& to) {
        to = words;
        std::swap_ranges(to.begin(), to.begin() + 1024, to.begin() + 1024);
        return true;
    })) << "pages are elsewhere";
    EXPECT_FALSE(pattern_arrives(1, [](const Words& words, Words& to) {
        to = words;
        to.back() ^= 1u;
        return true;
    })) << "a bit";
    Words before;
    pattern_arrives(1, [&](const Words& words, Words&) {
        before = words;
        return true;
    });
    EXPECT_FALSE(pattern_arrives(2, [&](const Words&, Words& to) {
        to = before;
        return true;
    })) << "what was there before";
}

TEST(PeerPattern, NoTwoWordsAreAlike) {
    std::set<std::uint32_t> seen;
    for (std::uint32_t way = 1; way <= 3; ++way) {
        for (std::size_t i = 0; i < kPatternWords; ++i) seen.insert(kernels::cuda::pattern_word(way, i));
    }
    EXPECT_EQ(seen.size(), 3 * kPatternWords);
}

// Bits are of peers, without the own rank.
TEST(RankLink, LateRanksAreThePeersOfARank) {
    using kernels::cuda::kGaveUp;
    using kernels::cuda::late_ranks;
    EXPECT_EQ(late_ranks(kGaveUp, 1), 0u) << "not known which";
    EXPECT_EQ(late_ranks(kGaveUp | 2u << 0, 0), 1u << 1);
    EXPECT_EQ(late_ranks(kGaveUp | 2u << 0, 1), 1u << 0);
    EXPECT_EQ(late_ranks(kGaveUp | 2u << 0 | 2u << 1 | 2u << 2, 2), 0b1011u);
    EXPECT_EQ(late_ranks(kGaveUp | 2u << 6, 7), 1u << 6);
    EXPECT_EQ(late_ranks(kGaveUp | 2u << 6, 3), 1u << 7);
}

}  // namespace
}  // namespace foresay::test
