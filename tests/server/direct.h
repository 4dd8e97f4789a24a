// tests/server/direct.h: the Service without sockets, and a backend that writes what a test wants.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "server/keys.h"
#include "server/service.h"
#include "tests/server/served.h"

namespace foresay::testing {

// Writes `tokens` and ends as `finish` says. One request at a time; what it writes is changed between them.
class ScriptedBackend final : public server::Backend {
public:
    server::Ticket submit(server::BackendRequest request, std::shared_ptr<server::TokenSink> sink) override;
    void cancel(server::Ticket) override {}
    void pause(server::Ticket, bool) override {}
    void stop() override;
    std::size_t running() const override { return 0; }
    std::size_t waiting() const override { return 0; }
    std::size_t most_running() const override { return 1; }

    std::vector<std::int32_t> tokens;
    server::BackendEnd::Finish finish = server::BackendEnd::Finish::stop;
    bool full = false;                     // as when too many texts wait
    std::chrono::milliseconds between{0};  // before each token
    std::chrono::milliseconds after_first{0};
    std::atomic<std::uint64_t> seed{0};  // of the last request
    static constexpr const char* kError = "the stage 'x' has failed";

private:
    std::future<void> thread_;
};

// An answer that is taken where a connection would send it.
class Taken final : public server::Exchange {
public:
    void send(server::HttpResponse response) override;
    void begin(server::HttpResponse head, std::string ping) override;
    void write(std::string_view bytes) override;
    void finish() override;
    bool begun() const override { return begun_; }
    bool gone() const override { return leaves; }
    void on_gone(std::function<void()>) override {}
    void on_pressure(std::function<void(bool)>) override {}
    server::HttpResponse wait();

    std::atomic<bool> leaves{false};  // the client has gone

private:
    std::mutex mutex_;
    std::condition_variable ended_now_;
    server::HttpResponse response_;
    std::atomic<bool> begun_{false};
    bool ended_ = false;
};

class Direct {
public:
    explicit Direct(const engine::Engine& engine = bundled(), const std::string& keys = "",
                    server::ServiceOptions options = {});
    // As serving does it: or the backend's own thread could be the last that refers to it, and would wait for itself.
    ~Direct() { backend().stop(); }
    ScriptedBackend& backend() { return *backend_; }
    server::Service& service() { return service_; }
    const server::ServedModel& model() { return service_.loaded()->model; }
    // A request as a connection hands it over; what check() refuses is the answer.
    server::HttpResponse ask(const std::string& method, const std::string& path, const std::string& body = "",
                             std::vector<server::Header> headers = {});
    server::HttpResponse post(const std::string& path, const std::string& body) { return ask("POST", path, body); }
    // The value of foresay_responses_total for a status.
    int count_of(int status);
    // The lines of the log since the last call.
    std::string log();

private:
    std::mutex mutex_;
    std::string log_;
    server::Keys keys_;
    ScriptedBackend* backend_ = new ScriptedBackend;
    server::Service service_;
};

// A request of each path that generates, as the members of its body.
struct Asked {
    const char* path;
    std::string body;
    const char* last;  // what the last event of a stream that fails begins with
    std::string with(bool stream) const { return "{" + body + (stream ? R"(,"stream":true})" : R"(,"stream":false})"); }
};
std::vector<Asked> asked();

}  // namespace foresay::testing
