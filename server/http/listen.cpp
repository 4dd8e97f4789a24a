// Addresses to listen on, as text and as sockets.
#include "server/http/listen.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "base/error.h"

namespace foresay::server {

namespace {

constexpr int kBacklog = 512;

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t size = sizeof(sockaddr_storage);
    sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
    const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

bool is_local(const SocketAddress& address) {
    if (address.storage.ss_family == AF_UNIX) return true;
    if (address.storage.ss_family == AF_INET) {
        const auto* four = reinterpret_cast<const sockaddr_in*>(&address.storage);
        return (ntohl(four->sin_addr.s_addr) >> 24) == 127;
    }
    const auto* six = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    if (IN6_IS_ADDR_V4MAPPED(&six->sin6_addr)) return six->sin6_addr.s6_addr[12] == 127;
    return IN6_IS_ADDR_LOOPBACK(&six->sin6_addr) != 0;
}

std::optional<SocketAddress> tcp_address(const std::string& host, std::uint16_t port) {
    SocketAddress address;
    auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
    if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons(port);
        address.size = sizeof(sockaddr_in);
        return address;
    }
    auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
    if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) != 1) return std::nullopt;
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(port);
    address.size = sizeof(sockaddr_in6);
    return address;
}

[[noreturn]] void fail(const ListenAddress& address, const std::string& why) {
    throw Error("cannot listen on " + address.text() + ": " + why);
}

std::string system_reason(int error) {
    if (error == EADDRINUSE) return "another program uses it; choose another with --listen";
    if (error == EACCES) return "the system does not permit it";
    return std::strerror(error);
}

// A path where nothing listens any more is left over from a server that was killed.
void remove_stale_socket(const ListenAddress& address, const SocketAddress& where) {
    struct stat status {};
    if (::lstat(address.host.c_str(), &status) != 0) return;
    if (!S_ISSOCK(status.st_mode)) fail(address, "the path names something that is no socket");
    const int probe = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const bool answered = probe >= 0 && ::connect(probe, where.get(), where.size) == 0;
    if (probe >= 0) ::close(probe);
    if (answered) fail(address, system_reason(EADDRINUSE));
    ::unlink(address.host.c_str());
}

int open_unix(const ListenAddress& address) {
    SocketAddress where;
    auto* path = reinterpret_cast<sockaddr_un*>(&where.storage);
    if (address.host.size() >= sizeof path->sun_path) fail(address, "the path is too long for a socket");
    path->sun_family = AF_UNIX;
    std::memcpy(path->sun_path, address.host.c_str(), address.host.size() + 1);
    where.size = sizeof(sockaddr_un);
    remove_stale_socket(address, where);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) fail(address, system_reason(errno));
    // Only this user may connect. chmod() afterwards would leave a moment in which all may.
    const mode_t before = ::umask(0177);
    const int bound = ::bind(socket, where.get(), where.size);
    const int error = errno;
    ::umask(before);
    if (bound != 0 || ::listen(socket, kBacklog) != 0) {
        ::close(socket);
        fail(address, system_reason(bound != 0 ? error : errno));
    }
    return socket;
}

