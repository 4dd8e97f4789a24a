// engine/batch.h: how an engine runs many sequences: Engine::make_batch(), for a caller with a loop of its own;
// engine/engine_loop.h has a thread.
#pragma once

#include <cstdint>

#include "speculative/batch_generator.h"

namespace foresay::engine {

struct BatchOptions {
    std::int32_t sequences = 8;  // most that run at once; each has pages for a whole context
    // Rows of prompts between two decode forwards. Fewer: shorter gaps between tokens; more: earlier first tokens.
    std::int32_t prefill_rows_beside = 64;
};

}  // namespace foresay::engine
