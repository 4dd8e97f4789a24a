// app/hosts.h: the program as one of several processes that share a model (docs/multi-gpu.md). Rank 0 runs the command;
// the others serve layers of its target, with the same command line.
//
// Errors:   Error: ranks that do not come, NCCL that is missing, as engine/hosts/.
#pragma once

#include <memory>
#include <optional>

#include "engine/hosts/hosts.h"

namespace foresay::app {

struct ParsedCommand;

// For as long as it exists, the other ranks are there. With one process, and with a command that opens no model, it
// does nothing.
class HostsOfCommand {
public:
    // Rank 0: waits for the others. The others: serve, until rank 0 ends; then `status` is the exit status, and there
    // is no command to run.
    explicit HostsOfCommand(const ParsedCommand& command);
    ~HostsOfCommand();
    HostsOfCommand(const HostsOfCommand&) = delete;
    HostsOfCommand& operator=(const HostsOfCommand&) = delete;

    std::optional<int> status;
};

// The other hosts, for an engine; null: there are none.
const std::shared_ptr<engine::Hosts>& other_hosts();

}  // namespace foresay::app
