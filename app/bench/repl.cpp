// foresay bench repl: the latencies that a user of the conversation loop notices: from a key to its echo, at the prompt
// and during an answer, and from Enter to the first token, compared with the engine alone. Runs the program on a
// pseudo-terminal.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <random>
#include <sstream>

#include "app/bench/bench.h"
#include "app/bench/pseudo_terminal.h"
#include "app/output.h"
#include "app/quick_thread.h"
#include "base/error.h"

namespace foresay::app {

namespace {

using Clock = PseudoTerminal::Clock;
using std::chrono::milliseconds;

constexpr int kPromptLines[] = {10, 60};
constexpr int kKeys = 120;  // per run
constexpr std::string_view kClearToEnd = "\x1b[K";

// Prompts differ from the first token on, so that the KV cache is of no use.
std::string prompt_of(int lines, int number) {
    std::string text = std::to_string(number) + " things\n";
    for (int i = 0; i < lines; ++i)
        text += "    value_" + std::to_string(i) + " = " + std::to_string(i * number) + "\n";
    return text;
}

double ms_since(Clock::time_point start) {
    return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double quantile(std::vector<double> values, double share) {
    if (values.empty()) return 0.0;
    std::sort(values.begin(), values.end());
    const auto rank = static_cast<std::size_t>(std::ceil(share * static_cast<double>(values.size())));
    return values[std::clamp<std::size_t>(rank, 1, values.size()) - 1];
}

struct Series {
    std::string name;
    std::vector<double> ms;
};

// The time to the first token with the engine alone.
std::vector<Series> measure_engine(const BenchOptions& options) {
    OpenedEngine engine(options, {});
    speculative::Generator generator = engine.make_generator();
    std::vector<Series> all;
    int number = 1000;
    for (const int lines : kPromptLines) {
        Series series{"engine", {}};
        for (int run = 0; run <= options.runs; ++run) {
            stop_if_interrupted();
            generator.truncate(0);
            const auto tokens = engine.tokenizer().encode(prompt_of(lines, ++number));
            const auto result = generator.generate({.input = tokens, .max_tokens = 1});
            if (run > 0) series.ms.push_back(result.ttft_ms);  // the first one warms up
        }
        all.push_back(std::move(series));
    }
    return all;
}

class Person {
public:
    Person(const Options& options, const std::string& home) : terminal_(arguments(options), home) { prompt(); }

    // From Enter to the first byte of the answer, `pause` after the prompt's text was pasted.
    double first_token(const std::string& text, milliseconds pause) {
        command("/clear");
        command("/set chat.max_tokens 2");
        terminal_.forget();
        terminal_.type("\x1b[200~" + text + "\x1b[201~");
        terminal_.expect("]");  // the end of the label of the pasted block
        if (pause.count() > 0) terminal_.wait([](const std::string&) { return false; }, pause);
        terminal_.forget();
        const Clock::time_point start = Clock::now();
        terminal_.type("\r");
        const auto shows_more = [](const std::string& shown) {
            const auto line = shown.find('\n');
            return line != std::string::npos && line + 1 < shown.size();
        };
        if (!terminal_.wait(shows_more, std::chrono::seconds(600))) throw Error("no answer came within 600 s");
        const double ms = ms_since(start);
        prompt();
        return ms;
    }

    void keys_at_the_prompt(std::vector<double>& ms) {
        for (int i = 0; i < kKeys; ++i) {
            stop_if_interrupted();
            terminal_.wait([](const std::string&) { return false; }, milliseconds(3 + i % 7));
            terminal_.forget();
            const Clock::time_point start = Clock::now();
            terminal_.type("x");
            terminal_.expect("x");
            ms.push_back(ms_since(start));
        }
        terminal_.type("\x15");
    }

    void keys_during_an_answer(std::vector<double>& ms) {
        command("/clear");
        command("/set chat.max_tokens 0");
        terminal_.forget();
        terminal_.type("import os\r");
        terminal_.wait([](const std::string& shown) { return shown.size() > 40; }, std::chrono::seconds(60));
        std::string typed;
        for (int i = 0; i < kKeys; ++i) {
            stop_if_interrupted();
            // The line below must show all of the typed keys.
            if (typed.size() == 60) {
                terminal_.type("\x15");
                typed.clear();
            }
            terminal_.wait([](const std::string&) { return false; }, milliseconds(7 + random_() % 17));
            typed += static_cast<char>('a' + random_() % 26);
            terminal_.forget();
            const Clock::time_point start = Clock::now();
            terminal_.type(typed.substr(typed.size() - 1));
            const std::string line = "> " + typed + std::string(kClearToEnd);
            const bool shown = terminal_.wait(
                [&](const std::string& text) { return text.find(line) != std::string::npos; }, milliseconds(1000));
            if (!shown) break;  // the answer has ended
            ms.push_back(ms_since(start));
        }
        terminal_.type("\x03");
        terminal_.expect("\n");
        prompt();
        terminal_.type("\x15");
        terminal_.wait([](const std::string&) { return false; }, milliseconds(50));
    }

    // The line of /stats about the time for showing.
    std::string showing() {
        const std::string stats = command("/stats");
        const auto line = stats.find("showing");
        return line == std::string::npos ? "" : stats.substr(line, stats.find('\r', line) - line);
    }

private:
    static std::vector<std::string> arguments(const Options& options) {
        std::vector<std::string> words = {"chat"};
        if (!options.config.empty()) words.push_back(options.config);
        const auto set = [&](const std::string& assignment) { words.insert(words.end(), {"--set", assignment}); };
        for (const core::ConfigLayer& layer : options.overrides) {
            std::istringstream lines(layer.text);
            for (std::string line; std::getline(lines, line);) set(line);
        }
        set("chat.style=complete");
        return words;
    }

    void prompt() {
        const auto waits = [](const std::string& shown) {
            return shown.find("\n> ") != std::string::npos || shown.find("\r> ") != std::string::npos;
        };
        if (!terminal_.wait(waits, std::chrono::seconds(600))) {
            throw Error("the conversation loop did not return to its prompt; it showed: " + terminal_.shown());
        }
    }
    std::string command(const std::string& line) {
        terminal_.forget();
        terminal_.type(line + "\r");
        terminal_.expect("\n");
        prompt();
        return terminal_.shown();
    }

    PseudoTerminal terminal_;
    std::mt19937 random_{1};
};

void bench_repl(const BenchOptions& options) {
    if (!options.inflate.empty() || !options.inflate_draft.empty()) {
        throw UsageError(
            "bench repl runs `foresay chat`, which cannot inflate models; leave out --inflate and --inflate-draft");
    }
    std::string home = (std::filesystem::temp_directory_path() / "foresay-XXXXXX").string();
    if (!::mkdtemp(home.data())) throw Error("cannot create the folder " + home);
    const std::vector<Series> engine = measure_engine(options);
    std::vector<Series> first;
    Series at_prompt{"a key to its echo, at the prompt", {}}, during{"a key to its echo, during an answer", {}};
    std::string showing;
    try {
        Person person(options, home);
        run_at_once(true);  // measure the program's delay, not that of this process
        int number = 5000;
        for (const milliseconds pause : {milliseconds(0), milliseconds(1000)}) {
            for (const int lines : kPromptLines) {
                Series series{"repl", {}};
                for (int run = 0; run <= options.runs; ++run) {
                    stop_if_interrupted();
                    const double ms = person.first_token(prompt_of(lines, ++number), pause);
                    if (run > 0) series.ms.push_back(ms);
                }
                first.push_back(std::move(series));
            }
        }
        for (int run = 0; run < options.runs; ++run) {
            person.keys_at_the_prompt(at_prompt.ms);
            person.keys_during_an_answer(during.ms);
        }
        showing = person.showing();
    } catch (...) {
        std::filesystem::remove_all(home);
        throw;
    }
    std::filesystem::remove_all(home);
    run_at_once(false);

    nlohmann::ordered_json out;
    std::string text = "from Enter to the first token (median)      engine ms    repl ms    after a pause of 1 s\n";
    const std::size_t lengths = std::size(kPromptLines);
    for (std::size_t i = 0; i < lengths; ++i) {
        const double alone = median(engine[i].ms), there = median(first[i].ms), paused = median(first[lengths + i].ms);
        text +=
            format("  a pasted prompt of %3d lines %24.1f %10.1f %13.1f\n", kPromptLines[i] + 1, alone, there, paused);
        out["first_token"].push_back({{"lines", kPromptLines[i] + 1},
                                      {"engine_ms", alone},
                                      {"repl_ms", there},
                                      {"repl_after_pause_ms", paused}});
    }
    for (const Series& keys : {at_prompt, during}) {
        const double p50 = quantile(keys.ms, 0.5), p99 = quantile(keys.ms, 0.99), worst = quantile(keys.ms, 1.0);
        text += format("%-40s p50 %6.2f  p99 %6.2f  worst %6.2f ms  (%zu keys)\n", keys.name.c_str(), p50, p99, worst,
                       keys.ms.size());
        out["echo"].push_back(
            {{"what", keys.name}, {"keys", keys.ms.size()}, {"p50_ms", p50}, {"p99_ms", p99}, {"worst_ms", worst}});
    }
    out["showing"] = showing;
    print(options.json ? out.dump() + "\n" : text + showing + "\n");
}

const RegisterBenchmark kRepl("repl", "latencies of the conversation loop", bench_repl);

}  // namespace

}  // namespace foresay::app
