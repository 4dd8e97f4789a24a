#include "app/configuration.h"

#include <algorithm>
#include <utility>

#include "app/files.h"

namespace foresay::app {

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
    }
    return core::ValueType::any;
}

core::StageSchema schema_of(const samplers::StageDescription& description) {
    core::StageSchema schema{description.name, description.doc, {}};
    for (const samplers::ParameterSchema& parameter : description.parameters) {
        schema.parameters.push_back({parameter.name, value_type(parameter.type), parameter.fallback, parameter.min,
                                     parameter.max, parameter.choices, parameter.doc});
    }
    return schema;
}

// `--temperature` sets the temperature stage, and appends one if the chain has none.
void append_temperature(std::vector<core::ConfigLayer>& layers, const core::Config& config) {
    if (std::find(config.chain.begin(), config.chain.end(), "temperature") != config.chain.end()) return;
    std::vector<std::string> chain = config.chain;
    chain.push_back("temperature");
    layers.push_back(
        core::override_layer("sampling.chain=" + core::to_toml(core::ConfigValue(chain)), "--temperature"));
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

Configuration::Configuration(const Options& options) {
    need_target_ = options.shape.empty();
    const bool named = !options.config.empty() || !options.model.empty() || !options.shape.empty();
    if (!options.config.empty()) {
        layers_.push_back(core::read_config_file(options.config));
    } else if (!named) {
        layers_.push_back(core::read_config_file(data_file("configs/python-coder.toml")));
    }
    for (core::ConfigLayer& layer : option_layers(options)) layers_.push_back(std::move(layer));
    config_ = load(layers_);
    if (options.command != Command::bench && !options.temperatures.empty()) {
        append_temperature(layers_, config_);
        config_ = load(layers_);
    }
}

core::Config Configuration::load(const std::vector<core::ConfigLayer>& layers) const {
    core::ConfigRequest request;
    request.layers = layers;
    request.stages = stage_schemas();
    request.need_target = need_target_;
    return core::load_config(request);
}

void Configuration::set(const std::string& assignment, const std::string& place) {
    std::vector<core::ConfigLayer> layers = layers_;
    layers.push_back(core::override_layer(assignment, place));
    core::Config config = load(layers);
    layers_ = std::move(layers);
    config_ = std::move(config);
}

samplers::ChainSpec chain_spec(const core::Config& config, const PluginFactories& plugins) {
    samplers::ChainSpec chain;
    for (const std::string& name : config.chain) {
        samplers::StageSpec stage;
        stage.name = name;
        const auto plugin = plugins.find(name);
        if (plugin != plugins.end()) {
            stage.factory = plugin->second;
            const auto spec = std::find_if(config.plugins.begin(), config.plugins.end(),
                                           [&](const core::PluginSpec& loaded) { return loaded.name == name; });
            if (spec != config.plugins.end()) {
                for (const auto& [key, setting] : spec->options) stage.parameters.emplace_back(key, setting.value);
            }
        } else {
            for (const auto& [key, setting] : config.stage(name)) stage.parameters.emplace_back(key, setting.value);
        }
        chain.push_back(std::move(stage));
    }
    return chain;
}

}  // namespace foresay::app
