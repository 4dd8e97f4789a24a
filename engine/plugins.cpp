#include "engine/plugins.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/error.h"
#include "core/config/diagnostic.h"
#include "plugins/host/isolated.h"
#include "samplers/parameter_file.h"

namespace foresay::engine {

namespace {

// Null: the sampler has no such parameter, or it is no file.
const samplers::ParameterSchema* file_parameter(const samplers::StageFactory& factory, const std::string& key) {
    const auto& all = factory.description().parameters;
    const auto found = std::ranges::find(all, key, &samplers::ParameterSchema::name);
    return found != all.end() && found->type == samplers::ParameterType::file ? &*found : nullptr;
}

// The option's value; of a file, its absolute path.
core::ConfigValue resolved(const samplers::StageFactory& factory, const std::string& key,
                           const core::PluginSpec::Option& option) {
    const auto* path = std::get_if<std::string>(&option.value);
    if (path == nullptr || path->empty() || file_parameter(factory, key) == nullptr) return option.value;
    return std::filesystem::absolute(option.directory / *path).lexically_normal().string();
}

// Throws Error where the option is not what the sampler declares.
void check_option(const samplers::StageFactory& factory, const std::string& key,
                  const core::PluginSpec::Option& option) {
    const core::ConfigValue value = resolved(factory, key, option);
    samplers::complete_parameters(factory.description(), {{key, value}});
    const auto* path = std::get_if<std::string>(&value);
    if (path != nullptr && !path->empty() && file_parameter(factory, key) != nullptr) {
        samplers::read_parameter_file(*path, factory.description().name + "." + key);
    }
}

// What is wrong with the options of a plugin, each at its place: its value, or its name if there is no such option.
void check_options(const samplers::StageFactory& factory, const core::PluginSpec& plugin,
                   std::vector<core::Diagnostic>& mistakes) {
    const auto& known = factory.description().parameters;
    for (const auto& [key, option] : plugin.options) {
        try {
            check_option(factory, key, option);
        } catch (const Error& problem) {
            const bool named = std::ranges::find(known, key, &samplers::ParameterSchema::name) != known.end();
            mistakes.push_back({named ? option.origin.of_value() : option.origin, problem.what(), option.line});
        }
    }
}

std::chrono::milliseconds deadline_of(const core::PluginSpec& plugin) {
    return std::chrono::milliseconds(std::get<std::int64_t>(plugin.deadline_ms.value));
}

}  // namespace

core::Config with_absolute_files(core::Config config, const PluginFactories& factories) {
    for (core::PluginSpec& plugin : config.plugins) {
        const auto factory = factories.find(plugin.name);
        if (factory == factories.end()) continue;
        for (auto& [key, option] : plugin.options) option.value = resolved(*factory->second, key, option);
    }
    return config;
}

LoadedPlugins load_plugins(const core::Config& config, const plugins::PluginOptions& options,
                           std::shared_ptr<plugins::PluginHost> host, bool every) {
    LoadedPlugins loaded;
    loaded.host = std::move(host);
    const auto unused = [&](const core::PluginSpec& plugin) {
        return !every && std::ranges::find(config.chain, plugin.name) == config.chain.end();
    };
    if (std::ranges::all_of(config.plugins, unused)) return loaded;
    if (!loaded.host) {
        loaded.host = std::make_shared<plugins::PluginHost>(options);
        loaded.notices = loaded.host->notices();
    }
    PluginFactories& factories = loaded.factories;
    std::vector<core::Diagnostic> mistakes;
    for (const core::PluginSpec& plugin : config.plugins) {
        if (unused(plugin)) continue;
        try {
            std::shared_ptr<const samplers::StageFactory> factory =
                plugin.path.empty() ? samplers::find_builtin(plugin.sampler_name()) : nullptr;
            const bool isolated = std::get<bool>(plugin.isolated.value);
            if (isolated && factory) {
                throw Error("'" + plugin.sampler_name() +
                            "' is built in, and only plugins can be isolated; leave "
                            "'isolated' out");
            }
            if (!factory) factory = loaded.host->load(plugin.sampler_name(), plugin.path);
            if (isolated) factory = plugins::isolate(std::move(factory), deadline_of(plugin));
            factories[plugin.name] = std::move(factory);
        } catch (const Error& problem) {
            throw Error(plugin.origin.text() + ": " + problem.what());
        }
        check_options(*factories[plugin.name], plugin, mistakes);
    }
    if (!mistakes.empty()) throw core::ConfigError(std::move(mistakes), 0);
    return loaded;
}

LoadedPlugins look_at_plugins(const core::Config& config, const plugins::PluginOptions& options) {
    for (const core::PluginSpec& plugin : config.plugins) {
        if (plugin.path.empty() && samplers::find_builtin(plugin.sampler_name())) continue;
        const std::filesystem::path path =
            plugin.path.empty() ? plugins::find_plugin(plugin.sampler_name(), options.folders) : plugin.path;
        if (path.empty()) {
            throw Error(plugin.origin.text() + ": plugin '" + plugin.sampler_name() +
                        "' was not found on the plugin path");
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
