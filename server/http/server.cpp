// The network thread: accepts connections, reads requests, sends answers. One coroutine a connection, and one more
// while it waits for an answer, which notices that the client has gone.
#include "server/http/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/awaitable.hpp>
#include <boost/asio/basic_socket_acceptor.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/generic/stream_protocol.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/basic_stream.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/read.hpp>
#include <boost/beast/http/string_body.hpp>
#include <list>
#include <map>
#include <random>
#include <utility>

#include "base/error.h"
#include "base/lower_case.h"
#include "server/http/answer.h"
#include "server/http/listen.h"

namespace foresay::server {

namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = beast::http;

using Protocol = asio::generic::stream_protocol;
using Stream = beast::basic_stream<Protocol, asio::io_context::executor_type>;
using Socket = Stream::socket_type;
using Timer = asio::basic_waitable_timer<std::chrono::steady_clock, asio::wait_traits<std::chrono::steady_clock>,
                                         asio::io_context::executor_type>;
using Acceptor = asio::basic_socket_acceptor<Protocol, asio::io_context::executor_type>;
using Task = asio::awaitable<void, asio::io_context::executor_type>;
constexpr auto use_tuple = asio::as_tuple(asio::use_awaitable_t<asio::io_context::executor_type>{});

constexpr std::chrono::milliseconds kLookAgain{20};     // after more bytes than the request came
constexpr std::chrono::milliseconds kLingerTime{2000};  // to read what a refused client still sends
constexpr std::size_t kLingerBytes = 64u << 20;

// The other side has closed, or the network has failed: no answer would arrive.
bool ended(const beast::error_code& error) {
    return error == http::error::end_of_stream || error == http::error::partial_message ||
           (error && error.category() == asio::error::get_system_category());
}

}  // namespace

class Connection;

struct HttpServer::State {
    State(const HttpLimits& limits, std::string version, Handler& handler)
        : limits(limits), version("foresay/" + std::move(version)), handler(handler) {}

    HttpLimits limits;
    std::string version;
    Handler& handler;
    asio::io_context io{1};
    std::vector<OpenedSocket> opened;
    std::vector<ListenAddress> addresses;
    std::list<Acceptor> acceptors;
    std::list<Connection*> open;  // oldest first
    std::map<std::string, std::size_t> peers;
    std::atomic<std::size_t> connections{0};
    std::atomic<std::uint64_t> stalled{0};
    bool draining = false, stopping = false;
    std::mt19937_64 ids{std::random_device{}()};

    std::string new_id() {
        constexpr char kDigits[] = "0123456789abcdef";
        std::string id = "req_";
        for (std::uint64_t bits = ids(); id.size() < 20; bits >>= 4) id += kDigits[bits & 15];
        return id;
    }
    Task accept(Acceptor& acceptor, std::string address);
    void end(bool now);
};

class Connection : public std::enable_shared_from_this<Connection> {
public:
    Connection(HttpServer::State& server, Socket socket, std::string listen_address)
        : server_(server),
          stream_(std::move(socket)),
          wake_(server.io),
          gather_(server.io),
          listen_address_(std::move(listen_address)) {
        const int descriptor = stream_.socket().native_handle();
        peer_ = peer_of(descriptor);
        local_ = peer_is_local(descriptor);
        if (peer_ != "unix") send_at_once(descriptor);
        place_ = server_.open.insert(server_.open.end(), this);
        ++server_.connections;
        if (!local_) ++server_.peers[peer_];
    }
    ~Connection() {
        server_.open.erase(place_);
        --server_.connections;
        if (!local_ && --server_.peers[peer_] == 0) server_.peers.erase(peer_);
    }
    Connection(const Connection&) = delete;
    Connection& operator=(const Connection&) = delete;

