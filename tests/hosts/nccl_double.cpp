// A double of NCCL for tests: a library with the functions of NCCL that foresay calls, which moves memory of the host
// between processes over TCP on this machine. It is no part of the program, and no substitute for NCCL: it knows one
// communicator, bytes, and sends and receives that follow one another.
//
// What it has of NCCL: a call returns at once with ncclInProgress, and ncclCommGetAsyncError says when it is done;
// calls run in their order; an id leads all ranks to rank 0; a connection that ends is a remote error; an abort ends
// all.
//
// Layout:   the id holds a port of 127.0.0.1, at which rank 0 listens. The others connect and say their rank. Ranks
//           other than 0 have no connection to each other.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

namespace {

enum Result { kSuccess = 0, kSystemError = 2, kInvalidArgument = 4, kRemoteError = 6, kInProgress = 7 };

struct Id {
    char magic[8];
    std::uint16_t port;
    std::int32_t listening;  // rank 0's descriptor
    char rest[112];
};
static_assert(sizeof(Id) == 128);

constexpr char kMagic[8] = "double1";

void set_quick(int socket) {
    const int on = 1;
    ::setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

}  // namespace

struct NcclComm {
    int rank = 0, size = 1;
    Id id{};
    std::vector<int> sockets;  // by rank

    struct Transfer {
        bool sends;
        char* bytes;
        std::size_t count;
        int peer;
    };
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Transfer> transfers;
    bool busy = true;  // connecting
    int failure = kSuccess;
    std::atomic<bool> aborted{false};
    std::thread thread;

    bool wait(int socket, short events) const {
        while (!aborted) {
            pollfd ready{socket, events, 0};
            if (::poll(&ready, 1, 20) > 0) return true;
        }
        return false;
    }

    bool move(int socket, bool sends, char* bytes, std::size_t count) const {
        while (count > 0) {
            if (!wait(socket, sends ? POLLOUT : POLLIN)) return false;
            const ssize_t moved = sends ? ::send(socket, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT)
                                        : ::recv(socket, bytes, count, MSG_DONTWAIT);
            if (moved < 0 && (errno == EAGAIN || errno == EINTR)) continue;
            if (moved <= 0) return false;
            bytes += moved;
            count -= static_cast<std::size_t>(moved);
        }
        return true;
    }

    bool connect() {
        sockets.assign(static_cast<std::size_t>(size), -1);
        if (rank == 0) {
            for (int come = 1; come < size; ++come) {
                if (!wait(id.listening, POLLIN)) return false;
                const int socket = ::accept4(id.listening, nullptr, nullptr, SOCK_CLOEXEC);
                std::int32_t who = 0;
                if (!move(socket, false, reinterpret_cast<char*>(&who), sizeof(who))) return false;
                if (who < 1 || who >= size) return false;
                set_quick(socket);
                sockets[static_cast<std::size_t>(who)] = socket;
            }
            ::close(id.listening);
            return true;
        }
        const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in address{};
        address.sin_family = AF_INET;
        address.sin_port = htons(id.port);
        address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        if (::connect(socket, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) return false;
        set_quick(socket);
        sockets[0] = socket;
        std::int32_t who = rank;
        return move(socket, true, reinterpret_cast<char*>(&who), sizeof(who));
    }

    void run() {
        bool good = connect();
        std::unique_lock lock(mutex);
        for (;;) {
            if (!good) failure = kRemoteError;
            busy = false;
            changed.wait(lock, [&] { return aborted || !transfers.empty(); });
            if (aborted) return;
            const Transfer next = transfers.front();
            transfers.pop_front();
            busy = true;
            lock.unlock();
            good = good && move(sockets[static_cast<std::size_t>(next.peer)], next.sends, next.bytes, next.count);
            lock.lock();
        }
    }

    int enqueue(bool sends, void* bytes, std::size_t count, int type, int peer) {
        if (type != 1 || peer < 0 || peer >= size || sockets[static_cast<std::size_t>(peer)] < 0) {
            return kInvalidArgument;
        }
        const std::lock_guard lock(mutex);
        transfers.push_back({sends, static_cast<char*>(bytes), count, peer});
        changed.notify_all();
        return kInProgress;
    }
};

extern "C" {

// Says that host memory can be sent.
int foresay_nccl_moves_host_memory = 1;

int ncclGetVersion(int* version) {
    *version = 22703;
    return kSuccess;
}

int ncclGetUniqueId(Id* id) {
    *id = {};
    std::memcpy(id->magic, kMagic, sizeof(kMagic));
    id->listening = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(address);
    if (::bind(id->listening, reinterpret_cast<sockaddr*>(&address), size) != 0 || ::listen(id->listening, 32) != 0 ||
        ::getsockname(id->listening, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
        return kSystemError;
    }
    id->port = ntohs(address.sin_port);
    return kSuccess;
}

int ncclCommInitRankConfig(NcclComm** comm, int size, Id id, int rank, void*) {
    if (std::memcmp(id.magic, kMagic, sizeof(kMagic)) != 0) return kInvalidArgument;
    *comm = new NcclComm;
    (*comm)->rank = rank;
    (*comm)->size = size;
    (*comm)->id = id;
    (*comm)->thread = std::thread([made = *comm] { made->run(); });
    return kInProgress;
}

int ncclSend(const void* from, std::size_t count, int type, int peer, NcclComm* comm, void*) {
    return comm->enqueue(true, const_cast<void*>(from), count, type, peer);
}

int ncclRecv(void* to, std::size_t count, int type, int peer, NcclComm* comm, void*) {
    return comm->enqueue(false, to, count, type, peer);
}

int ncclCommGetAsyncError(NcclComm* comm, int* result) {
    const std::lock_guard lock(comm->mutex);
    *result = comm->failure != kSuccess                ? comm->failure
              : comm->busy || !comm->transfers.empty() ? kInProgress
                                                       : kSuccess;
    return kSuccess;
}

int ncclCommAbort(NcclComm* comm) {
    {
        const std::lock_guard lock(comm->mutex);
        comm->aborted = true;
    }
    comm->changed.notify_all();
    comm->thread.join();
    for (const int socket : comm->sockets) {
        if (socket >= 0) ::close(socket);
    }
    delete comm;
    return kSuccess;
}

const char* ncclGetErrorString(int result) {
    return result == kRemoteError ? "remote process exited or there was a network error" : "internal error";
}

}  // extern "C"
