// What the draft model has evaluated of a text serves later texts, too: from the cache, from those that begin at the
// same time, and from pages that were stored. Texts are what they are alone.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/cache/page_store.h"
#include "speculative/prefix_cache.h"
#include "tests/speculative/batch_support.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

using speculative::BatchGenerator;

constexpr std::int32_t kPrompt = 200;
constexpr std::int32_t kTokens = 12;
// The draft model has no more rows for an answer of kTokens: a catching up and three steps for each token.
constexpr std::int64_t kMostAnswerRows = 4 * kTokens + 16;

std::vector<std::int32_t> text(std::int32_t step) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < kPrompt; ++i) tokens.push_back(300 + i * step % 97);
    return tokens;
}

speculative::BatchRequest request_of(const std::vector<std::int32_t>& input, std::uint64_t seed) {
    return {.input = input,
            .chain = temperature_chain(0.8),
            .max_tokens = kTokens,
            .seed = seed,
            .stop = {},
            .ignore_eos = true};
}

std::vector<std::int32_t> alone(const std::vector<std::int32_t>& input, std::uint64_t seed) {
    speculative::Generator generator = make_generator(temperature_chain(0.8), sources(nullptr), off());
    return generator.generate({.input = input, .max_tokens = kTokens, .seed = seed, .ignore_eos = true}).tokens;
}

// Each text drafts three tokens a round with the draft model. Its cache has pages for `contexts` whole texts.
speculative::BatchParts drafting(std::int32_t contexts = 4) {
    core::ContextOptions options = for_sequences(4, 256);
    options.branches = 4;
    speculative::BatchParts parts = batch_parts(options);
    parts.speculation = fixed(3);
    options.branches += options.sequences - contexts;
    options.sequences = contexts;
    parts.draft = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), options);
    return parts;
}

std::shared_ptr<core::PageTiers> store_for(core::Context& context, const std::filesystem::path& folder,
                                           const std::string& fingerprint) {
    const kernels::KvPages& pages = context.cache().pages();
    return std::make_shared<core::PageTiers>(
        context.ops(), core::PageTiersOptions{.page_bytes = context.ops().kv_bytes(pages.shape, 1, pages.format),
                                              .host_bytes = 0,
                                              .folder = folder,
                                              .disk_bytes = std::int64_t{1} << 30,
                                              .fingerprint = fingerprint,
                                              .notice = {}});
}

// Runs one text to its end. Returns how many rows the draft model had.
std::int64_t run(BatchGenerator& batch, const std::vector<std::int32_t>& input, std::uint64_t seed,
                 const std::string& salt = {}) {
    const std::int64_t before = batch.counters().draft_rows;
    Recorder sink;
    speculative::BatchRequest request = request_of(input, seed);
    request.cache_salt = salt;
    batch.add(std::move(request), sink);
    while (batch.step()) {
    }
    EXPECT_EQ(sink.tokens, alone(input, seed));
    EXPECT_GT(sink.result.speculation.drafted, 0);
    return batch.counters().draft_rows - before;
}

TEST(DraftPages, ASecondTextNeedNotEvaluateWhatTheFirstOneHas) {
    BatchGenerator batch(drafting());
    EXPECT_GE(run(batch, text(13), 1), kPrompt);
    EXPECT_EQ(batch.counters().draft_cached_tokens, 0);
    EXPECT_LE(run(batch, text(13), 2), kMostAnswerRows);
    EXPECT_EQ(batch.counters().draft_cached_tokens, kPrompt - 1);
    EXPECT_GE(run(batch, text(13), 3, "another user"), kPrompt);
    EXPECT_EQ(batch.counters().draft_cached_tokens, kPrompt - 1);
    EXPECT_TRUE(no_page_is_lost(batch));
}

TEST(DraftPages, TextsThatBeginTogetherEvaluateTheirPromptOnce) {
    BatchGenerator batch(drafting());
    std::deque<Recorder> sinks(4);
    for (std::size_t i = 0; i < sinks.size(); ++i) batch.add(request_of(text(13), i), sinks[i]);
    while (batch.step()) {
    }
    for (std::size_t i = 0; i < sinks.size(); ++i) EXPECT_EQ(sinks[i].tokens, alone(text(13), i)) << i;
    // And the first tokens of their answers, as far as these are equal.
    EXPECT_GE(batch.counters().draft_cached_tokens, 3 * kPrompt);
    EXPECT_LE(batch.counters().draft_cached_tokens, 3 * (kPrompt + kMostAnswerRows));
    EXPECT_LE(batch.counters().draft_rows, kPrompt + 4 * kMostAnswerRows);
}

