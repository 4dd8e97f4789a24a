#include "engine/plugins.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"

namespace foresay::engine {

LoadedPlugins load_plugins(const core::Config& config, const plugins::PluginOptions& options,
                           std::shared_ptr<plugins::PluginHost> host) {
    LoadedPlugins loaded;
    loaded.host = std::move(host);
    const auto unused = [&](const core::PluginSpec& plugin) {
        return std::ranges::find(config.chain, plugin.name) == config.chain.end();
    };
    if (std::ranges::all_of(config.plugins, unused)) return loaded;
    if (!loaded.host) {
        loaded.host = std::make_shared<plugins::PluginHost>(options);
        loaded.notices = loaded.host->notices();
    }
    PluginFactories& factories = loaded.factories;
    for (const core::PluginSpec& plugin : config.plugins) {
        if (unused(plugin)) continue;
        try {
            factories[plugin.name] = loaded.host->load(plugin.name, plugin.path);
        } catch (const Error& problem) {
            throw Error(plugin.origin.text() + ": " + problem.what());
        }
        // Option by option, so that an error names the option's place.
        for (const auto& [key, setting] : plugin.options) {
            try {
                samplers::complete_parameters(factories[plugin.name]->description(), {{key, setting.value}});
            } catch (const Error& problem) {
                throw Error(setting.origin.text() + ": " + problem.what());
            }
        }
    }
    return loaded;
}

LoadedPlugins look_at_plugins(const core::Config& config, const plugins::PluginOptions& options) {
    if (config.plugins.empty()) return {};
    plugins::PluginOptions looking = options;
    looking.marker.clear();  // nothing runs
    const plugins::PluginHost host(looking);
    const std::vector<plugins::PluginFile> known = host.scan();
    for (const core::PluginSpec& plugin : config.plugins) {
        const auto found = std::ranges::find(known, plugin.name, &plugins::PluginFile::name);
        if (plugin.path.empty() && found == known.end()) {
            throw Error(plugin.origin.text() + ": plugin '" + plugin.name + "' was not found on the plugin path");
        }
        const plugins::PluginFile file = plugin.path.empty() ? *found : plugins::PluginHost::inspect(plugin.path);
        if (!file.problem.empty()) {
            throw Error(plugin.origin.text() + ": plugin '" + file.path.string() +
                        "' cannot be loaded: " + file.problem);
        }
    }
    return {};
}

}  // namespace foresay::engine