int open_tcp(const ListenAddress& address) {
    const std::optional<SocketAddress> where = tcp_address(address.host, address.port);
    if (!where) fail(address, "the host must be a number, such as 127.0.0.1 or [::1], or localhost");
    const int socket = ::socket(where->storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (socket < 0) fail(address, system_reason(errno));
    const int on = 1;
    ::setsockopt(socket, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (where->storage.ss_family == AF_INET6) ::setsockopt(socket, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (::bind(socket, where->get(), where->size) != 0 || ::listen(socket, kBacklog) != 0) {
        const int error = errno;
        ::close(socket);
        fail(address, system_reason(error));
    }
    return socket;
}

SocketAddress own_address(int socket) {
    SocketAddress address;
    ::getsockname(socket, address.get(), &address.size);
    return address;
}

ListenAddress described(int socket) {
    const SocketAddress own = own_address(socket);
    ListenAddress address;
    if (own.storage.ss_family == AF_UNIX) {
        address.kind = ListenAddress::Kind::unix_path;
        address.host = reinterpret_cast<const sockaddr_un*>(&own.storage)->sun_path;
        return address;
    }
    char host[NI_MAXHOST] = "", port[NI_MAXSERV] = "0";
    ::getnameinfo(own.get(), own.size, host, sizeof host, port, sizeof port, NI_NUMERICHOST | NI_NUMERICSERV);
    address.host = host;
    address.port = static_cast<std::uint16_t>(std::strtoul(port, nullptr, 10));
    return address;
}

}  // namespace

bool ListenAddress::local() const {
    if (kind == Kind::unix_path) return true;
    if (kind == Kind::descriptor) return is_local(own_address(descriptor));
    const std::optional<SocketAddress> address = tcp_address(host, port);
    return address && is_local(*address);
}

std::string ListenAddress::text() const {
    if (kind == Kind::unix_path) return "unix:" + host;
    if (kind == Kind::descriptor) return "fd:" + std::to_string(descriptor);
    const bool six = host.find(':') != std::string::npos;
    return (six ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

ListenAddress parse_listen_address(std::string_view text) {
    const std::string said(text);
    const auto wrong = [&](const std::string& why) -> Error {
        return Error("'" + said + "' is no address to listen on: " + why +
                     "; write 127.0.0.1:8080, [::1]:8080, unix:PATH or fd:NUMBER");
    };
    const auto number = [&](std::string_view digits, int most) {
        int value = -1;
        const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
        if (error != std::errc() || end != digits.data() + digits.size() || value < 0 || value > most)
            throw wrong("'" + std::string(digits) + "' is no number up to " + std::to_string(most));
        return value;
    };
    ListenAddress address;
    if (text.starts_with("unix:")) {
        address.kind = ListenAddress::Kind::unix_path;
        address.host = text.substr(5);
        if (address.host.empty()) throw wrong("the path is missing");
        return address;
    }
    if (text.starts_with("fd:")) {
        address.kind = ListenAddress::Kind::descriptor;
        address.descriptor = number(text.substr(3), 1 << 20);
        return address;
    }
    const std::size_t colon = text.rfind(':');
    if (colon == text.npos) throw wrong("the port is missing");
    std::string_view host = text.substr(0, colon);
    address.port = static_cast<std::uint16_t>(number(text.substr(colon + 1), 65535));
    if (host.starts_with('[') && host.ends_with(']')) {
        host = host.substr(1, host.size() - 2);
    } else if (host.find(':') != host.npos) {
        throw wrong("an IPv6 address needs brackets");
    }
    address.host = host == "localhost" ? "127.0.0.1" : std::string(host);
    if (!tcp_address(address.host, address.port)) throw wrong("'" + address.host + "' is no numeric host");
    return address;
}

OpenedSocket open_listener(const ListenAddress& address) {
    OpenedSocket opened;
    if (address.kind == ListenAddress::Kind::descriptor) {
        int listening = 0;
        socklen_t size = sizeof listening;
        if (::getsockopt(address.descriptor, SOL_SOCKET, SO_ACCEPTCONN, &listening, &size) != 0 || listening == 0)
            fail(address, "the descriptor is no socket that listens");
        opened.descriptor = address.descriptor;
    } else {
        opened.descriptor = address.kind == ListenAddress::Kind::unix_path ? open_unix(address) : open_tcp(address);
    }
    opened.address = described(opened.descriptor);
    opened.family = own_address(opened.descriptor).storage.ss_family;
    return opened;
}

std::string peer_of(int socket) {
    SocketAddress address;
    if (::getpeername(socket, address.get(), &address.size) != 0) return "";
    if (address.storage.ss_family == AF_UNIX) return "unix";
    char host[NI_MAXHOST] = "";
    ::getnameinfo(address.get(), address.size, host, sizeof host, nullptr, 0, NI_NUMERICHOST);
    return host;
}

bool peer_is_local(int socket) {
    SocketAddress address;
    return ::getpeername(socket, address.get(), &address.size) == 0 && is_local(address);
}

void send_at_once(int socket) {
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

}  // namespace foresay::server
