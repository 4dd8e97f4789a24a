// foresay bench: runs one of the benchmarks of app/bench.
#include "app/bench/bench.h"

#include <algorithm>
#include <charconv>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/interrupt.h"
#include "app/options.h"
#include "base/error.h"
#include "base/split.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kMostSequences = 256;

// "1,4,16"
std::vector<std::int32_t> parse_sequences(const std::string& text) {
    std::vector<std::int32_t> numbers;
    for (const std::string_view part : split(text, ',')) {
        std::int32_t number = 0;
        const char* const end = part.data() + part.size();
        const auto [rest, problem] = std::from_chars(part.data(), end, number);
        if (problem != std::errc() || rest != end || number < 1 || number > kMostSequences) {
            throw UsageError("--sequences: must be numbers from 1 to " + std::to_string(kMostSequences) +
                             ", separated by commas, not '" + text + "'");
        }
        numbers.push_back(number);
    }
    return numbers;
}

class Bench : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.after_parsing([this] { choose(); });  // finds CONFIG, which the check of the common options needs
        add_common_options(parser, options_);
        parser.over_hosts(options_);
        add_inflation_options(parser, options_);
        std::vector<std::string> names;
        std::string list = "Benchmarks:\n";
        for (const Benchmark& benchmark : registered_benchmarks()) {
            names.push_back(benchmark.name);
            list += "  " + benchmark.name + std::string(14 - std::min<std::size_t>(benchmark.name.size(), 13), ' ') +
                    benchmark.doc + "\n";
        }
        parser.argument_list(arguments_,
                             {.value = "BENCHMARK",
                              .doc = "what to measure; a configuration file can precede it",
                              .words = names,
                              .required = true},
                             1, 2);
        add_max_tokens_option(parser, options_.max_tokens,
                              "tokens to generate [default: " + std::to_string(kDefaultBenchTokens) + "]");
        add_sampling_options(parser, options_);
        parser.option_list("--temperature", options_.temperatures,
                           {.value = "T", .doc = "sampling temperature (repeatable)"});
        parser.option("--prompts", options_.prompts_file,
                      {.value = "FILE",
                       .doc = "prompts for speculation, replay and inflation, one JSON object per line",
                       .hint = ValueHint::file});
        parser.option("--runs", options_.runs,
                      {.value = "N", .doc = "runs of each measurement [default: 3]", .least = 1, .most = 1000});
        parser.option("--sequences",
                      [this](const std::string& text) { options_.batch.sequences = parse_sequences(text); },
                      {.value = "LIST",
                       .doc = "batch, serve: texts at once, separated by commas [default: 1,4,16]; verify: "
                              "sequences of a forward [default: one]"});
        parser.option("--clients",
                      [this](const std::string& text) { options_.batch.sequences = parse_sequences(text); },
                      {.value = "LIST", .doc = "serve: the same"});
        parser.number_option("--rate",
                             [this](const std::string& text) {
                                 options_.batch.arrivals = std::stod(text);
                                 if (!(*options_.batch.arrivals > 0.0))
                                     throw UsageError("--rate: must be more than 0, not '" + text + "'");
                             },
                             {.value = "R",
                              .doc = "serve: requests per second, which come at random, whether others are done or "
                                     "not [default: each client asks again when it has its answer]"});
        parser.option("--in", options_.batch.in,
                      {.value = "N",
                       .doc = "batch, serve: tokens of each prompt [default: 128]; verify --sequences: positions "
                              "before the rows [default: 64 and 1024]",
                       .least = 1});
        parser.option("--out", options_.batch.out,
                      {.value = "N", .doc = "batch, serve: tokens of each answer [default: as -n]", .least = 2});
        parser.number_option("--arrivals",
                             [this](const std::string& text) {
                                 options_.batch.arrivals = std::stod(text);
                                 if (!(*options_.batch.arrivals > 0.0)) {
                                     throw UsageError("--arrivals: must be more than 0, not '" + text + "'");
                                 }
                             },
                             {.value = "R", .doc = "batch: requests per second [default: all at once]"});
        parser.option("--url", options_.url,
                      {.value = "URL", .doc = "serve: the server, such as http://127.0.0.1:8080"});
        parser.option("--key", options_.key, {.value = "KEY", .doc = "serve: the key that the server asks for"});
        parser.option("--server-model", options_.server_model,
                      {.value = "NAME", .doc = "serve: name this model in requests [default: none]"});
        parser.flag("--chat", options_.chat, "serve: ask for chat completions instead of completions");
        parser.flag("--verify", options_.verify, "serve: ask each request again alone, and compare the texts");
        parser.option("--requests", options_.requests,
                      {.value = "N",
                       .doc = "serve --verify: so many of all protocols of foresay serve, at 64 connections",
                       .least = 1,
                       .most = 1'000'000});
        parser.option("--against", options_.against,
                      {.value = "URL", .doc = "serve --requests: another server, which is asked alone"});
        add_json_flag(parser, options_.json);
        parser.usage("[CONFIG] BENCHMARK");
        parser.details(list);
    }

    int run() override {
        try {
            benchmark_.run(options_);
        } catch (const Cancelled&) {
            return kCancelled;
        }
        return 0;
    }

private:
    void choose() {
        if (arguments_.size() == 2) options_.config = arguments_.front();
        std::vector<std::string> names;
        for (Benchmark& benchmark : registered_benchmarks()) {
            if (benchmark.name == arguments_.back()) benchmark_ = std::move(benchmark);
            names.push_back(benchmark.name);
        }
        if (benchmark_.run == nullptr) {
            throw UsageError("unknown benchmark '" + arguments_.back() + "'" +
                             core::suggestion(arguments_.back(), names));
        }
    }

    BenchOptions options_;
    std::vector<std::string> arguments_;
    Benchmark benchmark_;
};

const RegisterCommand<Bench> kBench("bench", "run a benchmark", CommandGroup::measure);

}  // namespace

}  // namespace foresay::app
