#include "engine/hosts/rendezvous.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/signals.h"

namespace foresay::engine {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kName = 64;
constexpr double kGreeting = 2.0;  // seconds for the bytes of a connection, once it is there

struct Greeting {
    char magic[8] = {'f', 'o', 'r', 'e', 's', 'a', 'y', '1'};
    std::int32_t rank = 0, size = 0;
    char host[kName] = {};
};
struct Reply {
    Greeting greeting;
    kernels::NcclId id{};
};

class Socket {
public:
    explicit Socket(int descriptor = -1) : descriptor_(descriptor) {}
    ~Socket() {
        if (descriptor_ >= 0) ::close(descriptor_);
    }
    Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
    Socket& operator=(Socket&& other) noexcept {
        std::swap(descriptor_, other.descriptor_);
        return *this;
    }
    int get() const { return descriptor_; }
    explicit operator bool() const { return descriptor_ >= 0; }

private:
    int descriptor_;
};

double left(Clock::time_point end) { return std::chrono::duration<double>(end - Clock::now()).count(); }
Clock::time_point after(double seconds) {
    return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

// A wait, and what ends it before its time.
struct Patience {
    Clock::time_point end;
    const Launch& launch;

    Patience sooner(double seconds) const { return {std::min(end, after(seconds)), launch}; }
    // Throws Error when the user does not want to wait any more.
    bool over() const {
        if (launch.interrupted != nullptr && *launch.interrupted) {
            throw Error("interrupted while rank " + std::to_string(launch.rank) + " waited for the other ranks");
        }
        return left(end) <= 0.0;
    }
};

// Waits until `descriptor` is ready for `events`. In short waits, because a signal that comes before poll() ends none,
// and signals of all kinds end one.
bool ready(int descriptor, short events, const Patience& patience) {
    constexpr double kLook = 0.1;
    while (!patience.over()) {
        pollfd wait{descriptor, events, 0};
        const double seconds = std::min(kLook, left(patience.end));
        const int found = ::poll(&wait, 1, std::max(0, static_cast<int>(std::ceil(seconds * 1000.0))));
        if (found > 0) return true;
        if (found < 0 && errno != EINTR) return false;
    }
    return false;
}

bool read_all(int descriptor, void* to, std::size_t size, const Patience& patience) {
    auto* bytes = static_cast<char*>(to);
    while (size > 0) {
        if (!ready(descriptor, POLLIN, patience)) return false;
        const ssize_t got = ::recv(descriptor, bytes, size, 0);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) return false;
        bytes += got;
        size -= static_cast<std::size_t>(got);
    }
    return true;
}

bool write_all(int descriptor, const void* from, std::size_t size, const Patience& patience) {
    const auto* bytes = static_cast<const char*>(from);
    while (size > 0) {
        if (!ready(descriptor, POLLOUT, patience)) return false;
        const ssize_t put = ::send(descriptor, bytes, size, MSG_NOSIGNAL);
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return false;
        bytes += put;
        size -= static_cast<std::size_t>(put);
    }
    return true;
}

Greeting greeting_of(const Launch& launch) {
    Greeting greeting;
    greeting.rank = launch.rank;
    greeting.size = launch.size;
    host_name().copy(greeting.host, kName - 1);
    return greeting;
}

std::string place(const Launch& launch) { return launch.host + ":" + std::to_string(launch.port); }

std::string seconds_text(double seconds) {
    return std::to_string(static_cast<long>(std::ceil(seconds))) + (seconds > 1.0 ? " seconds" : " second");
}

std::string problem_text() { return std::error_code(errno, std::generic_category()).message(); }

std::string shown_host(const char (&host)[kName]) {
    std::string name(host, ::strnlen(host, kName));
    std::erase_if(name, [](char c) { return c <= ' ' || c > '~'; });
    return name;
}

// ------------------------------------------------------------------------------------------------------ rank 0

// On every address of this host, since the one that the others use may be translated.
Socket listen_at(const Launch& launch) {
    for (const int family : {AF_INET6, AF_INET}) {
        Socket socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (!socket) continue;
        const int on = 1, off = 0;
        ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        sockaddr_storage address{};
        socklen_t size = sizeof(sockaddr_in);
        if (family == AF_INET6) {
            ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
            auto& six = reinterpret_cast<sockaddr_in6&>(address);
            six.sin6_family = AF_INET6;
            six.sin6_port = htons(launch.port);
            size = sizeof(sockaddr_in6);
        } else {
            auto& four = reinterpret_cast<sockaddr_in&>(address);
            four.sin_family = AF_INET;
            four.sin_port = htons(launch.port);
        }
        if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size) == 0 &&
            ::listen(socket.get(), launch.size) == 0) {
            return socket;
        }
        if (errno == EADDRINUSE) break;
    }
    throw Error("rank 0 cannot listen at port " + std::to_string(launch.port) + " (" + problem_text() +
                "); set MASTER_PORT to a free one on every rank");
}

