// The way of linked ranks' words through host memory (kernels/cuda/decode/link_mail.h), with ranks of the host: each is
// some machines that take one small step at a time, in an order drawn by lot.

#include "kernels/cuda/decode/link_mail.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <memory>
#include <random>
#include <vector>

namespace foresay::test {
namespace {

using kernels::cuda::HandOver;
using kernels::cuda::kHandOversOfLayer;
using kernels::cuda::kLinkBuffers;
using kernels::cuda::kMailFloats;
using kernels::cuda::MailPacket;
using kernels::cuda::MailRoute;
using std::int32_t;
using std::uint32_t;

constexpr uint32_t kNotReady = 0xffffffffu;
constexpr int32_t kX = 0;  // which of a layer's places is x after the MLP

// What all ranks make of one forward, and where it lies: x after the MLP, attended, x after the attention, ff.
struct Model {
    int32_t rows, layers, width, attended, inner;
    int32_t floats() const { return rows * (2 * width + attended + inner); }
    HandOver whole(int32_t i) const {
        const int32_t widths[] = {attended, width, inner, width};
        const int32_t places[] = {rows * width, rows * (width + attended), rows * (2 * width + attended), kX};
        return {places[i], widths[i], 0, widths[i]};
    }
    // Rank r of `ranks` has r + 1 parts of each row, in twos; the last one has the rest.
    MailRoute route(int32_t r, int32_t ranks, int32_t embeds) const {
        MailRoute route;
        route.rows = rows;
        route.layers = layers;
        route.buffer_floats = floats();
        route.embeds = r == embeds;
        route.x = {(kLinkBuffers - 1) * floats() + kX, width, 0, 0};
        for (int32_t i = 0; i < kHandOversOfLayer; ++i) {
            HandOver& over = route.layer[i] = whole(i);
            const int32_t unit = over.width / (ranks * (ranks + 1)) * 2;
            over.first = unit * r * (r + 1) / 2;
            over.count = r + 1 < ranks ? unit * (r + 1) : over.width - over.first;
        }
        return route;
    }
};

// Which values of a row all ranks send, and each receives.
TEST(LinkMail, PartsAreTheWholeRow) {
    for (const int32_t ranks : {2, 3, 8}) {
        const Model model = {3, 2, 288, 144, 432};
        for (int32_t i = 0; i < kHandOversOfLayer; ++i) {
            std::vector<int> sent(static_cast<std::size_t>(3 * model.whole(i).width));
            for (int32_t r = 0; r < ranks; ++r) {
                const MailRoute route = model.route(r, ranks, 0);
                ASSERT_TRUE(route.fits());
                const HandOver& over = route.layer[i];
                std::vector<int> seen(sent.size());
                for (int32_t p = 0; p < over.sent(3); ++p) {
                    const auto value = static_cast<std::size_t>(over.sent_value(p));
                    for (const std::size_t v : {value, value + 1}) ++sent[v], ++seen[v];
                    EXPECT_EQ(value % 2, 0u);
                    EXPECT_GE(over.sent_value(p) % over.width, over.first);
                    EXPECT_LT(over.sent_value(p) % over.width, over.first + over.count);
                }
                for (int32_t p = 0; p < over.received(3); ++p) {
                    const auto value = static_cast<std::size_t>(over.received_value(p));
                    for (const std::size_t v : {value, value + 1}) ++seen[v];
                }
                EXPECT_EQ(seen, std::vector<int>(seen.size(), 1)) << ranks << ", " << r << ", " << i;
            }
            EXPECT_EQ(sent, std::vector<int>(sent.size(), 1)) << ranks << ", " << i;
        }
    }
}

TEST(LinkMail, RowsHaveMoreForwarders) {
    using kernels::cuda::forwarder_pairs;
    EXPECT_EQ(forwarder_pairs(132, 1), 1) << "the decode kernel has the others";
    EXPECT_EQ(forwarder_pairs(132, 2), 4);
    EXPECT_EQ(forwarder_pairs(132, 16), 4);
    EXPECT_EQ(forwarder_pairs(66, 16), 2) << "half of a device";
    EXPECT_EQ(forwarder_pairs(20, 16), 1);
}

TEST(LinkMail, HandOversFollowTheLayers) {
    const Model model = {2, 5, 24, 12, 48};
    const MailRoute route = model.route(1, 2, 1);
    EXPECT_EQ(route.hand_overs(), 21);
    EXPECT_EQ(route.hand_over(0), (HandOver{2 * model.floats() + kX, 24, 0, 24}));
    EXPECT_EQ(model.route(0, 2, 1).hand_over(0).count, 0);
    for (int32_t l = 0; l < 5; ++l) {
        for (int32_t i = 0; i < kHandOversOfLayer; ++i) {
            HandOver expected = route.layer[i];
            expected.at += l % 3 * model.floats();
            EXPECT_EQ(route.hand_over(1 + 4 * l + i), expected);
        }
    }
}

TEST(LinkMail, WhatHasNoRoomIsRefused) {
    const MailRoute good = Model{16, 2, 288, 144, 432}.route(0, 2, 0);
    EXPECT_TRUE(good.fits());
    const auto fits = [&](auto change) {
        MailRoute route = good;
        change(route);
        return route.fits();
    };
    EXPECT_FALSE(fits([](MailRoute& route) { route.layer[2].count = 0; }));
    EXPECT_FALSE(fits([](MailRoute& route) { route.layer[2].count = route.layer[2].width; }));
    EXPECT_FALSE(fits([](MailRoute& route) { ++route.layer[0].count; }));
    EXPECT_FALSE(fits([](MailRoute& route) { ++route.layer[1].first; }));
    EXPECT_FALSE(fits([](MailRoute& route) { ++route.layer[3].at; }));
    EXPECT_FALSE(fits([](MailRoute& route) { ++route.buffer_floats; }));
    EXPECT_FALSE(fits([](MailRoute& route) { ++route.x.at; }));
    EXPECT_TRUE(fits([](MailRoute& route) { route.layer[2].width = kMailFloats / 16; }));
    EXPECT_FALSE(fits([](MailRoute& route) { route.layer[2].width = kMailFloats / 16 + 2; }));
    EXPECT_FALSE(fits([](MailRoute& route) { route.x.width = kMailFloats / 16 + 2; }));
}

// A value of a row that depends on all of what came before. Never kNotReady.
uint32_t made(uint32_t of, int32_t hand_over, int32_t value) {
    uint32_t x = of * 0x9e3779b9u + static_cast<uint32_t>(hand_over) * 0x85ebca6bu + static_cast<uint32_t>(value);
    x ^= x >> 15;
    return (x * 0x2c1b3c6du) >> 1;
}

struct Mail {
    std::vector<MailPacket> packets;
    uint32_t slots;
    MailPacket& packet(uint32_t n, int32_t value) {
        return packets[n % slots * static_cast<std::size_t>(kPlaces) + static_cast<std::size_t>(value / 2)];
    }
    static constexpr int32_t kPlaces = 4096;
    explicit Mail(uint32_t count) : packets(count * static_cast<std::size_t>(kPlaces)), slots(count) {}
};

// One rank: what the decode kernel does, what the threads of the forwarders do, and finish_linked(). step() of each
// does a little, or says that there is nothing to do yet.
class Rank {
public:
    static constexpr std::size_t kThreads = 3;  // of the sender, and of the receiver

