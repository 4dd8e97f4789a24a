// A server that answers one request after the other (--parallel 1) has the queue, the beginnings and the counts of one
// that answers many side by side.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>

#include "server/loop_backend.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::Ge;

// What several requests say, as it comes.
struct Answers {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::string> ended;                      // names, in order
    std::vector<server::BackendEnd> ends;                // likewise
    std::size_t tokens = 0, with_probabilities = 0;      // of all
    std::size_t hold_at = static_cast<std::size_t>(-1);  // the backend waits at so many tokens

    void wait_for_tokens(std::size_t count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return tokens >= count; });
    }
    void go_on() {
        const std::lock_guard lock(mutex);
        hold_at = static_cast<std::size_t>(-1);
        changed.notify_all();
    }
    void wait_for_ends(std::size_t count) {
        std::unique_lock lock(mutex);
        changed.wait(lock, [&] { return ended.size() >= count; });
    }
};

class Sink final : public server::TokenSink {
public:
    Sink(Answers& all, std::string name) : all_(all), name_(std::move(name)) {}
    bool token(const server::GeneratedToken& token) override {
        std::unique_lock lock(all_.mutex);
        ++all_.tokens;
        all_.with_probabilities += token.probabilities != nullptr ? 1 : 0;
        all_.changed.notify_all();
        all_.changed.wait(lock, [this] { return all_.tokens < all_.hold_at; });
        return true;
    }
    void end(const server::BackendEnd& end) override {
        const std::lock_guard lock(all_.mutex);
        all_.ended.push_back(name_);
        all_.ends.push_back(end);
        all_.changed.notify_all();
    }

private:
    Answers& all_;
    std::string name_;
};

server::BackendRequest asked(const std::string& queue, std::int32_t tokens, int priority = 0) {
    server::BackendRequest request;
    request.prompt = bundled().tokenizer().encode("def fibonacci(n):\n    if n < 2:\n        return n\n");
    request.chain = bundled().make_chain();
    request.max_tokens = tokens;
    request.ignore_eos = true;
    request.queue = queue;
    request.priority = priority;
    return request;
}

// A key that asks rarely has its turn beside one that floods, and a higher priority comes first.
TEST(OneText, TheQueueHasThePolicyOfMany) {
    Answers answers;
    server::LoopBackend backend(bundled(), 1, 16, false);
    answers.hold_at = 2;
    const auto submit = [&](const std::string& name, server::BackendRequest request) {
        backend.submit(std::move(request), std::make_shared<Sink>(answers, name));
    };
    submit("ann 1", asked("ann", 24));
    answers.wait_for_tokens(2);
    for (const char* name : {"ann 2", "ann 3", "ann 4"}) submit(name, asked("ann", 4));
    submit("bob", asked("bob", 4));
    submit("urgent", asked("ann", 4, 5));
    EXPECT_EQ(backend.running(), 1u);
    EXPECT_EQ(backend.waiting(), 5u);
    answers.go_on();
    answers.wait_for_ends(6);
    EXPECT_THAT(answers.ended, ElementsAre("ann 1", "urgent", "bob", "ann 2", "ann 3", "ann 4"));
    backend.stop();
}

// Beginnings stay for the texts of their own key, log-probabilities come with their tokens, and the cache is counted.
TEST(OneText, BeginningsAndCountsAreThoseOfMany) {
    Answers answers;
    server::LoopBackend backend(bundled(), 1, 16, false);
    const auto ask = [&](const char* queue, int alternatives) {
        server::BackendRequest request = asked(queue, 8);
        request.alternatives = alternatives;
        backend.submit(std::move(request), std::make_shared<Sink>(answers, queue));
    };
    ask("ann", -1);
    ask("bob", 2);
    ask("ann", -1);
    answers.wait_for_ends(3);
    ASSERT_THAT(answers.ended, ElementsAre("ann", "bob", "ann"));
    EXPECT_EQ(answers.ends[0].cached_tokens, 0);
    EXPECT_EQ(answers.ends[1].cached_tokens, 0);
    EXPECT_THAT(answers.ends[2].cached_tokens, Ge(8)) << "bob's text has not emptied the cache";
    EXPECT_EQ(answers.with_probabilities, 8u);
    EXPECT_GT(backend.cache().pages, 0);
    EXPECT_EQ(answers.ends[0].speculation.sources.size(), bundled().draft() != nullptr ? 2u : 1u);
    backend.stop();
}

}  // namespace
}  // namespace foresay::testing
