// What strangers send to the server, and what a model writes for it. The first byte says which:
//
// 'h'  bytes on a connection: every one is answered in HTTP or closed, and the next connection is answered.
// 'b'  the body of a request, after a byte for the route: an answer, or an error below 500 in the route's shape, and
//      nothing else is thrown.
// 'o'  an answer of the model, after a byte for the family: no byte is lost, calls have arguments that are JSON, and
//      the events do not depend on how the text is cut.
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/error.h"
#include "engine/configuration.h"
#include "engine/engine.h"
#include "server/api/protocol.h"
#include "server/http/server.h"
#include "server/output/call_parser.h"

namespace foresay::server {
namespace {

void need(bool holds, const char* what) {
    if (!holds) bug(what);
}

// ---- connections

class Echo final : public Handler {
public:
    std::optional<HttpResponse> check(HttpRequest& head) override {
        if (head.path == "/refused") return HttpResponse{.status = 403, .body = "{}"};
        return std::nullopt;
    }
    void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) override {
        exchange->send({.status = 200, .body = std::to_string(request.body.size())});
    }
    HttpResponse problem(const HttpRequest&, int status, const std::string& message) override {
        return {.status = status, .body = message};
    }
};

class Listening {
public:
    Listening() {
        HttpLimits limits;
        limits.body_bytes = 4096;
        limits.header_bytes = 1024;
        limits.target_bytes = 256;
        limits.header_time = limits.body_time = limits.idle_time = limits.stall_time = std::chrono::milliseconds(200);
        http_ = std::make_unique<HttpServer>(std::vector{parse_listen_address("unix:" + path_)}, limits, "fuzz", echo_);
        thread_ = std::thread([this] { http_->run(); });
    }
    ~Listening() {
        http_->stop();
        thread_.join();
    }
    // Sends the bytes, says that no more come, and reads to the end.
    std::string exchange(std::string_view bytes) const {
        const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un where{};
        where.sun_family = AF_UNIX;
        std::memcpy(where.sun_path, path_.c_str(), path_.size() + 1);
        need(::connect(socket, reinterpret_cast<sockaddr*>(&where), sizeof where) == 0, "the server does not accept");
        while (!bytes.empty()) {
            const ssize_t sent = ::send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
            if (sent <= 0) break;  // refused already
            bytes.remove_prefix(static_cast<std::size_t>(sent));
        }
        ::shutdown(socket, SHUT_WR);
        std::string answer;
        char chunk[4096];
        for (pollfd wait{socket, POLLIN, 0};;) {
            const int there = ::poll(&wait, 1, 10'000);
            if (there < 0 && errno == EINTR) continue;  // libFuzzer's clock
            if (there <= 0) break;
            const ssize_t got = ::recv(socket, chunk, sizeof chunk, 0);
            if (got <= 0) {
                ::close(socket);
                return answer;
            }
            answer.append(chunk, static_cast<std::size_t>(got));
        }
        bug("the server neither answers nor closes");
    }

private:
    std::string path_ =
        (std::filesystem::temp_directory_path() / ("foresay_fuzz_" + std::to_string(::getpid()))).string();
    Echo echo_;
    std::unique_ptr<HttpServer> http_;
    std::thread thread_;
};

void try_connection(std::string_view bytes) {
    static const Listening listening;
    const std::string answer = listening.exchange(bytes);
    need(answer.empty() || answer.starts_with("HTTP/1."), "an answer is no HTTP");
    // A client that closes its side before it reads may go unanswered, so this one asks to close instead.
    static int count = 0;
    if (++count % 16 == 1) listening.exchange("GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n");
}

// ---- bodies

class NoBackend final : public Backend {
public:
    Ticket submit(BackendRequest request, std::shared_ptr<TokenSink> sink) override {
        need(!request.prompt.empty() && request.chain != nullptr, "a request without a prompt or a chain");
        texts.push_back({std::move(request), std::move(sink)});
        return texts.size();
    }
    void cancel(Ticket) override {}
    void pause(Ticket, bool) override {}
    void stop() override {}
    std::size_t running() const override { return 0; }
    std::size_t waiting() const override { return 0; }
    std::size_t most_running() const override { return 1; }
    // Sinks are never called from within submit(). Each text is the beginning of its prompt.
    void answer() {
        for (const auto& [request, sink] : std::exchange(texts, {})) {
            const std::size_t count = std::min<std::size_t>(request.prompt.size(), 3);
            const TokenProbabilities none;
            const TokenProbabilities* const wanted = request.alternatives >= 0 ? &none : nullptr;
            for (std::size_t i = 0; i < count && sink->token({request.prompt[i], false, "", wanted}); ++i) {
            }
            BackendEnd end;
            end.finish = BackendEnd::Finish::stop;
            sink->end(end);
        }
    }

