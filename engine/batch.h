// engine/batch.h: how an engine runs many sequences: Engine::make_batch(), for a caller with a loop of its own;
// engine/engine_loop.h has a thread.
#pragma once

#include <cstdint>

#include "speculative/batch_generator.h"

namespace foresay::engine {

struct BatchOptions {
    std::int32_t sequences = 16;  // most that run at once
    // Positions of the KV cache, shared by the texts that run and by beginnings that are kept for later ones; rounded
    // up to whole contexts. 0: four contexts, or as many of them as half of the free memory holds; at least one.
    std::int64_t cache_tokens = 0;
    std::int32_t kept_texts = 64;  // most texts whose beginning is kept; 0: none,
                                   // and texts that run share nothing
    bool speculate = true;         // as the configuration says: its mode and its sources
    // Rows of prompts in a forward between two of decode rows. Fewer: shorter gaps between tokens; more: earlier first
    // tokens. 0: as suits the backend.
    std::int32_t prefill_rows_beside = 0;
};

}  // namespace foresay::engine
