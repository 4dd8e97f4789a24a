#include "app/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "app/files.h"
#include "core/config/layers.h"

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
    schema.parameters.push_back(core::on_error_key());
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

void append(std::vector<core::ConfigLayer>& layers, std::vector<core::ConfigLayer> more) {
    for (core::ConfigLayer& layer : more) layers.push_back(std::move(layer));
}

// The layers of a file. Models come as a pair: a file that names a target alone leaves no draft of the files below.
void append_file(std::vector<core::ConfigLayer>& layers, const std::filesystem::path& path) {
    std::vector<core::ConfigLayer> file = core::read_config_layers(path);
    const auto any_states = [&](const char* key) {
        return std::any_of(file.begin(), file.end(), [&](const auto& layer) { return core::states(layer, key); });
    };
    if (!layers.empty() && any_states("target.model") && !any_states("draft.model")) {
        layers.push_back({core::Origin{}.place, "draft.model = \"\"", {}, false});
    }
    append(layers, std::move(file));
}

std::optional<std::string> read_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<std::string> whole_environment() {
    std::vector<std::string> all;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        all.emplace_back(*variable);
    return all;
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
    // A file that is checked is checked by itself, whoever checks it.
    if (options.command != Command::config_check) {
        for (const auto& path : core::standard_config_files(read_variable)) {
            std::error_code ignored;
            if (std::filesystem::exists(path, ignored)) append_file(layers_, path);
        }
    }
    if (options.session_layer) layers_.push_back(*options.session_layer);
    if (!options.config.empty()) append_file(layers_, options.config);
    if (options.command != Command::config_check) append(layers_, core::environment_layers(whole_environment()));
    append(layers_, option_layers(options));
    // The bundled pair lies below everything and is there only when nobody names a model.
    const bool named = std::any_of(layers_.begin(), layers_.end(),
                                   [](const auto& layer) { return core::states(layer, "target.model"); });
    if (!named && options.config.empty() && options.shape.empty()) {
        std::vector<core::ConfigLayer> bundled = core::read_config_layers(data_file("configs/python-coder.toml"));
        append(bundled, std::move(layers_));
        layers_ = std::move(bundled);
    }
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
    add(core::override_layer(assignment, place));
}

void Configuration::set_text(const std::string& toml, const std::string& place) {
    std::error_code ignored;
    add({place, toml, std::filesystem::current_path(ignored), true});
}

void Configuration::add(core::ConfigLayer layer) {
    std::vector<core::ConfigLayer> layers = layers_;
    layers.push_back(std::move(layer));
    core::Config config = load(layers);
    layers_ = std::move(layers);
    config_ = std::move(config);
}

std::vector<std::string> unused_stages(const Configuration& configuration) {
    const core::Config& config = configuration.config();
    const std::vector<core::ConfigLayer>& layers = configuration.layers();
    const auto chain = std::find_if(layers.rbegin(), layers.rend(),
                                    [](const auto& layer) { return core::states(layer, "sampling.chain"); });
    const auto below_chain = [&](const core::Setting& setting) {
        return chain != layers.rend() && std::any_of(chain + 1, layers.rend(), [&](const auto& layer) {
                   return layer.place == setting.origin.place;
               });
    };
    std::vector<std::string> sentences;
    for (const core::StageSchema& stage : stage_schemas()) {
        if (std::find(config.chain.begin(), config.chain.end(), stage.name) != config.chain.end()) continue;
        for (const auto& [key, setting] : config.stage(stage.name)) {
            // A saved session keeps what was once stated; nobody has to be told again.
            if (setting.origin.place.starts_with(kSessionPlace) || below_chain(setting)) continue;
            sentences.push_back(setting.origin.text() + ": [sampling." + stage.name + "] does nothing, because " +
                                "sampling.chain does not name '" + stage.name + "'; add it there or remove the table");
            break;
        }
    }
    return sentences;
}

namespace {

samplers::StageSpec::OnError on_error(const core::Setting& setting) {
    using OnError = samplers::StageSpec::OnError;
    return std::get<std::string>(setting.value) == "skip" ? OnError::skip : OnError::stop;
}

}  // namespace

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
                stage.on_error = on_error(spec->on_error);
                for (const auto& [key, setting] : spec->options) stage.parameters.emplace_back(key, setting.value);
            }
        } else {
            for (const auto& [key, setting] : config.stage(name)) {
                if (key == core::on_error_key().key) {
                    stage.on_error = on_error(setting);
                } else {
                    stage.parameters.emplace_back(key, setting.value);
                }
            }
        }
        chain.push_back(std::move(stage));
    }
    return chain;
}

}  // namespace foresay::app