    const std::string& peer() const { return peer_; }
    bool local() const { return local_; }
    bool answering() const { return answer_ != nullptr; }
    bool idle() const { return idle_; }
    void close() {
        closed_ = true;
        stream_.close();
        wake_.cancel();
        gather_.cancel();
    }

    Task serve() {
        const auto self = shared_from_this();
        bool first = true;
        while (!closed_ && co_await serve_one(std::exchange(first, false))) {
            if (server_.draining) break;
        }
        boost::system::error_code ignored;
        stream_.socket().shutdown(asio::socket_base::shutdown_send, ignored);
        if (linger_ && !closed_) co_await linger();
        closed_ = true;
        stream_.close();
    }

private:
    using Parser = http::request_parser<http::string_body>;
    using Await = asio::awaitable<bool, asio::io_context::executor_type>;

    // One request and its answer. False: the connection ends.
    Await serve_one(bool first) {
        const HttpLimits& limits = server_.limits;
        if (buffer_.size() == 0) {
            idle_ = true;
            stream_.expires_after(first ? limits.header_time : limits.idle_time);
            const auto [error, size] = co_await stream_.async_read_some(buffer_.prepare(4096), use_tuple);
            idle_ = false;
            if (error) co_return false;
            buffer_.commit(size);
        }
        Parser parser;
        parser.header_limit(static_cast<std::uint32_t>(limits.header_bytes));
        parser.body_limit(limits.body_bytes);
        stream_.expires_after(limits.header_time);
        const auto [error, ignored] = co_await http::async_read_header(stream_, buffer_, parser, use_tuple);
        if (closed_ || ended(error) || error == beast::error::timeout) co_return false;
        HttpRequest request = head_of(parser);
        if (error) co_return co_await refuse(request, error);
        if (parser.get().target().size() > limits.target_bytes)
            co_return co_await refuse(request, 414,
                                      "the URL is longer than " + std::to_string(limits.target_bytes) + " bytes");
        auto refusal = server_.handler.check(request);
        Answer::Framing framing = framing_of(request, parser);
        if (refusal) {
            const bool unread = !parser.is_done();
            framing.keep_alive = framing.keep_alive && !unread;
            linger_ = unread;
            co_return co_await deliver(
                framing, [&](const std::shared_ptr<Answer>& answer) { answer->send(std::move(*refusal)); });
        }
        if (!parser.is_done()) {
            if (beast::iequals(parser.get()[http::field::expect], "100-continue")) {
                stream_.expires_after(limits.header_time);
                co_await asio::async_write(stream_, asio::buffer("HTTP/1.1 100 Continue\r\n\r\n", 25), use_tuple);
            }
            stream_.expires_after(limits.body_time);
            const auto [failure, read] = co_await http::async_read(stream_, buffer_, parser, use_tuple);
            if (closed_) co_return false;
            if (ended(failure) || failure == beast::error::timeout) co_return false;
            if (failure) co_return co_await refuse(request, failure);
        }
        request.body = std::move(parser.get().body());
        co_return co_await deliver(framing, [&](const std::shared_ptr<Answer>& answer) {
            server_.handler.handle(std::move(request), held_answer(answer));
        });
    }

    HttpRequest head_of(const Parser& parser) {
        HttpRequest request;
        const auto& message = parser.get();
        request.method = std::string(message.method_string());
        const std::string target(message.target());
        const std::size_t mark = target.find('?');
        request.path = target.substr(0, mark);
        if (mark != std::string::npos) request.query = target.substr(mark + 1);
        for (const auto& field : message) {
            request.headers.push_back(
                {lower_case(std::string_view(field.name_string().data(), field.name_string().size())),
                 std::string(field.value())});
        }
        request.peer = peer_;
        request.from_network = peer_ != "unix";
        request.listen_address = listen_address_;
        request.id = server_.new_id();
        return request;
    }

