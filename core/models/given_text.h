// core/models/given_text.h: which rows of given text are decode rows.
//
// Where the classes of rows differ in their bits (docs/architecture.md, law 1), a short chunk of prefill rows takes as
// long as one of hundreds. So there the first rows of a segment of given text are decode rows, and a short prompt has
// no others. A segment begins where a sequence begins, or after a generated token, and is counted from there: never
// from where a chunk, a turn or a batch begins, nor from what is cached. So a row's class depends on what comes before
// it alone.
//
// Threads:  one caller of a context at a time.
// Cost:     evaluate_given() is one forward of decode rows, then those of Context::prefill().
// Errors:   none; false where Context::prefill() says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/models/context.h"

namespace foresay::core {

// How many rows of a segment of given text, from its first, are decode rows. 0 on hosts, where the classes agree.
std::int32_t given_decode_rows(const kernels::Ops& ops);

// Evaluates a whole segment of given text. Afterwards logits(0) belongs to its last token.
bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence = 0,
                    const std::atomic<bool>* cancel = nullptr);

}  // namespace foresay::core
