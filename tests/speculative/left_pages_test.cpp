// A model whose layers all have a window: the texts of a batch give back the pages that every window has left, and are
// what they are with all their pages, as a Generator keeps them.
#include <gtest/gtest.h>

#include "core/cache/page_store.h"
#include "speculative/prefix_cache.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {
namespace {

using core::SpeculationMode;
using speculative::BatchGenerator;

constexpr std::int32_t kPage = kernels::kPagePositions;
constexpr std::int32_t kWindow = 40;
constexpr std::int32_t kLength = 1024;
constexpr std::int32_t kVocab = 256;

class SmallVocabulary final : public samplers::Vocabulary {
public:
    std::int32_t size() const override { return kVocab; }
    std::string_view text(std::int32_t) const override { return "x"; }
    std::int32_t find(std::string_view) const override { return -1; }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view) const override { return std::nullopt; }
};

std::unique_ptr<samplers::Chain> small_chain() {
    static const SmallVocabulary vocabulary;
    return std::make_unique<samplers::Chain>(samplers::ChainSpec{stage("temperature", {{"value", 0.8}})}, vocabulary);
}

// Two layers with windows of different widths; `global`: the second one attends to all.
core::ModelConfig sliding_config(bool global = false) {
    core::ModelConfig config = small_config();
    config.shape = {
        .layers = 2, .d_model = 64, .heads = 2, .kv_heads = 1, .head_dim = 32, .d_ff = 128, .vocab = kVocab};
    config.context_length = kLength;
    config.window = kWindow;
    core::spell_out_layers(config);
    config.layers[0].window = kWindow / 2;
    if (global) config.layers[1].window = 0;
    return config;
}

std::shared_ptr<const core::Model> sliding_model(const Backend& backend, bool global = false) {
    static std::map<std::pair<std::string, bool>, std::shared_ptr<const core::Model>> made;
    std::shared_ptr<const core::Model>& model = made[{backend.name, global}];
    if (model == nullptr) {
        model = random_model(sliding_config(global), kernels::QuantType::bf16, kernels::QuantType::bf16, backend.ops());
    }
    return model;
}

// The same weights under narrower windows, which often give the same token.
std::shared_ptr<const core::Model> near_sighted_model(const Backend& backend) {
    core::ModelConfig config = sliding_config();
    config.layers[1].window = kWindow / 4;
    return random_model(config, kernels::QuantType::bf16, kernels::QuantType::bf16, backend.ops());
}

core::ContextOptions sliding_options(std::int32_t sequences, std::int32_t branches) {
    return {.length = kLength,
            .prefill_rows = 128,
            .decode_rows = 33,
            .sequences = sequences,
            .branches = branches,
            .kv_format = kernels::KvFormat::f16};
}

speculative::BatchParts sliding_parts(const Backend& backend, std::int32_t sequences, std::int32_t branches,
                                      bool global = false) {
    auto target = sliding_model(backend, global);
    const std::int32_t short_given = core::short_given_tokens(target->ops());
    return {.target = std::make_shared<core::Context>(std::move(target), sliding_options(sequences, branches)),
            .short_given = short_given,
            .end_tokens = {}};
}

// In host memory.
std::shared_ptr<core::PageStore> store_for(core::Context& context) {
    const kernels::KvPages& pages = context.cache().pages();
    return std::make_shared<core::PageTiers>(
        context.ops(), core::PageTiersOptions{.page_bytes = context.ops().kv_bytes(pages.shape, 1, pages.format),
                                              .host_bytes = std::int64_t{64} << 20,
                                              .folder = {},
                                              .disk_bytes = 0,
                                              .fingerprint = "sliding",
                                              .notice = {}});
}

std::vector<std::int32_t> prompt_of(std::int32_t length, std::int32_t step) {
    std::vector<std::int32_t> tokens;
    for (std::int32_t i = 0; i < length; ++i) tokens.push_back((7 + i * step + i / 11) % kVocab);
    return tokens;
}

speculative::BatchRequest request_of(std::vector<std::int32_t> input, std::int32_t max_tokens, std::uint64_t seed) {
    return {.input = std::move(input), .chain = small_chain(), .max_tokens = max_tokens, .seed = seed, .stop = {}};
}

