// app/conversation/replay.h: generates every turn of a saved session again and compares it with the saved one.
//
// Cost:     as much as generating them did; a prompt that turns share is evaluated once.
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
        skipped,  // cannot be generated here; `note` gives the reason
    };
    std::size_t turn = 0;
    Outcome outcome = Outcome::same;
    std::size_t tokens = 0;            // of the saved answer
    std::size_t first_difference = 0;  // index of the first other token, if the outcome is `differs`
    std::string note;
};

// Calls `report` for each turn, in the order in which they were generated, until `cancel`. `engine` has the model; each
// turn uses the sampling settings saved with it. False when cancelled.
bool replay(OpenedEngine& engine, const SavedSession& saved, const std::atomic<bool>& cancel,
            const std::function<void(const ReplayedTurn&)>& report);

}  // namespace foresay::app
