// A chain with a stage of your own: plain_ascii drops every candidate that is not printable ASCII, among built-in
// stages. It shapes the draft too, because it has no state to copy; the target's row decides the token.
//     custom_chain TARGET PROMPT
#include <algorithm>
#include <cstdio>
#include <exception>

#include "core/models/model.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/drafters/ngram_drafter.h"
#include "speculative/generator.h"
#include "speculative/vocabulary.h"

using namespace foresay;

// One row's candidates are ids and logits side by side; a stage edits them in place and may lower their number.
class PlainAscii : public samplers::Stage {
public:
    explicit PlainAscii(const samplers::Vocabulary& vocabulary) {
        const auto plain = [](char c) { return c == '\n' || (c >= ' ' && c <= '~'); };
        for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
            allowed_.push_back(std::ranges::all_of(vocabulary.text(id), plain));  // control tokens are empty and stay
        }
    }
    samplers::StageKind kind() const override { return samplers::StageKind::process; }
    bool whole_vocabulary() const override { return true; }
    std::string_view process(const samplers::StageState*, const samplers::StageContext&,
                             kernels::Candidates& row) const override {
        std::int32_t kept = 0;
        for (std::int32_t i = 0; i < row.count; ++i) {
            row.ids[kept] = row.ids[i];
            row.logits[kept] = row.logits[i];
            if (allowed_[static_cast<std::size_t>(row.ids[i])]) ++kept;
        }
        row.count = kept;
        return kept > 0 ? std::string_view() : "no candidate is printable ASCII";
    }

private:
    std::vector<bool> allowed_;
};

class PlainAsciiFactory : public samplers::StageFactory {
public:
    const samplers::StageDescription& description() const override { return description_; }
    std::unique_ptr<samplers::Stage> create(std::span<const samplers::ParameterValue>,
                                            const samplers::Vocabulary& vocabulary) const override {
        return std::make_unique<PlainAscii>(vocabulary);
    }

private:
    const samplers::StageTraits traits_{.masks_only = true, .whole_vocabulary = true};
    const samplers::StageDescription description_{"plain_ascii", "drops what is not printable ASCII", traits_, {}};
};

int main(int argc, char** argv) try {
    if (argc != 3) return std::fputs("usage: custom_chain TARGET PROMPT\n", stderr), 2;
    const auto ops = kernels::make_cpu_ops({});
    const auto target = core::Model::load(core::ModelSource::open(argv[1]), *ops);
    const core::Tokenizer tokenizer = core::Tokenizer::of(target->source());
    const auto vocabulary = speculative::make_vocabulary(tokenizer);
    samplers::StageSpec own{.name = "plain_ascii", .parameters = {}};
    own.factory = std::make_shared<PlainAsciiFactory>();
    const samplers::ChainSpec chain = {own,
                                       {.name = "penalties", .parameters = {{"repeat", 1.1}}},
                                       {.name = "min_p", .parameters = {{"p", 0.05}}},
                                       {.name = "temperature", .parameters = {{"value", 0.8}}}};
    const std::int32_t length = std::min(1024, target->config().context_length);
    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(target, core::ContextOptions{.length = length});
    parts.drafters.push_back(speculative::make_ngram_drafter(length));  // n-gram lookup needs no draft model
    parts.chain = std::make_unique<samplers::Chain>(chain, *vocabulary);
    parts.tokenizer = &tokenizer;  // supplies the end tokens
    speculative::Generator generator(std::move(parts));
    std::puts(generator.generate({.input = tokenizer.encode(argv[2]), .max_tokens = 64, .seed = 3}).text.c_str());
} catch (const std::exception& problem) {
    std::fprintf(stderr, "custom_chain: %s\n", problem.what());
    return 1;
}
