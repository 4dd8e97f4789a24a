// engine/batch.h: how an engine runs many sequences: Engine::make_batch(), for a caller with a loop of its own;
// engine/engine_loop.h has a thread.
#pragma once

#include <cstdint>

#include "speculative/batch_generator.h"

namespace foresay::engine {

struct BatchOptions {
    std::int32_t sequences = 16;  // most that run at once; 1: drafted for as a conversation (BatchParts::one_text)
    // Positions of the KV cache, shared by the texts that run and by beginnings that are kept for later ones; rounded
    // up to whole contexts. 0: 4,096 for each sequence (a whole context where that is shorter), at least four contexts;
    // two contexts for one sequence that speculates; at most what half of the free memory holds, at least one context.
    std::int64_t cache_tokens = 0;
    std::int32_t kept_texts = 64;  // most texts whose beginning is kept; 0: none,
                                   // and texts that run share nothing
    bool speculate = true;         // as the configuration says: its mode and its sources
    bool keep_pages = true;        // where the configuration says, in host memory and on disk, with kept_texts
    // Rows of prompts in a forward between two of decode rows. Fewer: shorter gaps between tokens; more: earlier first
    // tokens. 0: as suits the backend.
    std::int32_t prefill_rows_beside = 0;
    speculative::ScheduleWriter schedule_log;  // gets what the scheduler is told and decides; none: nothing does
};

// The contexts for which a cache of so many sequences has pages, where there is memory: see cache_tokens.
std::int32_t wanted_contexts(std::int32_t sequences, std::int32_t context_length);
// Rows of a decode: one for each text, and further ones for drafts; at least `least`.
std::int32_t batch_decode_rows(std::int32_t sequences, std::int32_t least);

}  // namespace foresay::engine
