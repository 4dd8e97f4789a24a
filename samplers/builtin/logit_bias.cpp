// logit_bias: adds a number to the logits of chosen tokens, by id or by text; -inf forbids them. Sees the whole
// vocabulary.

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "samplers/builtin/builtin.h"

namespace foresay::samplers {
namespace {

class LogitBias : public Stage {
public:
    explicit LogitBias(std::vector<kernels::TokenValue> values) : values_(std::move(values)) {}
    bool idle() const override { return values_.empty(); }
    bool whole_vocabulary() const override { return true; }
    StageKind kind() const override { return StageKind::step; }
    kernels::SamplingStep step(const StageState*, std::vector<kernels::TokenCount>&) const override {
        return {.kind = kernels::SamplingStepKind::bias, .values = values_};
    }

private:
    std::vector<kernels::TokenValue> values_;
};

// The token that is a text, a control token's name included.
std::int32_t token_of(const std::string& text, const Vocabulary& vocabulary) {
    const std::int32_t id = vocabulary.find(text);
    if (id >= 0) return id;
    if (const std::int32_t control = vocabulary.find_control(text); control >= 0) return control;
    const auto tokens = vocabulary.tokens(text);
    throw Error("logit_bias: '" + text + "' is not one token of this model" +
                (tokens && tokens->size() > 1 ? " but " + std::to_string(tokens->size()) : "") +
                "; a bias is for single tokens, and a blank before a word belongs to its token");
}

void add_texts(std::span<const ParameterValue> parameters, const Vocabulary& vocabulary,
               std::vector<kernels::TokenValue>& entries) {
    const auto& texts = std::get<std::vector<std::string>>(parameters[2]);
    const auto& values = std::get<std::vector<double>>(parameters[3]);
    if (texts.size() != values.size()) {
        throw Error("logit_bias: 'texts' has " + std::to_string(texts.size()) + " entries and 'text_values' has " +
                    std::to_string(values.size()) + "; give one value per text");
    }
    for (std::size_t i = 0; i < texts.size(); ++i) {
        entries.push_back({token_of(texts[i], vocabulary), static_cast<float>(values[i])});
    }
}

std::unique_ptr<Stage> make_logit_bias(std::span<const ParameterValue> parameters, const Vocabulary& vocabulary) {
    const auto& tokens = std::get<std::vector<std::int64_t>>(parameters[0]);
    const auto& values = std::get<std::vector<double>>(parameters[1]);
    if (tokens.size() != values.size()) {
        throw Error("logit_bias: 'tokens' has " + std::to_string(tokens.size()) + " entries and 'values' has " +
                    std::to_string(values.size()) + "; give one value per token");
    }
    std::vector<kernels::TokenValue> entries;
    for (std::size_t i = 0; i < tokens.size(); ++i) {
        if (tokens[i] >= vocabulary.size()) {
            throw Error("logit_bias: token " + std::to_string(tokens[i]) + " does not exist; the vocabulary has " +
                        std::to_string(vocabulary.size()) + " tokens");
        }
        entries.push_back({static_cast<std::int32_t>(tokens[i]), static_cast<float>(values[i])});
    }
    add_texts(parameters, vocabulary, entries);
    std::sort(entries.begin(), entries.end(), [](const auto& a, const auto& b) { return a.token < b.token; });
    for (std::size_t i = 1; i < entries.size(); ++i) {
        if (entries[i].token == entries[i - 1].token) {
            throw Error("logit_bias: token " + std::to_string(entries[i].token) + " is listed twice; list it once");
        }
    }
    return std::make_unique<LogitBias>(std::move(entries));
}

}  // namespace

std::shared_ptr<const StageFactory> logit_bias_factory() {
    constexpr double kLowest = -std::numeric_limits<double>::infinity();
    StageDescription description{
        "logit_bias",
        "Adds to the logits of chosen tokens.",
        {.whole_vocabulary = true},
        {{"tokens", ParameterType::integer_list, std::vector<std::int64_t>{}, 0.0, 2147483647.0, {}, "Token ids."},
         {"values",
          ParameterType::real_list,
          std::vector<double>{},
          kLowest,
          1000.0,
          {},
          "What is added to each of them; -inf forbids a token."},
         {"texts", ParameterType::text_list, std::vector<std::string>{}, {}, {}, {}, "Tokens by their text."},
         {"text_values",
          ParameterType::real_list,
          std::vector<double>{},
          kLowest,
          1000.0,
          {},
          "What is added to each of those."}}};
    return make_factory(std::move(description), make_logit_bias);
}

}  // namespace foresay::samplers
