// foresay bench: runs one of the benchmarks of app/bench.
#include "app/bench/bench.h"

#include <algorithm>
#include <charconv>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/interrupt.h"
#include "app/options.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kMostSequences = 256;

// "1,4,16"
std::vector<std::int32_t> parse_sequences(const std::string& text) {
    std::vector<std::int32_t> numbers;
    for (std::size_t begin = 0; begin <= text.size();) {
        const std::size_t end = std::min(text.find(',', begin), text.size());
        std::int32_t number = 0;
        const auto [rest, problem] = std::from_chars(text.data() + begin, text.data() + end, number);
        if (problem != std::errc() || rest != text.data() + end || number < 1 || number > kMostSequences) {
            throw UsageError("--sequences: must be numbers from 1 to " + std::to_string(kMostSequences) +
                             ", separated by commas, not '" + text + "'");
        }
        numbers.push_back(number);
        begin = end + 1;
    }
    return numbers;
}

class Bench : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.after_parsing([this] { choose(); });  // finds CONFIG, which the check of the common options needs
        add_common_options(parser, options_);
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
                      {.value = "LIST", .doc = "batch: sequences at once, separated by commas [default: 1,4,16]"});
        parser.option("--in", options_.batch.in,
                      {.value = "N", .doc = "batch: tokens of each prompt [default: 128]", .least = 1});
        parser.option("--out", options_.batch.out,
                      {.value = "N", .doc = "batch: tokens of each answer [default: as -n]", .least = 2});
        parser.number_option("--arrivals",
                             [this](const std::string& text) {
                                 options_.batch.arrivals = std::stod(text);
                                 if (!(*options_.batch.arrivals > 0.0)) {
                                     throw UsageError("--arrivals: must be more than 0, not '" + text + "'");
                                 }
                             },
                             {.value = "R", .doc = "batch: requests per second [default: all at once]"});
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
