#include "speculative/model_drafts.h"

#include <algorithm>

#include "speculative/forward_times.h"

namespace foresay::speculative {
namespace {

// A text that lacks more tokens than this is caught up by a forward of its own.
constexpr std::size_t kStepRows = 8;

}  // namespace

ModelDrafts::ModelDrafts(std::unique_ptr<core::Context> context, std::vector<std::int32_t> never_proposed, Now now)
    : context_(std::move(context)),
      never_proposed_(std::move(never_proposed)),
      now_(now),
      costs_(context_->options().decode_rows) {
    context_->cache().drop(0);  // sequences are made as they come
    const auto rows = static_cast<std::size_t>(context_->options().decode_rows);
    refs_.reserve(rows);
    for (auto* list : {&last_rows_, &slots_}) list->reserve(rows);
    segments_.reserve(rows);
    ready_.reserve(rows);
    plans_.reserve(rows);
}

void ModelDrafts::warm_up() {
    constexpr double kBudgetMs = 60.0;
    time_forwards(*context_, costs_, kBudgetMs, now_);
}

double ModelDrafts::step_ms(std::int32_t texts) const {
    // After a draft that was accepted as a whole a text has two rows.
    return costs_.verify_ms(std::clamp(texts + texts / 4, 1, costs_.widest()));
}

double ModelDrafts::catch_up_ms(const DraftedText& text, std::size_t tokens) const {
    const std::size_t missing = tokens - std::min(tokens, text.held.size());
    if (missing <= kStepRows) return 0.0;
    const std::int32_t widest = costs_.widest();
    return costs_.verify_ms(widest) / widest * static_cast<double>(missing);
}

void ModelDrafts::forget(DraftedText& text) {
    if (text.id >= 0) context_->cache().drop(text.id);
    text.id = -1;
    text.held.clear();
    text.checked = 0;
    text.advanced = 0;
}

std::int32_t ModelDrafts::known(std::int32_t token) const {
    return token < context_->model().config().shape.vocab ? token : 0;
}

// Brings the cache up to the text and its draft, except for the few tokens that join the step.
bool ModelDrafts::prepare(DraftStep& step) {
    DraftedText& text = *step.text;
    const std::size_t size = step.tokens.size() + step.draft.size();
    if (size == 0 || static_cast<std::int32_t>(size) > context_->capacity()) return false;
    if (text.id < 0) {
        text.id = context_->cache().create();
        if (text.id < 0) return false;
        text.held.clear();
        text.held.reserve(static_cast<std::size_t>(context_->capacity()));
        text.checked = 0;
        text.advanced = 0;
    }
    const auto at = [&](std::size_t i) {
        return i < step.tokens.size() ? step.tokens[i] : step.draft[i - step.tokens.size()];
    };
    const std::size_t most = std::min(text.held.size(), size - 1);
    std::size_t same = std::min(text.checked, most);
    while (same < most && text.held[same] == at(same)) ++same;
    text.held.resize(same);
    context_->truncate(static_cast<std::int32_t>(same), text.id);
    if (size - same > kStepRows) {
        ids_.clear();
        for (std::size_t i = same; i + 1 < size; ++i) ids_.push_back(known(at(i)));
        if (!context_->prefill(ids_, text.id)) {
            text.held.resize(static_cast<std::size_t>(context_->length(text.id)));
            for (std::size_t i = same; i < text.held.size(); ++i) text.held[i] = at(i);
            return false;
        }
        for (std::size_t i = same; i + 1 < size; ++i) text.held.push_back(at(i));
    }
    text.checked = std::min(text.held.size(), step.tokens.size());
    if (text.advanced == 0) {
        if (context_->ops().asynchronous()) {
            text.chain.start_without_masks(*step.live);
        } else {
            text.chain.start(*step.live);
        }
    }
    while (text.advanced < step.draft.size()) text.chain.advance(step.draft[text.advanced++]);
    return true;
}

void ModelDrafts::step(std::span<DraftStep> steps) {
    ready_.clear();
    refs_.clear();
    segments_.clear();
    last_rows_.clear();
    std::size_t rows = 0;
    for (DraftStep& one : steps) {
        one.sampled = {.token = -1};
        if (!prepare(one)) continue;
        rows += one.tokens.size() + one.draft.size() - one.text->held.size();
        if (rows > static_cast<std::size_t>(context_->options().decode_rows)) break;
        ready_.push_back(&one);
    }
    if (ready_.empty()) return;
    const double start = now_();
    for (DraftStep* one : ready_) {
        const std::size_t size = one->tokens.size() + one->draft.size();
        const std::size_t first = refs_.size();
        for (std::size_t i = one->text->held.size(); i < size; ++i) {
            const std::int32_t token = i < one->tokens.size() ? one->tokens[i] : one->draft[i - one->tokens.size()];
            one->text->held.push_back(token);
            refs_.push_back(kernels::TokenRef::id(known(token)));
        }
        last_rows_.push_back(static_cast<std::int32_t>(refs_.size() - first) - 1);
        segments_.push_back({.sequence = one->text->id,
                             .tokens = std::span(refs_).subspan(first),
                             .logit_rows = std::span(last_rows_).last(1)});
    }
    if (!context_->evaluate(kernels::RowClass::decode, segments_)) {
        for (DraftStep* one : ready_) {
            one->text->held.resize(static_cast<std::size_t>(context_->length(one->text->id)));
            one->text->checked = std::min(one->text->checked, one->text->held.size());
        }
        return;
    }
    // All rows at once where a device samples them.
    plans_.clear();
    slots_.clear();
    bool device = context_->ops().asynchronous() && ready_.size() <= kernels::kTokenSlots;
    for (std::size_t i = 0; i < ready_.size() && device; ++i) {
        DraftedText& text = *ready_[i]->text;
        device = text.chain.compile(text.plan) == nullptr || text.chain.compile_prefix(text.plan);
        plans_.push_back(text.plan.plan);
        slots_.push_back(static_cast<std::int32_t>(i));
    }
    if (device) context_->ops().sample(context_->workspace(), plans_, slots_);
    for (std::size_t i = 0; i < ready_.size(); ++i) sample(*ready_[i], static_cast<std::int32_t>(i), device);
    costs_.observe(static_cast<std::int32_t>(refs_.size()), now_() - start);
}

void ModelDrafts::sample(DraftStep& step, std::int32_t row, bool on_device) {
    DraftedText& text = *step.text;
    if (!on_device) {
        step.sampled = text.chain.propose(context_->logits(row));
    } else if (text.plan.plan.keep) {
        step.sampled = text.chain.propose(context_->ops().candidates(context_->workspace(), row));
    } else {
        step.sampled = context_->ops().sampled(context_->workspace(), row);
    }
    if (std::ranges::binary_search(never_proposed_, step.sampled.token)) step.sampled.token = -1;
}

}  // namespace foresay::speculative