// With all pages.
std::vector<std::int32_t> alone(const Backend& backend, const std::vector<std::int32_t>& input, std::int32_t max_tokens,
                                std::uint64_t seed, bool global = false) {
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(sliding_model(backend, global), sliding_options(1, 0));
    parts.chain = small_chain();
    parts.speculation = off();
    speculative::Generator generator(std::move(parts));
    return generator.generate({.input = input, .max_tokens = max_tokens, .seed = seed}).tokens;
}

struct Text {
    std::vector<std::int32_t> input;
    std::int32_t max_tokens = 0;
    std::uint64_t seed = 0;
    std::vector<std::int32_t> expected;
};

std::vector<Text> texts_of(const Backend& backend) {
    std::vector<Text> texts = {{.input = prompt_of(3, 5), .max_tokens = 500, .seed = 1, .expected = {}},
                               {.input = prompt_of(70, 9), .max_tokens = 300, .seed = 2, .expected = {}},
                               {.input = prompt_of(450, 13), .max_tokens = 200, .seed = 3, .expected = {}},
                               {.input = prompt_of(450, 13), .max_tokens = 350, .seed = 4, .expected = {}},
                               {.input = prompt_of(130, 13), .max_tokens = 350, .seed = 5, .expected = {}}};
    for (Text& text : texts) text.expected = alone(backend, text.input, text.max_tokens, text.seed);
    return texts;
}

// Proposes what the texts go on with, and something else every now and then.
std::unique_ptr<speculative::Drafter> knowing_drafter(const std::vector<Text>& texts) {
    return std::make_unique<ScriptedDrafter>(
        "knows", [&texts](std::span<const std::int32_t> tokens, std::int32_t count) {
            std::vector<std::int32_t> drafted;
            for (const Text& text : texts) {
                std::vector<std::int32_t> all = text.input;
                all.insert(all.end(), text.expected.begin(), text.expected.end());
                if (all.size() < tokens.size() || !std::ranges::equal(tokens, std::span(all).first(tokens.size())))
                    continue;
                for (std::size_t i = tokens.size(); i < all.size() && std::ssize(drafted) < count; ++i) {
                    drafted.push_back(i % 13 == 0 ? (all[i] + 1) % kVocab : all[i]);
                }
                break;
            }
            return drafted;
        });
}

enum class Drafts : std::uint8_t { none, known, model };

// The most pages that a sequence held; checks that no sequence held more than it may.
std::size_t step_through(BatchGenerator& batch, std::int32_t ids) {
    const core::KvCache& cache = batch.target().cache();
    const auto bound = static_cast<std::size_t>(cache.most_pages(batch.target().max_rows()));
    std::size_t most = 0;
    while (batch.step()) {
        for (core::SequenceId id = 0; id < ids; ++id) {
            if (!cache.exists(id)) continue;
            // And one to spare, which a truncation may leave.
            EXPECT_LE(cache.held_pages(id).size(), bound + 1);
            most = std::max(most, cache.held_pages(id).size());
        }
    }
    return most;
}

class LeftPages : public testing::TestWithParam<std::tuple<std::string, Drafts>> {};

TEST_P(LeftPages, TextsAreWhatTheyAreWithAllPages) {
    const auto& [name, drafts] = GetParam();
    const Backend& backend = name == "reference" ? backends().front() : fast_backend();
    const std::vector<Text> texts = texts_of(backend);
    // 32 pages, and texts that would hold 40 in the end.
    speculative::BatchParts parts = sliding_parts(backend, 2, 4);
    if (drafts == Drafts::known) {
        parts.speculation = fixed(7);
        parts.make_drafter = [&texts](std::int32_t) { return knowing_drafter(texts); };
    }
    if (drafts == Drafts::model) {
        parts.speculation = fixed(4);
        parts.draft = std::make_unique<core::Context>(near_sighted_model(backend), sliding_options(2, 4));
    }
    core::Context* const draft = parts.draft.get();
    BatchGenerator batch(std::move(parts));
    for (int round = 0; round < 2; ++round) {  // the second one begins with what the first one left
        std::deque<Recorder> sinks(texts.size());
        for (std::size_t i = 0; i < texts.size(); ++i) {
            batch.add(request_of(texts[i].input, texts[i].max_tokens, texts[i].seed), sinks[i]);
        }
        EXPECT_GT(step_through(batch, 6), 0u);
        for (std::size_t i = 0; i < texts.size(); ++i) {
            EXPECT_EQ(sinks[i].tokens, texts[i].expected) << i;
            EXPECT_TRUE(sinks[i].error.empty()) << sinks[i].error;
            if (drafts != Drafts::none) {
                EXPECT_GT(sinks[i].result.speculation.accepted, 0);
            }
        }
    }
    EXPECT_EQ(batch.counters().preemptions, 0);
    if (drafts != Drafts::none) {
        EXPECT_LT(batch.counters().accepted, batch.counters().drafted) << "nothing was dropped";
    }
    EXPECT_TRUE(no_page_is_lost(batch));
    if (draft != nullptr) {
        EXPECT_EQ(draft->cache().free_pages(), draft->cache().pages().pages);
    }
}

