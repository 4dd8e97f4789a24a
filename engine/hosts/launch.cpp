#include "engine/hosts/launch.h"

#include <charconv>
#include <cstdlib>
#include <string_view>

#include "base/error.h"

namespace foresay::engine {
namespace {

using Variable = std::function<const char*(const char* name)>;

// Who starts processes, and how it tells them who they are. The first one whose size is set counts.
struct Launcher {
    const char* rank;
    const char* size;
    const char* local_rank;
    const char* local_size;
    const char* host = "MASTER_ADDR";  // of rank 0
};
constexpr Launcher kLaunchers[] = {
    // torchrun, and what people set by hand
    {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
    // Open MPI's mpirun
    {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    // srun
    {"SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr},
    // mpiexec of MPICH and Intel
    {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    // Kubernetes' LeaderWorkerSet
    {"LWS_WORKER_INDEX", "LWS_GROUP_SIZE", nullptr, nullptr, "LWS_LEADER_ADDRESS"},
};
constexpr int kMostRanks = 32;
constexpr std::uint16_t kPort = 29500;  // torchrun's

std::string text_of(const Variable& variable, const char* name) {
    const char* const value = name != nullptr ? variable(name) : nullptr;
    return value != nullptr ? value : "";
}

template <class Number>
Number number(const std::string& name, const std::string& text, Number least, Number most) {
    Number value{};
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (problem != std::errc() || end != text.data() + text.size() || value < least || value > most) {
        std::string range = std::to_string(least) + " to " + std::to_string(most);
        if constexpr (std::is_floating_point_v<Number>) range = "seconds above 0";
        throw Error(name + " is '" + text.substr(0, 40) + "', and must be a number (" + range + ")");
    }
    return value;
}

// The first of "node[03-05,9],other": node03.
std::string first_node(std::string_view list) {
    const std::size_t bracket = list.find('['), comma = list.find(',');
    if (bracket == list.npos || comma < bracket) return std::string(list.substr(0, comma));
    const std::string_view inside = list.substr(bracket + 1);
    const std::size_t close = inside.find(']');
    const std::string_view suffix = close == inside.npos ? "" : inside.substr(close + 1);
    return std::string(list.substr(0, bracket)) + std::string(inside.substr(0, inside.find_first_of(",-]"))) +
           std::string(suffix.substr(0, suffix.find(',')));
}

// In a batch script Slurm sets the variables of the job's tasks, too, and only srun starts them.
bool is_batch_script(const Variable& variable) {
    return variable("SLURM_JOB_ID") != nullptr && variable("SLURM_STEP_ID") == nullptr;
}

std::string host_of_rank_0(const Variable& variable, const Launcher& launcher, const Launch& launch) {
    for (const char* name : {"MASTER_ADDR", launcher.host}) {
        if (std::string given = text_of(variable, name); !given.empty()) return given;
    }
    const std::string local = text_of(variable, launcher.local_size);
    if (local == std::to_string(launch.size) || text_of(variable, "SLURM_NNODES") == "1") return "127.0.0.1";
    for (const char* list : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
        if (const std::string nodes = text_of(variable, list); !nodes.empty()) return first_node(nodes);
    }
    throw Error("this is rank " + std::to_string(launch.rank) + " of " + std::to_string(launch.size) + " (" +
                launch.origin + "), and where rank 0 is is not known; set MASTER_ADDR to its host on every rank");
}

}  // namespace

std::optional<Launch> read_launch(const Variable& variable) {
    for (const Launcher& launcher : kLaunchers) {
        const std::string size = text_of(variable, launcher.size), rank = text_of(variable, launcher.rank);
        if (size.empty()) continue;
        if (std::string_view(launcher.size) == "SLURM_NTASKS" && is_batch_script(variable)) continue;
        Launch launch;
        launch.origin = std::string(launcher.rank) + " and " + launcher.size;
        launch.size = number(launcher.size, size, 1, 1 << 20);
        if (launch.size == 1) return std::nullopt;
        if (rank.empty()) {
            throw Error(std::string(launcher.size) + " is " + size + ", and " + launcher.rank +
                        " is not set; set it on each host to a number from 0, or unset " + launcher.size +
                        " to run alone");
        }
        launch.rank = number(launcher.rank, rank, 0, launch.size - 1);
        if (launch.size > kMostRanks) {
            throw Error(launch.origin + " name " + size + " processes, and at most " + std::to_string(kMostRanks) +
                        " hosts can share a model; start one process on each host");
        }
        if (const std::string local = text_of(variable, launcher.local_rank); !local.empty()) {
            launch.local_rank = number(launcher.local_rank, local, 0, launch.size - 1);
        }
        launch.host = host_of_rank_0(variable, launcher, launch);
        const std::string port = text_of(variable, "MASTER_PORT");
        launch.port = port.empty() ? kPort : number<std::uint16_t>("MASTER_PORT", port, 1, 65534);
        // Where torchrun's agent has that port itself, its neighbour.
        if (text_of(variable, "TORCHELASTIC_USE_AGENT_STORE") == "True") ++launch.port;
        for (const auto& [name, seconds] : {std::pair{"FORESAY_HOST_START", &launch.start_seconds},
                                            std::pair{"FORESAY_HOST_WAIT", &launch.seconds}}) {
            if (const std::string text = text_of(variable, name); !text.empty()) {
                *seconds = number(name, text, 0.1, 86400.0);
            }
        }
        return launch;
    }
    return std::nullopt;
}

std::optional<Launch> read_launch() {
    return read_launch([](const char* name) { return std::getenv(name); });
}

}  // namespace foresay::engine
