#include "app/plugin_settings.h"

#include <algorithm>
#include <optional>

#include "app/plugin_path.h"

namespace foresay::app {

std::string chain_toml(const std::vector<std::string>& chain) {
    return "sampling.chain = " + core::to_toml(core::ConfigValue(chain)) + "\n";
}

std::string plugins_toml(const std::vector<core::PluginSpec>& plugins) {
    std::string out = "plugin = [";
    for (const core::PluginSpec& plugin : plugins) {
        out += "{name = " + core::to_toml(core::ConfigValue(plugin.name));
        if (!plugin.sampler.empty()) out += ", sampler = " + core::to_toml(core::ConfigValue(plugin.sampler));
        if (!plugin.path.empty()) out += ", path = " + core::to_toml(core::ConfigValue(plugin.path.string()));
        for (std::size_t i = 0; i < core::plugin_keys().size(); ++i) {
            const core::Setting& setting = *plugin.settings()[i];
            if (!setting.origin.is_default())
                out += ", " + core::plugin_keys()[i].key + " = " + core::to_toml(setting.value);
        }
        std::string options;
        for (const auto& [key, setting] : plugin.options) {
            options += (options.empty() ? "" : ", ") + core::to_toml(core::ConfigValue(key)) + " = " +
                       core::to_toml(setting.value);
        }
        out += options.empty() ? "}, " : ", options = {" + options + "}}, ";
    }
    return out + "]\n";
}

std::vector<std::string> leave_out_barred_plugins(Configuration& configuration) {
    std::vector<std::string> sentences;
    const core::Config& config = configuration.config();
    if (config.plugins.empty()) return sentences;
    const plugins::PluginHost host = looking_plugin_host();
    std::vector<core::PluginSpec> kept;
    std::vector<std::string> chain = config.chain;
    for (const core::PluginSpec& plugin : config.plugins) {
        const std::optional<plugins::Bar> bar = host.bar(plugin.sampler_name(), plugin.path);
        if (!bar) {
            kept.push_back(plugin);
            continue;
        }
        std::erase(chain, plugin.name);
        std::string back = plugin.path.empty() ? plugin.name : plugin.path.string();
        if (!plugin.path.empty() && plugin.path.stem() != plugin.name) back += " " + plugin.name;
        sentences.push_back("the chain goes on without '" + plugin.name + "', whose plugin is " +
                            plugins::PluginHost::bar_text(*bar) + "; to bring it back: /plugin free " +
                            bar->path.stem().string() + ", /plugin load " + back);
    }
    if (!sentences.empty()) configuration.set_text(plugins_toml(kept) + chain_toml(chain), "without barred plugins");
    return sentences;
}

}  // namespace foresay::app
