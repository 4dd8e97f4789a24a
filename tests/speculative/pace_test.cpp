// What speculation is worth on a device of a given pace: the bundled pair's own tokens on recorded prompts, on a clock
// that counts what the host and the device would take (tests/models/paced_ops.h). Nothing is measured: the numbers are
// the same on every machine.

#include <gtest/gtest.h>

#include <cmath>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/speculative/session.h"

namespace foresay::test {
namespace {

using speculative::GenerateResult;
using speculative::Generator;

struct Prompt {
    std::string id, kind;
    std::vector<std::int32_t> tokens;
};

std::vector<Prompt> prompts() {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/bench/prompts/code.jsonl");
    std::vector<Prompt> all;
    for (std::string line; std::getline(file, line);) {
        const auto json = nlohmann::json::parse(line);
        const std::string kind = json["kind"];
        if (kind != "code" && kind != "edit") continue;
        all.push_back({json["id"], kind, tokenizer().encode(json["prompt"].get<std::string>())});
    }
    return all;
}

struct Machine {
    const char* name;
    double up_to_8, up_to_16, wider, draft;  // ms of a forward
};

DevicePace pace_of(const Machine& machine) {
    const std::int32_t target_layers = bundled(paced_backend(), "target")->config().shape.layers;
    return {.forward = [machine, target_layers](const kernels::ModelShape& shape, std::int32_t rows) {
        if (shape.layers != target_layers) return machine.draft;
        return rows <= 8 ? machine.up_to_8 : rows <= 16 ? machine.up_to_16 : machine.wider;
    }};
}

struct Gain {
    double plain = 0.0, speculating = 0.0;  // tokens per second
};

Generator paced(double temperature, bool speculating) {
    core::ContextOptions options = session_options();
    options.length = 1024;
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(bundled(paced_backend(), "target"), options);
    parts.chain = make_chain({stage("penalties"), stage("top_k"), stage("top_p"),
                              stage("temperature", {{"value", temperature}})});
    if (speculating) {
        parts.drafters = sources(model_drafter(bundled(paced_backend(), "draft"), options),
                                 speculative::make_suffix_drafter(options.length));
    }
    parts.tokenizer = &tokenizer();
    parts.end_tokens.assign(tokenizer().end_of_text_ids().begin(), tokenizer().end_of_text_ids().end());
    parts.speculation = automatic();
    parts.now = PacedOps::now;
    return Generator(std::move(parts));
}

double measure(const Machine& machine, int report) {
    PacedOps::set_pace(pace_of(machine));
    double logs = 0.0;
    int count = 0;
    for (const double temperature : {0.0, 0.6}) {
        Generator plain = paced(temperature, false), speculating = paced(temperature, true);
        for (const Prompt& prompt : prompts()) {
            const auto run = [&](Generator& generator) {
                generator.truncate(0);
                return generator.generate({.input = prompt.tokens, .max_tokens = 256, .seed = 1});
            };
            const GenerateResult reference = run(plain);
            PacedOps::idle();
            const GenerateResult result = run(speculating);
            EXPECT_EQ(result.tokens, reference.tokens) << prompt.id;
            if (reference.decode_tokens_per_second <= 0.0) continue;
            const double ratio = result.decode_tokens_per_second / reference.decode_tokens_per_second;
            logs += std::log(ratio);
            ++count;
            if (report > 1) {
                const auto& s = result.speculation;
                std::printf("%-8s %.1f %4zu tokens %7.1f %7.1f %5.2f  drafted %4.2f accepted %4.2f a round, idle %.3f ms a round, draft %.3f verify %.3f\n",
                            prompt.id.c_str(), temperature, result.tokens.size(), reference.decode_tokens_per_second,
                            result.decode_tokens_per_second, ratio, double(s.drafted) / double(s.rounds), double(s.accepted) / double(s.rounds),
                            PacedOps::idle() / double(s.rounds), s.draft_ms / double(s.rounds), s.verify_ms / double(s.rounds));
            }
        }
    }
    const double mean = std::exp(logs / count);
    if (report > 0) std::printf("%-30s %.3f\n", machine.name, mean);
    return mean;
}

TEST(Pace, Report) {
    measure({"8B, bundled draft", 1.15, 1.25, 2.5, 0.06}, 2);
    measure({"70B, 1B draft", 9.9, 10.5, 20.0, 0.3}, 2);
    measure({"8B, draft 0.1", 1.15, 1.25, 2.5, 0.10}, 1);
    measure({"8B, draft 0.15", 1.15, 1.25, 2.5, 0.15}, 1);
}

}  // namespace
}  // namespace foresay::test