Meeting receive_all(const Launch& launch, const kernels::NcclId& id) {
    const Patience patience{after(launch.start_seconds), launch};
    const Socket listening = listen_at(launch);
    Meeting meeting{id, std::vector<std::string>(static_cast<std::size_t>(launch.size))};
    meeting.hosts[0] = host_name();
    std::vector<bool> here(meeting.hosts.size());
    here[0] = true;
    while (std::ranges::find(here, false) != here.end()) {
        if (!ready(listening.get(), POLLIN, patience)) {
            std::string missing;
            for (std::size_t rank = 1; rank < here.size(); ++rank) {
                if (!here[rank]) missing += (missing.empty() ? "" : ", ") + std::to_string(rank);
            }
            throw Error("of " + std::to_string(launch.size) + " ranks, number " + missing + " did not come to " +
                        place(launch) + " within " + seconds_text(launch.start_seconds) +
                        "; see whether it was started and reaches that address");
        }
        const Socket one(::accept4(listening.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!one) continue;
        // Others that connect say something else, or nothing.
        const Patience soon{after(kGreeting), launch};
        Greeting greeting;
        if (!read_all(one.get(), &greeting, sizeof(greeting), soon)) continue;
        if (std::memcmp(greeting.magic, Greeting().magic, sizeof(greeting.magic)) != 0) continue;
        const Reply reply{greeting_of(launch), id};
        const bool told = write_all(one.get(), &reply, sizeof(reply), soon);
        if (greeting.size != launch.size) {
            throw Error("a rank was started as one of " + std::to_string(greeting.size) + ", and rank 0 as one of " +
                        std::to_string(launch.size) + "; start all ranks alike");
        }
        const auto rank = static_cast<std::size_t>(greeting.rank);
        if (!told || greeting.rank < 1 || rank >= here.size()) continue;
        here[rank] = true;
        meeting.hosts[rank] = shown_host(greeting.host);
    }
    return meeting;
}

// --------------------------------------------------------------------------------------------------- the others

// A name that is looked up by a thread of its own, which may take as long as the resolver does: who does not want to
// wait any more leaves it to its end. It has its own copy of all that it reads.
struct LookUp {
    std::string host, port;
    std::mutex mutex;
    std::condition_variable done;
    bool is_done = false;
    addrinfo* found = nullptr;  // null at the end: there is no such name, or not yet

    LookUp(std::string name, std::string service) : host(std::move(name)), port(std::move(service)) {}
    ~LookUp() {
        if (found != nullptr) ::freeaddrinfo(found);
    }
    void run() {
        addrinfo hints{};
        hints.ai_socktype = SOCK_STREAM;
        addrinfo* all = nullptr;
        if (::getaddrinfo(host.c_str(), port.c_str(), &hints, &all) != 0) all = nullptr;
        const std::lock_guard lock(mutex);
        found = all;
        is_done = true;
        done.notify_one();
    }
};

// The addresses of rank 0; null: they are not known in time, or there are none.
std::shared_ptr<const addrinfo> look_up(const Launch& launch, const Patience& patience) {
    constexpr std::chrono::milliseconds kLook{100};
    const auto name = std::make_shared<LookUp>(launch.host, std::to_string(launch.port));
    {
        const SignalsBlocked blocked;  // Ctrl-C is for those who wait
        std::thread([name] { name->run(); }).detach();
    }
    std::unique_lock lock(name->mutex);
    while (!name->done.wait_for(lock, kLook, [&] { return name->is_done; })) {
        if (patience.over()) return nullptr;
    }
    return {name, name->found};
}

// Null: rank 0 is not there yet.
Socket connect_to(const Launch& launch, const Patience& patience) {
    const std::shared_ptr<const addrinfo> all = look_up(launch, patience);
    for (const addrinfo* one = all.get(); one != nullptr; one = one->ai_next) {
        Socket socket(::socket(one->ai_family, one->ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, one->ai_protocol));
        if (!socket) continue;
        if (::connect(socket.get(), one->ai_addr, one->ai_addrlen) == 0) return socket;
        if (errno != EINPROGRESS && errno != EINTR) continue;
        if (!ready(socket.get(), POLLOUT, patience.sooner(kGreeting))) continue;
        int problem = 0;
        socklen_t size = sizeof(problem);
        ::getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &problem, &size);
        if (problem == 0) return socket;
    }
    return Socket();
}

Meeting go_there(const Launch& launch) {
    const Patience patience{after(launch.start_seconds), launch};
    const Greeting greeting = greeting_of(launch);
    while (!patience.over()) {
        Reply reply;
        if (const Socket socket = connect_to(launch, patience); socket) {
            const Patience soon = patience.sooner(kGreeting);
            if (write_all(socket.get(), &greeting, sizeof(greeting), soon) &&
                read_all(socket.get(), &reply, sizeof(reply), soon) &&
                std::memcmp(reply.greeting.magic, greeting.magic, sizeof(greeting.magic)) == 0) {
                if (reply.greeting.size != launch.size) {
                    throw Error("this rank was started as one of " + std::to_string(launch.size) +
                                ", and rank 0 as one of " + std::to_string(reply.greeting.size) +
                                "; start all ranks alike");
                }
                Meeting meeting{reply.id, std::vector<std::string>(static_cast<std::size_t>(launch.size))};
                meeting.hosts[0] = shown_host(reply.greeting.host);
                meeting.hosts[static_cast<std::size_t>(launch.rank)] = host_name();
                return meeting;
            }
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    throw Error("rank " + std::to_string(launch.rank) + " did not reach rank 0 at " + place(launch) + " within " +
                seconds_text(launch.start_seconds) + "; see MASTER_ADDR and MASTER_PORT");
}

}  // namespace

std::string host_name() {
    char name[kName] = {};
    return ::gethostname(name, sizeof(name) - 1) == 0 ? name : "";
}

Meeting meet(const Launch& launch, const kernels::NcclId& id) {
    return launch.rank == 0 ? receive_all(launch, id) : go_there(launch);
}

}  // namespace foresay::engine
