#include "app/bench/prompt_runs.h"

#include <algorithm>

#include "app/files.h"
#include "app/interrupt.h"

namespace foresay::app {

std::vector<Prompt> bench_prompts(const BenchOptions& options) {
    const std::string path =
        options.prompts_file.empty() ? data_file("bench/prompts/code.jsonl").string() : options.prompts_file;
    return parse_prompts(read_file(path, "the prompts"), path);
}

speculative::GenerateResult run_prompt(speculative::Generator& generator, std::span<const std::int32_t> prompt,
                                       const PromptRun& run) {
    stop_if_interrupted();
    generator.truncate(0);
    speculative::GenerateRequest request;
    request.input = prompt;
    request.max_tokens = run.max_tokens;
    request.seed = run.seed;
    request.cancel = &interrupted();
    speculative::GenerateResult result = generator.generate(request);
    if (result.finish == speculative::FinishReason::cancelled) throw Cancelled();
    return result;
}

std::vector<double> bench_temperatures(const BenchOptions& options) {
    return options.temperatures.empty() ? std::vector<double>{0.0, 0.6} : options.temperatures;
}

void set_temperature(OpenedEngine& engine, double temperature) {
    std::vector<std::string> chain = engine.config().chain;
    if (std::find(chain.begin(), chain.end(), "temperature") == chain.end()) {
        chain.push_back("temperature");
        engine.set("sampling.chain=" + core::to_toml(core::ConfigValue(chain)), "--temperature");
    }
    engine.set("sampling.temperature.value=" + core::to_toml(core::ConfigValue(temperature)), "--temperature");
}

}  // namespace foresay::app
