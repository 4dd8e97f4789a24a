// engine/plugins.h: the sampler plugins of a configuration, loaded.
//
// Errors:   Error with the place in the configuration that loads the plugin, and the host's sentence. For the options
// of
//           all plugins core::ConfigError.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "plugins/host/plugin_host.h"
#include "samplers/stage.h"

namespace foresay::engine {

using PluginFactories = std::map<std::string, std::shared_ptr<const samplers::StageFactory>>;

struct LoadedPlugins {
    std::shared_ptr<plugins::PluginHost> host;  // null: no plugin was ever loaded
    PluginFactories factories;
    std::vector<std::string> notices;  // of a host that was made now, for the user
};

// Loads the plugins of `config` that its chain names, or every one, and checks their options against what they declare.
// `host` is the engine's current one; null: a host is made with `options` when a plugin needs it. The host keeps the
// crash marker while plugins run.
LoadedPlugins load_plugins(const core::Config& config, const plugins::PluginOptions& options,
                           std::shared_ptr<plugins::PluginHost> host = nullptr, bool every = false);

// `config` with the files that options of its plugins name as absolute paths.
core::Config with_absolute_files(core::Config config, const PluginFactories& factories);

// Checks that the plugins of `config` can be found and look like plugins. Loads none, so there are no factories.
LoadedPlugins look_at_plugins(const core::Config& config, const plugins::PluginOptions& options);

}  // namespace foresay::engine
