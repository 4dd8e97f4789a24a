// server/http/server.h: HTTP/1.1 on sockets: listens, reads requests within limits, sends answers.
//
// Life:     the constructor listens; run() serves until drain() or stop() has ended everything. Exchanges must be gone
//           before the server is.
// Threads:  run() is the one network thread. drain(), stop() and the counters may be called from any thread. The
//           Handler is called from the network thread and must return soon.
// Cost:     a connection that waits costs its buffers and no processor time.
// Errors:   the constructor throws Error for an address that cannot be listened on. What clients do wrong is answered.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/exchange.h"
#include "server/http/message.h"

namespace foresay::server {

struct HttpLimits {
    std::size_t body_bytes = 32u << 20;
    std::size_t header_bytes = 16u << 10;
    std::size_t target_bytes = 8u << 10;
    std::size_t connections = 1024;
    std::size_t connections_of_peer = 64;  // of one address that is not this machine
    std::size_t pause_bytes = 192u << 10;  // unsent bytes of an answer: from here on, its writer is told to wait
    std::size_t resume_bytes = 128u << 10;
    std::size_t give_up_bytes = 16u << 20;
    std::chrono::milliseconds header_time{10'000}, body_time{30'000}, idle_time{60'000};
    std::chrono::milliseconds stall_time{60'000};  // a client that reads nothing for so long is given up
    std::chrono::milliseconds ping_time{10'000};
    // What a stream says within so long of its last piece goes with the next one: each piece wakes this side and the
    // client, on cores that the model computes on. A piece that comes later than that goes at once.
    std::chrono::milliseconds gather_time{3};
};

class Handler {
public:
    virtual ~Handler() = default;
    // Called when the head of a request has come, before its body. An answer: the body is not read.
    virtual std::optional<HttpResponse> check(HttpRequest& head) = 0;
    // Answers, now or later.
    virtual void handle(HttpRequest request, std::shared_ptr<Exchange> exchange) = 0;
    // The answer to a request that HTTP itself refuses: too large, or no HTTP.
    virtual HttpResponse problem(const HttpRequest& head, int status, const std::string& message) = 0;
};

// An address of --listen: HOST:PORT with a numeric host or localhost, [HOST]:PORT, unix:PATH, fd:NUMBER.
struct ListenAddress {
    enum class Kind : std::uint8_t { tcp, unix_path, descriptor };
    Kind kind = Kind::tcp;
    std::string host;  // without brackets; of unix_path: the path
    std::uint16_t port = 0;
    int descriptor = -1;
    // Whether only this machine reaches it. A descriptor counts by the address that it is bound to.
    bool local() const;
    std::string text() const;  // "127.0.0.1:8080"
};
// Throws Error for what is none.
ListenAddress parse_listen_address(std::string_view text);

class HttpServer {
public:
    struct State;  // of server.cpp

    HttpServer(const std::vector<ListenAddress>& addresses, const HttpLimits& limits, std::string version,
               Handler& handler);
    ~HttpServer();

    void run();
    // Accepts nothing more, closes what is idle, and lets run() return once every answer is sent.
    void drain();
    // The same without waiting for answers.
    void stop();

    // Where it listens, with the ports that the system chose.
    const std::vector<ListenAddress>& addresses() const;
    std::size_t connections() const;
    std::uint64_t stalled() const;  // readers that were given up

private:
    std::unique_ptr<State> state_;
};

}  // namespace foresay::server
