#include "app/plugins.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "base/error.h"

namespace foresay::app {

std::unique_ptr<plugins::PluginHost> make_plugin_host() {
    std::error_code ignored;
    const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
    plugins::PluginOptions options;
    options.folders = plugins::default_folders(program);
    return std::make_unique<plugins::PluginHost>(std::move(options));
}

PluginFactories load_plugins(const core::Config& config) {
    PluginFactories factories;
    if (config.plugins.empty()) return factories;
    const auto host = make_plugin_host();
    for (const core::PluginSpec& plugin : config.plugins) {
        try {
            factories[plugin.name] = host->load(plugin.name, plugin.path);
            // The options against what the plugin declares, each complaint at the plugin's place.
            samplers::Parameters stated;
            for (const auto& [key, setting] : plugin.options) stated.emplace_back(key, setting.value);
            samplers::complete_parameters(factories[plugin.name]->description(), stated);
        } catch (const Error& problem) {
            throw Error(plugin.origin.text() + ": " + problem.what());
        }
    }
    return factories;
}

}  // namespace foresay::app
