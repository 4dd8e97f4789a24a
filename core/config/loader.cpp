#include "core/config/loader.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "core/config/convert.h"
#include "core/config/layers.h"
#include "core/config/nearest.h"
#include "core/config/parts.h"
#include "kernels/kv_names.h"

namespace foresay::core {

namespace fs = std::filesystem;
using Kind = TomlNode::Kind;

namespace {

constexpr int kMaxPlugins = 64;
constexpr const char* kModelKeys[] = {"target.model", "draft.model"};

// The names that may follow `prefix` in a dotted key: those of the schema, and `more`.
std::vector<std::string> parts_after(const std::string& prefix, std::vector<std::string> more) {
    const std::string begin = prefix.empty() ? "" : prefix + ".";
    for (const KeySpec& spec : core_schema()) {
        if (!spec.key.starts_with(begin)) continue;
        const std::string rest = spec.key.substr(begin.size());
        const std::string part = rest.substr(0, rest.find('.'));
        if (std::find(more.begin(), more.end(), part) == more.end()) more.push_back(part);
    }
    return more;
}

bool is_table_name(const std::string& key) {
    const auto schema = core_schema();
    return std::any_of(schema.begin(), schema.end(),
                       [&](const KeySpec& spec) { return spec.key.starts_with(key + "."); });
}

// Replaces every `alias` in a text or a list of texts by `name`.
void replace(ConfigValue& value, const std::string& alias, const std::string& name) {
    if (auto* text = std::get_if<std::string>(&value); text != nullptr && *text == alias) *text = name;
    if (auto* list = std::get_if<std::vector<std::string>>(&value)) std::ranges::replace(*list, alias, name);
}

void put_first(std::vector<std::string>& chain, std::vector<std::string> stages) {
    std::erase_if(stages, [&](const auto& stage) { return std::ranges::find(chain, stage) != chain.end(); });
    chain.insert(chain.begin(), stages.begin(), stages.end());
}

// A name from a file, short enough for a message.
std::string shortened(const std::string& name) {
    constexpr std::size_t kMost = 64;
    return name.size() <= kMost ? name : name.substr(0, kMost) + "...";
}

std::string in_table(const std::string& prefix) { return prefix.empty() ? "" : " in [" + prefix + "]"; }

}  // namespace

ConfigLoader::ConfigLoader(const ConfigRequest& request)
    : request_(request), sources_key_(sources_key(request.sources)) {
    for (const KeySpec& spec : core_schema()) config_.settings_[spec.key] = {spec.fallback, Origin{}};
}

void ConfigLoader::complain(const Origin& where, std::string message) {
    if (static_cast<int>(diagnostics_.size()) >= kMaxDiagnostics) {
        ++dropped_;
        return;
    }
    std::string line;
    for (const ConfigLayer& layer : request_.layers) {
        if (layer.place == where.place) line = line_of(layer.text, where.line);
    }
    diagnostics_.push_back({where, std::move(message), std::move(line)});
}

Origin ConfigLoader::here(int line, int column) const { return {layer_->place, line, column, layer_->flag}; }

Origin ConfigLoader::here(const TomlNode::Member& member) const {
    Origin origin = here(member.line, member.column);
    origin.value_line = member.value.line;
    origin.value_column = member.value.column;
    return origin;
}

bool ConfigLoader::in_chain(const std::string& name) const {
    const auto& chain = std::get<std::vector<std::string>>(config_.settings_.at("sampling.chain").value);
    return std::find(chain.begin(), chain.end(), name) != chain.end();
}

void ConfigLoader::complain(int line, int column, std::string message) {
    complain(here(line, column), std::move(message));
}

fs::path ConfigLoader::resolve(const std::string& path) const { return resolve_path(path, layer_->directory); }

const StageSchema* ConfigLoader::find_stage(const std::string& name) const {
    const auto found = std::find_if(request_.stages.begin(), request_.stages.end(),
                                    [&](const StageSchema& stage) { return stage.name == name; });
    return found == request_.stages.end() ? nullptr : &*found;
}

void ConfigLoader::apply(const ConfigLayer& layer) {
    layer_ = &layer;
    // An option may hold the text of a file, escaped.
    const std::int64_t most = layer.flag ? 8 * kMaxConfigBytes : kMaxConfigBytes;
    if (static_cast<std::int64_t>(layer.text.size()) > most) {
        complain(Origin{layer.place, 0, 0}, "the configuration is larger than " + std::to_string(most) + " bytes");
        return;
    }
    Diagnostic error;
    const auto document = parse_toml(layer.text, layer.place, error);
    if (!document) {
        complain(error.where.line, error.where.column, error.message);
        return;
    }
    read_table(*document, "");
}

void ConfigLoader::read_table(const TomlNode& table, const std::string& prefix) {
    for (const TomlNode::Member& member : table.members) {
        const std::string key = prefix.empty() ? member.key : prefix + "." + member.key;
        if (prefix.empty() && member.key.starts_with("x-")) continue;  // the user's own notes
        if (key == "plugin") {
            plugins(member);
        } else if (key == "extends") {
            // core/config/layers.h has already turned the extended files into layers.
            if (layer_->flag) complain(member.line, member.column, "'extends' belongs in a configuration file");
        } else if (const KeySpec* spec = find_key(key)) {
            if (member.value.kind == Kind::table && !parts_of(key).empty()) {
                set_parts(*spec, member);
            } else {
                set(key == sources_key_.key ? sources_key_ : *spec, key, member);
            }
        } else if (const StageSchema* schema = prefix == "sampling" ? find_stage(member.key) : nullptr) {
            if (member.value.kind == Kind::table) {
                stage(*schema, member.value);
            } else {
                complain(member.line, member.column,
                         "'" + key + "' must be a table, not " + std::string(member.value.kind_name()) + "; write [" +
                             key + "]");
            }
        } else if (key == kTemplateArgs) {
            template_args(member);
        } else if (is_table_name(key)) {
            if (member.value.kind == Kind::table) {
                read_table(member.value, key);
            } else {
                complain(member.line, member.column,
                         "'" + key + "' must be a table, not " + std::string(member.value.kind_name()) + "; write [" +
                             key + "]");
            }
        } else {
            unknown(member, prefix);
        }
    }
}

void ConfigLoader::unknown(const TomlNode::Member& member, const std::string& prefix) {
    std::vector<std::string> more;
    if (prefix == "sampling") {
        for (const StageSchema& schema : request_.stages) more.push_back(schema.name);
        const auto& loaded = config_.plugins;
        const bool is_plugin =
            std::any_of(loaded.begin(), loaded.end(), [&](const auto& p) { return p.name == member.key; });
        if (is_plugin) {
            complain(member.line, member.column,
                     "'" + member.key + "' is a plugin; its parameters belong in [plugin.options] of its [[plugin]]");
            return;
        }
    }
    if (prefix.empty()) more.insert(more.end(), {"plugin", "extends"});
    if (prefix == "chat") more.emplace_back("template_args");
    const std::string what = member.value.kind == Kind::table
                                 ? "unknown table [" + (prefix.empty() ? "" : prefix + ".") + member.key + "]"
                                 : "unknown key '" + member.key + "'" + in_table(prefix);
    std::string hint = suggestion(member.key, parts_after(prefix, std::move(more)));
    if (hint.empty() || hint.starts_with("; known")) {
        // It may be a known key in the wrong table.
        for (const KeySpec& spec : core_schema()) {
            if (spec.key.ends_with("." + member.key)) hint = "; did you mean '" + spec.key + "'?";
        }
    }
    complain(member.line, member.column, what + hint);
}

void ConfigLoader::set(const KeySpec& spec, const std::string& key, const TomlNode::Member& member) {
    std::string complaint;
    auto value = convert(spec, member.value, complaint);
    const auto* text = value ? std::get_if<std::string>(&*value) : nullptr;
    if (text && text->find('\0') != std::string::npos) {
        value.reset();
        complaint = "must not hold a zero byte";
    }
    if (!value) {
        complain(member.value.line, member.value.column, "'" + key + "' " + complaint);
        return;
    }
    for (const auto& [alias, name] : spec.aliases) replace(*value, alias, name);
    if (key == "sampling.chain") put_first(std::get<std::vector<std::string>>(*value), layer_->first_stages);
    if (spec.type == ValueType::path) {
        const auto& path = std::get<std::string>(*value);
        const bool is_word = std::ranges::find(spec.words, path) != spec.words.end();
        if (!is_word && !names_hub_model(path)) value = resolve(path).string();
    }
    if (spec.paths) {
        // What starts at the home folder is kept as it was written, as the default is.
        for (std::string& path : std::get<std::vector<std::string>>(*value)) {
            if (!path.starts_with("~/")) path = resolve(path).string();
        }
    }
    config_.settings_[key] = {std::move(*value), here(member)};
}

// kv_cache = {k = "q8", v = "q4"} stands for the text "k=q8,v=q4".
void ConfigLoader::set_parts(const KeySpec& spec, const TomlNode::Member& member) {
    const auto parts = parts_of(spec.key);
    std::vector<std::string> names;
    for (const auto& [name, choices] : parts) names.push_back(name);
    TomlNode::Member whole = member;
    whole.value.kind = Kind::text;
    for (const TomlNode::Member& part : member.value.members) {
        if (std::ranges::find(names, part.key) == names.end()) {
            complain(part.line, part.column,
                     "unknown key '" + part.key + "'" + in_table(spec.key) + suggestion(part.key, names));
            return;
        }
    }
    for (const auto& [name, choices] : parts) {
        const TomlNode::Member* part = member.value.find(name);
        if (part == nullptr) {
            complain(member.value.line, member.value.column,
                     "'" + spec.key + "' lacks '" + name + "'; a table must name all of its parts");
            return;
        }
        KeySpec own;
        own.type = ValueType::choice;
        own.choices = choices;
        std::string complaint;
        if (!convert(own, part->value, complaint)) {
            complain(part->value.line, part->value.column, "'" + spec.key + "." + name + "' " + complaint);
            return;
        }
        whole.value.text += (whole.value.text.empty() ? "" : ",") + name + "=" + part->value.text;
    }
    set(spec, spec.key, whole);
}

void ConfigLoader::stage(const StageSchema& schema, const TomlNode& table) {
    const std::string prefix = "sampling." + schema.name;
    std::vector<std::string> names;
    for (const KeySpec& spec : schema.parameters) names.push_back(spec.key);
    for (const TomlNode::Member& member : table.members) {
        const auto found = std::find_if(schema.parameters.begin(), schema.parameters.end(),
                                        [&](const KeySpec& spec) { return spec.key == member.key; });
        if (found == schema.parameters.end()) {
            complain(member.line, member.column,
                     "unknown key '" + member.key + "'" + in_table(prefix) + suggestion(member.key, names));
        } else {
            set(*found, prefix + "." + member.key, member);
        }
    }
}

void ConfigLoader::template_args(const TomlNode::Member& table) {
    constexpr std::size_t kMostArgs = 64;
    if (table.value.kind != Kind::table) {
        complain(table.line, table.column,
                 "'" + std::string(kTemplateArgs) + "' must be a table, not " + std::string(table.value.kind_name()) +
                     "; write [" + std::string(kTemplateArgs) + "]");
        return;
    }
    KeySpec spec;
    spec.type = ValueType::any;
    for (const TomlNode::Member& member : table.value.members) {
        const std::string& name = member.key;
        const auto part_of_name = [](char c) {
            return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
        };
        if (name.empty() || !std::ranges::all_of(name, part_of_name)) {
            complain(member.line, member.column,
                     "'" + shortened(name) + "' is no name of a variable: letters, digits and _ are");
        } else if (name == "messages" || name == "add_generation_prompt") {
            complain(member.line, member.column, "'" + name + "' is set by the program; a configuration cannot");
        } else if (config_.template_args().size() >= kMostArgs) {
            complain(member.line, member.column, "more than " + std::to_string(kMostArgs) + " template_args");
        } else {
            set(spec, std::string(kTemplateArgs) + "." + name, member);
        }
    }
}

void ConfigLoader::plugins(const TomlNode::Member& member) {
    // --set plugin.NAME.options.KEY=VALUE changes a plugin that a lower layer loads; [[plugin]] loads plugins.
    if (member.value.kind == Kind::table) {
        plugin_overrides(member.value);
        return;
    }
    if (member.value.kind != Kind::list) {
        complain(member.line, member.column, "'plugin' must be a list of tables; write [[plugin]]");
        return;
    }
    for (const PluginSpec& plugin : config_.plugins)
        replaced_[plugin.name] = here(member.value.line, member.value.column);
    config_.plugins.clear();
    for (const TomlNode& entry : member.value.items) plugin_entry(entry);
}

void ConfigLoader::plugin_entry(const TomlNode& entry) {
    if (entry.kind != Kind::table) {
        complain(entry.line, entry.column, "a plugin must be a table, not " + std::string(entry.kind_name()));
        return;
    }
    PluginSpec plugin;
    plugin.origin = here(entry.line, entry.column);
    for (const TomlNode::Member& member : entry.members) plugin_member(plugin, member);
    if (plugin.name.empty()) {
        complain(plugin.origin, "a [[plugin]] needs a name");
        return;
    }
    if (find_stage(plugin.name)) {
        complain(plugin.origin, "'" + plugin.name + "' is a built-in stage; it needs no [[plugin]]");
        return;
    }
    if (!plugin.path.empty() && find_stage(plugin.sampler)) {
        complain(plugin.origin, "'" + plugin.sampler + "' is a built-in stage, which is in no file; leave 'path' out");
        return;
    }
    const auto& loaded = config_.plugins;
    if (std::any_of(loaded.begin(), loaded.end(), [&](const auto& other) { return other.name == plugin.name; })) {
        complain(plugin.origin, "plugin '" + plugin.name + "' is named twice");
        return;
    }
    if (static_cast<int>(loaded.size()) >= kMaxPlugins) {
        complain(plugin.origin, "more than " + std::to_string(kMaxPlugins) + " plugins");
        return;
    }
    config_.plugins.push_back(std::move(plugin));
}

void ConfigLoader::plugin_overrides(const TomlNode& table) {
    std::vector<std::string> names;
    for (const PluginSpec& plugin : config_.plugins) names.push_back(plugin.name);
    for (const TomlNode::Member& member : table.members) {
        const auto found = std::find_if(config_.plugins.begin(), config_.plugins.end(),
                                        [&](const PluginSpec& plugin) { return plugin.name == member.key; });
        if (found == config_.plugins.end() && member.value.kind != Kind::table && !layer_->flag) {
            complain(member.line, member.column, "'plugin' must be a list of tables; write [[plugin]]");
            return;
        }
        if (found == config_.plugins.end()) {
            std::string hint = suggestion(member.key, names);
            if (!hint.starts_with("; did you mean"))
                hint += layer_->flag ? "; plugin=[{name=\"" + member.key + "\",path=\"FILE\"}] loads it"
                                     : "; load one with [[plugin]]";
            complain(member.line, member.column, "no plugin '" + member.key + "' is loaded" + hint);
        } else if (member.value.kind != Kind::table) {
            complain(member.line, member.column, "'plugin." + member.key + "' must be a table");
        } else {
            for (const TomlNode::Member& change : member.value.members) plugin_member(*found, change);
        }
    }
}

void ConfigLoader::plugin_member(PluginSpec& plugin, const TomlNode::Member& member) {
    const bool text = member.value.kind == Kind::text && member.value.text.find('\0') == std::string::npos;
    if (member.key == "options") {
        if (member.value.kind == Kind::table) {
            plugin_options(plugin, member.value);
        } else {
            complain(member.line, member.column, "'options' must be a table; write [plugin.options]");
        }
    } else if (const auto key = std::ranges::find(plugin_keys(), member.key, &KeySpec::key);
               key != plugin_keys().end()) {
        std::string complaint;
        if (auto value = convert(*key, member.value, complaint)) {
            *plugin.settings()[static_cast<std::size_t>(key - plugin_keys().begin())] = {std::move(*value),
                                                                                         here(member)};
        } else {
            complain(member.value.line, member.value.column, "'" + key->key + "' of a plugin " + complaint);
        }
    } else if (member.key != "name" && member.key != "sampler" && member.key != "path") {
        const std::vector<std::string> names = {"name",     "sampler",     "path",   "on_error",
                                                "isolated", "deadline_ms", "options"};
        complain(member.line, member.column,
                 "unknown key '" + member.key + "' in [[plugin]]" + suggestion(member.key, names));
    } else if (!text || member.value.text.empty()) {
        complain(member.value.line, member.value.column, "'" + member.key + "' of a plugin must be a non-empty string");
    } else if (member.key == "name") {
        plugin.name = member.value.text;
    } else if (member.key == "sampler") {
        plugin.sampler = member.value.text;
    } else {
        plugin.path = resolve(member.value.text);
        plugin.path_origin = here(member.line, member.column);
    }
}

void ConfigLoader::plugin_options(PluginSpec& plugin, const TomlNode& options) {
    KeySpec spec;
    spec.type = ValueType::any;
    for (const TomlNode::Member& member : options.members) {
        std::string complaint;
        auto value = convert(spec, member.value, complaint);
        if (!value) {
            complain(member.value.line, member.value.column, "'" + member.key + "' " + complaint);
            continue;
        }
        PluginSpec::Option setting{
            {std::move(*value), here(member)}, layer_->directory, line_of(layer_->text, member.line)};
        const auto stated = std::find_if(plugin.options.begin(), plugin.options.end(),
                                         [&](const auto& option) { return option.first == member.key; });
        if (stated != plugin.options.end()) {
            stated->second = std::move(setting);
        } else {
            plugin.options.emplace_back(member.key, std::move(setting));
        }
    }
}

void ConfigLoader::check_files() {
    const auto exists = [](const std::string& path) {
        std::error_code ignored;
        return fs::exists(path, ignored);
    };
    const Setting& chat = config_.settings_.at("chat.template");
    if (const auto& file = std::get<std::string>(chat.value); !file.empty() && !exists(file)) {
        complain(chat.origin.of_value(),
                 "'chat.template': no file at " + file + "; without the key, the model's own template is used");
    }
    for (const char* key : kModelKeys) {
        const Setting& setting = config_.settings_.at(key);
        const auto& path = std::get<std::string>(setting.value);
        const std::vector<std::string>& words = find_key(key)->words;
        const bool is_word = std::ranges::find(words, path) != words.end();
        if (!path.empty() && !is_word && !names_hub_model(path) && !exists(path)) {
            complain(setting.origin.of_value(), "'" + std::string(key) + "': no file at " + path +
                                                    "; put it there, or name another with --set " + key + "=FILE");
        }
    }
    for (const StageSchema& stage : request_.stages) {
        if (!in_chain(stage.name)) continue;
        for (const KeySpec& parameter : stage.parameters) {
            const std::string key = "sampling." + stage.name + "." + parameter.key;
            const auto setting = config_.settings_.find(key);
            if (parameter.type != ValueType::path || setting == config_.settings_.end()) continue;
            const auto& file = std::get<std::string>(setting->second.value);
            if (!file.empty() && !exists(file))
                complain(setting->second.origin.of_value(), "'" + key + "': no file at " + file);
        }
    }
    for (const PluginSpec& plugin : config_.plugins) {
        if (!plugin.path.empty() && in_chain(plugin.name) && !exists(plugin.path.string())) {
            complain(plugin.origin, "plugin '" + plugin.name + "': no file at " + plugin.path.string());
        }
    }
}

void ConfigLoader::find_models() {
    for (const char* key : kModelKeys) {
        const Setting& setting = config_.settings_.at(key);
        const auto& name = std::get<std::string>(setting.value);
        if (!names_hub_model(name)) continue;
        try {
            if (!request_.find_model) throw Error("names a model of the hub, where only a path can be");
            found_[key] = request_.find_model(name).string();
        } catch (const Error& problem) {
            // Not a fault of the configuration, so its text is not shown.
            throw Error(setting.origin.of_value().text() + ": " + problem.what());
        }
    }
}

void ConfigLoader::check_chain() {
    const Setting& setting = config_.settings_.at("sampling.chain");
    const auto& chain = std::get<std::vector<std::string>>(setting.value);
    std::vector<std::string> known;
    for (const StageSchema& schema : request_.stages) known.push_back(schema.name);
    for (const PluginSpec& plugin : config_.plugins) known.push_back(plugin.name);
    const Origin place = setting.origin.of_value();
    std::set<std::string> seen;
    for (const std::string& name : chain) {
        const bool is_known = std::find(known.begin(), known.end(), name) != known.end();
        if (const auto by = replaced_.find(name); !is_known && by != replaced_.end()) {
            complain(by->second,
                     "this list of plugins replaces the one of a lower layer, but sampling.chain still names '" +
                         shortened(name) + "' (" + place.text() + "); load it here too, or set sampling.chain");
        } else if (!is_known) {
            complain(place, "'sampling.chain' names '" + shortened(name) + "', which is not a stage" +
                                suggestion(name, known));
        } else if (!seen.insert(name).second) {
            complain(place, "'sampling.chain' names '" + shortened(name) + "' twice");
        }
    }
}

namespace {

bool is_device(const std::string& name) {
    if (name == "cpu" || name == "cuda" || name == "reference") return true;
    return name.starts_with("cuda:") && name.size() > 5 && name.size() < 9 &&
           name.find_first_not_of("0123456789", 5) == std::string::npos;
}

// cuda is cuda:0, and so is cuda:00.
std::string plain_device(const std::string& name) {
    if (!name.starts_with("cuda")) return name;
    return "cuda:" + std::to_string(name.size() > 5 ? std::stoi(name.substr(5)) : 0);
}

}  // namespace

void ConfigLoader::check_device() {
    const Setting& setting = config_.settings_.at("runtime.device");
    const auto& device = std::get<std::string>(setting.value);
    if (device != "auto" && !is_device(device))
        complain(setting.origin.of_value(), "'runtime.device' must be auto, cpu, cuda or cuda:N, not '" + device + "'");
    const Setting& list = config_.settings_.at("runtime.devices");
    const auto& devices = std::get<std::vector<std::string>>(list.value);
    // Ranks that share layers may be on one device.
    const bool rows = std::get<std::string>(config_.settings_.at("runtime.split_mode").value) == "row";
    std::set<std::string> seen;
    for (const std::string& name : devices) {
        if (!is_device(name)) {
            complain(list.origin.of_value(),
                     "'runtime.devices' must name cpu, cuda or cuda:N, not '" + shortened(name) + "'");
        } else if (!seen.insert(plain_device(name)).second && !rows) {
            complain(list.origin.of_value(), "'runtime.devices' names " + plain_device(name) + " twice");
        }
    }
    if (rows && devices.size() > 1) check_ranks(devices);
    for (const std::string key : {"runtime.device_layers", "runtime.device_mib", "runtime.device_shares"}) {
        const Setting& counts = config_.settings_.at(key);
        const std::size_t given = std::get<std::vector<std::int64_t>>(counts.value).size();
        if (given == 0 || devices.empty() || given == devices.size()) continue;
        complain(counts.origin.of_value(), "'" + key + "' has " + std::to_string(given) +
                                               (given == 1 ? " number" : " numbers") + " and 'runtime.devices' " +
                                               std::to_string(devices.size()) +
                                               (devices.size() == 1 ? " device" : " devices"));
    }
    // Without a list there is no choice.
    const Setting& draft = config_.settings_.at("draft.device");
    const auto& place = std::get<std::string>(draft.value);
    if (devices.size() < 2 || place.empty() || std::ranges::find(devices, place) != devices.end()) return;
    std::string names;
    for (const std::string& name : devices) names += (names.empty() ? "" : ", ") + name;
    complain(draft.origin.of_value(),
             "'draft.device' must be one of 'runtime.devices', " + names + ", not '" + shortened(place) + "'");
}

// Devices that share each layer give one text only if they compute alike.
void ConfigLoader::check_ranks(const std::vector<std::string>& devices) {
    const Setting& mode = config_.settings_.at("runtime.split_mode");
    const auto kind = [](const std::string& name) { return name.substr(0, name.find(':')); };
    constexpr std::size_t kMost = 8;
    if (devices.size() > kMost) {
        complain(mode.origin.of_value(), "'runtime.split_mode' row is for at most " + std::to_string(kMost) +
                                             " devices, and 'runtime.devices' has " + std::to_string(devices.size()));
    }
    for (const std::string& name : devices) {
        if (kind(name) == kind(devices.front())) continue;
        complain(mode.origin.of_value(),
                 "'runtime.split_mode' row needs devices of one kind, and 'runtime.devices' has " + devices.front() +
                     " and " + name);
        break;
    }
    const Setting& layers = config_.settings_.at("runtime.device_layers");
    if (!std::get<std::vector<std::int64_t>>(layers.value).empty()) {
        complain(layers.origin.of_value(),
                 "'runtime.device_layers' is for 'runtime.split_mode' layer; with row use 'runtime.device_shares'");
    }
    const auto& shares = std::get<std::vector<std::int64_t>>(config_.settings_.at("runtime.device_shares").value);
    if (!shares.empty() && std::ranges::all_of(shares, [](std::int64_t share) { return share == 0; })) {
        complain(config_.settings_.at("runtime.device_shares").origin.of_value(),
                 "'runtime.device_shares' gives nothing to any device; one must be more than 0");
    }
}

void ConfigLoader::fill() {
    const auto text = [&](const char* key) { return std::get<std::string>(config_.setting(key).value); };
    const auto integer = [&](const char* key) { return std::get<std::int64_t>(config_.setting(key).value); };
    const auto list = [&](const char* key) { return std::get<std::vector<std::string>>(config_.setting(key).value); };
    const auto model = [&](const char* key) { return found_.contains(key) ? found_.at(key) : text(key); };
    config_.target_model = model("target.model");
    config_.target_context = static_cast<int>(integer("target.context"));
    const std::string draft = model("draft.model");
    config_.draft_auto = draft == "auto";
    if (!config_.draft_auto && draft != "none") config_.draft_model = draft;
    for (const std::string& folder : list("draft.folders")) {
        config_.draft_folders.push_back(resolve_path(folder, fs::path()));
    }
    config_.draft_head_as_stored = text("draft.head") == "file";
    const std::string mode = text("speculation.mode");
    config_.speculation_mode = mode == "off"     ? SpeculationMode::off
                               : mode == "fixed" ? SpeculationMode::fixed
                                                 : SpeculationMode::automatic;
    config_.max_draft = static_cast<int>(integer("speculation.max_draft"));
    config_.draft_length = static_cast<int>(integer("speculation.length"));
    config_.sources = list("speculation.sources");
    config_.seed = static_cast<std::uint64_t>(integer("sampling.seed"));
    config_.branch = static_cast<std::uint64_t>(integer("sampling.branch"));
    config_.chain = list("sampling.chain");
    config_.chat_style = text("chat.style");
    config_.chat_template = text("chat.template");
    config_.chat_reasoning = text("chat.reasoning");
    config_.chat_date = text("chat.date");
    config_.chat_system = text("chat.system");
    config_.chat_newline = std::get<bool>(config_.setting("chat.newline").value);
    config_.chat_fim_order = text("chat.fim_order");
    config_.chat_language = text("chat.language");
    config_.chat_about = text("chat.about");
    config_.chat_read_ahead = std::get<bool>(config_.setting("chat.read_ahead").value);
    config_.chat_save = std::get<bool>(config_.setting("chat.save").value);
    config_.chat_keep_sessions = integer("chat.keep_sessions");
    config_.chat_max_tokens = static_cast<int>(std::min<std::int64_t>(integer("chat.max_tokens"), 1 << 30));
    config_.device = text("runtime.device");
    config_.devices = list("runtime.devices");
    for (const std::int64_t count :
         std::get<std::vector<std::int64_t>>(config_.setting("runtime.device_layers").value)) {
        config_.device_layers.push_back(static_cast<std::int32_t>(count));
    }
    // One is no list.
    if (config_.devices.size() == 1) {
        config_.device = config_.devices.front();
        config_.devices.clear();
        config_.device_layers.clear();
    }
    config_.threads = static_cast<int>(integer("runtime.threads"));
    config_.kv_format = kernels::find_kv_format(text("runtime.kv_cache")).value_or(kernels::KvFormat::f16);
    config_.check_files = std::get<bool>(config_.setting("runtime.check_files").value);
    config_.isa = text("runtime.isa") == "auto" ? "" : text("runtime.isa");
    config_.cache_host_mib = integer("cache.host_mib");
    config_.cache_folder = text("cache.folder");
    config_.cache_disk_mib = integer("cache.disk_mib");
}

Config ConfigLoader::finish() {
    const Setting& target = config_.settings_.at("target.model");
    if (request_.need_target && std::get<std::string>(target.value).empty() && diagnostics_.empty()) {
        Origin where = target.origin.of_value();
        // No layer states it: name the file that the user gave, which is the highest one.
        const auto file = std::find_if(request_.layers.rbegin(), request_.layers.rend(),
                                       [](const ConfigLayer& layer) { return !layer.flag; });
        if (where.is_default() && file != request_.layers.rend()) where = Origin{file->place, 0, 0};
        complain(where, "no target model; set 'model' in [target], or use --model PATH");
    }
    if (request_.need_files) check_files();
    check_chain();
    check_device();
    if (request_.need_files && diagnostics_.empty()) find_models();
    if (!diagnostics_.empty()) throw ConfigError(std::move(diagnostics_), dropped_);
    fill();
    return std::move(config_);
}

}  // namespace foresay::core
