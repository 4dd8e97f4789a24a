#include "speculative/model_drafts.h"

#include <algorithm>
#include <utility>

#include "speculative/forward_times.h"

namespace foresay::speculative {
namespace {

// A text that lacks more tokens than this is caught up by a forward of its own.
constexpr std::size_t kStepRows = 8;

}  // namespace

ModelDrafts::ModelDrafts(std::unique_ptr<core::Context> context, std::vector<std::int32_t> never_proposed, Now now,
                         PrefixCache& kept)
    : context_(std::move(context)),
      never_proposed_(std::move(never_proposed)),
      now_(now),
      kept_(kept),
      costs_(context_->options().decode_rows) {
    context_->cache().drop(0);  // sequences are made as they come
    const auto rows = static_cast<std::size_t>(context_->options().decode_rows);
    refs_.reserve(rows);
    for (auto* list : {&last_rows_, &slots_}) list->reserve(rows);
    segments_.reserve(rows);
    ready_.reserve(rows);
    plans_.reserve(rows);
}

bool ModelDrafts::warm_up(core::Context& target) {
    if (warm_) return true;
    constexpr double kBudgetMs = 60.0;
    core::KvCache& cache = context_->cache();
    if (cache.free_sequences() == 0) kept_.evict_text(PagesOf::draft);
    kept_.free_pages(core::pages_for(costs_.widest()), PagesOf::draft);
    warm_ = time_forwards(*context_, costs_, kBudgetMs, now_);
    if (warm_) switch_ms_ = std::max(0.0, time_after(target, *context_, now_) - costs_.verify_ms(1));
    return warm_;
}

double ModelDrafts::step_ms(std::int32_t texts) const {
    // After a draft that was accepted as a whole a text has two rows.
    const double sample_ms = sample_ms_ < 0.0 ? expected_sample_ms_ : sample_ms_;
    return costs_.verify_ms(std::clamp(texts + texts / 4, 1, costs_.widest())) + sample_ms * texts;
}

bool ModelDrafts::joins_step(const DraftedText& text, std::size_t tokens) {
    return tokens <= text.held.size() + kStepRows;
}

double ModelDrafts::catch_up_ms(const DraftedText& text, std::size_t tokens) const {
    const std::size_t missing = tokens - std::min(tokens, text.held.size());
    if (missing <= 1) return 0.0;
    const std::int32_t widest = costs_.widest();
    const double one = costs_.verify_ms(1);
    const double row_ms = widest > 1 ? (costs_.verify_ms(widest) - one) / (widest - 1) : one;
    return row_ms * static_cast<double>(missing - 1) + (joins_step(text, tokens) ? 0.0 : one);
}

// The text has `id`, which holds the first of `tokens`.
void ModelDrafts::holds(DraftedText& text, core::SequenceId id, std::span<const std::int32_t> tokens) {
    const auto length = static_cast<std::size_t>(context_->length(id));
    text.id = id;
    text.held.reserve(static_cast<std::size_t>(context_->capacity()));
    text.held.assign(tokens.begin(), tokens.begin() + static_cast<std::ptrdiff_t>(length));
    text.checked = length;
    text.advanced = 0;
    counters_.cached_tokens += static_cast<std::int64_t>(length);
}

void ModelDrafts::open(DraftedText& text, const PrefixKey& key, PrefixCache::Found other) {
    const std::int32_t most = std::min(static_cast<std::int32_t>(key.tokens.size()) - 1, context_->capacity());
    const core::SequenceId id = kept_.open(key, most, other, PagesOf::draft);
    if (id < 0) return;
    counters_.restored_tokens += kept_.restore(id, key, most, PagesOf::draft);
    if (context_->length(id) > 0) return holds(text, id, key.tokens);
    context_->cache().drop(id);  // until a draft is wanted
}

core::SequenceId ModelDrafts::take(DraftedText& text, std::span<const std::int32_t> tokens) {
    const core::SequenceId id = text.id;
    if (id >= 0) {
        const auto end = std::ranges::mismatch(text.held, tokens).in1;
        const auto same = static_cast<std::int32_t>(end - text.held.begin());
        context_->truncate(cache().continues_from(id, same) ? same : 0, id);
    }
    text.id = -1;
    text.held.clear();
    text.checked = 0;
    text.advanced = 0;
    text.drafted = false;
    text.owed_ms = 0.0;
    return id;
}

// Whether an earlier text of the step is still evaluating what this one begins with, too.
bool ModelDrafts::waits_for(const DraftStep& step, std::span<const DraftStep> earlier) {
    return std::ranges::any_of(earlier, [&](const DraftStep& other) {
        if (!step.salt || step.salt != other.salt || other.text->id < 0) return false;
        const auto same = std::ranges::mismatch(other.tokens, step.tokens).in1;
        const auto common = std::min(static_cast<std::size_t>(same - other.tokens.begin()), step.tokens.size() - 1);
        return common > other.text->held.size() + kStepRows;
    });
}

// Texts that begin together, several answers to one prompt say, evaluate what they have in common once.
bool ModelDrafts::share(DraftStep& step, std::span<const DraftStep> earlier) {
    PrefixCache::Found best;
    for (const DraftStep& other : earlier) {
        if (!step.salt || step.salt != other.salt || other.text->id < 0) continue;
        const auto same = std::ranges::mismatch(other.text->held, step.tokens).in1;
        const auto all = static_cast<std::int32_t>(same - other.text->held.begin());
        const std::int32_t length = std::min(all, static_cast<std::int32_t>(step.tokens.size()) - 1);
        if (length > best.length && cache().continues_from(other.text->id, length)) best = {other.text->id, length};
    }
    if (best.length <= 0) return false;
    const core::SequenceId id = context_->fork(best.sequence);
    if (id < 0) return false;
    context_->truncate(best.length, id);
    context_->cache().release_spare(id);
    holds(*step.text, id, step.tokens);
    return true;
}

// Texts that are kept give pages up, as far as `rows` more rows need them.
void ModelDrafts::make_room(core::SequenceId sequence, std::int32_t rows) {
    core::KvCache& cache = context_->cache();
    while (cache.missing_pages(sequence, rows) > cache.free_pages() && kept_.evict_page(PagesOf::draft)) {
    }
}

std::int32_t ModelDrafts::known(std::int32_t token) const {
    return token < context_->model().config().shape.vocab ? token : 0;
}

// Brings the cache up to the text and its draft, except for the few tokens that join the step.
bool ModelDrafts::prepare(std::span<DraftStep> steps, std::size_t index) {
    DraftStep& step = steps[index];
    DraftedText& text = *step.text;
    const std::size_t size = step.tokens.size() + step.draft.size();
    if (size == 0 || static_cast<std::int32_t>(size) > context_->capacity()) return false;
    if (text.id < 0) {
        if (waits_for(step, steps.first(index))) return false;
        if (context_->cache().free_sequences() == 0) kept_.evict_text(PagesOf::draft);
        if (!share(step, steps.first(index))) {
            const core::SequenceId id = context_->cache().create();
            if (id < 0) return false;
            holds(text, id, {});
        }
    }
    const auto at = [&](std::size_t i) {
        return i < step.tokens.size() ? step.tokens[i] : step.draft[i - step.tokens.size()];
    };
    const std::size_t most = std::min(text.held.size(), size - 1);
    std::size_t same = std::min(text.checked, most);
    while (same < most && text.held[same] == at(same)) ++same;
    if (!cache().continues_from(text.id, static_cast<std::int32_t>(same))) same = 0;
    text.held.resize(same);
    text.checked = std::min(text.checked, same);
    context_->truncate(static_cast<std::int32_t>(same), text.id);
    if (size - same > kStepRows) {
        ids_.clear();
        if (catch_up_left_ == 0) return false;
        const std::size_t until = std::min(size - 1, same + std::min(size, catch_up_left_));
        for (std::size_t i = same; i < until; ++i) ids_.push_back(known(at(i)));
        catch_up_left_ -= std::min(catch_up_left_, ids_.size());
        make_room(text.id, static_cast<std::int32_t>(ids_.size()));
        text.owed_ms += catch_up_ms(text, until);
        const double start = now_();
        const bool done = context_->prefill(ids_, text.id);
        context_->wait();
        reading_ms_ += now_() - start;
        stepped_ = true;
        counters_.rows += context_->length(text.id) - static_cast<std::int64_t>(same);
        if (!done) {
            text.held.resize(static_cast<std::size_t>(context_->length(text.id)));
            for (std::size_t i = same; i < text.held.size(); ++i) text.held[i] = at(i);
            return false;
        }
        for (std::size_t i = same; i < until; ++i) text.held.push_back(at(i));
        if (until < size - 1) {
            text.checked = std::min(text.held.size(), step.tokens.size());
            return false;
        }
    }
    text.checked = std::min(text.held.size(), step.tokens.size());
    if (text.advanced == 0) text.chain.start_without_masks(*step.live);
    while (text.advanced < step.draft.size()) text.chain.advance(step.draft[text.advanced++]);
    return true;
}

void ModelDrafts::step(std::span<DraftStep> steps) {
    ready_.clear();
    refs_.clear();
    segments_.clear();
    last_rows_.clear();
    std::size_t rows = 0;
    for (DraftStep& one : steps) one.sampled = {.token = -1};
    for (std::size_t i = 0; i < steps.size(); ++i) {
        DraftStep& one = steps[i];
        if (!prepare(steps, i)) continue;
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
    const auto missing = [this] {
        std::int32_t pages = 0;
        for (const core::Segment& segment : segments_) {
            pages += cache().missing_pages(segment.sequence, static_cast<std::int32_t>(segment.tokens.size()));
        }
        return pages;
    };
    while (missing() > cache().free_pages() && kept_.evict_page(PagesOf::draft)) {
    }
    if (!context_->evaluate(kernels::RowClass::decode, segments_)) {
        for (DraftStep* one : ready_) {
            one->text->held.resize(static_cast<std::size_t>(context_->length(one->text->id)));
            one->text->checked = std::min(one->text->checked, one->text->held.size());
        }
        return;
    }
    counters_.rows += std::ssize(refs_);
    const auto rows_of_step = static_cast<std::int32_t>(refs_.size());
    const auto texts = static_cast<std::int32_t>(ready_.size());
    const double switch_ms = std::exchange(stepped_, true) ? 0.0 : switch_ms_;
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
    if (!device) context_->wait();
    const double forward_end = now_();
    for (std::size_t i = 0; i < ready_.size(); ++i) sample(*ready_[i], static_cast<std::int32_t>(i), device);
    // What a device samples is a part of its forward.
    const double end = now_();
    const double forward_ms = (device ? end : forward_end) - start;
    costs_.observe(rows_of_step, std::max(forward_ms - switch_ms, 0.5 * forward_ms));
    const double sampled = device ? 0.0 : (end - forward_end) / texts;
    constexpr double kBlend = 0.05;
    sample_ms_ = sample_ms_ < 0.0 ? sampled : sample_ms_ + kBlend * (std::min(sampled, 3.0 * sample_ms_) - sample_ms_);
    steps_ms_ += costs_.verify_ms(std::min(rows_of_step, costs_.widest())) + switch_ms + sample_ms_ * texts;
}

void ModelDrafts::sample(DraftStep& step, std::int32_t row, bool on_device) {
    step.text->drafted = true;
    DraftedText& text = *step.text;
    if (!on_device) {
        step.sampled = text.chain.propose(context_->logits(row));
    } else if (text.plan.plan.keep) {
        step.sampled = text.chain.propose(context_->ops().candidates(context_->workspace(), row));
        if (text.chain.needs_row()) step.sampled = text.chain.propose_again(context_->logits(row));
    } else {
        step.sampled = context_->ops().sampled(context_->workspace(), row);
    }
    if (std::ranges::binary_search(never_proposed_, step.sampled.token)) step.sampled.token = -1;
}

}  // namespace foresay::speculative