INSTANTIATE_TEST_SUITE_P(All, LeftPages,
                         testing::Combine(testing::Values("reference", "fast"),
                                          testing::Values(Drafts::none, Drafts::known, Drafts::model)));

TEST(LeftPagesOfATextThatGrows, AreGivenBack) {
    const Backend& backend = fast_backend();
    for (const bool global : {false, true}) {
        BatchGenerator batch(sliding_parts(backend, 1, 0, global));
        core::KvCache& cache = batch.target().cache();
        Recorder sink;
        batch.add(request_of(prompt_of(10, 3), kLength, 1), sink);
        std::int32_t most = 0;
        while (batch.step()) most = std::max(most, cache.pages().pages - cache.free_pages());
        EXPECT_EQ(sink.tokens.size(), static_cast<std::size_t>(kLength) - 10);
        EXPECT_EQ(sink.tokens, alone(backend, prompt_of(10, 3), kLength, 1, global));
        // A window, what a text may go back by, and the page that is being filled.
        if (global) {
            EXPECT_EQ(most, kLength / kPage) << "a layer attends to all positions";
        } else {
            EXPECT_LE(most, (kWindow + core::KvCache::kRewind) / kPage + 2);
        }
        EXPECT_TRUE(no_page_is_lost(batch));
    }
}

// A pool for one whole text is enough for four, which would give their pages up in turn if they kept all.
TEST(LeftPagesOfATextThatGrows, LeaveRoomForOthers) {
    const Backend& backend = fast_backend();
    for (const bool global : {false, true}) {
        BatchGenerator batch(sliding_parts(backend, 1, 3, global));
        std::deque<Recorder> sinks(4);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            batch.add(request_of(prompt_of(20, static_cast<std::int32_t>(3 + 2 * i)), 400, i), sinks[i]);
        }
        std::size_t most = 0;
        while (batch.step()) most = std::max(most, batch.running());
        EXPECT_EQ(most, 4u);
        EXPECT_EQ(batch.counters().preemptions > 0, global);
        for (std::size_t i = 0; i < sinks.size(); ++i) {
            const auto input = prompt_of(20, static_cast<std::int32_t>(3 + 2 * i));
            EXPECT_EQ(sinks[i].tokens, alone(backend, input, 400, i, global)) << i;
        }
    }
}

// A prompt that is longer than what a text holds at a time takes no more than that, either.
TEST(LeftPagesOfATextThatGrows, LongPromptsRunTogether) {
    const Backend& backend = fast_backend();
    BatchGenerator batch(sliding_parts(backend, 1, 1));
    std::deque<Recorder> sinks(2);
    for (std::size_t i = 0; i < sinks.size(); ++i) {
        batch.add(request_of(prompt_of(900, static_cast<std::int32_t>(3 + 2 * i)), 20, i), sinks[i]);
    }
    std::size_t most = 0;
    while (batch.step()) most = std::max(most, batch.running());
    EXPECT_EQ(most, 2u);
    EXPECT_EQ(batch.counters().preemptions, 0);
    for (std::size_t i = 0; i < sinks.size(); ++i) {
        EXPECT_EQ(sinks[i].tokens, alone(backend, prompt_of(900, static_cast<std::int32_t>(3 + 2 * i)), 20, i)) << i;
    }
}

