// engine/hosts/rendezvous.h: how NCCL's id, 128 bytes, gets from rank 0 to the others before NCCL connects them: over
// one short TCP connection each, to the address that the launcher names. Nothing else crosses this way, except the
// names of the hosts. (NCCL_COMM_ID does without it, but only where all hosts are in one subnet; where a user has set
// it, there is no exchange.)
//
// Threads:  any.
// Cost:     returns when all ranks have come.
// Errors:   Error: an address that cannot be used; a rank that was started with another number of ranks or has not come
//           in time, by its number; Launch::interrupted, within a tenth of a second.
#pragma once

#include <string>
#include <vector>

#include "engine/hosts/launch.h"
#include "kernels/hosts/nccl.h"

namespace foresay::engine {

struct Meeting {
    kernels::NcclId id{};
    std::vector<std::string> hosts;  // by rank; on the others only their own and that of rank 0
};

// `id`: of rank 0; not read on the others.
Meeting meet(const Launch& launch, const kernels::NcclId& id);

// The name of this machine.
std::string host_name();

}  // namespace foresay::engine
