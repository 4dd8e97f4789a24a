// speculative/run_builder.h: puts a round's run together from its sources.
//
// Two kinds take part: a free source offers tokens one by one, a draft model proposes them at a cost. With a controller
// they take turns within a run: offers are taken as far as they are good enough, the draft model is asked in between,
// and what a free source would have said tells how far to trust the draft. Without one, a run comes whole from the
// draft model, or from the free source when there is no model.
//
// Threads:  one caller at a time.
// Cost:     what the draft model takes; no allocation.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculative/controller.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

class RunBuilder final : private RunGauge {
public:
    // The first drafter of each kind takes part.
    explicit RunBuilder(std::span<const std::unique_ptr<Drafter>> drafters, Now now = steady_now);

    Drafter* model() const { return model_; }

    void clear() {
        run_.clear();
        draft_ms_ = 0.0;
    }
    // As long as the controller finds it worth it; returns how many tokens are worth verifying. With
    // task.may_stay_open, open() may hold one more, of which close() tells.
    std::int32_t build(const DraftTask& task, Controller& controller);
    // task.max_tokens tokens; fewer where the source ends the text or knows no more. Returns how many.
    std::int32_t build_fixed(const DraftTask& task);

    // The slot of a token that is still being drawn; negative: there is none.
    std::int32_t open() const { return run_.open_slot; }
    // Waits for it. It is the last of tokens() then, unless there was nothing to draw.
    void close();

    std::span<const std::int32_t> tokens() const { return run_.tokens; }
    const Drafter* source(std::int32_t index) const { return sources_[static_cast<std::size_t>(index)]; }
    double draft_ms() const { return draft_ms_; }

private:
    bool extend(std::int32_t count, float margin) override;
    Outlook outlook() override;
    void note_drafted();
    void take();
    Offer offer(const DraftTask& task);

    Now now_;
    Drafter* model_ = nullptr;
    Drafter* free_ = nullptr;
    DraftRun run_;
    std::array<const Drafter*, core::kMaxDraft> sources_{};
    double start_ = 0.0, draft_ms_ = 0.0;

    // While a run is built.
    Controller* controller_ = nullptr;
    const DraftTask* task_ = nullptr;
    Controller::Next next_ = Controller::Next::stop;
    std::int32_t limit_ = 0;  // of the run
    std::int32_t noted_ = 0;  // tokens that the controller knows of
    Offer offer_;             // for the token behind them
};

}  // namespace foresay::speculative