    Answer::Framing framing_of(const HttpRequest& request, const Parser& parser) const {
        Answer::Framing framing;
        framing.chunked = parser.get().version() >= 11;
        framing.keep_alive = parser.get().keep_alive() && framing.chunked && !server_.draining;
        framing.head_only = request.method == "HEAD";
        framing.request_id = request.id;
        framing.server = server_.version;
        framing.headers = request.answer_headers;
        return framing;
    }

    Await refuse(const HttpRequest& request, const beast::error_code& error) {
        const HttpLimits& limits = server_.limits;
        if (error == http::error::body_limit)
            co_return co_await refuse(request, 413,
                                      "the body is larger than " + std::to_string(limits.body_bytes) + " bytes");
        if (error == http::error::header_limit || error == http::error::buffer_overflow)
            co_return co_await refuse(request, 431,
                                      "the headers are larger than " + std::to_string(limits.header_bytes) + " bytes");
        co_return co_await refuse(request, 400, "this is no request of HTTP/1.1: " + error.message());
    }

    Await refuse(const HttpRequest& request, int status, std::string message) {
        Answer::Framing framing;
        framing.keep_alive = false;
        framing.request_id = request.id;
        framing.server = server_.version;
        linger_ = true;
        co_return co_await deliver(framing, [&](const std::shared_ptr<Answer>& answer) {
            answer->send(server_.handler.problem(request, status, message));
        });
    }

    // Sends an answer as it is made. `start` makes it, or has it made.
    template <typename Start>
    Await deliver(Answer::Framing framing, Start start) {
        const bool keep = framing.keep_alive;
        // An answer may outlive its connection, which must end on this thread.
        const auto wake = [weak = weak_from_this(), io = &server_.io] {
            asio::post(*io, [weak] {
                if (const auto self = weak.lock()) self->wake_.cancel();
            });
        };
        const auto answer = std::make_shared<Answer>(std::move(framing), server_.limits, wake);
        answer_ = answer;
        start(answer);
        asio::co_spawn(server_.io, watch(answer), asio::detached);
        const bool complete = co_await send_all(answer);
        if (!complete) answer->lose();
        answer_.reset();
        if (!closed_) {
            boost::system::error_code ignored;
            stream_.socket().cancel(ignored);  // ends watch()
        }
        co_return complete&& keep && !closed_;
    }

    Await send_all(const std::shared_ptr<Answer>& answer) {
        while (!closed_) {
            const Answer::Taken taken = answer->take();
            if (!taken.bytes.empty()) {
                stream_.expires_after(server_.limits.stall_time);
                const auto [error, size] = co_await asio::async_write(stream_, asio::buffer(taken.bytes), use_tuple);
                if (error == beast::error::timeout) ++server_.stalled;
                if (error) co_return false;
                answer->sent(taken.bytes.size());
            }
            if (taken.complete) co_return true;
            if (answer->overflowed()) {
                ++server_.stalled;
                co_return false;
            }
            if (answer->gone() || answer->abandoned()) co_return false;
            if (!taken.bytes.empty()) {
                gather_.expires_after(server_.limits.gather_time);
                co_await gather_.async_wait(use_tuple);
                continue;
            }
            wake_.expires_after(server_.limits.ping_time);
            const auto [cancelled] = co_await wake_.async_wait(use_tuple);
            if (!cancelled) answer->ping();
        }
        co_return false;
    }

    // Notices that the client has closed the connection while it waits for its answer.
    Task watch(std::shared_ptr<Answer> answer) {
        const auto self = shared_from_this();
        Timer again(server_.io);
        while (answer_ == answer && !closed_) {
            const auto [error] = co_await stream_.socket().async_wait(asio::socket_base::wait_read, use_tuple);
            if (answer_ != answer || closed_ || error) co_return;
            char byte;
            const ssize_t got = ::recv(stream_.socket().native_handle(), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) {
                answer->lose();
                wake_.cancel();
                co_return;
            }
            again.expires_after(kLookAgain);  // the next request has come already; it waits
            co_await again.async_wait(use_tuple);
        }
    }

