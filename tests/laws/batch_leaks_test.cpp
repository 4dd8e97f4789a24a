// Nothing leaks: 10,000 requests that come, are cancelled, paused and end at random hold no page of the caches of
// target and draft afterwards, and no memory. FORESAY_ARRIVALS sets how many.

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

// Of this process, in bytes.
double resident_memory() {
    std::ifstream file("/proc/self/statm");
    double pages = 0.0;
    file >> pages >> pages;
    return pages * 4096.0;
}

// Counts what one request hears.
class CountingSink final : public speculative::Sink {
public:
    void token(const speculative::TokenEvent& event) override { tokens += event.token >= 0 ? 1 : 0; }
    void end(const speculative::BatchEnd& end) override {
        ++ends;
        failed = failed || !end.error.empty();
        cancelled = end.result.finish == speculative::FinishReason::cancelled;
    }
    int tokens = 0, ends = 0;
    bool failed = false, cancelled = false;
};

TEST(BatchLeaks, ArrivalsAndCancelsLeaveNothingBehind) {
    const char* wanted = std::getenv("FORESAY_ARRIVALS");
    const int arrivals = wanted != nullptr ? std::atoi(wanted) : 10000;
    core::ContextOptions options = for_sequences(3, 128);
    options.branches = 9;
    speculative::BatchParts parts = batch_parts(options);
    parts.most_sequences = 6;
    parts.sure_growth = 1;
    parts.speculation = automatic();
    parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
    parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), options);
    core::Context& draft = *parts.draft;
    speculative::BatchGenerator batch(std::move(parts));
    const std::vector<std::int32_t> text = prompt();
    std::mt19937 random(11);
    std::deque<CountingSink> sinks;
    std::vector<speculative::Ticket> tickets;
    double memory_before = 0.0;
    int cancelled = 0;
    while (std::ssize(sinks) < arrivals || batch.running() + batch.waiting() > 0) {
        while (std::ssize(sinks) < arrivals && batch.running() + batch.waiting() < 10 && random() % 3 != 0) {
            const auto from = static_cast<std::ptrdiff_t>(random() % 3);
            const auto length = static_cast<std::ptrdiff_t>(1 + random() % 12);
            tickets.push_back(batch.add({.input = {text.begin() + from, text.begin() + from + length},
                                         .chain = temperature_chain(0.8),
                                         .max_tokens = static_cast<std::int32_t>(1 + random() % 6),
                                         .seed = random(),
                                         .ignore_eos = true,
                                         .priority = static_cast<std::int32_t>(random() % 2)},
                                        sinks.emplace_back()));
            // Warm: what was allocated once stays.
            if (std::ssize(sinks) == arrivals / 4) memory_before = resident_memory();
        }
        if (!tickets.empty() && random() % 2 == 0) {
            const std::size_t recent = tickets.size() - 1 - random() % std::min<std::size_t>(tickets.size(), 10);
            switch (random() % 3) {
                case 0:
                    batch.pause(tickets[recent]);
                    break;
                default:
                    batch.cancel(tickets[recent]);
            }
        }
        if (batch.step()) continue;
        for (const speculative::Ticket ticket : tickets) batch.resume(ticket);
    }
    for (const CountingSink& sink : sinks) {
        ASSERT_EQ(sink.ends, 1);
        ASSERT_FALSE(sink.failed);
        cancelled += sink.cancelled ? 1 : 0;
    }
    EXPECT_GT(cancelled, arrivals / 20);
    EXPECT_LT(cancelled, arrivals * 9 / 10);
    EXPECT_TRUE(no_page_is_lost(batch));
    EXPECT_EQ(draft.cache().free_pages(), draft.cache().pages().pages);
    // The sinks and tickets of this test grow, by less than 200 bytes each.
    EXPECT_LT(resident_memory() - memory_before - 200.0 * arrivals, 0.01 * memory_before);
}

}  // namespace
}  // namespace foresay::test
