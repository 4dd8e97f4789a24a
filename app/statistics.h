// app/statistics.h: what a generation was and did, as JSON and as a line for a person.
#pragma once

#include <cstdint>
#include <string>

#include "speculative/generator.h"

namespace foresay::app {

// The object that `complete --json` prints. `inflated` says which models were inflated, and is empty when none was.
std::string completion_json(const speculative::GenerateResult& result, std::uint64_t seed, std::uint64_t branch,
                            double load_ms, const std::string& inflated);

// "context 184/2048 · prompt 62 tokens 1240/s · 120 tokens 143.0/s · accepted 84 of 101 (83 %)"
std::string statistics_line(const speculative::GenerateResult& result, std::int64_t used, std::int64_t capacity,
                            std::int64_t input_tokens);

}  // namespace foresay::app