    Rank(int32_t index, int32_t ranks, Mail& mail, const std::vector<Model>& forwards)
        : index_(index), ranks_(ranks), mail_(mail), forwards_(forwards), words_(1 << 14, kNotReady) {
        begin();
    }
    static constexpr std::size_t kMachines = 1 + 2 * kThreads;
    bool step(std::size_t machine) {
        if (ended()) return false;
        if (machine == 0) return decode();
        const bool sends = machine <= kThreads;
        return forward(cursors_[machine - 1], (machine - 1) % kThreads, sends);
    }
    bool ended() const { return forward_ == forwards_.size(); }
    std::vector<uint32_t> results;  // one of each forward

private:
    struct Cursor {
        int32_t hand_over = 0, packet = 0;
    };
    const Model& model() const { return forwards_[forward_]; }
    uint32_t& word(int32_t at) { return words_[static_cast<std::size_t>(at)]; }

    void begin() {
        cursors_.assign(2 * kThreads, {});
        hand_over_ = value_ = 0;
        if (!ended()) route_ = model().route(index_, ranks_, static_cast<int32_t>(forward_) % ranks_);
    }
    // What all values of a hand-over come to; 0: not all of them are there.
    uint32_t sum_of(int32_t n) {
        const HandOver over = route_.hand_over(n);
        uint32_t sum = 1;
        for (int32_t v = 0; v < model().rows * over.width; ++v) {
            if (word(over.at + v) == kNotReady) return 0;
            sum = made(sum, n, static_cast<int32_t>(word(over.at + v)));
        }
        return sum | 1;
    }
    bool decode() {
        if (hand_over_ == route_.hand_overs()) return finish();
        const uint32_t sum = hand_over_ == 0 ? static_cast<uint32_t>(forward_) * 2 + 1 : sum_of(hand_over_ - 1);
        if (sum == 0) return false;
        const HandOver over = route_.hand_over(hand_over_);
        if (value_ < model().rows * over.count) {
            const int32_t v = value_ / over.count * over.width + over.first + value_ % over.count;
            word(over.at + v) = made(sum, hand_over_, v);
            ++value_;
            return true;
        }
        value_ = 0;
        // attention_out resets, as GemvOp::resets_buffers says.
        if (hand_over_ % kHandOversOfLayer == 2) {
            const int32_t layer = hand_over_ / kHandOversOfLayer, x = model().rows * model().width;
            reset((layer + 1) % kLinkBuffers, 0, x);
            reset((layer + 2) % kLinkBuffers, x, model().floats());
        }
        ++hand_over_;
        return true;
    }
    void reset(int32_t buffer, int32_t begin, int32_t end) {
        for (int32_t at = begin; at < end; ++at) word(buffer * model().floats() + at) = kNotReady;
    }
    bool finish() {
        for (const Cursor& cursor : cursors_) {
            if (cursor.hand_over < route_.hand_overs()) return false;
        }
        const uint32_t sum = sum_of(hand_over_ - 1);
        EXPECT_NE(sum, 0u);
        results.push_back(sum);
        for (int32_t buffer = 0; buffer < kLinkBuffers; ++buffer) reset(buffer, 0, model().floats());
        handed_ += static_cast<uint32_t>(route_.hand_overs());
        ++forward_;
        begin();
        return true;
    }
    bool forward(Cursor& cursor, std::size_t thread, bool sends) {
        if (cursor.hand_over == route_.hand_overs()) return false;
        const HandOver over = route_.hand_over(cursor.hand_over);
        const int32_t i = cursor.packet * static_cast<int32_t>(kThreads) + static_cast<int32_t>(thread);
        if (i >= (sends ? over.sent(route_.rows) : over.received(route_.rows))) {
            cursor = {cursor.hand_over + 1, 0};
            return true;
        }
        const uint32_t n = handed_ + static_cast<uint32_t>(cursor.hand_over), tag = kernels::cuda::mail_tag(n);
        const int32_t value = sends ? over.sent_value(i) : over.received_value(i);
        MailPacket& packet = mail_.packet(n, value);
        uint32_t &first = word(over.at + value), &second = word(over.at + value + 1);
        if (sends) {
            if (first == kNotReady || second == kNotReady) return false;
            packet = {std::bit_cast<float>(first), tag, std::bit_cast<float>(second), tag};
        } else {
            if (packet.first_tag != tag || packet.second_tag != tag) return false;
            EXPECT_EQ(first, kNotReady) << "a word has come before the last one was reset";
            first = std::bit_cast<uint32_t>(packet.first);
            second = std::bit_cast<uint32_t>(packet.second);
        }
        ++cursor.packet;
        return true;
    }

