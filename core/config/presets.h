// core/config/presets.h: named settings of the samplers. A layer that states `sampling.preset = "NAME"` has the preset
// right below it: what the layer states itself goes before the preset, and the preset before all lower layers.
//
// The presets of configs/presets (`code`, `exact`, `prose`) are built in. One's own are files NAME.toml in the folder
// presets/ beside the user's config.toml, and may have the name of a built-in one.
//
// Errors:   ConfigError with file, line and column: a preset that does not exist, one whose file is not TOML, or one
//           that sets something else than samplers.
#pragma once

#include <filesystem>
#include <span>
#include <string_view>
#include <vector>

#include "core/config/config.h"
#include "core/config/layers.h"

namespace foresay::core {

// Prefix of the places (in messages) of a preset's settings.
inline constexpr std::string_view kPresetPlace = "preset ";

// The folders with presets of one's own: the first one that has a preset counts.
std::vector<std::filesystem::path> preset_folders(const Variables& variables);

// `layers` with those of the presets that they name. A preset's chain keeps the stages of plugins that the chain of the
// layers below begins with or has anywhere: they go first, because they are somebody's rules. `stages`: those that are
// built in.
std::vector<ConfigLayer> with_presets(std::vector<ConfigLayer> layers, std::span<const std::filesystem::path> folders,
                                      std::span<const StageSchema> stages);

}  // namespace foresay::core
