// The engine in a program of your own: two models, a chain of samplers, and the text as it comes.
//     embed TARGET DRAFT PROMPT
#include <cstdio>
#include <exception>

#include "core/models/model.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/drafters/model_drafter.h"
#include "speculative/generator.h"
#include "speculative/vocabulary.h"

using namespace foresay;

int main(int argc, char** argv) try {
    if (argc != 4) return std::fputs("usage: embed TARGET DRAFT PROMPT\n", stderr), 2;
    const auto ops = kernels::make_cpu_ops({});  // what computes; both models may share it
    const auto load = [&](const char* path) { return core::Model::load(core::ModelSource::open(path), *ops); };
    const auto target = load(argv[1]), draft = load(argv[2]);
    const core::Tokenizer tokenizer = core::Tokenizer::from_gguf(*target->source().gguf());
    const auto vocabulary = speculative::make_vocabulary(tokenizer);
    const samplers::ChainSpec chain = {{.name = "top_k", .parameters = {}},
                                       {.name = "temperature", .parameters = {{"value", 0.6}}}};
    const core::ContextOptions context{.length = 1024};

    speculative::GeneratorParts parts;
    parts.target = std::make_unique<core::Context>(target, context);
    parts.drafters.push_back(speculative::make_model_drafter(std::make_unique<core::Context>(draft, context)));
    parts.chain = std::make_unique<samplers::Chain>(chain, *vocabulary);
    parts.tokenizer = &tokenizer;
    parts.end_tokens.assign(tokenizer.end_of_text_ids().begin(), tokenizer.end_of_text_ids().end());
    speculative::Generator generator(std::move(parts));

    const std::vector<std::int32_t> prompt = tokenizer.encode(argv[3]);
    const speculative::GenerateResult result = generator.generate(
        {.input = prompt, .max_tokens = 48, .seed = 7},
        [](const speculative::TokenEvent& event) { std::fwrite(event.text.data(), 1, event.text.size(), stdout); });
    std::fprintf(stderr, "\n%zu tokens in %lld forwards of the target\n", result.tokens.size(),
                 static_cast<long long>(result.speculation.rounds));
} catch (const std::exception& problem) {
    std::fprintf(stderr, "embed: %s\n", problem.what());
    return 1;
}
