#include "core/config/config.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"
#include "core/config/input_file.h"
#include "core/config/loader.h"

namespace foresay::core {

namespace fs = std::filesystem;

namespace {

// One line of to_toml(): `key = value`, and its origin.
std::string line(const std::string& key, const Setting& setting, bool origins) {
    std::string out = key + " = " + to_toml(setting.value);
    if (origins) out += std::string(out.size() < 44 ? 44 - out.size() : 1, ' ') + "# " + setting.origin.text();
    return out + "\n";
}

const StageSchema* find_stage(std::span<const StageSchema> stages, const std::string& name) {
    const auto found =
        std::find_if(stages.begin(), stages.end(), [&](const auto& stage) { return stage.name == name; });
    return found == stages.end() ? nullptr : &*found;
}

// The parameters of a sampler stage: all of them if the chain names it, else only those that a layer sets.
std::string stage_text(const Config& config, const StageSchema& stage, bool in_chain, bool origins) {
    std::string out;
    const auto stated = config.stage(stage.name);
    for (const KeySpec& spec : stage.parameters) {
        const auto found = stated.find(spec.key);
        if (found != stated.end()) out += line(spec.key, found->second, origins);
        if (found == stated.end() && in_chain) out += line(spec.key, {spec.fallback, Origin{}}, origins);
    }
    if (out.empty()) return "";
    return "\n[sampling." + stage.name + "]" + (in_chain || !origins ? "" : "  # not in the chain") + "\n" + out;
}

std::string template_args_text(const Config& config, bool origins) {
    std::string out;
    for (const auto& [name, setting] : config.template_args()) out += line(name, setting, origins);
    return out.empty() ? out : "\n[" + std::string(kTemplateArgs) + "]\n" + out;
}

std::string plugin_text(const PluginSpec& plugin, bool origins) {
    std::string out = "\n[[plugin]]\n" + line("name", {plugin.name, plugin.origin}, origins);
    if (!plugin.sampler.empty()) out += line("sampler", {plugin.sampler, plugin.origin}, origins);
    if (!plugin.path.empty()) out += line("path", {plugin.path.string(), plugin.origin}, origins);
    for (std::size_t i = 0; i < plugin_keys().size(); ++i) {
        const Setting& setting = *plugin.settings()[i];
        if (i == 0 || !setting.origin.is_default()) out += line(plugin_keys()[i].key, setting, origins);
    }
    if (!plugin.options.empty()) out += "[plugin.options]\n";
    for (const auto& [key, setting] : plugin.options) out += line(key, setting, origins);
    return out;
}

// Whether `value` needs quotes to be a TOML value of `key`.
bool needs_quotes(const std::string& key, std::string_view value) {
    if (value.starts_with('"') || value.starts_with('\'')) return false;
    if (const KeySpec* spec = find_key(key)) {
        if (spec->type == ValueType::text || spec->type == ValueType::choice || spec->type == ValueType::path)
            return true;
    }
    Diagnostic ignored;
    return !parse_toml("value = " + std::string(value), "", ignored);
}

std::string_view trim(std::string_view text) {
    const auto first = text.find_first_not_of(" \t\r\n");
    if (first == std::string_view::npos) return {};
    return text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

}  // namespace

const Setting& Config::setting(const std::string& key) const {
    const auto found = settings_.find(key);
    check(found != settings_.end(), "no such key in the configuration");
    return found->second;
}

std::map<std::string, Setting> Config::stage(std::string_view stage) const {
    return table("sampling." + std::string(stage) + ".");
}

std::map<std::string, Setting> Config::template_args() const { return table(std::string(kTemplateArgs) + "."); }

std::map<std::string, Setting> Config::table(const std::string& prefix) const {
    std::map<std::string, Setting> out;
    for (auto it = settings_.lower_bound(prefix); it != settings_.end() && it->first.starts_with(prefix); ++it) {
        out[it->first.substr(prefix.size())] = it->second;
    }
    return out;
}

bool names_hub_model(std::string_view text) { return text.starts_with("hf:"); }

Config load_config(const ConfigRequest& request) {
    ConfigLoader loader(request);
    for (const ConfigLayer& layer : request.layers) loader.apply(layer);
    return loader.finish();
}

fs::path directory_of(const fs::path& path) {
    std::error_code problem;
    if (!fs::is_symlink(path, problem)) return fs::absolute(path, problem).parent_path();
    const fs::path file = fs::canonical(path, problem);
    return problem ? fs::current_path(problem) : file.parent_path();  // /dev/fd/N of a pipe leads to no file
}

ConfigLayer read_config_file(const fs::path& path) {
    const std::string name = path.string();
    std::error_code problem;
    if (fs::is_directory(path, problem) && fs::exists(path / "config.json", problem))
        throw Error(name + ": is a model, not a configuration file; write --model " + name);
    if (fs::is_directory(path, problem))
        throw Error(name + ": is a directory, not a configuration file; name a .toml file in it");
    InputFile file(path);
    if (!file.problem().empty()) throw Error(name + ": cannot read the configuration: " + file.problem());
    ConfigLayer layer{name, {}, directory_of(path), false};
    const auto most = static_cast<std::size_t>(kMaxConfigBytes) + 1;
    layer.text.resize(most);
    std::size_t size = 0;
    while (size < most) {
        const ssize_t got = ::read(file.descriptor(), layer.text.data() + size, most - size);
        if (got < 0) throw Error(name + ": cannot read the configuration: " + std::strerror(errno));
        if (got == 0) break;
        size += static_cast<std::size_t>(got);
    }
    layer.text.resize(size);
    if (layer.text.starts_with("GGUF")) {
        throw Error(name + ": is a model, not a configuration file; write --model " + name);
    }
    if (static_cast<std::int64_t>(layer.text.size()) > kMaxConfigBytes) {
        throw Error(name + ": larger than " + std::to_string(kMaxConfigBytes) +
                    " bytes; this is not a configuration file");
    }
    return layer;
}

ConfigLayer override_layer(std::string_view assignment, const std::string& place) {
    const auto equals = assignment.find('=');
    const std::string key(trim(assignment.substr(0, equals)));
    if (equals == std::string_view::npos || key.empty()) {
        throw UsageError(place + ": '" + std::string(assignment) + "' is not an assignment; write key.path=value");
    }
    const std::string_view value = trim(assignment.substr(equals + 1));
    std::error_code ignored;
    ConfigLayer layer{place, key + " = ", fs::current_path(ignored), true};
    layer.text += needs_quotes(key, value) ? to_toml(ConfigValue(std::string(value))) : std::string(value);
    return layer;
}

std::string to_toml(const Config& config, std::span<const StageSchema> stages, bool origins) {
    std::string out;
    std::string table;
    for (const KeySpec& spec : core_schema()) {
        const auto dot = spec.key.rfind('.');
        if (spec.key.substr(0, dot) != table) {
            table = spec.key.substr(0, dot);
            out += (out.empty() ? "[" : "\n[") + table + "]\n";
        }
        // A preset may have changed when this is read again; what it set is stated.
        if (!origins && spec.key == "sampling.preset") continue;
        out += line(spec.key.substr(dot + 1), config.setting(spec.key), origins);
    }
    for (const std::string& name : config.chain) {
        if (const StageSchema* schema = find_stage(stages, name)) out += stage_text(config, *schema, true, origins);
    }
    // Keep the parameters of stages outside the chain: it may name them later.
    for (const StageSchema& schema : stages) {
        if (std::find(config.chain.begin(), config.chain.end(), schema.name) == config.chain.end()) {
            out += stage_text(config, schema, false, origins);
        }
    }
    out += template_args_text(config, origins);
    for (const PluginSpec& plugin : config.plugins) out += plugin_text(plugin, origins);
    return out;
}

}  // namespace foresay::core
