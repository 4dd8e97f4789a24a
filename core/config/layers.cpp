#include "core/config/layers.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>
#include <utility>

#include "base/lower_case.h"
#include "base/split.h"
#include "core/config/diagnostic.h"
#include "core/config/toml_tree.h"

namespace foresay::core {

namespace fs = std::filesystem;
using Kind = TomlNode::Kind;

namespace {

constexpr std::string_view kPrefix = "FORESAY_";

// Reads a file and the files that it extends, depth first, bases before the file itself.
class Extends {
public:
    std::vector<ConfigLayer> read(const fs::path& path) {
        visit(read_config_file(path));
        return std::move(layers_);
    }

private:
    void visit(ConfigLayer layer) {
        std::error_code ignored;
        const fs::path identity = fs::weakly_canonical(layer.place, ignored);
        if (std::find(seen_.begin(), seen_.end(), identity) != seen_.end()) return;
        open_.push_back({layer.place, identity});
        Diagnostic unreadable;  // unused: the loader reports text that is not TOML
        if (const auto document = parse_toml(layer.text, layer.place, unreadable)) {
            if (const auto* member = document->find("extends")) bases(layer, member->value);
        }
        open_.pop_back();
        seen_.push_back(identity);
        layers_.push_back(std::move(layer));
    }

    void bases(const ConfigLayer& layer, const TomlNode& value) {
        const std::span<const TomlNode> items =
            value.kind == Kind::list ? std::span<const TomlNode>(value.items) : std::span<const TomlNode>(&value, 1);
        for (const TomlNode& item : items) base(layer, item);
    }

    void base(const ConfigLayer& layer, const TomlNode& item) {
        if (item.kind != Kind::text || item.text.empty() || item.text.find('\0') != std::string::npos) {
            refuse(layer, item, "'extends' must be the path of a configuration file, or a list of such paths");
        }
        // Relative to the place, so that messages show the path in the style in which the user wrote the first file.
        std::error_code ignored;
        const bool link = fs::is_symlink(layer.place, ignored);
        const fs::path path = resolve_path(item.text, link ? layer.directory : fs::path(layer.place).parent_path());
        const fs::path identity = fs::weakly_canonical(path, ignored);
        const auto above =
            std::find_if(open_.begin(), open_.end(), [&](const auto& file) { return file.second == identity; });
        if (above != open_.end()) {
            std::string chain;
            for (auto it = above; it != open_.end(); ++it) chain += it->first + " -> ";
            refuse(layer, item, "'extends' forms a cycle: " + chain + above->first + "; leave one of them out");
        }
        if (static_cast<int>(open_.size()) > kMaxExtendsDepth) {
            refuse(layer, item,
                   "'extends' goes more than " + std::to_string(kMaxExtendsDepth) +
                       " files deep; let one file extend fewer others");
        }
        if (static_cast<int>(seen_.size() + open_.size()) >= kMaxExtendedFiles) {
            refuse(layer, item, "'extends' leads to more than " + std::to_string(kMaxExtendedFiles) + " files");
        }
        ConfigLayer below;
        try {
            below = read_config_file(path);
        } catch (const Error& problem) {
            refuse(layer, item, std::string("'extends': ") + problem.what());
        }
        visit(std::move(below));
    }

    [[noreturn]] static void refuse(const ConfigLayer& layer, const TomlNode& item, std::string message) {
        throw ConfigError(
            {{Origin{layer.place, item.line, item.column}, std::move(message), line_of(layer.text, item.line)}}, 0);
    }

    std::vector<ConfigLayer> layers_;
    std::vector<fs::path> seen_;
    std::vector<std::pair<std::string, fs::path>> open_;  // files being read: as written, and canonical
};

std::string upper(std::string_view text) {
    std::string out;
    for (const char c : text) out += c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
    return out;
}

// A folder of the XDG convention, which ignores relative paths.
std::string absolute_or(const std::optional<std::string>& value, const std::string& fallback) {
    return value && value->starts_with('/') ? *value : fallback;
}

// Refuses a variable that would be a key if it had two underscores: ignoring it would hide the mistake.
void refuse_single_underscores(const std::string& name) {
    for (const KeySpec& spec : core_schema()) {
        std::string single = upper(spec.key);
        std::replace(single.begin(), single.end(), '.', '_');
        if (name == std::string(kPrefix) + single) {
            throw UsageError("unknown variable " + name + "; did you mean " + variable_of(spec.key) +
                             ", with two underscores for the dot of " + spec.key + "?");
        }
    }
}

}  // namespace

std::optional<std::string> read_variable(const std::string& name) {
    const char* value = std::getenv(name.c_str());
    return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
}

std::vector<ConfigLayer> read_config_layers(const fs::path& path) { return Extends().read(path); }

std::vector<fs::path> standard_config_files(const Variables& variables) {
    const fs::path name = fs::path("foresay") / "config.toml";
    std::vector<fs::path> files;
    std::string folders = variables("XDG_CONFIG_DIRS").value_or("");
    if (folders.empty()) folders = "/etc/xdg";
    for (const std::string_view folder : split(folders, ':')) {
        if (folder.starts_with('/')) files.insert(files.begin(), fs::path(folder) / name);
    }
    const std::string home = absolute_or(variables("HOME"), "");
    const std::string folder = absolute_or(variables("XDG_CONFIG_HOME"), home.empty() ? "" : home + "/.config");
    if (!folder.empty()) files.push_back(fs::path(folder) / name);
    return files;
}

std::vector<ConfigLayer> environment_layers(std::span<const std::string> environment) {
    std::vector<ConfigLayer> layers;
    for (const std::string& variable : environment) {
        const auto equals = variable.find('=');
        if (equals == std::string::npos || !variable.starts_with(kPrefix)) continue;
        const std::string name = variable.substr(0, equals);
        if (name.find("__") == std::string::npos) {
            refuse_single_underscores(name);
            continue;
        }
        std::string key = lower_case(std::string_view(name).substr(kPrefix.size()));
        for (auto at = key.find("__"); at != std::string::npos; at = key.find("__", at)) key.replace(at, 2, ".");
        layers.push_back(override_layer(key + "=" + variable.substr(equals + 1), name));
    }
    // Sorted, so that messages and plugins do not depend on the order of the environment.
    std::sort(layers.begin(), layers.end(), [](const auto& a, const auto& b) { return a.place < b.place; });
    return layers;
}

std::string variable_of(std::string_view key) {
    std::string name(kPrefix);
    for (const char c : upper(key)) {
        if (c == '.') name += '_';
        name += c == '.' ? '_' : c;
    }
    return name;
}

bool states(const ConfigLayer& layer, std::string_view key) {
    Diagnostic ignored;
    const auto document = parse_toml(layer.text, layer.place, ignored);
    const TomlNode* node = document ? &*document : nullptr;
    while (node != nullptr) {
        const auto dot = key.find('.');
        const TomlNode::Member* member = node->find(key.substr(0, dot));
        if (member == nullptr) return false;
        if (dot == std::string_view::npos) return true;
        node = member->value.kind == Kind::table ? &member->value : nullptr;
        key.remove_prefix(dot + 1);
    }
    return false;
}

fs::path resolve_path(const std::string& path, const fs::path& directory) {
    if (path.empty()) return {};
    if (path.starts_with("~/")) {
        if (const char* home = std::getenv("HOME")) return fs::path(home) / path.substr(2);
    }
    return (directory / path).lexically_normal();
}

}  // namespace foresay::core
