// Which models may pair, and what memory they take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "speculative/memory_estimate.h"
#include "speculative/pairing.h"
#include "tests/speculative/support.h"

namespace foresay::test {
namespace {

TEST(Pairing, AcceptsTheBundledPair) {
    const auto target = core::ModelSource::open(bundled_path("target"));
    const auto draft = core::ModelSource::open(bundled_path("draft"));
    const core::Tokenizer of_target = core::Tokenizer::from_gguf(*target->gguf());
    const core::Tokenizer of_draft = core::Tokenizer::from_gguf(*draft->gguf());
    EXPECT_NO_THROW(speculative::check_pairing({target->config(), &of_target, target->path()},
                                               {draft->config(), &of_draft, draft->path()}));
}

TEST(Pairing, RefusesOtherVocabularies) {
    const core::ModelConfig small = small_config();
    core::ModelConfig other = small;
    other.shape.vocab += 5000;
    try {
        speculative::check_pairing({small, nullptr, "a.gguf"}, {other, nullptr, "b.gguf"});
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::StartsWith("b.gguf cannot draft for a.gguf: "));
        EXPECT_THAT(error.what(), testing::HasSubstr("5512"));
    }
    other.shape.vocab = small.shape.vocab + 64;  // padding
    EXPECT_NO_THROW(speculative::check_pairing({small, nullptr, "a.gguf"}, {other, nullptr, "b.gguf"}));
}

TEST(Memory, IsEstimatedAndRefusedWithNumbers) {
    auto source = core::ModelSource::open(bundled_path("target"));
    const speculative::MemoryEstimate estimate =
        speculative::estimate_memory(*source, {.length = 2048}, fast_backend().ops());
    // 30 MB of weights; 2048 positions of 12 layers, K and V, 4 heads of 64, at 2 or 4 bytes.
    EXPECT_GT(estimate.weights, 20e6);
    EXPECT_LT(estimate.weights, 60e6);
    EXPECT_GE(estimate.cache, 2048LL * 12 * 2 * 256 * 2);
    EXPECT_LE(estimate.cache, 2048LL * 12 * 2 * 256 * 4 + 64 * 1024 * 1024);
    EXPECT_NO_THROW(speculative::require_memory(estimate, estimate.total(), "target"));
    try {
        speculative::require_memory(estimate, estimate.total() - 1, "target");
        FAIL() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), testing::HasSubstr(speculative::format_bytes(estimate.total())));
    }
    EXPECT_GT(speculative::available_memory(), 1 << 20);
    EXPECT_EQ(speculative::format_bytes(1536), "1.5 KiB");
    EXPECT_EQ(speculative::format_bytes(10), "10 bytes");
}

}  // namespace
}  // namespace foresay::test
