// app/plugin_path.h: the plugin path of this program, and the place of its crash marker.
#pragma once

#include <memory>
#include <vector>

#include "plugins/host/plugin_host.h"

namespace foresay::app {

// The plugin path of this program. With `marker`, crashes of plugins are recorded in the user's state folder.
plugins::PluginOptions plugin_options(bool marker = true);

std::unique_ptr<plugins::PluginHost> make_plugin_host();

// Every .so on this program's plugin path. Loads nothing and touches no crash marker.
std::vector<plugins::PluginFile> find_plugins();

}  // namespace foresay::app
