// The paged cache: pages, sequences, fork, truncate. Contents are checked through logits in tests/laws.

#include "core/cache/kv_cache.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/models/backends.h"

namespace foresay::test {
namespace {

using core::KvCache;
using core::Reserve;

constexpr std::int32_t kPage = kernels::kPagePositions;

KvCache make_cache(std::int32_t capacity, std::int32_t sequences) {
    return KvCache(backends().front().ops(), small_config().shape, capacity, sequences);
}

void grow(KvCache& cache, core::SequenceId sequence, std::int32_t rows) {
    ASSERT_EQ(cache.reserve(sequence, rows), Reserve::ok);
    cache.commit(sequence, rows);
}

std::vector<std::int32_t> pages_of(const KvCache& cache, core::SequenceId sequence) {
    const std::span<const std::int32_t> pages = cache.view(sequence).pages;
    return {pages.begin(), pages.end()};
}

TEST(KvCache, TakesPagesAsASequenceGrows) {
    KvCache cache = make_cache(4 * kPage, 1);
    EXPECT_EQ(cache.free_pages(), 4);
    grow(cache, 0, 1);
    EXPECT_EQ(cache.free_pages(), 3);
    grow(cache, 0, kPage - 1);
    EXPECT_EQ(cache.free_pages(), 3);
    grow(cache, 0, 1);
    EXPECT_EQ(cache.free_pages(), 2);
    EXPECT_EQ(cache.length(0), kPage + 1);
}

TEST(KvCache, SaysWhenASequenceIsFull) {
    KvCache cache = make_cache(kPage + 3, 1);
    EXPECT_EQ(cache.reserve(0, kPage + 4), Reserve::sequence_full);
    EXPECT_EQ(cache.length(0), 0);
    grow(cache, 0, kPage + 3);
    EXPECT_EQ(cache.reserve(0, 1), Reserve::sequence_full);
    cache.truncate(0, kPage + 2);
    EXPECT_EQ(cache.reserve(0, 1), Reserve::ok);
}

TEST(KvCache, TruncateKeepsPagesForReuse) {
    KvCache cache = make_cache(4 * kPage, 1);
    grow(cache, 0, 3 * kPage);
    const auto before = pages_of(cache, 0);
    cache.truncate(0, 5);
    grow(cache, 0, 2 * kPage);
    const auto after = pages_of(cache, 0);
    EXPECT_TRUE(std::equal(after.begin(), after.begin() + 3, before.begin()));
}

TEST(KvCache, ForkSharesPagesUntilOneWrites) {
    KvCache cache = make_cache(4 * kPage, 2);
    grow(cache, 0, kPage + 10);
    const std::int32_t free = cache.free_pages();
    const core::SequenceId copy = cache.fork(0);
    ASSERT_EQ(copy, 1);
    EXPECT_EQ(cache.free_pages(), free);
    EXPECT_EQ(pages_of(cache, 0), pages_of(cache, copy));
    grow(cache, copy, 1);
    EXPECT_EQ(cache.free_pages(), free - 1);
    EXPECT_EQ(pages_of(cache, 0)[0], pages_of(cache, copy)[0]);
    EXPECT_NE(pages_of(cache, 0)[1], pages_of(cache, copy)[1]);
    // The page is no longer shared, so the original writes in place.
    grow(cache, 0, 1);
    EXPECT_EQ(cache.free_pages(), free - 1);
    cache.drop(copy);
    EXPECT_EQ(cache.free_pages(), free);
    EXPECT_FALSE(cache.exists(copy));
    EXPECT_EQ(cache.fork(0), copy);
    EXPECT_EQ(cache.fork(0), -1);
}

TEST(KvCache, TruncatedForkDoesNotWriteIntoSharedPages) {
    KvCache cache = make_cache(4 * kPage, 2);
    grow(cache, 0, 2 * kPage + 10);
    const core::SequenceId copy = cache.fork(0);
    cache.truncate(copy, 7);
    grow(cache, copy, 2 * kPage);
    const auto original = pages_of(cache, 0);
    const auto other = pages_of(cache, copy);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NE(original[i], other[i]) << i;
}

// The last window lies in one page or two, and a sequence may still go back by two pages.
TEST(KvCache, GivesBackWhatAllWindowsHaveLeft) {
    constexpr std::int32_t kWindow = 20;
    KvCache cache(backends().front().ops(), small_config().shape, 8 * kPage, 2, 0, kernels::KvFormat::f16, kWindow);
    const std::int32_t all = cache.free_pages();
    // The row at the end attends to 20 positions, itself included, and so does one two pages before it.
    grow(cache, 0, 3 * kPage + kWindow - 2);
    cache.release_left(0);
    EXPECT_EQ(cache.first(0), 0);
    EXPECT_EQ(cache.free_pages(), all - 4);
    grow(cache, 0, 1);
    cache.release_left(0);
    EXPECT_EQ(cache.first(0), kPage);
    EXPECT_EQ(cache.free_pages(), all - 3);
    EXPECT_EQ(cache.held_pages(0).size(), 3u);
    // Kernels see a page of the sequence in the place of the one that is gone.
    EXPECT_EQ(pages_of(cache, 0)[0], pages_of(cache, 0)[1]);
    EXPECT_EQ(cache.view(0).pages.size(), 4u);

    const std::int32_t length = cache.length(0);
    EXPECT_TRUE(cache.continues_from(0, length - KvCache::kRewind));
    EXPECT_FALSE(cache.continues_from(0, length - KvCache::kRewind - 1));
    EXPECT_TRUE(cache.continues_from(0, 0)) << "from nothing a text is evaluated again";
    EXPECT_DEATH(cache.truncate(0, kPage), "given its pages back");
    cache.truncate(0, length - KvCache::kRewind);
    grow(cache, 0, KvCache::kRewind);
    cache.release_left(0);
    EXPECT_EQ(cache.held_pages(0).size(), 3u) << "the page is gone";

    // A fork shares what is there; each gives back for itself.
    const core::SequenceId copy = cache.fork(0);
    grow(cache, copy, 2 * kPage);
    cache.release_left(copy);
    EXPECT_EQ(cache.first(copy), 3 * kPage);
    EXPECT_EQ(cache.first(0), kPage);
    EXPECT_EQ(cache.references(cache.held_pages(0)[0]), 1);
    cache.drop(0);
    EXPECT_EQ(cache.free_pages(), all - static_cast<std::int32_t>(cache.held_pages(copy).size()));
    cache.truncate(copy, 0);
    EXPECT_EQ(cache.first(copy), 0);
    EXPECT_EQ(cache.free_pages(), all);
    grow(cache, copy, 8 * kPage);
    cache.drop(copy);
    EXPECT_EQ(cache.free_pages(), all);
}

TEST(KvCache, KeepsAllPagesWhereALayerAttendsToAll) {
    KvCache cache = make_cache(8 * kPage, 1);
    grow(cache, 0, 8 * kPage);
    cache.release_left(0);
    EXPECT_EQ(cache.free_pages(), 0);
    EXPECT_TRUE(cache.continues_from(0, 1));
    EXPECT_EQ(cache.most_pages(1), 8);
}

// Random operations against a plain model of what pages must hold: no page is written while another sequence still
// needs it, none is lost, and a full pool never happens because every sequence has its share.
TEST(KvCache, RandomOperationsKeepPagesApart) {
    constexpr std::int32_t kCapacity = 5 * kPage;
    constexpr std::int32_t kSequences = 4;
    KvCache cache = make_cache(kCapacity, kSequences);
    std::mt19937 random(7);
    std::vector<core::SequenceId> alive = {0};
    for (int step = 0; step < 4000; ++step) {
        const core::SequenceId s = alive[random() % alive.size()];
        const std::int32_t length = cache.length(s);
        switch (random() % 4) {
            case 0: {
                const std::int32_t rows = static_cast<std::int32_t>(random() % 90);
                const bool fits = length + rows <= kCapacity;
                ASSERT_EQ(cache.reserve(s, rows), fits ? Reserve::ok : Reserve::sequence_full);
                if (!fits) break;
                // The pages that are about to be written belong to this sequence alone.
                const auto mine = pages_of(cache, s);
                for (const core::SequenceId other : alive) {
                    if (other == s || rows == 0) continue;
                    const auto theirs = pages_of(cache, other);
                    for (std::int32_t i = length / kPage; i <= (length + rows - 1) / kPage; ++i) {
                        ASSERT_EQ(std::count(theirs.begin(), theirs.end(), mine[static_cast<std::size_t>(i)]), 0);
                    }
                }
                cache.commit(s, rows);
                break;
            }
            case 1:
                cache.truncate(s, static_cast<std::int32_t>(random() % static_cast<unsigned>(length + 1)));
                break;
            case 2: {
                const core::SequenceId copy = cache.fork(s);
                ASSERT_EQ(copy < 0, alive.size() == kSequences);
                if (copy >= 0) alive.push_back(copy);
                break;
            }
            default:
                if (alive.size() > 1) {
                    cache.drop(s);
                    std::erase(alive, s);
                }
        }
        std::set<std::int32_t> used;
        for (const core::SequenceId sequence : alive) {
            for (const std::int32_t page : pages_of(cache, sequence)) used.insert(page);
        }
        ASSERT_EQ(static_cast<std::int32_t>(used.size()) + cache.free_pages(), 5 * kSequences);
    }
}

}  // namespace
}  // namespace foresay::test
