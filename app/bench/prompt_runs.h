// app/bench/prompt_runs.h: completes the prompts of a file, for the benchmarks of speculation.
#pragma once

#include <string>
#include <vector>

#include "app/bench/bench.h"
#include "app/json.h"

namespace foresay::app {

// The prompts of --prompts, or those that come with the program.
std::vector<Prompt> bench_prompts(const BenchOptions& options);

struct PromptRun {
    std::int32_t max_tokens = 128;
    std::uint64_t seed = 0;
};

// One completion, starting from an empty sequence. Throws Cancelled.
speculative::GenerateResult run_prompt(speculative::Generator& generator, std::span<const std::int32_t> prompt,
                                       const PromptRun& run);

// The temperatures to measure at: those of --temperature, or 0 and 0.6.
std::vector<double> bench_temperatures(const BenchOptions& options);
void set_temperature(OpenedEngine& engine, double temperature);

}  // namespace foresay::app