    // A client that still sends when the connection is closed would lose the answer: reads what it sends for a while.
    Task linger() {
        std::array<char, 16384> scrap;
        stream_.expires_after(kLingerTime);
        for (std::size_t read = 0; read < kLingerBytes;) {
            const auto [error, size] = co_await stream_.async_read_some(asio::buffer(scrap), use_tuple);
            if (error) co_return;
            read += size;
        }
    }

    HttpServer::State& server_;
    Stream stream_;
    beast::flat_buffer buffer_;
    Timer wake_, gather_;
    std::string listen_address_, peer_;
    bool local_ = false, closed_ = false, idle_ = true, linger_ = false;
    std::shared_ptr<Answer> answer_;  // being sent
    std::list<Connection*>::iterator place_;
};

Task HttpServer::State::accept(Acceptor& acceptor, std::string address) {
    Timer pause(io);
    while (!draining) {
        auto [error, socket] = co_await acceptor.async_accept(use_tuple);
        if (draining || error == asio::error::operation_aborted) co_return;
        if (error) {  // no descriptors left, mostly: others close theirs
            pause.expires_after(std::chrono::milliseconds(100));
            co_await pause.async_wait(use_tuple);
            continue;
        }
        if (open.size() >= limits.connections) {
            // One that has sent no request yet makes room for one that may.
            const auto idle = std::find_if(open.begin(), open.end(), [](Connection* c) { return !c->answering(); });
            if (idle == open.end()) continue;  // closes the new one
            (*idle)->close();
        }
        const auto connection = std::make_shared<Connection>(*this, Socket(std::move(socket)), address);
        if (!connection->local() && peers[connection->peer()] > limits.connections_of_peer) continue;
        asio::co_spawn(
            io, [connection]() -> Task { co_await connection->serve(); }, asio::detached);
    }
}

void HttpServer::State::end(bool now) {
    draining = true;
    stopping = stopping || now;
    boost::system::error_code ignored;
    for (Acceptor& acceptor : acceptors) acceptor.close(ignored);
    const std::vector<Connection*> all(open.begin(), open.end());
    for (Connection* connection : all) {
        if (now || connection->idle()) connection->close();
    }
}

HttpServer::HttpServer(const std::vector<ListenAddress>& addresses, const HttpLimits& limits, std::string version,
                       Handler& handler)
    : state_(std::make_unique<State>(limits, std::move(version), handler)) {
    State& s = *state_;
    try {
        for (const ListenAddress& address : addresses) {
            s.opened.push_back(open_listener(address));
            s.addresses.push_back(s.opened.back().address);
        }
        for (const OpenedSocket& socket : s.opened) {
            s.acceptors.emplace_back(s.io);
            s.acceptors.back().assign(Protocol(socket.family, 0), socket.descriptor);
        }
    } catch (const boost::system::system_error& problem) {
        throw Error(std::string("cannot listen: ") + problem.what());
    }
    auto socket = s.opened.begin();
    for (Acceptor& acceptor : s.acceptors)
        asio::co_spawn(s.io, s.accept(acceptor, (socket++)->address.text()), asio::detached);
}

HttpServer::~HttpServer() {
    for (const OpenedSocket& socket : state_->opened) {
        if (socket.address.kind == ListenAddress::Kind::unix_path) ::unlink(socket.address.host.c_str());
    }
}

void HttpServer::run() { state_->io.run(); }
void HttpServer::drain() {
    asio::post(state_->io, [this] { state_->end(false); });
}
void HttpServer::stop() {
    asio::post(state_->io, [this] { state_->end(true); });
}
const std::vector<ListenAddress>& HttpServer::addresses() const { return state_->addresses; }
std::size_t HttpServer::connections() const { return state_->connections; }
std::uint64_t HttpServer::stalled() const { return state_->stalled; }

}  // namespace foresay::server
