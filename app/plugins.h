// app/plugins.h: the plugins of a configuration, loaded.
//
// Errors:   Error with the place in the configuration that loads the plugin, and the host's sentence.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "plugins/host/plugin_host.h"
#include "samplers/stage.h"

namespace foresay::app {

using PluginFactories = std::map<std::string, std::shared_ptr<const samplers::StageFactory>>;

// A host that searches where this program's plugins lie.
std::unique_ptr<plugins::PluginHost> make_plugin_host();

// Every .so on this program's plugin path. Loads nothing and touches no crash marker.
std::vector<plugins::PluginFile> find_plugins();

struct LoadedPlugins {
    std::shared_ptr<plugins::PluginHost> host;  // keeps the crash marker as long as plugins run
    PluginFactories factories;
};

// Loads the plugins of `config` and checks their options against what they declare. `host`: one that there is already;
// a process has one at most.
LoadedPlugins load_plugins(const core::Config& config, std::shared_ptr<plugins::PluginHost> host = nullptr);

}  // namespace foresay::app
