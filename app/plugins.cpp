#include "app/plugins.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "app/files.h"
#include "base/error.h"

namespace foresay::app {

namespace {

plugins::PluginOptions plugin_path() {
    std::error_code ignored;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    plugins::PluginOptions options;
    options.folders = plugins::default_folders(program);
    return options;
}

}  // namespace

std::vector<plugins::PluginFile> find_plugins() { return plugins::PluginHost(plugin_path()).scan(); }

std::unique_ptr<plugins::PluginHost> make_plugin_host() {
    plugins::PluginOptions options = plugin_path();
    const std::filesystem::path state = state_folder();
    if (!state.empty()) options.marker = state / "plugins";
    return std::make_unique<plugins::PluginHost>(std::move(options));
}

LoadedPlugins load_plugins(const core::Config& config, std::shared_ptr<plugins::PluginHost> host) {
    LoadedPlugins loaded;
    loaded.host = std::move(host);
    if (config.plugins.empty()) return loaded;
    if (!loaded.host) loaded.host = make_plugin_host();
    PluginFactories& factories = loaded.factories;
    for (const core::PluginSpec& plugin : config.plugins) {
        try {
            factories[plugin.name] = loaded.host->load(plugin.name, plugin.path);
        } catch (const Error& problem) {
            throw Error(plugin.origin.text() + ": " + problem.what());
        }
        // The options against what the plugin declares, each complaint at the option's place.
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

}  // namespace foresay::app
