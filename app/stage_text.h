// app/stage_text.h: describes a sampler stage for readers.
#pragma once

#include <string>

#include "samplers/stage.h"

namespace foresay::app {

// What the stage does, what its state is, and its parameters, a line each. Texts of plugins are as the plugin has them.
std::string describe_stage(const samplers::StageDescription& stage);

}  // namespace foresay::app
