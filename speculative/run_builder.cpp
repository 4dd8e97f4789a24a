#include "speculative/run_builder.h"

#include <algorithm>

#include "core/models/context.h"

namespace foresay::speculative {

RunBuilder::RunBuilder(std::span<const std::unique_ptr<Drafter>> drafters, Now now) : now_(now) {
    for (const auto& drafter : drafters) {
        Drafter*& place = drafter->offers() ? free_ : model_;
        if (place == nullptr) place = drafter.get();
    }
    run_.tokens.reserve(core::kMaxDraft);
    run_.margins.reserve(core::kMaxDraft);
}

Offer RunBuilder::offer(const DraftTask& task) {
    if (free_ == nullptr) return {};
    return free_->offer(task.tokens,
                        std::span<const std::int32_t>(run_.tokens).first(static_cast<std::size_t>(noted_)));
}

// The controller learns of the draft's tokens that it has not seen yet.
void RunBuilder::note_drafted() {
    while (noted_ < static_cast<std::int32_t>(run_.tokens.size())) {
        const std::size_t i = static_cast<std::size_t>(noted_++);
        sources_[i] = model_;
        controller_->drafted(offer_, run_.tokens[i], run_.margins[i]);
        offer_ = offer(*task_);
    }
}

void RunBuilder::take() {
    sources_[static_cast<std::size_t>(noted_++)] = free_;
    run_.tokens.push_back(offer_.token);
    run_.margins.push_back(static_cast<float>(offer_.length));
    controller_->take(offer_);
    offer_ = offer(*task_);
}

bool RunBuilder::extend(std::int32_t, float) {
    note_drafted();
    next_ = controller_->next(offer_);
    return next_ == Controller::Next::draft;
}

RunGauge::Outlook RunBuilder::outlook() {
    const Outlook outlook = controller_->outlook(offer_);
    // Where there is an offer, there may be one for the next token as well.
    const bool offered = offer_.token >= 0 && noted_ + 1 < limit_;
    return outlook == Outlook::end && offered ? Outlook::unknown : outlook;
}

void RunBuilder::close() {
    if (run_.open_slot < 0) return;
    core::Context& drawer = *model_->drawer();
    const kernels::Drawn drawn = drawer.ops().drawn(drawer.activations(), run_.open_slot);
    run_.open_slot = -1;
    if (drawn.token >= 0) {
        sources_[run_.tokens.size()] = model_;
        run_.tokens.push_back(drawn.token);
        run_.margins.push_back(drawn.margin);
        if (controller_ != nullptr) controller_->drafted(offer_, drawn.token, drawn.margin);
    }
    controller_ = nullptr;
    draft_ms_ = now_() - start_;
}

std::int32_t RunBuilder::build(const DraftTask& task, Controller& controller) {
    clear();
    controller_ = nullptr;
    noted_ = 0;
    offer_ = offer(task);
    const std::int32_t limit = controller.plan(task.max_tokens, model_ != nullptr, offer_);
    if (limit < 1) return 0;
    start_ = now_();
    limit_ = limit;
    controller_ = &controller;
    task_ = &task;
    DraftTask steps = task;
    steps.max_tokens = limit;
    steps.gauge = this;
    next_ = controller.next(offer_);
    while (next_ != Controller::Next::stop) {
        if (next_ == Controller::Next::draft) {
            controller.start_steps();
            model_->propose(steps, run_);
            const std::size_t count = std::min(run_.tokens.size(), static_cast<std::size_t>(limit));
            run_.tokens.resize(count);
            run_.margins.resize(count);
            note_drafted();
            if (run_.open_slot >= 0) {
                task_ = nullptr;
                return static_cast<std::int32_t>(run_.tokens.size());
            }
            if (next_ == Controller::Next::draft) break;  // it ended the run itself
        } else {
            take();
            if (std::ranges::find(task.end_tokens, run_.tokens.back()) != task.end_tokens.end()) break;
            next_ = controller.next(offer_);
        }
    }
    draft_ms_ = now_() - start_;
    controller_ = nullptr;
    task_ = nullptr;
    return controller.finish_run(draft_ms_);
}

std::int32_t RunBuilder::build_fixed(const DraftTask& task) {
    clear();
    controller_ = nullptr;
    if (task.max_tokens < 1) return 0;
    start_ = now_();
    for (Drafter* drafter : {model_, free_}) {
        if (drafter == nullptr || !run_.tokens.empty() || run_.open_slot >= 0) continue;
        drafter->propose(task, run_);
        sources_.fill(drafter);
    }
    draft_ms_ = now_() - start_;
    return static_cast<std::int32_t>(run_.tokens.size());
}

}  // namespace foresay::speculative
