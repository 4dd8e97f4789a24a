#include "app/doctor/laws.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "app/bench/bench.h"
#include "core/models/context.h"
#include "speculative/generator.h"

namespace foresay::app {

namespace {

constexpr std::int32_t kPrompt = 100;  // more than a page of the KV cache
constexpr std::int32_t kRows = 16;
constexpr std::int32_t kTokens = 64;  // of each text

using Logits = std::vector<std::vector<float>>;

// The logits of `tokens` after a prompt, evaluated as decode rows, `width` at a time.
Logits decode_logits(core::Context& context, std::span<const std::int32_t> tokens, std::int32_t width) {
    const std::int32_t start = context.length();
    Logits all;
    for (std::size_t done = 0; done < tokens.size(); done += static_cast<std::size_t>(width)) {
        context.decode(tokens.subspan(done, static_cast<std::size_t>(width)));
        for (std::int32_t i = 0; i < width; ++i) {
            const std::span<const float> row = context.logits(i);
            all.emplace_back(row.begin(), row.end());
        }
    }
    context.truncate(start);
    return all;
}

// The logits after a prompt that is evaluated in pieces of `piece` tokens.
Logits prompt_logits(core::Context& context, std::span<const std::int32_t> tokens, std::size_t piece) {
    context.truncate(0);
    for (std::size_t done = 0; done < tokens.size(); done += piece) {
        context.prefill(tokens.subspan(done, std::min(piece, tokens.size() - done)));
    }
    const std::span<const float> row = context.logits(0);
    return {std::vector<float>(row.begin(), row.end())};
}

// The first row that differs in any bit.
std::optional<std::size_t> first_difference(const Logits& expected, const Logits& found) {
    for (std::size_t row = 0; row < expected.size(); ++row) {
        if (std::memcmp(expected[row].data(), found[row].data(), expected[row].size() * sizeof(float)) != 0) return row;
    }
    return std::nullopt;
}

LawCheck compared(std::string name, const std::string& what, const Logits& expected, const Logits& found) {
    const std::optional<std::size_t> row = first_difference(expected, found);
    return {std::move(name), row ? what + ": row " + std::to_string(*row) + " differs" : what, !row};
}

std::vector<std::int32_t> text_prompt(const engine::Engine& engine) {
    return engine.tokenizer().encode("def fibonacci(n):\n");
}

// Refers to the prompt.
speculative::GenerateRequest text_request(std::span<const std::int32_t> prompt) {
    speculative::GenerateRequest request;
    request.input = prompt;
    request.max_tokens = kTokens;
    request.seed = 7;
    request.ignore_eos = true;
    return request;
}

}  // namespace

std::vector<LawCheck> check_rows(const engine::Engine& engine) {
    const auto context = engine.make_context();
    const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, kPrompt + kRows);
    const std::span<const std::int32_t> all(tokens), prompt = all.first(kPrompt), rows = all.subspan(kPrompt);
    std::vector<LawCheck> checks;
    const Logits whole = prompt_logits(*context, prompt, kPrompt);
    checks.push_back(
        compared("a prompt whole and in pieces", "pieces of 37 tokens", whole, prompt_logits(*context, prompt, 37)));
    context->truncate(0);
    context->prefill(prompt);
    const Logits alone = decode_logits(*context, rows, 1);
    for (const std::int32_t width : {4, kRows}) {
        checks.push_back(compared("rows alone and " + std::to_string(width) + " together", "16 rows", alone,
                                  decode_logits(*context, rows, width)));
    }
    return checks;
}

Sample take_sample(const engine::Engine& engine) {
    Sample sample;
    const auto context = engine.make_context();
    const std::vector<std::int32_t> tokens = some_tokens(engine.target().config().shape.vocab, kPrompt + kRows);
    const std::span<const std::int32_t> all(tokens);
    sample.logits = prompt_logits(*context, all.first(kPrompt), kPrompt);
    for (std::vector<float>& row : decode_logits(*context, all.subspan(kPrompt), 4)) {
        sample.logits.push_back(std::move(row));
    }
    if (!engine.has_tokenizer()) return sample;
    speculative::Generator generator = engine.make_generator();
    const std::vector<std::int32_t> prompt = text_prompt(engine);
    sample.text = generator.generate(text_request(prompt)).tokens;
    return sample;
}

LawCheck check_same(const std::string& other, const Sample& expected, const Sample& found) {
    LawCheck check = compared("the same as " + other + " alone", std::to_string(expected.logits.size()) + " rows",
                              expected.logits, found.logits);
    if (!check.holds || expected.text.empty()) return check;
    check.detail += ", a text of " + std::to_string(expected.text.size()) + " tokens";
    const auto [one, another] = std::ranges::mismatch(expected.text, found.text);
    check.holds = one == expected.text.end() && another == found.text.end();
    if (!check.holds) check.detail += ": token " + std::to_string(one - expected.text.begin()) + " differs";
    return check;
}

LawCheck check_speculation(const engine::Engine& engine) {
    using core::SpeculationMode;
    LawCheck check{"text with and without speculation", "", false};
    const std::vector<std::int32_t> prompt = text_prompt(engine);
    const speculative::GenerateRequest request = text_request(prompt);
    std::vector<std::int32_t> plain;
    std::int64_t drafted = 0;
    for (const auto& [mode, name] : {std::pair(SpeculationMode::off, "off"), std::pair(SpeculationMode::fixed, "fixed"),
                                     std::pair(SpeculationMode::automatic, "auto")}) {
        speculative::Generator generator = engine.make_generator();
        generator.set_speculation({.mode = mode});
        const speculative::GenerateResult result = generator.generate(request);
        drafted += result.speculation.drafted;
        if (mode == SpeculationMode::off) plain = result.tokens;
        const auto [one, other] = std::ranges::mismatch(plain, result.tokens);
        if (one == plain.end() && other == result.tokens.end()) continue;
        check.detail = "mode " + std::string(name) + ": token " + std::to_string(one - plain.begin()) + " differs";
        return check;
    }
    check.detail = std::to_string(drafted) + " tokens drafted";
    check.holds = true;
    return check;
}

}  // namespace foresay::app
