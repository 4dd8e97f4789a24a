// engine/hosts/host_parts.h: what rank 0 and the others do alike; shared by the files that implement engine/hosts/.
#pragma once

#include <memory>
#include <vector>

#include "base/error.h"
#include "core/config/config.h"
#include "engine/hosts/launch.h"
#include "kernels/hosts/host_link.h"

namespace foresay::engine {

// Why devices of several hosts cannot divide each layer.
Error rows_on_one_host(const core::Config& config);
// Connects this rank with the others.
std::unique_ptr<kernels::HostLink> open_link(const Launch& launch, const core::Config& config);

}  // namespace foresay::engine
