// speculative/mode_name.h: the names of the modes of speculation, as configurations and statistics have them.
#pragma once

#include <string_view>

#include "core/config/config.h"

namespace foresay::speculative {

inline std::string_view mode_name(core::SpeculationMode mode) {
    switch (mode) {
        case core::SpeculationMode::automatic:
            return "auto";
        case core::SpeculationMode::off:
            return "off";
        case core::SpeculationMode::fixed:
            return "fixed";
    }
    return "";
}

}  // namespace foresay::speculative