// A second turn goes on from the end of the first one, whose windows have left its beginning. A text that parts from it
// earlier is evaluated from its first token, even if the two have much in common.
TEST(LeftPagesOfATextThatGrows, AreNotMissedByLaterTexts) {
    const Backend& backend = fast_backend();
    speculative::BatchParts parts = sliding_parts(backend, 2, 2);
    parts.classes_agree = true;
    parts.short_given = 0;
    BatchGenerator batch(std::move(parts));
    const auto ask = [&](const std::vector<std::int32_t>& input) {
        Recorder sink;
        batch.add(request_of(input, 30, 1), sink);
        while (batch.step()) {
        }
        EXPECT_EQ(sink.tokens, alone(backend, input, 30, 1));
        return sink;
    };
    std::vector<std::int32_t> first = prompt_of(500, 3);
    const Recorder answer = ask(first);
    EXPECT_EQ(answer.result.cached_tokens, 0);
    std::vector<std::int32_t> turn = first;
    turn.insert(turn.end(), answer.tokens.begin(), answer.tokens.end());
    turn.insert(turn.end(), {7, 8, 9});
    EXPECT_EQ(ask(turn).result.cached_tokens, 529) << "all but the last token of the answer";
    EXPECT_EQ(ask(first).result.cached_tokens, 499) << "a text may go back by some pages";
    std::vector<std::int32_t> other(first.begin(), first.begin() + 200);
    other.insert(other.end(), {1, 2, 3});
    EXPECT_EQ(ask(other).result.cached_tokens, 0);
    EXPECT_TRUE(no_page_is_lost(batch));
}

// A text that is kept stays beside a longer one that begins with it, but has given that beginning back.
TEST(LeftPagesOfATextThatGrows, LeaveShorterTextsTheirOwn) {
    const Backend& backend = fast_backend();
    speculative::BatchParts parts = sliding_parts(backend, 2, 2);
    parts.classes_agree = true;
    parts.short_given = 0;
    BatchGenerator batch(std::move(parts));
    const std::vector<std::int32_t> first = prompt_of(100, 3);
    Recorder answer, turn, again;
    batch.add(request_of(first, 30, 1), answer);
    step_through(batch, 4);
    std::vector<std::int32_t> more = first;
    more.insert(more.end(), answer.tokens.begin(), answer.tokens.end());
    for (const std::int32_t token : prompt_of(400, 5)) more.push_back(token);
    batch.add(request_of(more, 30, 1), turn);
    step_through(batch, 4);
    EXPECT_EQ(turn.result.cached_tokens, 129);
    batch.add(request_of(first, 30, 2), again);
    step_through(batch, 4);
    EXPECT_EQ(again.result.cached_tokens, 99);
    EXPECT_EQ(again.tokens, alone(backend, first, 30, 2));
}

// Pages that a text gives back are stored like those that are evicted, so its beginning is not lost.
TEST(LeftPagesOfATextThatGrows, ComeBackFromTheStore) {
    const Backend& backend = fast_backend();
    speculative::BatchParts parts = sliding_parts(backend, 1, 1);
    parts.pages = store_for(*parts.target);
    BatchGenerator batch(std::move(parts));
    const std::vector<std::int32_t> first = prompt_of(700, 3);
    Recorder sink, beginning, again;
    batch.add(request_of(first, 30, 1), sink);
    step_through(batch, 2);
    const std::vector<std::int32_t> other(first.begin(), first.begin() + 200);
    batch.add(request_of(other, 30, 2), beginning);
    step_through(batch, 2);
    EXPECT_EQ(beginning.result.cached_tokens, 192) << "three pages";
    EXPECT_EQ(beginning.tokens, alone(backend, other, 30, 2));
    batch.store_pages();
    batch.forget();
    batch.add(request_of(first, 30, 3), again);
    step_through(batch, 2);
    EXPECT_EQ(again.result.cached_tokens, 640) << "ten pages, of which it keeps what its windows reach";
    EXPECT_EQ(again.tokens, alone(backend, first, 30, 3));
    EXPECT_TRUE(no_page_is_lost(batch));
}

