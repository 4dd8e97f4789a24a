#include "app/bench/http_client.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"

namespace foresay::app {

ServerUrl parse_server_url(const std::string& text) {
    constexpr std::string_view kScheme = "http://";
    if (!text.starts_with(kScheme)) throw UsageError("--url: '" + text + "' does not begin with http://");
    std::string rest = text.substr(kScheme.size());
    ServerUrl url;
    if (const std::size_t slash = rest.find('/'); slash != std::string::npos) {
        url.path = rest.substr(slash);
        while (url.path.ends_with('/')) url.path.pop_back();
        rest.resize(slash);
    }
    const std::size_t colon = rest.rfind(':'), bracket = rest.rfind(']');
    if (colon != std::string::npos && (bracket == std::string::npos || colon > bracket)) {
        url.port = rest.substr(colon + 1);
        rest.resize(colon);
    }
    if (rest.starts_with('[') && rest.ends_with(']')) rest = rest.substr(1, rest.size() - 2);
    url.host = rest;
    if (url.host.empty() || url.port.empty()) throw UsageError("--url: '" + text + "' names no server");
    return url;
}

HttpClient::HttpClient(const ServerUrl& url) : url_(url) {}
HttpClient::~HttpClient() { disconnect(); }

void HttpClient::disconnect() {
    if (socket_ >= 0) ::close(socket_);
    socket_ = -1;
    read_.clear();
}

void HttpClient::connect() {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(url_.host.c_str(), url_.port.c_str(), &hints, &found) != 0)
        throw Error("--url: the host '" + url_.host + "' is not known");
    for (const addrinfo* one = found; one != nullptr && socket_ < 0; one = one->ai_next) {
        socket_ = ::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC, one->ai_protocol);
        if (socket_ >= 0 && ::connect(socket_, one->ai_addr, one->ai_addrlen) != 0) disconnect();
    }
    ::freeaddrinfo(found);
    if (socket_ < 0) throw Error("--url: nothing listens at " + url_.host + ":" + url_.port);
    const int on = 1;
    ::setsockopt(socket_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool HttpClient::fill() {
    std::array<char, 65536> bytes;
    const ssize_t got = ::recv(socket_, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    read_.append(bytes.data(), static_cast<std::size_t>(got));
    return true;
}

bool HttpClient::send(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t put = ::send(socket_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
        if (put <= 0) return false;
        bytes.remove_prefix(static_cast<std::size_t>(put));
    }
    return true;
}

std::string HttpClient::line() {
    std::size_t end;
    while ((end = read_.find("\r\n")) == std::string::npos) {
        if (read_.size() > 65536 || !fill()) throw Error("the server's answer is no HTTP, or ends too early");
    }
    std::string text = read_.substr(0, end);
    read_.erase(0, end + 2);
    return text;
}

void HttpClient::post(const std::string& path, const std::string& body,
                      const std::function<void(std::string_view)>& take) {
    try {
        post_once(path, body, take);
    } catch (...) {
        disconnect();  // in the middle of an answer
        throw;
    }
}

void HttpClient::post_once(const std::string& path, const std::string& body,
                           const std::function<void(std::string_view)>& take) {
    const bool used_before = socket_ >= 0;
    if (!used_before) connect();
    const std::string request = "POST " + url_.path + path + " HTTP/1.1\r\nHost: " + url_.host + ":" + url_.port +
                                (url_.key.empty() ? "" : "\r\nAuthorization: Bearer " + url_.key) +
                                "\r\nContent-Type: application/json\r\nContent-Length: " + std::to_string(body.size()) +
                                "\r\n\r\n" + body;
    // A server may close a connection between two requests: then the request has not been taken, and goes over a new
    // one.
    if (!send(request) || (read_.empty() && !fill())) {
        if (!used_before) throw Error("the server has closed the connection without an answer");
        disconnect();
        connect();
        if (!send(request)) throw Error("the server has closed the connection without an answer");
    }
    const std::string status = line();
    bool chunked = false, close = false;
    std::size_t length = 0;
    for (std::string header = line(); !header.empty(); header = line()) {
        std::transform(header.begin(), header.end(), header.begin(), [](unsigned char c) { return std::tolower(c); });
        if (header.starts_with("transfer-encoding:")) chunked = header.find("chunked") != std::string::npos;
        if (header.starts_with("content-length:")) length = std::stoul(header.substr(15));
        if (header.starts_with("connection:")) close = header.find("close") != std::string::npos;
    }
    std::string refused;
    const bool fine = status.size() > 12 && status.compare(9, 3, "200") == 0;
    const auto give = [&](std::size_t size) {
        while (read_.size() < size) {
            if (!fill()) throw Error("the server's answer ends too early");
        }
        if (fine) {
            take(std::string_view(read_).substr(0, size));
        } else {
            refused += read_.substr(0, size);
        }
        read_.erase(0, size);
    };
    if (chunked) {
        for (;;) {
            const std::size_t size = std::stoul(line(), nullptr, 16);
            if (size > 0) give(size);
            line();
            if (size == 0) break;
        }
    } else {
        give(length);
    }
    if (close) disconnect();
    if (!fine) throw Error("the server answers '" + status + "': " + refused.substr(0, 400));
}

}  // namespace foresay::app
