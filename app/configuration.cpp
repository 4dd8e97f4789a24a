#include "app/configuration.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

#include "app/files.h"
#include "app/hub_models.h"
#include "core/config/layers.h"
#include "core/config/presets.h"

namespace foresay::app {

namespace {

// `--temperature` sets the temperature stage, and appends one if the chain has none.
void append_temperature(std::vector<core::ConfigLayer>& layers, const core::Config& config) {
    if (std::find(config.chain.begin(), config.chain.end(), "temperature") != config.chain.end()) return;
    std::vector<std::string> chain = config.chain;
    chain.push_back("temperature");
    layers.push_back(
        core::override_layer("sampling.chain=" + core::to_toml(core::ConfigValue(chain)), "--temperature"));
}

// `--json-schema` and `--grammar` put the grammar stage first: it sees the whole vocabulary.
void prepend_grammar(std::vector<core::ConfigLayer>& layers, const core::Config& config) {
    if (std::find(config.chain.begin(), config.chain.end(), "grammar") != config.chain.end()) return;
    std::vector<std::string> chain = config.chain;
    chain.insert(chain.begin(), "grammar");
    layers.push_back(
        core::override_layer("sampling.chain=" + core::to_toml(core::ConfigValue(chain)), "the option of a grammar"));
}

void append(std::vector<core::ConfigLayer>& layers, std::vector<core::ConfigLayer> more) {
    for (core::ConfigLayer& layer : more) layers.push_back(std::move(layer));
}

core::ConfigLayer draft_to_find() { return {core::Origin{}.place, "draft.model = \"auto\"", {}, false}; }

// Appends the layers of a file. Models come in pairs: a file with only a target leaves the draft to be found.
void append_file(std::vector<core::ConfigLayer>& layers, const std::filesystem::path& path) {
    std::vector<core::ConfigLayer> file = core::read_config_layers(path);
    const auto any_states = [&](const char* key) {
        return std::any_of(file.begin(), file.end(), [&](const auto& layer) { return core::states(layer, key); });
    };
    if (!layers.empty() && any_states("target.model") && !any_states("draft.model")) layers.push_back(draft_to_find());
    append(layers, std::move(file));
}

std::vector<std::string> whole_environment() {
    std::vector<std::string> all;
    for (char** variable = environ; variable != nullptr && *variable != nullptr; ++variable)
        all.emplace_back(*variable);
    return all;
}

}  // namespace

Configuration::Configuration(const Options& options) {
    need_target_ = options.shape.empty();
    fetch_models_ = options.fetch_models;
    if (!options.config_alone) {
        for (const auto& path : core::standard_config_files(core::read_variable)) {
            std::error_code ignored;
            if (std::filesystem::exists(path, ignored)) append_file(layers_, path);
        }
    }
    if (options.session_layer) layers_.push_back(*options.session_layer);
    if (!options.config.empty()) append_file(layers_, options.config);
    if (!options.config_alone) append(layers_, core::environment_layers(whole_environment()));
    append(layers_, options.overrides);
    // The bundled pair is the lowest layer, and only present if no other layer names a model.
    const bool named = std::any_of(layers_.begin(), layers_.end(),
                                   [](const auto& layer) { return core::states(layer, "target.model"); });
    if (!named && options.shape.empty()) {
        std::vector<core::ConfigLayer> bundled = core::read_config_layers(data_file("configs/python-coder.toml"));
        bundled_ = bundled.size();
        append(bundled, std::move(layers_));
        layers_ = std::move(bundled);
    }
    config_ = load(layers_);
    if (options.append_temperature) append_temperature(layers_, config_);
    if (options.append_temperature) config_ = load(layers_);
    if (options.prepend_grammar) prepend_grammar(layers_, config_);
    if (options.prepend_grammar) config_ = load(layers_);
}

core::Config Configuration::load(const std::vector<core::ConfigLayer>& layers) const {
    return engine::load_config(layers, need_target_, fetch_models_ ? find_or_pull_model : find_local_model);
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
    std::size_t bundled = bundled_;
    // Its context, draft, samplers and style are those of its own models; another model has the defaults, as if it had
    // been named from the start.
    if (bundled > 0 && core::states(layer, "target.model")) {
        layers.erase(layers.begin(), layers.begin() + static_cast<std::ptrdiff_t>(bundled));
        layers.insert(layers.begin(), draft_to_find());
        bundled = 0;
    }
    layers.push_back(std::move(layer));
    core::Config config = load(layers);
    layers_ = std::move(layers);
    config_ = std::move(config);
    bundled_ = bundled;
}

std::vector<std::string> unused_stages(const Configuration& configuration) {
    const core::Config& config = configuration.config();
    const std::vector<core::ConfigLayer>& layers = configuration.layers();
    // A preset, which sets a chain, lies right below the layer that names it.
    const auto chain = std::find_if(layers.rbegin(), layers.rend(), [](const auto& layer) {
        return core::states(layer, "sampling.chain") || core::states(layer, "sampling.preset");
    });
    const auto below_chain = [&](const core::Origin& origin) {
        return chain != layers.rend() &&
               std::any_of(chain + 1, layers.rend(), [&](const auto& layer) { return layer.place == origin.place; });
    };
    const auto unused = [&](const std::string& name) {
        return std::find(config.chain.begin(), config.chain.end(), name) == config.chain.end();
    };
    // A saved session keeps all settings, used or not, so it is no reason for a warning.
    const auto deliberate = [&](const core::Origin& origin) {
        return origin.place.starts_with(kSessionPlace) || origin.place.starts_with(core::kPresetPlace) ||
               below_chain(origin);
    };
    std::vector<std::string> sentences;
    const auto warn = [&](const core::Origin& origin, const std::string& what, const std::string& name,
                          const std::string& remedy) {
        sentences.push_back(origin.text() + ": " + what + " does nothing, because sampling.chain does not name '" +
                            name + "'; add it there or remove " + remedy);
    };
    for (const core::StageSchema& stage : stage_schemas()) {
        if (!unused(stage.name)) continue;
        for (const auto& [key, setting] : config.stage(stage.name)) {
            if (deliberate(setting.origin)) continue;
            warn(setting.origin, "[sampling." + stage.name + "]", stage.name, "the table");
            break;
        }
    }
    for (const core::PluginSpec& plugin : config.plugins) {
        if (!unused(plugin.name) || deliberate(plugin.origin)) continue;
        warn(plugin.origin, "the plugin", plugin.name, "its [[plugin]]");
    }
    return sentences;
}

}  // namespace foresay::app