// Texts with common beginnings come, wait, are paused and cancelled at random, in too few pages for all: they give
// their pages up and come back, from the cache and from the store, with drafts and without.
TEST(LeftPagesOfATextThatGrows, AnyMixOfTextsIsRight) {
    const Backend& backend = fast_backend();
    std::map<std::tuple<std::int32_t, std::int32_t, std::uint64_t>, std::vector<std::int32_t>> known;
    std::int64_t preemptions = 0, cached = 0, restored = 0;
    for (unsigned seed = 0; seed < 6; ++seed) {
        speculative::BatchParts parts = sliding_parts(backend, 1, 9);  // 16 pages; a text holds up to 6
        parts.pages = store_for(*parts.target);
        parts.sure_growth = 1;    // many are admitted
        parts.now = free_rows();  // the schedule is the same on every machine
        if (seed % 2 == 1) {
            parts.speculation = fixed(static_cast<std::int32_t>(seed) + 2);
            parts.draft = std::make_unique<core::Context>(near_sighted_model(backend), sliding_options(1, 9));
        }
        BatchGenerator batch(std::move(parts));
        std::mt19937 random(seed);
        const auto any = [&](std::int32_t below) { return static_cast<std::int32_t>(random() % below); };
        struct Running {
            std::int32_t length = 0, kind = 0, tokens = 0;
            std::uint64_t seed = 0;
            speculative::Ticket ticket{};
            Recorder sink;
        };
        std::deque<Running> all;
        for (int step = 0; step < 900; ++step) {
            if (all.size() < 40 && any(6) == 0) {
                Running& one = all.emplace_back();
                one = {.length = 1 + any(2) * any(4) * 190 + any(20),
                       .kind = 3 + 2 * any(4),
                       .tokens = 20 + any(250),
                       .seed = random() % 3};
                one.ticket = batch.add(request_of(prompt_of(one.length, one.kind), one.tokens, one.seed), one.sink);
            }
            if (!all.empty()) {
                const speculative::Ticket one = all[static_cast<std::size_t>(any(std::ssize(all)))].ticket;
                if (any(80) == 0) batch.cancel(one);
                if (any(30) == 0) batch.pause(one);
            }
            for (const Running& one : all) {
                if (any(20) == 0) batch.resume(one.ticket);
            }
            if (any(300) == 0) batch.forget();
            batch.step();
        }
        for (const Running& one : all) batch.resume(one.ticket);
        while (batch.step()) {
        }
        for (const Running& one : all) {
            std::vector<std::int32_t>& expected = known[{one.length, one.kind, one.seed}];
            if (expected.empty()) expected = alone(backend, prompt_of(one.length, one.kind), 270, one.seed);
            ASSERT_TRUE(one.sink.ended);
            EXPECT_EQ(one.sink.error, "");
            ASSERT_LE(one.sink.tokens.size(), static_cast<std::size_t>(one.tokens));
            ASSERT_TRUE(std::ranges::equal(one.sink.tokens, std::span(expected).first(one.sink.tokens.size())))
                << "seed " << seed << ", a prompt of " << one.length;
        }
        preemptions += batch.counters().preemptions;
        cached += batch.counters().cached_tokens;
        restored += batch.counters().restored_tokens;
        EXPECT_TRUE(no_page_is_lost(batch));
    }
    EXPECT_GT(preemptions, 10);
    EXPECT_GT(restored, 0);
    EXPECT_GT(cached, restored);
}

// The conversation whose target a batch shares may go back in its text.
TEST(LeftPagesOfATextThatGrows, StayWhereTheTargetIsShared) {
    const Backend& backend = fast_backend();
    speculative::BatchParts parts = sliding_parts(backend, 1, 2);
    parts.shares_target = true;
    BatchGenerator batch(std::move(parts));
    Recorder sink;
    batch.add(request_of(prompt_of(10, 3), 600, 1), sink);
    const core::KvCache& cache = batch.target().cache();
    std::size_t most = 0;
    while (batch.step()) {
        for (const core::SequenceId id : {0, 1, 2}) {
            if (cache.exists(id)) most = std::max(most, cache.held_pages(id).size());
        }
    }
    EXPECT_EQ(most, 10u);
}

}  // namespace
}  // namespace foresay::test
