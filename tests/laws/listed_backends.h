// tests/laws/listed_backends.h: the texts that tests of a list of backends (layers split over them, or each layer
// divided) play on one backend and on the list, and compare byte for byte.
//
// A test has its own ways to put a model on the list, and its own hand-overs; what a text does is here.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <memory>
#include <vector>

#include "base/error.h"
#include "kernels/divided_ops.h"
#include "kernels/sampling_plan.h"
#include "tests/laws/rows.h"
#include "tests/models/family_models.h"

namespace foresay::test {

constexpr std::size_t kTokens = 80;  // more than a page

// Experts whose widths are whole blocks of every type, and of which 64 rows use more than one launch of a device's
// router chooses (kernels/cuda/experts/experts.h).
inline core::ModelConfig mixture_config() {
    return config_of(R"({"architectures": ["MixtralForCausalLM"], "bos_token_id": 0, "eos_token_id": 1,
        "head_dim": 64, "hidden_act": "silu", "hidden_size": 256, "intermediate_size": 256,
        "max_position_embeddings": 512, "model_type": "mixtral", "num_attention_heads": 4, "num_experts_per_tok": 9,
        "num_hidden_layers": 2, "num_key_value_heads": 2, "num_local_experts": 16, "rms_norm_eps": 1e-05,
        "rope_theta": 1000000.0, "sliding_window": 16, "tie_word_embeddings": false, "vocab_size": 512})");
}
// Of three ranks with these shares the second has a KV head and no expert, the third experts and no head.
inline const std::vector<std::int32_t> kSharesWithoutExperts = {60, 1, 20};

inline std::shared_ptr<kernels::Ops> lent(kernels::Ops& ops) { return {std::shared_ptr<kernels::Ops>(), &ops}; }
inline kernels::Ops& host() { return backends()[1].ops(); }

// What a model computes of its tokens: the logits of every row, and the keys and values.
struct Outcome {
    Rows logits;
    std::vector<std::byte> pages;
    bool operator==(const Outcome&) const = default;
};

inline core::ContextOptions options(kernels::KvFormat format = kernels::KvFormat::f16) {
    return {.length = 128, .prefill_rows = 64, .decode_rows = 64, .sequences = 2, .kv_format = format};
}

// The keys and values of a sequence, in the order of layers and heads. A page of the host has that order; divided, it
// has the layers of the first rank, then those of the second.
inline std::vector<std::byte> pages_of(core::Context& context, core::SequenceId sequence) {
    const auto* const divided = dynamic_cast<const kernels::DividedOps*>(&context.ops());
    kernels::KvPages& kv = context.cache().pages();
    const auto bytes = static_cast<std::size_t>(context.ops().kv_bytes(kv.shape, 1, kv.format));
    std::vector<std::byte> all, page(bytes);
    for (const std::int32_t number : context.cache().view(sequence).pages) {
        context.ops().read_page(kv, number, page);
        if (divided == nullptr) {
            all.insert(all.end(), page.begin(), page.end());
            continue;
        }
        std::vector<std::vector<std::byte>> layers(kv.shape.layers.size());
        auto at = page.begin();
        for (std::size_t r = 0; r < divided->size(); ++r) {
            for (std::size_t i = 0; i < layers.size(); ++i) {
                const auto own = static_cast<std::ptrdiff_t>(
                    divided->kv_bytes_on(r, kernels::KvShape({kv.shape.layers[i]}), 1, kv.format));
                layers[i].insert(layers[i].end(), at, at + own);
                at += own;
            }
        }
        EXPECT_TRUE(at == page.end());
        for (const auto& layer : layers) all.insert(all.end(), layer.begin(), layer.end());
    }
    return all;
}

inline Outcome evaluate(const std::shared_ptr<const core::Model>& model, kernels::RowClass row_class,
                        const std::vector<std::size_t>& widths, kernels::KvFormat format = kernels::KvFormat::f16) {
    core::Context context(model, options(format));
    Outcome outcome;
    feed(context, row_class, random_tokens(kTokens, model->config().shape.vocab, 5), widths, outcome.logits);
    for (const auto& row : outcome.logits) {
        for (const float logit : row) EXPECT_TRUE(std::isfinite(logit));
    }
    outcome.pages = pages_of(context, 0);
    return outcome;
}

