#include "tests/speculative/support.h"

#include <algorithm>

#include "core/weights/gguf.h"
#include "speculative/drafters/model_drafter.h"
#include "speculative/drafters/ngram_drafter.h"

namespace foresay::test {

const core::Tokenizer& tokenizer() {
    static const core::GgufFile file = core::GgufFile::open(bundled_path("target"));
    static const core::Tokenizer loaded = core::Tokenizer::from_gguf(file);
    return loaded;
}

namespace {

class TestVocabulary final : public samplers::Vocabulary {
public:
    std::int32_t size() const override { return tokenizer().vocab_size(); }
    std::string_view text(std::int32_t token) const override {
        return tokenizer().is_control(token) ? std::string_view{} : tokenizer().bytes(token);
    }
    std::int32_t find(std::string_view text) const override {
        for (std::int32_t id = 0; id < size(); ++id) {
            if (this->text(id) == text) return id;
        }
        return -1;
    }
    std::optional<std::vector<std::int32_t>> tokens(std::string_view text) const override {
        return tokenizer().encode(text, {.add_special = false, .parse_special = false});
    }
};

}  // namespace

const samplers::Vocabulary& vocabulary() {
    static const TestVocabulary instance;
    return instance;
}

std::unique_ptr<samplers::Chain> make_chain(const samplers::ChainSpec& spec) {
    return std::make_unique<samplers::Chain>(spec, vocabulary());
}

std::unique_ptr<samplers::Chain> temperature_chain(double temperature) {
    return make_chain({stage("temperature", {{"value", temperature}})});
}

const core::ContextOptions& context_options() {
    static const core::ContextOptions options{.length = 512, .prefill_rows = 128, .decode_rows = 33};
    return options;
}

void ScriptedDrafter::propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) {
    for (const std::int32_t token : script_(task.tokens, task.max_tokens)) {
        drafted.tokens.push_back(token);
        drafted.margins.push_back(1.0f);
        const bool end = std::ranges::find(task.end_tokens, token) != task.end_tokens.end();
        const std::int32_t count = static_cast<std::int32_t>(drafted.tokens.size());
        if (end || count == task.max_tokens) return;
        if (task.stop_rule != nullptr && !task.stop_rule->keep_drafting(count, 1.0f)) return;
    }
}

std::unique_ptr<speculative::Drafter> random_drafter(unsigned seed) {
    return std::make_unique<ScriptedDrafter>(
        "random", [random = std::mt19937(seed)](std::span<const std::int32_t>, std::int32_t count) mutable {
            std::vector<std::int32_t> drafted(static_cast<std::size_t>(count));
            for (std::int32_t& token : drafted) token = static_cast<std::int32_t>(random() % 16384);
            return drafted;
        });
}

std::unique_ptr<speculative::Drafter> replay_drafter(std::vector<std::int32_t> sequence, double error, unsigned seed) {
    return std::make_unique<ScriptedDrafter>(
        "replay", [sequence = std::move(sequence), error, random = std::mt19937(seed)](
                      std::span<const std::int32_t> tokens, std::int32_t count) mutable {
            std::vector<std::int32_t> drafted;
            for (std::size_t i = tokens.size(); i < sequence.size() && std::ssize(drafted) < count; ++i) {
                const bool wrong = std::uniform_real_distribution<double>(0.0, 1.0)(random) < error;
                drafted.push_back(wrong ? (sequence[i] + 1) % 16384 : sequence[i]);
            }
            return drafted;
        });
}

void RandomLengthDrafter::propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) {
    speculative::DraftTask cut = task;
    cut.max_tokens = static_cast<std::int32_t>(random_() % static_cast<unsigned>(task.max_tokens + 1));
    if (cut.max_tokens > 0) inner_->propose(cut, drafted);
}

void SecondBestDrafter::propose(const speculative::DraftTask& task, speculative::DraftedTokens& drafted) {
    context_.truncate(0);
    context_.prefill(task.tokens);
    for (std::int32_t i = 0; i < task.max_tokens; ++i) {
        const std::span<const float> logits = context_.logits(0);
        std::size_t best = 0;
        std::size_t second = 1;
        for (std::size_t id = 1; id < logits.size(); ++id) {
            if (logits[id] > logits[best]) {
                second = best;
                best = id;
            } else if (logits[id] > logits[second] || second == best) {
                second = id;
            }
        }
        // Right at first, wrong from a depth that varies.
        const bool wrong = i >= static_cast<std::int32_t>(task.tokens.size() % 4);
        const std::int32_t token = static_cast<std::int32_t>(wrong ? second : best);
        drafted.tokens.push_back(token);
        drafted.margins.push_back(0.0f);
        if (!context_.decode(std::span(&token, 1))) return;
    }
}

std::unique_ptr<speculative::Drafter> model_drafter(std::shared_ptr<const core::Model> model,
                                                    core::ContextOptions options) {
    return speculative::make_model_drafter(std::make_unique<core::Context>(std::move(model), options));
}

std::unique_ptr<speculative::Drafter> ngram_drafter() {
    return speculative::make_ngram_drafter(context_options().length);
}

speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                      std::vector<std::unique_ptr<speculative::Drafter>> drafters,
                                      speculative::SpeculationOptions speculation, core::ContextOptions options,
                                      std::shared_ptr<const core::Model> target) {
    if (target == nullptr) target = bundled(fast_backend(), "target");
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(std::move(target), options);
    parts.chain = std::move(chain);
    parts.drafters = std::move(drafters);
    parts.tokenizer = &tokenizer();
    parts.end_tokens.assign(tokenizer().end_of_text_ids().begin(), tokenizer().end_of_text_ids().end());
    parts.speculation = speculation;
    return speculative::Generator(std::move(parts));
}

std::vector<std::unique_ptr<speculative::Drafter>> sources(std::unique_ptr<speculative::Drafter> first,
                                                           std::unique_ptr<speculative::Drafter> second) {
    std::vector<std::unique_ptr<speculative::Drafter>> all;
    if (first) all.push_back(std::move(first));
    if (second) all.push_back(std::move(second));
    return all;
}

speculative::Generator make_generator(std::unique_ptr<samplers::Chain> chain,
                                      std::unique_ptr<speculative::Drafter> drafter,
                                      speculative::SpeculationOptions speculation, core::ContextOptions options) {
    return make_generator(std::move(chain), sources(std::move(drafter)), speculation, options);
}

speculative::Now free_rows() {
    static double clock;
    return [] { return clock += 1.0; };
}

std::vector<std::int32_t> prompt() {
    return tokenizer().encode("def read_lines(path):\n    \"\"\"Return the lines of a file.\"\"\"\n");
}

}  // namespace foresay::test
