// The vocabulary that plugins are given: what is looked up in it is the same from many threads at once.
#include "speculative/vocabulary.h"

#include <gtest/gtest.h>

#include <latch>
#include <thread>

#include "tests/speculative/support.h"

namespace foresay::speculative {
namespace {

using test::tokenizer;

// Its index is built by the first look-up, so all threads begin with it together.
TEST(Vocabulary, IsSearchedFromManyThreads) {
    constexpr int kThreads = 8;
    for (int round = 0; round < 20; ++round) {
        const auto vocabulary = make_vocabulary(tokenizer());
        std::latch start(kThreads);
        std::vector<int> wrong(kThreads, 0);
        std::vector<std::thread> threads;
        for (int t = 0; t < kThreads; ++t) {
            threads.emplace_back([&, t] {
                start.arrive_and_wait();
                for (std::int32_t id = t; id < vocabulary->size(); id += 101) {
                    const std::string_view text = vocabulary->text(id), control = vocabulary->control_text(id);
                    // Two ids may have the same bytes: the lower one is found.
                    const std::int32_t found = vocabulary->find(text);
                    if (!text.empty() && (found < 0 || found > id || vocabulary->text(found) != text)) ++wrong[t];
                    if (!control.empty() && vocabulary->control_text(vocabulary->find_control(control)) != control)
                        ++wrong[t];
                }
            });
        }
        for (std::thread& thread : threads) thread.join();
        EXPECT_EQ(wrong, std::vector<int>(kThreads, 0));
    }
}

}  // namespace
}  // namespace foresay::speculative
