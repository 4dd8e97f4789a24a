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
    for (const core::PluginSpec& plugin : config.plugins) {
        const std::filesystem::path path =
            plugin.path.empty() ? plugins::find_plugin(plugin.name, options.folders) : plugin.path;
        if (path.empty()) {
            throw Error(plugin.origin.text() + ": plugin '" + plugin.name + "' was not found on the plugin path");
        }
        const plugins::PluginFile file = plugins::PluginHost::inspect(path);
        if (!file.problem.empty()) {
            throw Error(plugin.origin.text() + ": plugin '" + file.path.string() +
                        "' cannot be loaded: " + file.problem);
        }
    }
    return {};
}

}  // namespace foresay::engine
