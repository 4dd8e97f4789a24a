#include "tests/server/served.h"

#include <unistd.h>

#include <chrono>
#include <filesystem>

#include "engine/configuration.h"
#include "server/json.h"

namespace foresay::testing {

using server::Json;

const engine::Engine& bundled() {
    static const engine::Engine engine = [] {
        const std::vector<std::string> settings = {
            "sampling.chain=[\"penalties\", \"top_k\", \"top_p\", \"temperature\"]", "target.context=512"};
        engine::EngineOptions options;
        options.branches = 4;
        return engine::Engine::open(engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings),
                                    options);
    }();
    return engine;
}

Served::Served(server::ServingOptions options, const engine::Engine& engine) {
    if (options.addresses.empty()) options.addresses = {server::parse_listen_address("127.0.0.1:0")};
    if (options.service.version.empty()) options.service.version = "test";
    serving_ = std::make_unique<server::Serving>(engine, std::move(options));
    thread_ = std::thread([this] { serving_->run(); });
}

void pause_soon(server::ServingOptions& options) {
    static int number = 0;
    const auto path = std::filesystem::temp_directory_path() /
                      ("foresay_slow_" + std::to_string(::getpid()) + "_" + std::to_string(++number) + ".sock");
    options.addresses = {server::parse_listen_address("127.0.0.1:0"),
                         server::parse_listen_address("unix:" + path.string())};
    options.limits.pause_bytes = 20'000;
    options.limits.resume_bytes = 10'000;
}

const char* const kNeverRead =
    R"({"prompt":"def f(x):\n","seed":3,"temperature":0.8,"ignore_eos":true,"max_tokens":450,)"
    R"("logprobs":20,"stream":true})";

Served::~Served() {
    if (!thread_.joinable()) return;
    serving_->stop();
    thread_.join();
}

std::string Served::address(std::size_t index) const { return serving_->addresses()[index].text(); }

void Served::drain() {
    serving_->drain();
    thread_.join();
}

bool Served::becomes_idle() const {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (std::chrono::steady_clock::now() < deadline) {
        if (serving_->backend().running() == 0 && serving_->backend().waiting() == 0) return true;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
}

namespace {

std::string text_of_choice(const Json& choice, const char* message) {
    if (choice["text"].is_string()) return choice.text("text");
    return choice[message].text("content");
}

}  // namespace

std::string text_of_answer(const std::string& body, std::size_t choice) {
    return text_of_choice(server::parse_json(body)["choices"].items().at(choice), "message");
}

std::string text_of_stream(const std::string& body, std::size_t choice) {
    std::string text;
    for (const std::string& data : data_of(body)) {
        if (data == "[DONE]") break;
        const Json chunk = server::parse_json(data);
        if (!chunk["choices"].is_list()) continue;
        for (const Json& one : chunk["choices"].items()) {
            if (one["index"].integer() == static_cast<std::int64_t>(choice)) text += text_of_choice(one, "delta");
        }
    }
    return text;
}

}  // namespace foresay::testing
