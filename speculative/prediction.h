// speculative/prediction.h: drafts from a text that the caller expects as the answer.
//
// The prediction is put before the text, as if it followed the last tokens of the prompt. So it is found again after an
// insertion, a deletion or a changed line like any earlier passage, and a wrong one costs as little as a passage that
// does not come again. What follows in the text itself is another lookup's to propose.
//
// Threads:  one caller at a time.
// Cost:     predict() allocates; a token costs what it costs the lookup, and a proposal from elsewhere in the
//           text a search of the prediction.
// Errors:   none.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "speculative/drafter.h"

namespace foresay::speculative {

// Looks the text up in the prediction.
class PredictionLookup final : public Drafter {
public:
    // The text is `tokens`, to which `room` tokens come at most. An empty prediction: nothing is proposed.
    void predict(std::span<const std::int32_t> tokens, std::span<const std::int32_t> prediction, std::size_t room);
    bool active() const { return lookup_ != nullptr; }

    std::string_view name() const override { return "prediction"; }
    bool is_lookup() const override { return true; }
    Proposal look_up(std::span<const std::int32_t> sequence, std::span<const std::int32_t> draft) override;
    void propose(const DraftTask& task, DraftedTokens& draft) override;

private:
    void follow(std::span<const std::int32_t> sequence);
    bool predicts(std::span<const std::int32_t> draft, const Proposal& found);

    std::unique_ptr<Drafter> lookup_;  // null: there is no prediction
    std::vector<std::int32_t> text_;
    std::size_t before_ = 0;  // tokens of `text_` before the sequence
    std::size_t place_ = 0;   // of the last token that was proposed, in the prediction
};

}  // namespace foresay::speculative
