// samplers/builtin/switchable.h: built-in samplers written against the plugin SDK that some parameters switch off. One
// that is off is left out of the chain: it does not cut the candidates, and a device need not wait for the host.
#pragma once

#include <memory>
#include <span>

#include "samplers/plugin_stage.h"
#include "samplers/stage.h"

namespace foresay::samplers {

using IsOff = bool (*)(std::span<const ParameterValue> parameters);

// A factory of `sampler`, whose stages are idle where is_off() says so.
std::shared_ptr<const StageFactory> switchable(const foresay_sampler* sampler, IsOff is_off);

}  // namespace foresay::samplers
