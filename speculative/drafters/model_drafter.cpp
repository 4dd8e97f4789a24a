#include "speculative/drafters/model_drafter.h"

#include <algorithm>

#include "core/config/schema.h"
#include "samplers/chain.h"
#include "speculative/device_sampling.h"
#include "speculative/drafters/drafters.h"

namespace foresay::speculative {
namespace {

// propose() first brings the KV cache up to the sequence and the draft so far (catch_up), which leaves the logits of
// the last token. Each step then samples a token and evaluates it for the next one. On an asynchronous backend the
// device samples into one of two token slots, used in turn, and the next forward may read its token from there. held_
// mirrors the cache; a mismatch with the sequence truncates both.
class ModelDrafter final : public Drafter {
public:
    ModelDrafter(std::unique_ptr<core::Context> context, std::string name, std::vector<std::int32_t> never_proposed)
        : context_(std::move(context)), name_(std::move(name)), never_proposed_(std::move(never_proposed)) {
        held_.reserve(static_cast<std::size_t>(context_->capacity()));
        known_.reserve(held_.capacity());
    }

    std::string_view name() const override { return name_; }
    double step_ms() const override { return step_ms_; }
    core::Context* token_source() override { return context_.get(); }

    void warm_up(Now now) override {
        constexpr int kSteps = 4;
        held_.clear();
        const std::int32_t token = 0;
        step_ms_ = 0.0;
        for (int step = 0; step < std::min(kSteps, context_->capacity()); ++step) {
            context_->truncate(0);
            const double start = now();
            context_->decode(std::span(&token, 1));
            context_->wait();
            const double ms = now() - start;
            step_ms_ = step == 0 ? ms : std::min(step_ms_, ms);
        }
        warm_up_widths();
        context_->truncate(0);
        checked_ = 0;
    }

    void begin(std::span<const std::int32_t> tokens) override { rewind(static_cast<std::int32_t>(tokens.size())); }

    void rewind(std::int32_t length) override { checked_ = std::clamp(length - base_, 0, checked_); }

    void forget() override {
        held_.clear();
        context_->truncate(0);
        base_ = 0;
        checked_ = 0;
    }

    void propose(const DraftTask& task, DraftedTokens& draft) override {
        const std::int32_t before = static_cast<std::int32_t>(draft.tokens.size());
        if (task.max_tokens <= before || task.tokens.empty() || !catch_up(task, draft.tokens)) return;
        chain_.start_without_masks(*task.chain);
        for (const std::int32_t token : draft.tokens) chain_.advance(token);
        const std::int32_t limit =
            std::min(task.max_tokens, before + context_->capacity() - static_cast<std::int32_t>(held_.size()) + 1);
        for (std::int32_t count = before + 1;; ++count) {
            // On an asynchronous backend the next step starts without waiting for the token, if the stop rule is likely
            // to want it. A step that proves unwanted has still put the token into the cache, in case it is accepted.
            const std::int32_t slot = count % 2;
            const RowSource source = start_sampling(slot);
            bool evaluated = false;
            const auto lookahead = source != RowSource::tokens ? DraftStopRule::Lookahead::unknown
                                   : count == limit            ? DraftStopRule::Lookahead::end
                                   : task.stop_rule == nullptr ? DraftStopRule::Lookahead::more
                                                               : task.stop_rule->lookahead();
            // An open draft ends in a token that may be one of those that are never proposed.
            if (lookahead == DraftStopRule::Lookahead::end && task.may_stay_open && never_proposed_.empty()) {
                draft.open_slot = slot;
                return;
            }
            if (lookahead == DraftStopRule::Lookahead::more) {
                const kernels::TokenRef next = kernels::TokenRef::slot(slot);
                evaluated = context_->decode(std::span(&next, 1));
            }
            const kernels::SampledToken sampled = sample(source, slot);
            if (sampled.token < 0 || std::ranges::binary_search(never_proposed_, sampled.token)) {
                context_->truncate(static_cast<std::int32_t>(held_.size()));
                return;
            }
            if (evaluated) held_.push_back(sampled.token);
            draft.tokens.push_back(sampled.token);
            draft.margins.push_back(sampled.margin);
            if (count == limit || std::ranges::find(task.end_tokens, sampled.token) != task.end_tokens.end()) return;
            if (task.stop_rule != nullptr && !task.stop_rule->keep_drafting(count, sampled.margin)) return;
            chain_.advance(sampled.token);
            if (evaluated) continue;
            if (!context_->decode(std::span(&sampled.token, 1))) return;
            held_.push_back(sampled.token);
        }
    }

private:
    // The first two forwards of a width capture its graph on a device. catch_up() may need any width, because the
    // tokens of other sources are missing in the cache.
    void warm_up_widths() {
        if (!context_->ops().asynchronous()) return;
        const std::int32_t widest = std::min(context_->options().decode_rows, core::kMaxDraft + 1);
        const std::vector<std::int32_t> rows(static_cast<std::size_t>(std::max(widest, 0)), 0);
        for (std::size_t width = 2; width <= rows.size(); ++width) {
            for (int repeat = 0; repeat < 2; ++repeat) {
                context_->truncate(0);
                context_->decode(std::span(rows).first(width), 1);
            }
        }
        context_->wait();
    }

