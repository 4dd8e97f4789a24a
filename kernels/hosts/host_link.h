// kernels/hosts/host_link.h: one NCCL communicator between the processes of several hosts. Every wait has a limit: when
// it is over, or when NCCL reports that the other side is gone, the communicator is aborted and the rank is named.
//
// Threads:  one caller at a time.
// Errors:   LostHost: a rank does not answer, or the connection to it is lost. Each later call throws the same again.
#pragma once

#include <atomic>
#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hosts/link_device.h"
#include "kernels/hosts/nccl.h"
#include "kernels/list_ops.h"

namespace foresay::kernels {

class LostHost : public NamedError {
public:
    using NamedError::NamedError;
};

class HostLink {
public:
    struct Options {
        int rank = 0;
        int size = 1;
        NcclId id{};
        std::vector<std::string> hosts;  // by rank; an empty name is left out of messages
        double start_seconds = 120.0;    // for all ranks to join
        // While it is true, a wait before all_joined() gives the communicator up; null: none does.
        const std::atomic<bool>* interrupted = nullptr;
        std::unique_ptr<LinkDevice> device;
    };
    // Returns when all ranks have joined.
    explicit HostLink(Options options);
    ~HostLink();
    HostLink(const HostLink&) = delete;
    HostLink& operator=(const HostLink&) = delete;

    // Every rank has answered: Options::interrupted is about something else from now on.
    void all_joined() { options_.interrupted = nullptr; }

    int rank() const { return options_.rank; }
    int size() const { return options_.size; }
    LinkDevice& device() { return *options_.device; }
    void name_host(int rank, std::string host) { options_.hosts[static_cast<std::size_t>(rank)] = std::move(host); }
    // "rank 1 (node-b)"
    std::string name(int rank) const;

    // The first `bytes` of a buffer. Both return when that is done.
    void send(int peer, const LinkBuffer& from, std::size_t bytes, double seconds);
    void receive(int peer, LinkBuffer& to, std::size_t bytes, double seconds);

    // Gives the communicator up: every later call throws `why`.
    [[noreturn]] void lose(const std::string& why);
    bool lost() const { return !why_.empty(); }
    const std::string& why_lost() const { return why_; }

private:
    // Until NCCL and the device are done with what was enqueued, for or from `peer`; -1: for all ranks.
    void finish(int result, int peer, double seconds);

    Options options_;
    const Nccl& nccl_;
    NcclComm* comm_ = nullptr;
    std::string why_;
};

}  // namespace foresay::kernels