// On one backend, or with each layer divided over the ranks of a DividedOps.
inline std::shared_ptr<const core::Model> load_whole_or_divided(std::shared_ptr<core::ModelSource> source,
                                                                kernels::Ops& ops) {
    if (const auto* const divided = dynamic_cast<kernels::DividedOps*>(&ops)) {
        source->place_layers(std::vector<std::int32_t>(static_cast<std::size_t>(source->config().shape.layers),
                                                       -static_cast<std::int32_t>(divided->size())));
    }
    return core::Model::load(std::move(source), ops);
}

// Whether a model was refused because cuBLASLt multiplies a part of some dense matrix in another order.
inline bool other_order(const std::string& problem) {
    return problem.find("in another order than all of them") != std::string::npos;
}

// Of a text that is truncated and forked, and whose pages come back into another context, as a server's memory brings
// them.
inline Outcome forked_and_restored(const std::shared_ptr<const core::Model>& model) {
    const std::vector<std::int32_t> tokens = random_tokens(kTokens, model->config().shape.vocab, 5);
    core::Context context(model, options());
    Outcome outcome;
    feed(context, kernels::RowClass::decode, tokens, {33}, outcome.logits);
    context.truncate(70);
    feed(context, kernels::RowClass::decode, std::span(tokens).first(9), {4}, outcome.logits);
    const core::SequenceId fork = context.fork(0);
    feed(context, kernels::RowClass::decode, std::span(tokens).last(9), {9}, outcome.logits, fork);
    feed(context, kernels::RowClass::decode, std::span(tokens).last(8), {1}, outcome.logits);
    outcome.pages = pages_of(context, 0);
    const std::vector<std::byte> forked = pages_of(context, fork);
    outcome.pages.insert(outcome.pages.end(), forked.begin(), forked.end());
    core::Context other(model, options());
    EXPECT_EQ(other.cache().reserve(0, context.length()), core::Reserve::ok);
    std::vector<std::byte> page(static_cast<std::size_t>(
        context.ops().kv_bytes(context.cache().pages().shape, 1, context.cache().pages().format)));
    const std::span<const std::int32_t> from = context.cache().view(0).pages, to = other.cache().view(0).pages;
    for (std::size_t i = 0; i < std::min(from.size(), to.size()); ++i) {
        context.ops().read_page(context.cache().pages(), from[i], page);
        other.ops().write_page(other.cache().pages(), to[i], page);
    }
    other.cache().commit(0, context.length());
    Rows restored, direct;
    feed(other, kernels::RowClass::decode, std::span(tokens).first(5), {5}, restored);
    feed(context, kernels::RowClass::decode, std::span(tokens).first(5), {5}, direct);
    EXPECT_EQ(restored, direct);
    outcome.logits.insert(outcome.logits.end(), restored.begin(), restored.end());
    return outcome;
}

// Of a text whose tokens are sampled into slots, which later rows embed: the logits, and the tokens.
inline std::vector<float> slots_embedded(const std::shared_ptr<const core::Model>& model) {
    const std::vector<std::int32_t> tokens = random_tokens(kTokens, model->config().shape.vocab, 5);
    core::Context context(model, options());
    std::vector<float> out;
    EXPECT_TRUE(context.decode(std::span(tokens).first(9), 1));
    for (std::int32_t slot = 0; slot < 6; ++slot) {
        kernels::SamplingPlan plan;
        plan.vocab = model->config().shape.vocab;
        context.ops().sample(context.workspace(), std::span(&plan, 1), std::span(&slot, 1));
        const kernels::TokenRef token = kernels::TokenRef::slot(slot);
        EXPECT_TRUE(context.decode(std::span(&token, 1), 1));
        out.insert(out.end(), context.logits(0).begin(), context.logits(0).end());
        out.push_back(static_cast<float>(context.ops().sampled(context.workspace(), slot).token));
    }
    return out;
}

// Of a short text and a fork of it: every kind of hand-over, and a copied page.
inline Outcome forked(const std::shared_ptr<const core::Model>& model) {
    const std::vector<std::int32_t> tokens = random_tokens(kTokens, model->config().shape.vocab, 5);
    core::Context context(model, options());
    Outcome outcome;
    feed(context, kernels::RowClass::decode, std::span(tokens).first(40), {8}, outcome.logits);
    feed(context, kernels::RowClass::decode, std::span(tokens).first(9), {3}, outcome.logits, context.fork(0));
    outcome.pages = pages_of(context, 0);
    return outcome;
}

