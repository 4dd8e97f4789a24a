// app/statistics.h: the statistics of a generation, as JSON and as a line of text.
#pragma once

#include <cstdint>
#include <string>

#include "speculative/generator.h"

namespace foresay::app {

// The object that `complete --json` prints. `inflated` says which models were inflated, and is empty when none was.
// `reasoning`: a field of its own; null: none.
std::string completion_json(const speculative::GenerateResult& result, std::uint64_t seed, std::uint64_t branch,
                            double load_ms, const std::string& inflated, const std::string* reasoning = nullptr);

// "context 184/2048 · input 62 at 1240/s · output 120 at 143.0/s · accepted 83 % of 101 drafted, 3.4 tokens per round",
// and why the text ends if the model did not end it. Leaves out the least important parts until the line fits `columns`
// columns; what remains reads the same.
std::string statistics_line(const speculative::GenerateResult& result, std::int64_t used, std::int64_t capacity,
                            std::int64_t input_tokens, std::size_t columns);

}  // namespace foresay::app
