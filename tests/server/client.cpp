#include "tests/server/client.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <stdexcept>
#include <utility>

namespace foresay::testing {

namespace {

constexpr int kPatienceMs = 60'000;

}  // namespace

Client::Client(const std::string& address) {
    if (address.starts_with("unix:")) {
        socket_ = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_un where{};
        where.sun_family = AF_UNIX;
        std::strncpy(where.sun_path, address.c_str() + 5, sizeof where.sun_path - 1);
        if (::connect(socket_, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
            throw std::runtime_error("nothing listens at " + address);
        return;
    }
    const std::size_t colon = address.rfind(':');
    socket_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in where{};
    where.sin_family = AF_INET;
    where.sin_port = htons(static_cast<std::uint16_t>(std::stoi(address.substr(colon + 1))));
    ::inet_pton(AF_INET, address.substr(0, colon).c_str(), &where.sin_addr);
    if (::connect(socket_, reinterpret_cast<sockaddr*>(&where), sizeof where) != 0)
        throw std::runtime_error("nothing listens at " + address);
}

Client::~Client() { close(); }
Client::Client(Client&& other) noexcept : socket_(std::exchange(other.socket_, -1)), read_(std::move(other.read_)) {}

void Client::close() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
}

void Client::receive_little() {
    const int size = 4096;
    ::setsockopt(socket_, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
}

bool Client::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

bool Client::fill() {
    pollfd wait{socket_, POLLIN, 0};
    if (::poll(&wait, 1, kPatienceMs) <= 0) return false;
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    ++reads_;
    read_.append(bytes.data(), static_cast<std::size_t>(got));
    return true;
}

bool Client::line(std::string& out) {
    std::size_t end;
    while ((end = read_.find("\r\n")) == std::string::npos) {
        if (!fill()) return false;
    }
    out = read_.substr(0, end);
    read_.erase(0, end + 2);
    return true;
}

Reply Client::receive(const std::function<bool(std::string_view)>& on_piece, bool head_only) {
    Reply reply;
    std::string text;
    if (!line(text) || text.size() < 12) return reply;
    const int status = std::stoi(text.substr(9, 3));
    while (line(text) && !text.empty()) {
        const std::size_t colon = text.find(": ");
        if (colon == std::string::npos) return reply;
        std::string name = text.substr(0, colon);
        std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
        reply.headers[name] = text.substr(colon + 2);
    }
    reply.status = status;
    if (status == 100) return receive(on_piece, head_only);
    if (head_only || status == 204) {
        reply.complete = true;
        return reply;
    }
    if (reply.headers.contains("transfer-encoding")) {
        for (;;) {
            if (!line(text)) return reply;
            const std::size_t size = std::stoul(text, nullptr, 16);
            while (read_.size() < size + 2) {
                if (!fill()) return reply;
            }
            if (size > 0) {
                reply.pieces.push_back(read_.substr(0, size));
                reply.body += reply.pieces.back();
            }
            read_.erase(0, size + 2);
            if (size == 0) break;
            if (on_piece && !on_piece(reply.pieces.back())) return reply;
        }
    } else if (reply.headers.contains("content-length")) {
        const std::size_t size = std::stoul(reply.headers["content-length"]);
        while (read_.size() < size) {
            if (!fill()) return reply;
        }
        reply.body = read_.substr(0, size);
        read_.erase(0, size);
    } else {
        while (fill()) {
        }
        reply.body = std::exchange(read_, {});
    }
    reply.complete = true;
    return reply;
}

std::string Client::text_of(const std::string& method, const std::string& path, const std::string& body,
                            const std::vector<std::string>& headers) {
    std::string text = method + " " + path + " HTTP/1.1\r\n";
    const bool has_host =
        std::any_of(headers.begin(), headers.end(), [](const auto& h) { return h.starts_with("Host:"); });
    if (!has_host) text += "Host: localhost\r\n";
    for (const std::string& header : headers) text += header + "\r\n";
    if (!body.empty()) text += "Content-Length: " + std::to_string(body.size()) + "\r\n";
    return text + "\r\n" + body;
}

Reply Client::ask(const std::string& method, const std::string& path, const std::string& body,
                  const std::vector<std::string>& headers) {
    if (!send(text_of(method, path, body, headers))) return {};
    return receive({}, method == "HEAD");
}

bool Client::is_closed() {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    std::array<char, 4096> bytes;
    while (std::chrono::steady_clock::now() < deadline) {
        pollfd wait{socket_, POLLIN, 0};
        if (::poll(&wait, 1, 10) <= 0) continue;
        if (::recv(socket_, bytes.data(), bytes.size(), 0) <= 0) return true;
    }
    return false;
}

std::vector<std::string> data_of(std::string_view stream) {
    std::vector<std::string> all;
    while (!stream.empty()) {
        const std::size_t end = std::min(stream.find('\n'), stream.size());
        const std::string_view line = stream.substr(0, end);
        if (line.starts_with("data: ")) all.emplace_back(line.substr(6));
        stream.remove_prefix(std::min(end + 1, stream.size()));
    }
    return all;
}

}  // namespace foresay::testing
