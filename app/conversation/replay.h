// app/conversation/replay.h: draws every turn of a saved session again, and compares it with what was saved.
//
// Cost:     what drawing them took; prompts that turns share are evaluated once.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <string>

#include "app/journal/journal.h"
#include "app/opened_engine.h"

namespace foresay::app {

struct ReplayedTurn {
    enum class Outcome : std::uint8_t {
        same,
        differs,
        skipped,  // it cannot be drawn here; `note` says why
    };
    std::size_t turn = 0;
    Outcome outcome = Outcome::same;
    std::size_t tokens = 0;            // that were drawn then
    std::size_t first_difference = 0;  // of them, when it differs
    std::string note;
};

// Calls `report` for each turn, in the order in which they were drawn, until `cancel`. `session` has the model; each
// turn gets the sampling that it was drawn with. False when cancelled.
bool replay(OpenedEngine& engine, const SavedSession& saved, const std::atomic<bool>& cancel,
            const std::function<void(const ReplayedTurn&)>& report);

}  // namespace foresay::app
