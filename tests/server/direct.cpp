#include "tests/server/direct.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>

namespace foresay::testing {

using namespace std::chrono_literals;

server::Ticket ScriptedBackend::submit(server::BackendRequest request, std::shared_ptr<server::TokenSink> sink) {
    if (full) {
        server::ApiError busy(server::Problem::busy, "256 texts wait already; come again", "queue_full");
        busy.retry_after = 1;
        throw busy;
    }
    seed = request.seed;
    thread_ = std::async(std::launch::async, [this, sink = std::move(sink), alternatives = request.alternatives] {
        server::TokenProbabilities probabilities;
        probabilities.log_probability = -0.5f;
        std::chrono::milliseconds pause = after_first;
        for (const std::int32_t token : tokens) {
            std::this_thread::sleep_for(between);
            server::GeneratedToken next{token, false, "", alternatives >= 0 ? &probabilities : nullptr};
            if (!sink->token(next)) break;
            std::this_thread::sleep_for(std::exchange(pause, 0ms));
        }
        server::BackendEnd end;
        end.finish = finish;
        end.error = kError;
        sink->end(end);
    });
    return 1;
}

void ScriptedBackend::stop() {
    if (thread_.valid()) thread_.wait();
}

void Taken::send(server::HttpResponse response) {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    begun_ = ended_ = true;
    ended_now_.notify_all();
}

void Taken::begin(server::HttpResponse head, std::string) {
    const std::lock_guard lock(mutex_);
    response_ = std::move(head);
    begun_ = true;
}

void Taken::write(std::string_view bytes) {
    const std::lock_guard lock(mutex_);
    response_.body += bytes;
}

void Taken::finish() {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    ended_now_.notify_all();
}

server::HttpResponse Taken::wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(ended_now_.wait_for(lock, kPatience, [this] { return ended_; }));
    return response_;
}

Direct::Direct(const engine::Engine& engine, const std::string& keys, server::ServiceOptions options)
    : keys_(keys), service_(keys_, [&] {
          options.log = [this](const std::string& line) {
              const std::lock_guard lock(mutex_);
              log_ += line + "\n";
          };
          return std::move(options);
      }()) {
    service_.serve(std::make_shared<server::Loaded>(engine, "", std::vector<std::string>{},
                                                    std::unique_ptr<server::Backend>(backend_)));
}

server::HttpResponse Direct::ask(const std::string& method, const std::string& path, const std::string& body,
                                 std::vector<server::Header> headers) {
    server::HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = body;
    request.headers = std::move(headers);
    request.id = "req_0123456789abcdef";
    if (auto refused = service_.check(request)) return *refused;
    const auto taken = std::make_shared<Taken>();
    service_.handle(std::move(request), taken);
    return taken->wait();
}

int Direct::count_of(int status) {
    const std::string text = service_.metrics().text("m", "", "", {});
    const std::string line = "foresay_responses_total{model_name=\"m\",status=\"" + std::to_string(status) + "\"} ";
    const std::size_t at = text.find(line);
    return at == std::string::npos ? 0 : std::stoi(text.substr(at + line.size()));
}

std::string Direct::log() {
    const std::lock_guard lock(mutex_);
    return std::exchange(log_, {});
}

std::vector<Asked> asked() {
    const std::string messages = R"("messages":[{"role":"user","content":"x = 1"}],"max_tokens":200)";
    return {{"/v1/chat/completions", messages, "data: {\"error\":{\"message\":"},
            {"/v1/completions", R"("prompt":"x = 1")", "data: {\"error\":{\"message\":"},
            {"/v1/responses", R"("input":"x = 1")", "event: response.failed\ndata: {"},
            {"/v1/messages", messages, "event: error\ndata: {\"type\":\"error\",\"error\":{"},
            {"/api/chat", R"("messages":[{"role":"user","content":"x = 1"}])", "{\"error\":"},
            {"/api/generate", R"("prompt":"x = 1","raw":true)", "{\"error\":"},
            {"/completion", R"("prompt":"x = 1")", "data: {\"error\":{"},
            {"/infill", R"("input_prefix":"x = ","input_suffix":"\n")", "data: {\"error\":{"},
            {"/v1/fim/completions", R"("prompt":"x = ","suffix":"\n")", "data: {\"error\":{"}};
}

}  // namespace foresay::testing
