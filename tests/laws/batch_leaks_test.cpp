// Nothing leaks: requests that come, are cancelled, paused, preempted, late and end at random, with pages that go to
// host memory and come back, predictions and log-probabilities, hold no page of the caches of target and draft
// afterwards, and no memory. FORESAY_ARRIVALS sets how many come.

#include <gtest/gtest.h>
#include <malloc.h>

#include <cstdlib>
#include <iostream>

#include "core/cache/page_store.h"
#include "speculative/drafters/ngram_drafter.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

// What this process holds of what malloc gives, in bytes. Not resident memory: that also counts what was given back
// and not returned to the system, which depends on how threads meet.
std::int64_t live_bytes() {
    const struct mallinfo2 info = ::mallinfo2();
    return static_cast<std::int64_t>(info.uordblks + info.hblkhd);
}

// Counts what one request hears.
class CountingSink final : public speculative::Sink {
public:
    void token(const speculative::TokenEvent& event) override { tokens += event.token >= 0 ? 1 : 0; }
    void end(const speculative::BatchEnd& end) override {
        ++ends;
        failed = failed || !end.error.empty();
        finish = end.result.finish;
        if (leak != nullptr) leak->emplace_back(leaks, 'x');
    }
    int tokens = 0, ends = 0;
    bool failed = false;
    speculative::FinishReason finish = speculative::FinishReason::length;
    std::vector<std::string>* leak = nullptr;  // what keeps `leaks` bytes of each request
    std::size_t leaks = 0;
};

double clock_by_hand = 0.0;  // for deadlines

constexpr std::int64_t kAllowed = std::int64_t{64} << 10;  // growth in bytes; about 15 KiB are usual, of any count

std::shared_ptr<core::PageStore> make_store(core::Context& context, std::int64_t pages) {
    const kernels::KvPages& kv = context.cache().pages();
    const std::int64_t bytes = context.ops().kv_bytes(kv.shape, 1, kv.format);
    return std::make_shared<core::PageTiers>(
        context.ops(),
        core::PageTiersOptions{
            .page_bytes = bytes, .host_bytes = pages * bytes, .folder = {}, .fingerprint = {}, .notice = {}});
}

// By how many bytes the process has grown from the first quarter of so many arrivals to their end.
// `leaks`: bytes that each request leaves behind.
std::int64_t growth(int arrivals, std::size_t leaks) {
    core::ContextOptions options = for_sequences(3, 128);
    options.branches = 9;
    speculative::BatchParts parts = batch_parts(options);
    parts.most_sequences = 6;
    parts.sure_growth = 1;
    parts.speculation = automatic();
    parts.make_drafter = [](std::int32_t capacity) { return speculative::make_ngram_drafter(capacity); };
    parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), options);
    parts.pages = make_store(*parts.target, 8);
    parts.draft_pages = make_store(*parts.draft, 8);
    parts.now = [] { return clock_by_hand += 1.0; };
    core::Context& draft = *parts.draft;
    speculative::BatchGenerator batch(std::move(parts));
    std::vector<std::int32_t> text = prompt();
    while (text.size() < 90) text.insert(text.end(), text.begin(), text.end() - 1);
    std::mt19937 random(11);
    // What this test itself keeps has its memory before the first request.
    std::vector<CountingSink> sinks(static_cast<std::size_t>(arrivals));
    std::vector<speculative::Ticket> tickets(sinks.size());
    std::vector<std::string> leaked;
    leaked.reserve(sinks.size());
    constexpr std::size_t kMostPaused = 64;
    std::vector<speculative::Ticket> paused;
    paused.reserve(kMostPaused);
    std::size_t come = 0;
    std::int64_t before = 0;
    bool warm = false;  // what was allocated once stays
    while (come < sinks.size() || batch.running() + batch.waiting() > 0) {
        // The first quarter ends before others come, so that both measurements are of a batch that is empty.
        if (!warm && come == sinks.size() / 4 && batch.running() + batch.waiting() == 0) {
            before = live_bytes();
            warm = true;
        }
        while (come < (warm ? sinks.size() : sinks.size() / 4) && batch.running() + batch.waiting() < 10 &&
               random() % 3 != 0) {
            const auto from = static_cast<std::ptrdiff_t>(random() % 3);
            // Some have a whole page, which leaves the cache and comes back.
            const auto length = static_cast<std::ptrdiff_t>(1 + random() % 12 + (random() % 8 == 0 ? 68 : 0));
            CountingSink& sink = sinks[come];
            if (leaks > 0) {
                sink.leak = &leaked;
                sink.leaks = leaks;
            }
            const std::vector<std::int32_t> input(text.begin() + from, text.begin() + from + length);
            tickets[come] = batch.add({.input = input,
                                       .chain = temperature_chain(0.8),
                                       .max_tokens = static_cast<std::int32_t>(1 + random() % 6),
                                       .seed = random(),
                                       .ignore_eos = true,
                                       .logprobs = random() % 4 == 0 ? 2 : -1,
                                       .priority = static_cast<std::int32_t>(random() % 2),
                                       .queue = std::to_string(random() % 1000),
                                       .deadline = random() % 16 == 0 ? clock_by_hand + 40.0 : 0.0,
                                       .prediction = random() % 4 == 0 ? input : std::vector<std::int32_t>{}},
                                      sink);
            ++come;
        }
        if (come > 0 && random() % 2 == 0) {
            const std::size_t recent = come - 1 - random() % std::min<std::size_t>(come, 10);
            if (random() % 3 == 0) {
                batch.pause(tickets[recent]);
                paused.push_back(tickets[recent]);
            } else {
                batch.cancel(tickets[recent]);
            }
        }
        // All of them: those that were paused long ago hold places, too.
        if (batch.step() && paused.size() < kMostPaused) continue;
        for (const speculative::Ticket ticket : paused) batch.resume(ticket);
        paused.clear();
    }
    const std::int64_t after = live_bytes();
    int cancelled = 0, late = 0;
    for (const CountingSink& sink : sinks) {
        EXPECT_EQ(sink.ends, 1);
        EXPECT_FALSE(sink.failed);
        cancelled += sink.finish == speculative::FinishReason::cancelled ? 1 : 0;
        late += sink.finish == speculative::FinishReason::deadline ? 1 : 0;
    }
    EXPECT_GT(cancelled, arrivals / 20);
    EXPECT_LT(cancelled, arrivals * 9 / 10);
    EXPECT_GT(late, 0);
    EXPECT_GT(batch.pages().from_host, 0);
    EXPECT_TRUE(no_page_is_lost(batch));
    EXPECT_EQ(draft.cache().free_pages(), draft.cache().pages().pages);
    return after - before;
}

TEST(BatchLeaks, ArrivalsAndCancelsLeaveNothingBehind) {
    const char* wanted = std::getenv("FORESAY_ARRIVALS");
    const int arrivals = wanted != nullptr ? std::atoi(wanted) : 10000;
    const std::int64_t grown = growth(arrivals, 0);
    std::cout << arrivals << " arrivals: memory grew by " << grown << " bytes\n";
    EXPECT_LT(grown, kAllowed);
}

#ifndef FORESAY_SANITIZED  // a sanitizer's malloc counts nothing; it finds leaks itself
// A control: what each request leaves behind is noticed.
TEST(BatchLeaks, WhatRequestsLeaveBehindIsNoticed) { EXPECT_GT(growth(400, 1024), kAllowed); }
#endif

}  // namespace
}  // namespace foresay::test
