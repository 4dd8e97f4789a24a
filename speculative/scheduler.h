// speculative/scheduler.h: who is admitted to a batch, who gives its pages up, and which rows the next forward has.
// Pure functions, without a clock or a device: what they decide changes when a text comes, never what it says. What
// they were told and have decided can be recorded (schedule_log.h).
//
// Prompts are read in the order of admission, several in one forward where they fit. Forwards of prefill and of decode
// rows take turns while there are both. The prompts' turn is then short, which bounds the gap between two tokens of the
// sequences that decode; and after it come as many forwards of decode rows as give these their share of the time. Where
// both classes of rows are one, the prompts' turn has a row for each sequence that decodes, too: the weights are read
// once for all of them, and none waits for the prompts' turn to end.
//
// Cost:     O(sequences); allocates nothing once `schedule` has grown.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

namespace foresay::speculative {

// What a sequence would have evaluated next, of one class. Neither: it is paused.
struct SequenceLoad {
    std::int32_t prefill_rows = 0;  // rows of its prompt that are not evaluated
    std::int32_t decode_rows = 0;   // tokens that are decode rows: the last one, or more when it comes back
};

struct ScheduleLimits {
    std::int32_t prefill_rows = 256;        // of one forward when no sequence decodes
    std::int32_t prefill_rows_beside = 64;  // when one does; also of decode rows beyond one for each
    std::int32_t decode_rows = 64;          // of one forward; at least as many as there are sequences
    std::int32_t decode_turn = 1;           // forwards of decode rows between two of prefill rows
    bool mixes = false;                     // the classes have the same bits: a forward may have rows of both
};

struct ScheduledRows {
    std::size_t sequence = 0;  // index into the loads
    std::int32_t rows = 0;
    bool operator==(const ScheduledRows&) const = default;
};

struct Schedule {
    kernels::RowClass row_class = kernels::RowClass::decode;
    bool mixed = false;               // prompts are read beside the decode rows; row_class then says nothing
    std::vector<ScheduledRows> rows;  // empty: there is nothing to evaluate

    bool reads_prompts() const { return mixed || row_class == kernels::RowClass::prefill; }
};

// `loads` in the order of admission; `decoded`: forwards of decode rows since the last one of prefill rows.
void schedule_forward(std::span<const SequenceLoad> loads, const ScheduleLimits& limits, std::int32_t decoded,
                      Schedule& schedule);

// The share of the time that is for those that decode while prompts wait. Where more prompts wait than sequences
// decode, it is smaller by that ratio.
inline constexpr double kDecodeShare = 0.55;
inline constexpr std::int32_t kLongestDecodeTurn = 64;

// A short prompt costs nearly what several do, for each forward reads all weights. Where many texts decode, others end
// and come soon: prompts of fewer rows than these wait for company, so long for each text that decodes.
inline constexpr std::int32_t kManyDecode = 8, kCompanyRows = 512;
inline constexpr double kCompanyMs = 2.0;

// The forwards of decode rows that come after one that reads prompts, which take `decode_ms` and `prefill_ms`; 1 while
// these are not known (0). `mixes`: that one has decode rows, too, whose part of its time is counted as theirs, and no
// prompt waits for company, for it costs no forward of its own.
std::int32_t decode_turn(std::span<const SequenceLoad> loads, double prefill_ms, double decode_ms, bool mixes = false);

// What the forwards so far say about the next one.
struct Turns {
    std::int32_t decoded = kLongestDecodeTurn;  // forwards of decode rows since the last one that read prompts
    double prefill_ms = 0.0, decode_ms = 0.0;   // of forwards beside the other kind, lately; 0: not known

    // After a forward of decode rows that ran ahead, which says nothing of times.
    void note_ahead() { decoded = std::min(decoded + 1, kLongestDecodeTurn); }
    // After a forward that `loads` led to. A mixed one is one of prefill rows.
    void note(kernels::RowClass row_class, std::span<const SequenceLoad> loads, double ms);
};

// A request that waits.
struct WaitingRequest {
    std::int32_t priority = 0;
    std::uint64_t passed_over = 0;  // admissions of those above it since it came
    std::uint64_t served = 0;       // rows that its queue has had
};

// So many admissions of those above it raise a request by one priority, so that none waits for ever. Those of the same
// height do not: else many requests of one queue, which wait long, would rise together above all that come later.
inline constexpr std::uint64_t kPassesToRise = 16;
std::int64_t height(const WaitingRequest& request);

// The one of `waiting`, in the order of arrival and not empty, that is next: of the greatest height those whose queue
// was served least, and of these the first.
std::size_t next_admitted(std::span<const WaitingRequest> waiting);

// A request that runs.
struct RunningRequest {
    bool paused = false;
    std::int32_t priority = 0;
    std::uint64_t arrival = 0;  // later ones have higher numbers
};

// The one of `running`, not empty, that gives its pages up: a paused one, or the newest of the lowest priority.
std::size_t next_preempted(std::span<const RunningRequest> running);

}  // namespace foresay::speculative