// With pages for one text, what is kept of the first one gives way to the second, and comes back from the store.
TEST(DraftPages, ThoseThatAreKeptGiveWayToTextsThatRun) {
    const core::testing::TemporaryDirectory folder;
    speculative::BatchParts parts = drafting(1);
    core::Context& draft = *parts.draft;
    parts.draft_pages = store_for(draft, folder.path(), "the bundled draft");
    BatchGenerator batch(std::move(parts));
    run(batch, text(13), 1);
    EXPECT_LT(draft.cache().free_pages(), draft.cache().pages().pages);
    run(batch, text(17), 2);
    EXPECT_EQ(batch.counters().draft_cached_tokens, 1) << "the token that both begin with, whose page both hold";
    batch.store_pages();
    EXPECT_LE(run(batch, text(13), 3), kMostAnswerRows + kernels::kPagePositions);
    EXPECT_GE(batch.counters().draft_restored_tokens, 2 * kernels::kPagePositions);
    EXPECT_TRUE(no_page_is_lost(batch));
    EXPECT_EQ(draft.cache().free_pages(), draft.cache().pages().pages);
}

TEST(DraftPages, AnotherProgramFindsThemOnTheDiskAndNotThoseOfAnotherDraft) {
    const core::testing::TemporaryDirectory folder;
    const auto rows = [&](const std::string& fingerprint, std::int64_t& restored, std::uint64_t seed) {
        speculative::BatchParts parts = drafting();
        parts.pages = store_for(*parts.target, folder.path(), "the bundled target");
        parts.draft_pages = store_for(*parts.draft, folder.path(), fingerprint);
        BatchGenerator batch(std::move(parts));
        const std::int64_t all = run(batch, text(13), seed);
        batch.store_pages();
        restored = batch.counters().draft_restored_tokens;
        return all;
    };
    constexpr std::int64_t kWhole = kPrompt / kernels::kPagePositions * kernels::kPagePositions;
    std::int64_t restored = -1;
    EXPECT_GE(rows("the bundled draft", restored, 1), kPrompt);
    EXPECT_EQ(restored, 0);
    EXPECT_LE(rows("the bundled draft", restored, 2), kPrompt - kWhole + kMostAnswerRows);
    EXPECT_EQ(restored, kWhole);
    EXPECT_GE(rows("another draft", restored, 3), kPrompt);
    EXPECT_EQ(restored, 0);
}

// A text that has both, and a shorter one of it that the draft model knows better.
TEST(PrefixCache, AListOfTextsServesTargetAndDraft) {
    using speculative::PagesOf;
    core::ContextOptions options = for_sequences(2, 256);
    options.branches = 4;
    core::Context target(bundled(fast_backend(), "target"), options);
    core::Context draft(bundled(fast_backend(), "draft"), options);
    speculative::PrefixCache kept({.cache = &target.cache(), .ops = &target.ops()});
    kept.add_draft({.cache = &draft.cache(), .classes_agree = true, .ops = &draft.ops()});
    for (core::Context* context : {&target, &draft}) context->cache().drop(0);
    const std::vector<std::int32_t> whole = text(13);
    const auto first = [&](std::int32_t count) { return std::span(whole).first(static_cast<std::size_t>(count)); };
    const auto holding = [&](core::Context& context, std::int32_t count) {
        const core::SequenceId id = context.cache().create();
        EXPECT_TRUE(context.prefill(first(count), id));
        return id;
    };
    const std::vector<kernels::RowClass> rows(whole.size(), kernels::RowClass::prefill);
    const speculative::PrefixKey key{whole, rows, {}};
    const core::SequenceId drafted = holding(draft, 130);
    kept.keep(holding(target, 140), {first(150), rows, {}}, drafted);
    EXPECT_EQ(kept.find(key).length, 140);
    EXPECT_EQ(kept.find(key, PagesOf::draft).length, 130);
    // The draft's pages go from the end, the target's stay.
    ASSERT_TRUE(kept.evict_page(PagesOf::draft));
    EXPECT_EQ(kept.find(key, PagesOf::draft).length, 128);
    EXPECT_EQ(kept.find(key).length, 140);
    // A longer text takes its place. For the draft the old one is still the better one.
    kept.keep(holding(target, 190), key, holding(draft, 40));
    EXPECT_EQ(kept.texts(), 1u);
    EXPECT_EQ(kept.texts(PagesOf::draft), 1u);
    EXPECT_EQ(kept.find(key).length, 190);
    EXPECT_EQ(kept.find(key, PagesOf::draft).sequence, drafted);
    EXPECT_EQ(kept.find(key, PagesOf::draft).length, 128);
    // One may be dropped without the other.
    ASSERT_TRUE(kept.evict_text());
    EXPECT_EQ(kept.texts(), 0u);
    EXPECT_EQ(kept.find(key, PagesOf::draft).length, 128);
    EXPECT_EQ(target.cache().free_pages(), target.cache().pages().pages);
    kept.forget();
    EXPECT_EQ(draft.cache().free_pages(), draft.cache().pages().pages);
}

}  // namespace
}  // namespace foresay::test
