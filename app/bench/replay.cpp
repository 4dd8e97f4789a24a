// foresay bench replay: what verification gains when drafting is free. Each prompt is completed without speculation
// once. Then that completion itself is drafted, at several draft lengths: with all tokens right, and with every third
// one wrong. The text must stay the same.
#include <limits>
#include <nlohmann/json.hpp>

#include "app/bench/bench.h"
#include "app/bench/prompt_runs.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kLengths[] = {1, 2, 4, 8, 16};

// Proposes the tokens of the record, with every `wrong_every`-th one changed (0: none).
class RecordDrafter : public speculative::Drafter {
public:
    RecordDrafter(std::vector<std::int32_t> record, std::int32_t wrong_every)
        : record_(std::move(record)), wrong_every_(wrong_every) {}

    std::string_view name() const override { return "record"; }

    void propose(const speculative::DraftTask& task, speculative::DraftedTokens& draft) override {
        for (std::size_t i = task.tokens.size(); i < record_.size(); ++i) {
            if (static_cast<std::int32_t>(draft.tokens.size()) >= task.max_tokens) return;
            const bool wrong = wrong_every_ > 0 && i % static_cast<std::size_t>(wrong_every_) == 0;
            draft.tokens.push_back(wrong ? record_[i] ^ 1 : record_[i]);
            draft.margins.push_back(std::numeric_limits<float>::infinity());
        }
    }

private:
    std::vector<std::int32_t> record_;  // the prompt and its completion
    std::int32_t wrong_every_;
};

struct Case {
    std::int32_t length;
    std::int32_t wrong_every;
};

void bench_replay(const BenchOptions& options) {
    const std::vector<Prompt> prompts = bench_prompts(options);
    EngineNeeds needs;
    needs.draft = false;
    OpenedEngine engine(options, needs);
    PromptRun run;
    run.max_tokens = tokens_to_write(options, engine.context_length());
    run.seed = engine.config().seed;
    std::vector<Case> cases;
    for (const std::int32_t wrong : {0, 3}) {
        for (const std::int32_t length : kLengths) cases.push_back({length, wrong});
    }
    std::vector<std::vector<double>> ratios(cases.size());
    for (const Prompt& prompt : prompts) {
        const std::vector<std::int32_t> input = engine.tokenizer().encode(prompt.text);
        engine.set("speculation.mode=off", "bench");
        speculative::Generator plain = engine.make_generator({});
        const auto reference = run_prompt(plain, input, run);
        if (reference.decode_tokens_per_second <= 0) continue;
        std::vector<std::int32_t> record = input;
        record.insert(record.end(), reference.tokens.begin(), reference.tokens.end());
        engine.set("speculation.mode=fixed", "bench");
        for (std::size_t i = 0; i < cases.size(); ++i) {
            engine.set("speculation.length=" + std::to_string(cases[i].length), "bench");
            std::vector<std::unique_ptr<speculative::Drafter>> drafters;
            drafters.push_back(std::make_unique<RecordDrafter>(record, cases[i].wrong_every));
            speculative::Generator generator = engine.make_generator(std::move(drafters));
            std::vector<double> rates, plain_rates;
            for (int repeat = 0; repeat < options.runs; ++repeat) {
                plain_rates.push_back(run_prompt(plain, input, run).decode_tokens_per_second);
                const auto result = run_prompt(generator, input, run);
                if (result.tokens != reference.tokens) {
                    throw Error("prompt " + prompt.id +
                                ": a draft changed the text; this is a bug in foresay, please report it");
                }
                rates.push_back(result.decode_tokens_per_second);
            }
            ratios[i].push_back(median(rates) / median(plain_rates));
        }
    }
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    std::string text = "drafted a round   every third wrong   times plain decoding\n";
    for (std::size_t i = 0; i < cases.size(); ++i) {
        const double ratio = geometric_mean(ratios[i]);
        rows.push_back(
            {{"length", cases[i].length}, {"every_third_wrong", cases[i].wrong_every > 0}, {"ratio", ratio}});
        text += format("%15d   %17s   %20.2f\n", cases[i].length, cases[i].wrong_every > 0 ? "yes" : "no", ratio);
    }
    if (options.json) {
        nlohmann::ordered_json out;
        label_inflated(out, engine);
        out["replays"] = std::move(rows);
        print(out.dump() + "\n");
        return;
    }
    print(bench_title(engine) + text);
}

const RegisterBenchmark kReplay("replay", "what verification gains when drafts cost nothing", bench_replay);

}  // namespace

}  // namespace foresay::app
