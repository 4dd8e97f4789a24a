// core/models/given_text.h: the row class of given text.
//
// Where the classes of rows differ in their bits (docs/architecture.md, law 1), a few prefill rows take as long as
// hundreds, because their weights are unpacked first. So there a short segment of given text is made of decode rows.
// The length of the whole segment decides, from the first of its tokens to the last: never how much of it a chunk, a
// turn or a batch evaluates at once, nor what is cached. A cache keeps the class of its rows, too, and evaluates
// again what has become part of a longer segment.
//
// A segment begins where a sequence begins, or after a generated token, and ends with the sequence or before one.
//
// Threads:  one caller of a context at a time.
// Cost:     short_given_tokens() asks each device of a list for its free memory; ask once. evaluate_given() is the
//           forwards of Context::prefill(), or those of decode rows.
// Errors:   none; false where Context::prefill() says so.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <vector>

#include "core/models/context.h"

namespace foresay::core {

// Whether a row has the same bits as a prefill row and as a decode row: on hosts. A device has a kernel for each class.
bool classes_agree(const kernels::Ops& ops);

// Segments of given text with at most so many tokens are decode rows. 0 where the classes agree.
std::int32_t short_given_tokens(const kernels::Ops& ops);

// The class of every token of a segment of `length` given tokens.
constexpr kernels::RowClass class_of_given(std::int32_t length, std::int32_t short_given) {
    return length <= short_given ? kernels::RowClass::decode : kernels::RowClass::prefill;
}

// The class of every token of a sequence, by whether it was generated (1) or given (0).
std::vector<kernels::RowClass> classes_of(std::span<const std::uint8_t> generated, std::int32_t short_given);

// Evaluates a whole segment of given text. Afterwards logits(0) belongs to its last token.
bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence = 0,
                    const std::atomic<bool>* cancel = nullptr);

}  // namespace foresay::core
