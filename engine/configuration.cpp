#include "engine/configuration.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/config/diagnostic.h"
#include "core/config/layers.h"
#include "core/config/presets.h"
#include "speculative/drafters/drafters.h"

namespace foresay::engine {

namespace {

core::ValueType value_type(samplers::ParameterType type) {
    switch (type) {
        case samplers::ParameterType::boolean:
            return core::ValueType::boolean;
        case samplers::ParameterType::integer:
            return core::ValueType::integer;
        case samplers::ParameterType::real:
            return core::ValueType::real;
        case samplers::ParameterType::text:
            return core::ValueType::text;
        case samplers::ParameterType::choice:
            return core::ValueType::choice;
        case samplers::ParameterType::text_list:
            return core::ValueType::text_list;
        case samplers::ParameterType::integer_list:
            return core::ValueType::integer_list;
        case samplers::ParameterType::real_list:
            return core::ValueType::real_list;
        case samplers::ParameterType::file:
            return core::ValueType::path;
    }
    return core::ValueType::any;
}

core::StageSchema schema_of(const samplers::StageDescription& description) {
    core::StageSchema schema{description.name, description.doc, {}};
    for (const samplers::ParameterSchema& parameter : description.parameters) {
        schema.parameters.push_back({parameter.name, value_type(parameter.type), parameter.fallback, parameter.min,
                                     parameter.max, parameter.choices, parameter.doc});
    }
    schema.parameters.push_back(core::on_error_key());
    return schema;
}

samplers::StageSpec::OnError on_error(const core::Setting& setting) {
    using OnError = samplers::StageSpec::OnError;
    return std::get<std::string>(setting.value) == "skip" ? OnError::skip : OnError::stop;
}

// Where `config` states what `problem` is about: the parameter, or else the plugin. Nothing: nowhere.
std::optional<core::Diagnostic> place_of(const core::Config& config, const samplers::StageError& problem) {
    const auto plugin = std::ranges::find(config.plugins, problem.stage(), &core::PluginSpec::name);
    if (plugin != config.plugins.end()) {
        const auto option =
            std::ranges::find(plugin->options, problem.parameter(), [](const auto& stated) { return stated.first; });
        if (option == plugin->options.end()) return core::Diagnostic{plugin->origin, problem.what(), {}};
        return core::Diagnostic{option->second.origin.of_value(), problem.what(), option->second.line};
    }
    const auto setting = config.settings().find("sampling." + problem.stage() + "." + problem.parameter());
    if (setting == config.settings().end() || setting->second.origin.is_default()) return std::nullopt;
    return core::Diagnostic{setting->second.origin.of_value(), problem.what(), {}};
}

}  // namespace

const std::vector<core::StageSchema>& stage_schemas() {
    static const std::vector<core::StageSchema> schemas = [] {
        std::vector<core::StageSchema> all;
        for (const auto& factory : samplers::builtin_factories()) all.push_back(schema_of(factory->description()));
        return all;
    }();
    return schemas;
}

const std::vector<core::SourceSchema>& source_schemas() {
    static const std::vector<core::SourceSchema> schemas = [] {
        std::vector<core::SourceSchema> all;
        for (const auto& kind : speculative::drafter_kinds()) all.push_back({kind.name, kind.doc, kind.aliases});
        return all;
    }();
    return schemas;
}

const core::KeySpec* find_key(const std::string& key) {
    static const core::KeySpec sources = core::sources_key(source_schemas());
    if (key == sources.key) return &sources;
    for (const core::StageSchema& stage : stage_schemas()) {
        for (const core::KeySpec& parameter : stage.parameters) {
            if (key == "sampling." + stage.name + "." + parameter.key) return &parameter;
        }
    }
    return core::find_key(key);
}

core::Config load_config(std::vector<core::ConfigLayer> layers, bool need_target, core::FindModel find_model) {
    core::ConfigRequest request;
    request.find_model = std::move(find_model);
    request.stages = stage_schemas();
    request.layers = core::with_presets(std::move(layers), core::preset_folders(core::read_variable), request.stages);
    request.sources = source_schemas();
    request.need_target = need_target;
    return core::load_config(request);
}

core::Config load_config(const std::filesystem::path& file, std::span<const std::string> settings) {
    std::vector<core::ConfigLayer> layers = core::read_config_layers(file);
    for (const std::string& setting : settings) layers.push_back(core::override_layer(setting, setting));
    return load_config(std::move(layers));
}

samplers::StageSpec stage_spec(const core::Config& config, const PluginFactories& plugins, const std::string& name) {
    samplers::StageSpec stage;
    stage.name = name;
    const auto plugin = plugins.find(name);
    if (plugin != plugins.end()) {
        stage.factory = plugin->second;
        const auto spec = std::ranges::find(config.plugins, name, &core::PluginSpec::name);
        if (spec != config.plugins.end()) {
            stage.on_error = on_error(spec->on_error);
            for (const auto& [key, setting] : spec->options) stage.parameters.emplace_back(key, setting.value);
        }
        return stage;
    }
    for (const auto& [key, setting] : config.stage(name)) {
        if (key == core::on_error_key().key) {
            stage.on_error = on_error(setting);
        } else {
            stage.parameters.emplace_back(key, setting.value);
        }
    }
    return stage;
}

samplers::ChainSpec chain_spec(const core::Config& config, const PluginFactories& plugins) {
    samplers::ChainSpec chain;
    for (const std::string& name : config.chain) chain.push_back(stage_spec(config, plugins, name));
    return chain;
}

samplers::Chain make_chain(const core::Config& config, const PluginFactories& plugins,
                           const samplers::Vocabulary& vocabulary) {
    try {
        return samplers::Chain(chain_spec(config, plugins), vocabulary);
    } catch (const samplers::StageError& problem) {
        auto mistake = place_of(config, problem);
        if (!mistake) throw;
        throw core::ConfigError({std::move(*mistake)}, 0);
    }
}

}  // namespace foresay::engine
