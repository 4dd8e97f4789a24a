#include "speculative/draft_builder.h"

#include <algorithm>
#include <string>

#include "base/error.h"
#include "core/models/context.h"

namespace foresay::speculative {

DraftBuilder::DraftBuilder(std::span<const std::unique_ptr<Drafter>> drafters, Now now, Drafter* forced)
    : now_(now), forced_(forced) {
    if (forced_ != nullptr) lookups_.push_back(forced_);
    for (const auto& drafter : drafters) {
        if (drafter->is_lookup()) {
            lookups_.push_back(drafter.get());
        } else if (model_ == nullptr) {
            model_ = drafter.get();
        } else {
            throw Error("the sources '" + std::string(model_->name()) + "' and '" + std::string(drafter->name()) +
                        "' cannot draft together, because only one of them may be a model; leave one out");
        }
    }
    draft_.tokens.reserve(core::kMaxDraft);
    draft_.margins.reserve(core::kMaxDraft);
}

// The likeliest proposal for the token after those that the controller knows of. Every lookup is asked, so that all of
// them follow the draft; of equally likely proposals the first lookup's is taken.
void DraftBuilder::look_up(const DraftTask& task) {
    const auto known = std::span<const std::int32_t>(draft_.tokens).first(static_cast<std::size_t>(noted_));
    proposal_ = {};
    proposer_ = nullptr;
    for (Drafter* lookup : lookups_) {
        const Proposal found = lookup->look_up(task.tokens, known);
        if (found.token < 0 || (proposer_ != nullptr && found.chance <= proposal_.chance)) continue;
        proposal_ = found;
        proposer_ = lookup;
    }
}

// Reports the draft model's new tokens to the controller.
void DraftBuilder::note_drafted() {
    while (noted_ < static_cast<std::int32_t>(draft_.tokens.size())) {
        const std::size_t i = static_cast<std::size_t>(noted_++);
        sources_[i] = model_;
        controller_->drafted(proposal_, draft_.tokens[i], draft_.margins[i]);
        look_up(*task_);
    }
}

void DraftBuilder::take() {
    sources_[static_cast<std::size_t>(noted_++)] = proposer_;
    draft_.tokens.push_back(proposal_.token);
    draft_.margins.push_back(static_cast<float>(proposal_.length));
    controller_->take(proposal_);
    look_up(*task_);
}

bool DraftBuilder::keep_drafting(std::int32_t, float) {
    note_drafted();
    next_ = controller_->next(proposal_);
    return next_ == Controller::Next::draft;
}

DraftStopRule::Lookahead DraftBuilder::lookahead() {
    const Lookahead lookahead = controller_->lookahead(proposal_);
    // Where a lookup has this token, it may have the next one as well.
    const bool found = proposal_.token >= 0 && noted_ + 1 < limit_;
    return lookahead == Lookahead::end && found ? Lookahead::unknown : lookahead;
}

void DraftBuilder::close() {
    if (draft_.open_slot < 0) return;
    core::Context& token_source = *model_->token_source();
    const kernels::SampledToken sampled = token_source.ops().sampled(token_source.workspace(), draft_.open_slot);
    draft_.open_slot = -1;
    if (sampled.token >= 0) {
        sources_[draft_.tokens.size()] = model_;
        draft_.tokens.push_back(sampled.token);
        draft_.margins.push_back(sampled.margin);
        if (controller_ != nullptr) controller_->drafted(proposal_, sampled.token, sampled.margin);
    }
    controller_ = nullptr;
    draft_ms_ = now_() - start_;
}

void DraftBuilder::begin(const DraftTask& task) {
    clear();
    controller_ = nullptr;
    noted_ = 0;
    if (task.chain != nullptr) {
        for (Drafter* lookup : lookups_) lookup->begin_round(*task.chain);
    }
    look_up(task);
}

bool DraftBuilder::rests(const DraftTask& task, Controller& controller) {
    begin(task);
    if (controller.wants(task.max_tokens, model_ != nullptr, proposal_)) return false;
    controller.plan(task.max_tokens, model_ != nullptr, proposal_);
    return true;
}

std::int32_t DraftBuilder::build(const DraftTask& task, Controller& controller) {
    begin(task);
    const std::int32_t limit = controller.plan(task.max_tokens, model_ != nullptr, proposal_);
    if (limit < 1) return 0;
    start_ = now_();
    limit_ = limit;
    controller_ = &controller;
    task_ = &task;
    DraftTask steps = task;
    steps.max_tokens = limit;
    steps.stop_rule = this;
    next_ = controller.next(proposal_);
    while (next_ != Controller::Next::stop) {
        if (next_ == Controller::Next::draft) {
            controller.start_steps();
            model_->propose(steps, draft_);
            const std::size_t count = std::min(draft_.tokens.size(), static_cast<std::size_t>(limit));
            draft_.tokens.resize(count);
            draft_.margins.resize(count);
            note_drafted();
            if (draft_.open_slot >= 0) {
                task_ = nullptr;
                return static_cast<std::int32_t>(draft_.tokens.size());
            }
            if (next_ == Controller::Next::draft) break;  // the model ended the draft itself
        } else {
            take();
            if (std::ranges::find(task.end_tokens, draft_.tokens.back()) != task.end_tokens.end()) break;
            next_ = controller.next(proposal_);
        }
    }
    draft_ms_ = now_() - start_;
    controller_ = nullptr;
    task_ = nullptr;
    return controller.finish_draft(draft_ms_);
}

std::int32_t DraftBuilder::build_fixed(const DraftTask& task) {
    clear();
    controller_ = nullptr;
    if (task.max_tokens < 1) return 0;
    start_ = now_();
    std::size_t forced = 0;
    if (forced_ != nullptr && task.chain != nullptr) {
        forced_->begin_round(*task.chain);
        forced_->propose(task, draft_);
        forced = draft_.tokens.size();
    }
    const auto ask = [&](Drafter* drafter) {
        const bool room = forced == 0 || static_cast<std::int32_t>(forced) < task.max_tokens;
        if (drafter == nullptr || !room || draft_.tokens.size() > forced || draft_.open_slot >= 0) return;
        drafter->propose(task, draft_);
        sources_.fill(drafter);
    };
    ask(model_);
    for (Drafter* lookup : lookups_) {
        if (lookup != forced_) ask(lookup);
    }
    std::fill_n(sources_.begin(), forced, forced_);
    const std::size_t most = static_cast<std::size_t>(task.max_tokens);
    if (draft_.tokens.size() > most) draft_.tokens.resize(most);
    draft_ms_ = now_() - start_;
    return static_cast<std::int32_t>(draft_.tokens.size());
}

}  // namespace foresay::speculative
