// app/plugin_settings.h: changes to the plugins and the chain of a configuration.
//
// Errors:   core::ConfigError, as Configuration.
#pragma once

#include <string>
#include <vector>

#include "app/configuration.h"

namespace foresay::app {

// "sampling.chain = [...]"
std::string chain_toml(const std::vector<std::string>& chain);
// All plugins as one key, because a layer that sets `plugin` replaces the list of the layers below.
std::string plugins_toml(const std::vector<core::PluginSpec>& plugins);

// Takes the plugins that have crashed, and are barred, out of the configuration and its chain, so that a conversation
// can go on without them. Returns a sentence for each.
std::vector<std::string> leave_out_barred_plugins(Configuration& configuration);

}  // namespace foresay::app