// Fails at one of the calls of a forward. A test adds the hand-overs of its list, which count(), too.
template <typename Decorator>
class Failing : public Decorator {
public:
    explicit Failing(kernels::Ops& inner) : Decorator(inner) {}
    int calls = 0;                            // until the one that fails; 0: none does
    std::atomic<bool>* interrupts = nullptr;  // becomes true in that call, which does not fail then

    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        count();
        this->inner().begin(workspace, batch);
    }
    void embed(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        count();
        this->inner().embed(op, workspace);
    }
    void attention_in(const kernels::PreparedOp& op, kernels::Workspace& workspace, kernels::KvPages& kv,
                      std::int32_t layer) override {
        count();
        this->inner().attention_in(op, workspace, kv, layer);
    }
    void attend(const kernels::PreparedOp& op, kernels::Workspace& workspace, const kernels::KvPages& kv,
                std::int32_t layer) override {
        count();
        this->inner().attend(op, workspace, kv, layer);
    }
    void attention_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        count();
        this->inner().attention_out(op, workspace);
    }
    void mlp_in(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        count();
        this->inner().mlp_in(op, workspace);
    }
    void mlp_out(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        count();
        this->inner().mlp_out(op, workspace);
    }
    void lm_head(const kernels::PreparedOp& op, kernels::Workspace& workspace) override {
        count();
        this->inner().lm_head(op, workspace);
    }
    std::span<float> logits(kernels::Workspace& workspace, std::int32_t i) override {
        count();
        return this->inner().logits(workspace, i);
    }

protected:
    void count() {
        if (calls == 0 || --calls > 0) return;
        if (interrupts == nullptr) throw Error("no answer");
        *interrupts = true;
    }
};

// Wherever in a forward the backend `failing` fails, which the list of `context` calls so: it is named, the text
// is what it was, and the next forward gives the rows of `whole`. Returns in how many places it failed.
template <typename Decorator>
int failures_that_leave_nothing(Failing<Decorator>& failing, core::Context& context,
                                const std::shared_ptr<const core::Model>& whole) {
    const std::vector<std::int32_t> tokens = random_tokens(kTokens, whole->config().shape.vocab, 5);
    Rows expected;
    core::Context plain(whole, options());
    feed(plain, kernels::RowClass::decode, std::span(tokens).first(28), {28}, expected);
    Rows rows;
    feed(context, kernels::RowClass::decode, std::span(tokens).first(20), {20}, rows);
    int failures = 0;
    for (bool failed = true; failed;) {
        failing.calls = failures + 1;
        failed = false;
        Rows more;
        try {
            feed(context, kernels::RowClass::decode, std::span(tokens).subspan(20, 8), {8}, more);
        } catch (const Error& problem) {
            EXPECT_STREQ(problem.what(), "failing: no answer");
            failed = true;
            ++failures;
        }
        failing.calls = 0;
        context.truncate(20);
        more.clear();
        feed(context, kernels::RowClass::decode, std::span(tokens).subspan(20, 8), {8}, more);
        EXPECT_TRUE(std::equal(more.begin(), more.end(), expected.begin() + 20)) << failures;
        context.truncate(20);
    }
    return failures;
}

// Wherever in a prefill of one chunk Ctrl-C comes, in a call of `backend`, no further stage runs, the text is what it
// was, and the next forward gives the row of `whole`. Returns in how many places it came.
template <typename Decorator>
int interrupts_that_leave_nothing(Failing<Decorator>& backend, core::Context& context,
                                  const std::shared_ptr<const core::Model>& whole) {
    const std::vector<std::int32_t> tokens = random_tokens(kTokens, whole->config().shape.vocab, 5);
    const auto row = [](core::Context& of) { return std::vector<float>(of.logits(0).begin(), of.logits(0).end()); };
    core::Context plain(whole, options());
    EXPECT_TRUE(plain.prefill(std::span(tokens).first(60)));
    const std::vector<float> expected = row(plain);
    EXPECT_TRUE(context.prefill(std::span(tokens).first(20)));
    std::atomic<bool> cancel = false;
    backend.interrupts = &cancel;
    int places = 0;
    for (bool done = false; !done;) {
        backend.calls = places + 1;
        cancel = false;
        done = context.prefill(std::span(tokens).subspan(20, 40), 0, &cancel);
        backend.calls = 0;
        if (!done) {
            ++places;
            EXPECT_TRUE(cancel);
            EXPECT_EQ(context.length(), 20);
            EXPECT_TRUE(context.prefill(std::span(tokens).subspan(20, 40)));
        }
        EXPECT_EQ(row(context), expected) << places;
        context.truncate(20);
    }
    backend.interrupts = nullptr;
    return places;
}

}  // namespace foresay::test
