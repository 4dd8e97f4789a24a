// Many prompts at once: each line of standard input is a prompt, and each answer is printed under it. They share the
// forwards of the model, and each has the bytes that it would have alone.
//     batch CONFIG < PROMPTS
#include <cstdio>
#include <exception>
#include <future>
#include <iostream>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_loop.h"

using namespace foresay;

// Keeps one answer. The loop's thread calls it; result() waits for the end.
class Answer final : public engine::Sink {
public:
    void token(const speculative::TokenEvent&) override {}
    void end(const engine::BatchEnd& end) override {
        if (end.error.empty()) return result_.set_value(end.result);
        result_.set_exception(std::make_exception_ptr(std::runtime_error(end.error)));
    }
    speculative::GenerateResult result() { return result_.get_future().get(); }

private:
    std::promise<speculative::GenerateResult> result_;
};

int main(int argc, char** argv) try {
    if (argc != 2) return std::fputs("usage: batch CONFIG < PROMPTS\n", stderr), 2;
    const engine::Engine engine = engine::Engine::open(engine::load_config(argv[1]));
    engine::EngineLoop loop(engine, {.sequences = 8});

    std::vector<std::pair<std::string, std::shared_ptr<Answer>>> answers;
    for (std::string line; std::getline(std::cin, line);) {
        engine::BatchRequest request;  // without a chain it has the configuration's
        request.input = engine.tokenizer().encode(line);
        request.max_tokens = 32;
        request.seed = engine.config().seed;
        request.stop = {"\n\n"};
        answers.emplace_back(line, std::make_shared<Answer>());
        loop.add(std::move(request), answers.back().second);
    }
    for (const auto& [prompt, answer] : answers) {
        std::cout << "### " << prompt << "\n" << answer->result().text << "\n";  // a text may hold zero bytes
    }
    const speculative::BatchCounters counters = loop.status().counters;
    std::fprintf(stderr, "%lld tokens in %lld forwards of the target\n", static_cast<long long>(counters.tokens),
                 static_cast<long long>(counters.forwards));
} catch (const std::exception& problem) {
    std::fprintf(stderr, "batch: %s\n", problem.what());
    return 1;
}
