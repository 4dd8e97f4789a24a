// speculative/scheduler.h: which rows the next forward of a batch has. A pure function of the sequences' loads, without
// a clock or a device: what it decides changes when a text comes, never what it says.
//
// Prompts are read in the order of arrival, several in one forward where they fit. Forwards of prompts and of decode
// rows take turns while there are both. The prompts' turn is then short, which bounds the gap between two tokens of the
// sequences that decode.
//
// Cost:     O(sequences); allocates nothing once `schedule` has grown.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foresay::speculative {

// What a sequence would have evaluated next. Neither: it is paused.
struct SequenceLoad {
    std::int32_t prefill_rows = 0;  // rows of its prompt that are not evaluated
    bool decodes = false;           // its prompt is, and it has a token to evaluate
};

struct ScheduleLimits {
    std::int32_t prefill_rows = 256;        // of one forward when no sequence decodes
    std::int32_t prefill_rows_beside = 64;  // when one does
    std::int32_t decode_rows = 64;          // of one forward; at least as many as there are sequences
};

struct ScheduledRows {
    std::size_t sequence = 0;  // index into the loads
    std::int32_t rows = 0;
    bool operator==(const ScheduledRows&) const = default;
};

struct Schedule {
    kernels::RowClass row_class = kernels::RowClass::decode;
    std::vector<ScheduledRows> rows;  // empty: there is nothing to evaluate
};

// `loads` in the order of arrival; `last`: the class of the forward before.
void schedule_forward(std::span<const SequenceLoad> loads, const ScheduleLimits& limits, kernels::RowClass last,
                      Schedule& schedule);

}  // namespace foresay::speculative
