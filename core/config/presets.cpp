#include "core/config/presets.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/error.h"
#include "core/config/diagnostic.h"
#include "core/config/nearest.h"
#include "core/config/preset_files.h"
#include "core/config/toml_tree.h"

namespace foresay::core {

namespace fs = std::filesystem;
using Kind = TomlNode::Kind;

namespace {

// The value of `sampling.KEY`; null: it is not there.
const TomlNode* find_setting(const TomlNode& document, std::string_view key) {
    const TomlNode::Member* sampling = document.find("sampling");
    const TomlNode::Member* setting = sampling != nullptr ? sampling->value.find(key) : nullptr;
    return setting != nullptr ? &setting->value : nullptr;
}

std::vector<std::string> texts(const TomlNode* list) {
    std::vector<std::string> all;
    if (list == nullptr) return all;
    for (const TomlNode& item : list->items) all.push_back(item.text);
    return all;
}

[[noreturn]] void refuse(const ConfigLayer& layer, int line, int column, std::string message) {
    throw ConfigError({{Origin{layer.place, line, column, layer.flag}, std::move(message), line_of(layer.text, line)}},
                      0);
}

bool is_name(std::string_view name) {
    return !name.empty() && name.size() <= 64 && std::ranges::all_of(name, [](char c) {
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
    });
}

// The names of all presets, each once, in order.
std::vector<std::string> known_presets(std::span<const fs::path> folders) {
    std::vector<std::string> known;
    for (const PresetFile& preset : preset_files()) known.push_back(fs::path(preset.name).stem().string());
    for (const fs::path& folder : folders) {
        std::error_code unreadable;  // then it has none
        for (fs::directory_iterator file(folder, unreadable), end; !unreadable && file != end;
             file.increment(unreadable)) {
            if (file->path().extension() == ".toml" && is_name(file->path().stem().string()))
                known.push_back(file->path().stem().string());
        }
    }
    std::ranges::sort(known);
    known.erase(std::unique(known.begin(), known.end()), known.end());
    return known;
}

// The preset that `node` names, as a layer.
ConfigLayer find_preset(const ConfigLayer& layer, const TomlNode& node, std::span<const fs::path> folders) {
    const std::string& name = node.text;
    if (!is_name(name))
        refuse(layer, node.line, node.column, "'sampling.preset' must be a name of letters, digits, _ and -");
    for (const fs::path& folder : folders) {
        const fs::path path = folder / (name + ".toml");
        std::error_code ignored;
        if (!fs::exists(path, ignored)) continue;
        try {
            return read_config_file(path);
        } catch (const Error& problem) {
            refuse(layer, node.line, node.column, std::string("'sampling.preset': ") + problem.what());
        }
    }
    for (const PresetFile& preset : preset_files()) {
        if (preset.name == name + ".toml")
            return {std::string(kPresetPlace) + "'" + name + "'", std::string(preset.text), {}, false};
    }
    const std::vector<std::string> known = known_presets(folders);
    std::string names;
    for (const std::string& one : known) names += (names.empty() ? "" : one == known.back() ? " and " : ", ") + one;
    const std::string own = folders.empty() ? "" : ", and files of your own go to " + folders.front().string();
    const std::string near = nearest(name, known);
    refuse(layer, node.line, node.column,
           "'sampling.preset' is '" + name + "', but the presets are " + names + own +
               (near.empty() ? "" : "; did you mean '" + near + "'?"));
}

// Its document, which may set samplers only.
TomlNode checked(const ConfigLayer& preset) {
    Diagnostic error;
    auto document = parse_toml(preset.text, preset.place, error);
    if (!document) throw ConfigError({error}, 0);
    for (const TomlNode::Member& member : document->members) {
        if (member.key == "sampling" || member.key.starts_with("x-")) continue;
        refuse(preset, member.line, member.column,
               "a preset sets samplers: '" + member.key + "' belongs in a configuration file");
    }
    for (const char* key : {"preset", "seed", "branch"}) {
        if (const TomlNode* other = find_setting(*document, key))
            refuse(preset, other->line, other->column, std::string("a preset cannot set 'sampling.") + key + "'");
    }
    return std::move(*document);
}

}  // namespace

std::vector<fs::path> preset_folders(const Variables& variables) {
    std::vector<fs::path> folders;
    for (const fs::path& file : standard_config_files(variables)) {
        folders.insert(folders.begin(), file.parent_path() / "presets");
    }
    return folders;
}

std::vector<ConfigLayer> with_presets(std::vector<ConfigLayer> layers, std::span<const fs::path> folders,
                                      std::span<const StageSchema> stages) {
    std::vector<ConfigLayer> all;
    std::vector<std::string> chain;
    const auto note_chain = [&](const TomlNode& document) {
        const TomlNode* stated = find_setting(document, "chain");
        if (stated != nullptr && stated->kind == Kind::list) chain = texts(stated);
        return stated != nullptr;
    };
    for (ConfigLayer& layer : layers) {
        Diagnostic unreadable;  // unused: the loader reports text that is not TOML
        const auto document = parse_toml(layer.text, layer.place, unreadable);
        const TomlNode* named = document ? find_setting(*document, "preset") : nullptr;
        if (named != nullptr && named->kind == Kind::text && !named->text.empty()) {
            ConfigLayer preset = find_preset(layer, *named, folders);
            const TomlNode settings = checked(preset);
            std::vector<std::string> kept;
            for (const std::string& stage : chain) {
                if (std::ranges::find(stages, stage, &StageSchema::name) == stages.end()) kept.push_back(stage);
            }
            if (note_chain(settings)) {
                preset.first_stages = kept;
                std::erase_if(kept, [&](const auto& stage) { return std::ranges::find(chain, stage) != chain.end(); });
                chain.insert(chain.begin(), kept.begin(), kept.end());
            }
            all.push_back(std::move(preset));
        }
        if (document) note_chain(*document);
        all.push_back(std::move(layer));
    }
    return all;
}

}  // namespace foresay::core