    std::vector<std::pair<BackendRequest, std::shared_ptr<TokenSink>>> texts;
};

class Taken final : public Exchange {
public:
    void send(HttpResponse response) override {
        need(!std::exchange(begun_, true), "two answers to one request");
        need(response.status < 500 || response.status == 501, "a body led to a 5xx");
        if (response.type.starts_with("application/json")) parse_json(response.body);
        ended = true;
    }
    void begin(HttpResponse, std::string) override { need(!std::exchange(begun_, true), "two answers to one request"); }
    void write(std::string_view) override { need(begun_ && !ended, "a piece outside a stream"); }
    void finish() override { need(begun_ && !std::exchange(ended, true), "a stream ends twice"); }
    bool begun() const override { return begun_; }
    bool gone() const override { return false; }
    void on_gone(std::function<void()>) override {}
    void on_pressure(std::function<void(bool)>) override {}
    bool ended = false;

private:
    bool begun_ = false;
};

// Knows the configurations that come with the program, and loads none.
class NoManager final : public ModelManager {
public:
    void change(ModelChange change, Report report) override {
        const std::string folder = FORESAY_SOURCE_DIR "/configs/";
        need(change.model.empty() || change.model.string().starts_with(folder), "a model outside the folder");
        if (report.began) report.began();
        report.done(nullptr);
    }
    void unload(Report report) override { report.done(nullptr); }
    const ModelsFolder& folder() const override { return folder_; }
    std::string loaded() const override { return "x"; }
    bool changing() const override { return false; }

private:
    ModelsFolder folder_{FORESAY_SOURCE_DIR "/configs"};
};

const engine::Engine& bundled() {
    static const engine::Engine engine = [] {
        const std::vector<std::string> settings = {
            "sampling.chain=[\"penalties\", \"top_k\", \"top_p\", \"temperature\"]", "target.context=256"};
        engine::EngineOptions options;
        options.draft = false;
        return engine::Engine::open(engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings),
                                    options);
    }();
    return engine;
}

void try_body(std::uint8_t number, std::string_view body) {
    static const ServedModel model(bundled(), "", {});
    static const std::vector<Route> routes = all_routes();
    static std::vector<const Route*> with_body;
    if (with_body.empty()) {
        for (const Route& route : routes) {
            if (route.body != nullptr) with_body.push_back(&route);
        }
    }
    static NoBackend backend;
    static Metrics metrics;
    static StoredResponses stored(8);
    static NoManager manager;
    const Route& route = *with_body[number % with_body.size()];
    HttpRequest request;
    request.method = route.method;
    request.path = route.path;
    request.id = "req_0123456789abcdef";
    const auto taken = std::make_shared<Taken>();
    const Caller caller;
    try {
        if (route.manage != nullptr) {
            const Json parsed = parse_json(body);
            check_shape(*route.body, parsed);
            ManageCall manage{request, parsed, taken, manager, caller, "fuzz"};
            route.manage(manage);
            need(taken->ended, "a request was not answered");
            return;
        }
        Call call{.request = request,
                  .body = parse_json(body),
                  .exchange = taken,
                  .model = model,
                  .backend = backend,
                  .metrics = metrics,
                  .caller = caller,
                  .lease = nullptr,
                  .routes = routes,
                  .version = "fuzz",
                  .any_model = true,
                  .draining = false,
                  .gauges = {},
                  .tail = {},
                  .keep = nullptr,
                  .stored = &stored};
        std::vector<std::string> unknown;
        check_shape(*route.body, call.body, {}, &unknown);
        route.run(call);
        backend.answer();
        need(taken->ended, "a request was not answered");
    } catch (const ApiError& error) {
        backend.answer();
        need(error.status < 500 || error.status == 501, "a body led to a 5xx");
        parse_json(route.error(error, request.id).body);
    } catch (const Error&) {
        need(!taken->begun(), "an error after an answer");
        Json ignored;
        need(!try_parse_json(body, ignored), "a body that is JSON led to an error without a status");
    }
}

// ---- answers

std::vector<OutputEvent> parse(OutputFamily family, std::string_view text, std::size_t step) {
    static const std::vector<Tool> tools = {
        {"f", "", parse_json(R"({"properties":{"a":{"type":"string"},"b":{"type":["integer","null"]},"c":{}}})")}};
    CallParser parser(family, tools);
    std::vector<OutputEvent> events;
    for (std::size_t at = 0; at < text.size(); at += step) parser.push(text.substr(at, step), events);
    parser.finish(events);
    return events;
}

std::string told(const std::vector<OutputEvent>& events) {
    std::string text;
    for (const OutputEvent& event : events) {
        if (event.kind == OutputEvent::Kind::content) text += event.text;
        if (event.kind != OutputEvent::Kind::call) continue;
        Json arguments;
        need(try_parse_json(event.call.arguments, arguments), "arguments are no JSON");
        need(!event.call.name.empty(), "a call without a name");
        text += '\1' + event.call.name + '\1' + event.call.arguments + '\1' + event.call.id + '\1';
    }
    return text;
}

void try_answer(std::uint8_t number, std::string_view text) {
    const auto family = static_cast<OutputFamily>(number % 8);
    const std::vector<OutputEvent> whole = parse(family, text, std::max<std::size_t>(text.size(), 1));
    std::string raw;
    for (const OutputEvent& event : whole) raw += event.text;
    need(raw == text, "an answer lost bytes");
    for (const std::size_t step : {1, 3, 7})
        need(told(parse(family, text, step)) == told(whole), "events depend on the cut");
}

}  // namespace
}  // namespace foresay::server

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::server;
    if (size < 2) return 0;
    const std::string_view rest(reinterpret_cast<const char*>(data) + 2, size - 2);
    switch (data[0]) {
        case 'h':
            try_connection({reinterpret_cast<const char*>(data) + 1, size - 1});
            break;
        case 'b':
            try_body(data[1], rest);
            break;
        case 'o':
            try_answer(data[1], rest);
            break;
        default:
            break;
    }
    return 0;
}
