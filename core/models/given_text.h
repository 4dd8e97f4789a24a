// core/models/given_text.h: which rows of given text are decode rows.
//
// The two classes of rows may differ in their bits on a device (docs/architecture.md, law 1), and a device needs as
// long for a short chunk of prefill rows as for hundreds. So there the first rows of a segment of given text, counted
// from where it begins (the start of the sequence, or after a generated token), are decode rows, and short prompts are
// made of these alone. Which class a row has still depends on nothing but what comes before it.
//
// Threads:  one caller of a context at a time.
// Cost:     given_decode_rows() asks the backend for its name.
// Errors:   none; false where Context::prefill() and decode() say so.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>

#include "core/models/context.h"

namespace foresay::core {

// How many rows of a segment of given text, from its first, are decode rows. 0: none, on hosts, where classes are
// equal.
std::int32_t given_decode_rows(const Context& context);

// Evaluates a whole segment of given text. Afterwards logits(0) belongs to its last token.
bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence = 0,
                    const std::atomic<bool>* cancel = nullptr);

}  // namespace foresay::core