    int32_t index_, ranks_;
    Mail& mail_;
    const std::vector<Model>& forwards_;
    std::vector<uint32_t> words_;
    MailRoute route_;
    std::size_t forward_ = 0;
    uint32_t handed_ = 0xffffff80u;  // the count overflows
    int32_t hand_over_ = 0, value_ = 0;
    std::vector<Cursor> cursors_;
};

const std::vector<Model> kForwards = {{1, 3, 24, 24, 48}, {1, 3, 24, 24, 48}, {3, 2, 24, 24, 48}, {1, 5, 48, 24, 24},
                                      {2, 4, 24, 48, 72}, {1, 3, 24, 24, 48}, {1, 2, 24, 24, 24}, {1, 2, 24, 24, 24}};

// What each forward comes to where one rank makes all of it, and nothing is handed over.
std::vector<uint32_t> expected_results() {
    std::vector<uint32_t> results;
    for (const Model& model : kForwards) {
        uint32_t sum = static_cast<uint32_t>(results.size()) * 2 + 1;
        const MailRoute route = model.route(0, 2, 0);
        for (int32_t n = 0; n < route.hand_overs(); ++n) {
            uint32_t next = 1;
            for (int32_t v = 0; v < model.rows * route.hand_over(n).width; ++v) {
                next = made(next, n, static_cast<int32_t>(made(sum, n, v)));
            }
            sum = next | 1;
        }
        results.push_back(sum);
    }
    return results;
}

// What each comes to by so many ranks, the same for all of them; nothing if they wait for each other for ever.
std::vector<uint32_t> results_of(int32_t ranks, uint32_t slots, unsigned seed) {
    Mail mail(slots);
    std::vector<std::unique_ptr<Rank>> all;
    for (int32_t r = 0; r < ranks; ++r) all.push_back(std::make_unique<Rank>(r, ranks, mail, kForwards));
    std::mt19937 lot(seed);
    const std::size_t machines = all.size() * Rank::kMachines;
    const auto turn = [&](std::size_t m) { return all[m / Rank::kMachines]->step(m % Rank::kMachines); };
    while (!std::ranges::all_of(all, [](const auto& rank) { return rank->ended(); })) {
        // For a while, one machine does nothing.
        const std::size_t sleeps = lot() % machines;
        bool moved = false;
        for (int steps = 0; steps < 3000; ++steps) {
            const std::size_t m = lot() % machines;
            if (m != sleeps && turn(m)) moved = true;
        }
        if (!turn(sleeps) && !moved) return {};
    }
    for (const auto& rank : all) EXPECT_EQ(rank->results, all[0]->results);
    return all[0]->results;
}

TEST(LinkMail, ThreeSlotsAreEnough) {
    const std::vector<uint32_t> expected = expected_results();
    for (unsigned seed = 0; seed < 40; ++seed) {
        for (const int32_t ranks : {2, 3}) {
            EXPECT_EQ(results_of(ranks, kernels::cuda::kMailSlots, seed), expected) << ranks << ", " << seed;
            EXPECT_EQ(results_of(ranks, 3, seed), expected) << ranks << ", " << seed;
        }
    }
}
// And two are not: a slow reader finds its words written over. So what this test looks for can happen in it.
TEST(LinkMail, TwoSlotsAreNot) {
    int ended = 0;
    for (unsigned seed = 0; seed < 40; ++seed) ended += results_of(2, 2, seed).empty() ? 0 : 1;
    EXPECT_LT(ended, 40);
}

}  // namespace
}  // namespace foresay::test