    // Starts sampling from the last forward's row on the device, as far as the chain can run there.
    RowSource start_sampling(std::int32_t slot) {
        if (!context_->ops().asynchronous()) return RowSource::logits;
        const auto compile = [&] { return chain_.compile(plan_) == nullptr || chain_.compile_prefix(plan_); };
        if (!compile()) return RowSource::logits;
        if (make_room(plan_)) compile();
        context_->ops().sample(context_->workspace(), {&plan_.plan, 1}, {&slot, 1});
        return plan_.plan.keep ? RowSource::candidates : RowSource::tokens;
    }

    kernels::SampledToken sample(RowSource source, std::int32_t slot) {
        if (source == RowSource::logits) return chain_.propose(context_->logits(0));
        kernels::Workspace& act = context_->workspace();
        if (source == RowSource::tokens) return context_->ops().sampled(act, slot);
        const kernels::SampledToken sampled = chain_.propose(context_->ops().candidates(act, slot));
        return chain_.needs_row() ? chain_.propose_again(context_->logits(0)) : sampled;
    }

    // Lists of counted tokens grow with the text. Reserves room for the whole text at first use, so that no step
    // allocates. True: a list that the plan refers to has moved, so the plan has to be compiled again.
    bool make_room(samplers::PlanBuffer& plan) const {
        const std::size_t most = held_.capacity();
        bool moved = false;
        for (std::vector<kernels::TokenCount>& counts : plan.counts) {
            if (counts.empty() || counts.capacity() >= most) continue;
            counts.reserve(most);
            moved = true;
        }
        return moved;
    }

    // Brings the cache up to the sequence followed by `draft` and leaves the logits of the last token. Tokens in the
    // cache are not evaluated again. False: the tokens do not fit.
    bool catch_up(const DraftTask& task, std::span<const std::int32_t> draft) {
        const std::int32_t sequence = static_cast<std::int32_t>(task.tokens.size());
        const std::int32_t length = sequence + static_cast<std::int32_t>(draft.size());
        if (sequence < base_ || length - base_ + 1 > context_->capacity()) {
            // The text has outgrown the cache: continue with the latest half.
            base_ = std::max(0, sequence - context_->capacity() / 2);
            held_.clear();
            context_->truncate(0);
            checked_ = 0;
        }
        const auto text = [&](std::size_t index) {
            const std::size_t i = index + static_cast<std::size_t>(base_);
            return i < task.tokens.size() ? task.tokens[i] : draft[i - task.tokens.size()];
        };
        if (length - base_ > context_->capacity()) return false;
        const std::size_t size = static_cast<std::size_t>(length - base_);
        std::size_t same = static_cast<std::size_t>(checked_);
        const std::size_t most = std::min(held_.size(), size - 1);
        while (same < most && held_[same] == text(same)) ++same;
        same = std::min(same, most);
        held_.resize(same);
        context_->truncate(static_cast<std::int32_t>(same));
        while (held_.size() < size) held_.push_back(text(held_.size()));
        const std::span<const std::int32_t> missing = known(std::span<const std::int32_t>(held_).subspan(same));
        const bool fits = static_cast<std::int32_t>(missing.size()) <= context_->options().decode_rows
                              ? context_->decode(missing, 1)
                              : context_->prefill(missing);
        if (!fits) {
            held_.resize(same);
            return false;
        }
        checked_ = std::min(static_cast<std::int32_t>(held_.size()), sequence - base_);
        return true;
    }

    // `tokens`, without those that the draft model has no row for.
    std::span<const std::int32_t> known(std::span<const std::int32_t> tokens) {
        const std::int32_t rows = context_->model().config().shape.vocab;
        const auto has_row = [rows](std::int32_t token) { return token >= 0 && token < rows; };
        if (std::ranges::all_of(tokens, has_row)) return tokens;
        known_.clear();
        for (const std::int32_t token : tokens) known_.push_back(has_row(token) ? token : 0);
        return known_;
    }

    std::unique_ptr<core::Context> context_;
    std::string name_;
    std::vector<std::int32_t> never_proposed_;  // increasing
    std::vector<std::int32_t> known_;           // scratch of known()
    samplers::DraftChain chain_;
    samplers::PlanBuffer plan_;
    std::vector<std::int32_t> held_;  // tokens in the cache, from sequence index base_ on
    std::int32_t base_ = 0;
    std::int32_t checked_ = 0;  // how many of them are known to equal the sequence
    double step_ms_ = 0.0;
};

}  // namespace

std::unique_ptr<Drafter> make_model_drafter(std::unique_ptr<core::Context> context, std::string name,
                                            std::vector<std::int32_t> never_proposed) {
    return std::make_unique<ModelDrafter>(std::move(context), std::move(name), std::move(never_proposed));
}

DrafterKind model_drafter_kind() {
    return {.name = "draft",
            .doc = "the draft model",
            .aliases = {},
            .needs_draft_model = true,
            .make = [](const DrafterParts& parts) -> std::unique_ptr<Drafter> {
                if (!parts.draft) return nullptr;
                return make_model_drafter(std::make_unique<core::Context>(parts.draft, parts.draft_context), "draft",
                                          parts.never_proposed);
            }};
}

}  // namespace foresay::speculative
