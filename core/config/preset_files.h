// core/config/preset_files.h: the presets of configs/presets, as the build has embedded them.
//
// Threads:  immutable.
#pragma once

#include <span>
#include <string_view>

namespace foresay::core {

struct PresetFile {
    std::string_view name;  // "code.toml"
    std::string_view text;
};

std::span<const PresetFile> preset_files();

}  // namespace foresay::core
