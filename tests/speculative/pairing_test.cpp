// Which models may pair, and what memory they take.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "kernels/kv_names.h"
#include "kernels/ops_decorator.h"
#include "kernels/split_ops.h"
#include "speculative/drafters/model_drafter.h"
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

// Wraps the drafter of the draft model and notes what it proposes.
class Noting final : public speculative::Drafter {
public:
    Noting(std::unique_ptr<speculative::Drafter> inner, std::vector<std::int32_t>& proposed)
        : inner_(std::move(inner)), proposed_(proposed) {}
    std::string_view name() const override { return "noting"; }
    void begin(std::span<const std::int32_t> tokens) override { inner_->begin(tokens); }
    void rewind(std::int32_t length) override { inner_->rewind(length); }
    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& draft) override {
        const std::size_t before = draft.tokens.size();
        inner_->propose(task, draft);
        proposed_.insert(proposed_.end(), draft.tokens.begin() + static_cast<std::ptrdiff_t>(before),
                         draft.tokens.end());
    }

private:
    std::unique_ptr<speculative::Drafter> inner_;
    std::vector<std::int32_t>& proposed_;
};

TEST(Pairing, TokensThatDifferAreNeverProposedAndTheTextStays) {
    const std::vector<std::int32_t> input = prompt();
    const speculative::GenerateRequest request{.input = input, .max_tokens = 64, .seed = 11};
    const auto generate = [&](std::vector<std::int32_t> never, std::vector<std::int32_t>& proposed) {
        auto context = std::make_unique<core::Context>(bundled(fast_backend(), "draft"), context_options());
        auto drafter = std::make_unique<Noting>(
            speculative::make_model_drafter(std::move(context), "draft", std::move(never)), proposed);
        auto generator = make_generator(temperature_chain(0.8), std::move(drafter), fixed(5));
        return generator.generate(request).tokens;
    };
    std::vector<std::int32_t> all, others;
    const std::vector<std::int32_t> text = generate({}, all);
    ASSERT_GT(all.size(), 40u);
    std::vector<std::int32_t> never(all.begin(), all.end());  // every other token that was proposed
    std::ranges::sort(never);
    never.erase(std::unique(never.begin(), never.end()), never.end());
    for (std::size_t i = 1; i < never.size(); ++i) never.erase(never.begin() + static_cast<std::ptrdiff_t>(i));
    EXPECT_EQ(generate(never, others), text);
    EXPECT_GT(others.size(), 10u);
    for (const std::int32_t token : others) EXPECT_FALSE(std::ranges::binary_search(never, token)) << token;
    // With none left to propose, the target writes alone.
    std::vector<std::int32_t> every(16384), none;
    for (std::int32_t id = 0; id < 16384; ++id) every[static_cast<std::size_t>(id)] = id;
    EXPECT_EQ(generate(every, none), text);
    EXPECT_TRUE(none.empty());
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

// A device that keeps a layer of codes in float16 beside the cache while a prompt is read.
class Expands final : public kernels::OpsDecorator {
public:
    explicit Expands(kernels::Ops& inner) : OpsDecorator(inner) {}
    std::int64_t expanded_kv_bytes(const kernels::KvShape& shape, std::int32_t pages,
                                   kernels::KvFormat format) const override {
        const bool codes = format != kernels::KvFormat::f16;
        return codes ? kv_bytes(kernels::KvShape({shape.layers.front()}), pages, kernels::KvFormat::f16) : 0;
    }
};

TEST(Memory, CountsTheLayerOfACacheOfCodesThatPromptsRead) {
    auto source = core::ModelSource::open(bundled_path("target"));
    kernels::Ops& plain = fast_backend().ops();
    Expands device(plain);
    const auto working_memory = [&](const kernels::Ops& ops, kernels::KvFormat format) {
        const core::ContextOptions options{.length = 2048, .sequences = 3, .kv_format = format};
        return speculative::estimate_memory(*source, options, ops).activations;
    };
    using kernels::KvFormat;
    EXPECT_EQ(working_memory(device, KvFormat::f16), working_memory(plain, KvFormat::f16));
    // Three contexts of 2048 positions, K and V, 4 heads of 64, at 2 bytes.
    EXPECT_EQ(working_memory(device, KvFormat::q8), working_memory(plain, KvFormat::q8) + 3 * 2048LL * 2 * 256 * 2);
    // Layers on two devices: each has one of its own.
    kernels::SplitOps split({std::shared_ptr<kernels::Ops>(std::shared_ptr<kernels::Ops>(), &device),
                             std::shared_ptr<kernels::Ops>(std::shared_ptr<kernels::Ops>(), &device)});
    kernels::KvShape shape = core::kv_shape(source->config());
    const std::int64_t one = device.expanded_kv_bytes(shape, 8, KvFormat::q8);
    for (std::size_t i = shape.layers.size() / 2; i < shape.layers.size(); ++i) shape.layers[i].device = 1;
    EXPECT_EQ(split.expanded_kv_bytes(shape, 8, KvFormat::q8), 2 * one);
    for (kernels::KvLayer& layer : shape.layers) layer.device = 1;
    EXPECT_EQ(split.expanded_kv_bytes_on(0, shape, 8, KvFormat::q8), 0);
    EXPECT_EQ(split.expanded_kv_bytes(shape, 8, KvFormat::q8), one);
}

// Eight contexts that a memory holds in four bits, and two of them in float16; each has the logits that it has alone.
TEST(Memory, SeveralContextsFitOnlyInFourBits) {
    using kernels::KvFormat, kernels::KvType;
    constexpr std::int32_t kContexts = 8;
    constexpr KvFormat kFour = kernels::kv_format(KvType::q4, KvType::q4);
    auto source = core::ModelSource::open(bundled_path("target"));
    const auto options = [](KvFormat format, std::int32_t sequences) {
        return core::ContextOptions{.length = 2048, .prefill_rows = 64, .sequences = sequences, .kv_format = format};
    };
    const auto fits = [&](KvFormat format, std::int32_t sequences, std::int64_t available) {
        try {
            const auto estimate =
                speculative::estimate_memory(*source, options(format, sequences), fast_backend().ops());
            speculative::require_memory(estimate, available, "target");
            return true;
        } catch (const Error& error) {
            EXPECT_THAT(error.what(), testing::HasSubstr("use a smaller model or a shorter --context"));
            return false;
        }
    };
    const auto four = speculative::estimate_memory(*source, options(kFour, kContexts), fast_backend().ops());
    for (const KvFormat format : kernels::all_kv_formats()) {
        EXPECT_EQ(fits(format, kContexts, four.total()), format == kFour) << kernels::name(format);
    }
    EXPECT_TRUE(fits(KvFormat::f16, 2, four.total()));
    EXPECT_FALSE(fits(KvFormat::f16, 3, four.total()));

    const auto model = bundled(fast_backend(), "target");
    core::Context together(model, options(kFour, kContexts));
    EXPECT_LE(together.cache().pages().bytes, four.cache);
    for (core::SequenceId sequence = 1; sequence < kContexts; ++sequence)
        ASSERT_EQ(together.cache().create(), sequence);
    const std::vector<std::int32_t> rows = {39};
    for (core::SequenceId sequence = 0; sequence < kContexts; ++sequence) {
        std::vector<kernels::TokenRef> tokens;
        for (std::int32_t i = 0; i < 40; ++i) tokens.push_back(kernels::TokenRef::id(300 + 7 * i % 50 + 60 * sequence));
        core::Context alone(model, options(kFour, 1));
        ASSERT_TRUE(alone.evaluate(kernels::RowClass::prefill, tokens, rows));
        const std::vector<float> expected(alone.logits(0).begin(), alone.logits(0).end());
        ASSERT_TRUE(together.evaluate(kernels::RowClass::prefill, tokens, rows, sequence));
        EXPECT_TRUE(std::ranges::equal(together.logits(0), expected)) << "context " << sequence;
    }
}

}  // namespace
}  // namespace foresay::test
