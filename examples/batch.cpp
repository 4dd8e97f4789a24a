// Many prompts, one load: each line of standard input is a prompt, each answer is printed under it.
//     batch TARGET DRAFT < PROMPTS
#include <algorithm>
#include <cstdio>
#include <exception>
#include <iostream>

#include "core/models/model.h"
#include "core/text/tokenizer.h"
#include "samplers/chain.h"
#include "speculative/drafters/model_drafter.h"
#include "speculative/generator.h"
#include "speculative/pairing.h"
#include "speculative/vocabulary.h"

using namespace foresay;

int main(int argc, char** argv) try {
    if (argc != 3) return std::fputs("usage: batch TARGET DRAFT < PROMPTS\n", stderr), 2;
    const auto ops = kernels::make_cpu_ops({});
    auto target_file = core::ModelSource::open(argv[1]), draft_file = core::ModelSource::open(argv[2]);
    const core::Tokenizer tokenizer = core::Tokenizer::of(*target_file);
    const core::Tokenizer draft_tokenizer = core::Tokenizer::of(*draft_file);
    // Before the weights are loaded: throws unless the second model can draft for the first.
    const speculative::Pairing pairing = speculative::check_pairing({target_file->config(), &tokenizer, argv[1]},
                                                                    {draft_file->config(), &draft_tokenizer, argv[2]});
    const auto target = core::Model::load(std::move(target_file), *ops);
    const auto draft = core::Model::load(std::move(draft_file), *ops);
    const auto vocabulary = speculative::make_vocabulary(tokenizer);
    const auto context = [](const std::shared_ptr<const core::Model>& model) {
        return std::make_unique<core::Context>(
            model, core::ContextOptions{.length = std::min(1024, model->config().context_length)});
    };

    speculative::GeneratorParts parts;
    parts.target = context(target);
    parts.drafters.push_back(speculative::make_model_drafter(context(draft), "draft", pairing.never_proposed));
    parts.chain = std::make_unique<samplers::Chain>(
        samplers::ChainSpec{{.name = "top_p", .parameters = {}}, {.name = "temperature", .parameters = {}}},
        *vocabulary);
    parts.tokenizer = &tokenizer;  // supplies the end tokens
    speculative::Generator generator(std::move(parts));

    const std::vector<std::string> stop = {"\n\n"};
    std::int64_t tokens = 0, forwards = 0;
    for (std::string line; std::getline(std::cin, line);) {
        generator.truncate(0);  // keeps the memory; an answer does not depend on earlier ones
        const std::vector<std::int32_t> prompt = tokenizer.encode(line);
        const auto result = generator.generate({.input = prompt, .max_tokens = 32, .seed = 1, .stop = stop});
        std::cout << "### " << line << "\n" << result.text << "\n";  // a text may hold zero bytes
        tokens += static_cast<std::int64_t>(result.tokens.size());
        forwards += result.speculation.rounds;
    }
    std::fprintf(stderr, "%lld tokens in %lld forwards of the target\n", static_cast<long long>(tokens),
                 static_cast<long long>(forwards));
} catch (const std::exception& problem) {
    std::fprintf(stderr, "batch: %s\n", problem.what());
    return 1;
}
