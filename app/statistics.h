// app/statistics.h: the statistics of a generation, as JSON and as a line of text.
#pragma once

#include <cstdint>
#include <string>

#include "samplers/chain.h"
#include "speculative/generator.h"

namespace foresay::app {

// The object that `complete --json` prints. `inflated` says which models were inflated, and is empty when none was.
// `reasoning`: a field of its own; null: none. `unfinished`: the stage whose grammar the text ends within; may be
// empty.
std::string completion_json(const speculative::GenerateResult& result, std::uint64_t seed, std::uint64_t branch,
                            double load_ms, const std::string& inflated, const std::string* reasoning = nullptr,
                            const std::string& unfinished = {});

// "context 184/2048 · input 62 at 1240/s · output 120 at 143.0/s · accepted 83 % of 101 drafted, 3.4 tokens per round",
// and why the text ends if the model did not end it. Leaves out the least important parts until the line fits `columns`
// columns; what remains reads the same.
std::string statistics_line(const speculative::GenerateResult& result, std::int64_t used, std::int64_t capacity,
                            std::int64_t input_tokens, std::size_t columns);

// "240 calls, 0.012 ms per token, no failures": what a sampler of the chain has done so far.
std::string stage_text(const samplers::StageReport& report);
// What it costs where that is more than 5 % of `token_ms`, the time of a token; a sentence. Empty: less.
std::string stage_cost(const samplers::StageReport& report, double token_ms);

}  // namespace foresay::app
