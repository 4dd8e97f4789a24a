// tests/speculative/schedule_replay.h: decides a recorded run of a batch again (speculative/schedule_log.h), without
// models: from the facts of the record alone, with the functions of speculative/scheduler.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "speculative/schedule_log.h"
#include "speculative/scheduler.h"

namespace foresay::test {

// Keeps the lines of a batch.
class ScheduleRecord {
public:
    speculative::ScheduleWriter writer() {
        return [this](std::string_view line) { (text_ += line) += '\n'; };
    }
    const std::string& text() const { return text_; }

private:
    std::string text_;
};

// What was decided, for tests of what users feel.
struct Replay {
    struct Request {
        std::int32_t priority = 0;
        std::uint64_t queue = 0;
        std::int64_t arrived = 0, admitted = -1;  // admissions of all until then; -1: never
        std::uint64_t passed_over = 0;            // admissions of those above it before its own first one
        std::int64_t first_step = -1;             // in which it was admitted
    };
    struct Forward {
        bool ahead = false;  // the rows are those of the forward before
        kernels::RowClass row_class = kernels::RowClass::decode;
        bool mixed = false;
        std::vector<std::pair<std::uint64_t, std::int32_t>> rows;  // by ticket
        std::vector<std::uint64_t> decoding;                       // tickets that have a row to decode
        std::int32_t all_rows() const;
    };
    std::vector<std::string> differences;  // from the record, each with its line; none: the same was decided
    speculative::ScheduleLimits limits;
    std::size_t most = 0;
    std::vector<Request> requests;  // by ticket; the first is unused
    std::vector<Forward> forwards;
    std::int64_t steps = 0, admissions = 0, preemptions = 0, cancelled = 0, late = 0, full = 0, waits = 0;
    std::int64_t mixed = 0;
};

Replay replay_schedule(const std::string& record);

}  // namespace foresay::test
