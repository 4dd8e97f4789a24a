// The engine in a program of your own: a configuration names the models and the samplers, and the text is printed as it
//     comes. embed CONFIG PROMPT
#include <cstdio>
#include <exception>
#include <filesystem>

#include "engine/engine.h"

using namespace foresay;

int main(int argc, char** argv) try {
    if (argc != 3) return std::fputs("usage: embed CONFIG PROMPT\n", stderr), 2;
    engine::EngineOptions options;
    options.plugins.folders = plugins::default_folders(std::filesystem::read_symlink("/proc/self/exe").parent_path());
    const engine::Engine engine = engine::Engine::open(engine::load_config(argv[1]), options);
    speculative::Generator generator = engine.make_generator();
    const std::vector<std::int32_t> prompt = engine.tokenizer().encode(argv[2]);

    const speculative::GenerateResult result = generator.generate(
        {.input = prompt, .max_tokens = 48, .seed = engine.config().seed},
        [](const speculative::TokenEvent& event) { std::fwrite(event.text.data(), 1, event.text.size(), stdout); });
    std::fprintf(stderr, "\n%zu tokens in %lld forwards of the target\n", result.tokens.size(),
                 static_cast<long long>(result.speculation.rounds));
} catch (const std::exception& problem) {
    std::fprintf(stderr, "embed: %s\n", problem.what());
    return 1;
}
