// kernels/hosts/host_server.h: the other ranks' side of the link: runs on the backends of this host what rank 0 asks
// for (kernels/hosts/message.h).
//
// Threads:  run() has one; a model is loaded by another, while run() answers how far that is.
// Errors:   what a backend throws goes to rank 0 as an answer. What a request asks for that is not there, likewise.
//           run() throws LostHost when rank 0 is gone.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/hosts/host_link.h"
#include "kernels/hosts/message.h"
#include "kernels/hosts/noting_ops.h"
#include "kernels/ops.h"

namespace foresay::kernels {

struct HostServerOptions {
    std::string version;  // of the program; rank 0 refuses another one
    std::vector<std::shared_ptr<Ops>> devices;
    std::function<std::int64_t(std::size_t device)> free_memory;
    std::function<double(std::size_t device)> bandwidth;
    // Loads what the request names and returns the ops of each device. progress() throws to end it.
    using Progress = std::function<void(std::int64_t done, std::int64_t all)>;
    std::function<std::vector<NotedOps>(MessageReader request, const Progress& progress)> load;
    double start_seconds = 120.0, seconds = 4.0;  // that rank 0 may be silent: before its first message, and later
};

class HostServer {
public:
    HostServer(HostLink& link, HostServerOptions options);
    ~HostServer();
    HostServer(const HostServer&) = delete;
    HostServer& operator=(const HostServer&) = delete;

    // Until rank 0 ends.
    void run();

private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace foresay::kernels
