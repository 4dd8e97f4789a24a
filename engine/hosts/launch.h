// engine/hosts/launch.h: which of several processes this one is, as the program says that started it: mpirun, srun,
// torchrun or what sets its variables, a LeaderWorkerSet. The one place that lists their variables.
//
// Threads:  any.
// Errors:   Error: variables that contradict each other, or one that is missing.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace foresay::engine {

struct Launch {
    int rank = 0;
    int size = 1;
    int local_rank = 0;            // among the processes of this host
    std::string host;              // of rank 0: a name or an address
    std::uint16_t port = 0;        // where rank 0 gives the others NCCL's id
    std::string origin;            // "RANK and WORLD_SIZE"
    double start_seconds = 120.0;  // for all ranks to come: FORESAY_HOST_START
    double seconds = 4.0;          // for an answer: FORESAY_HOST_WAIT
    // Becomes true when the user wants no longer to wait for all ranks to come; null: never.
    const std::atomic<bool>* interrupted = nullptr;
};

// nullopt: there is one process. `variable` reads one of the environment; null: it is not set.
std::optional<Launch> read_launch(const std::function<const char*(const char* name)>& variable);
std::optional<Launch> read_launch();

}  // namespace foresay::engine
