#include "app/plugin_path.h"

#include <filesystem>
#include <optional>
#include <system_error>

#include "app/files.h"
#include "app/plugin_trust.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

plugins::PluginOptions plugin_options(bool runs) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    plugins::PluginOptions options;
    options.folders = plugins::default_folders(program);
    options.runs = runs;
    options.admit = admit_plugin;
    // The place, not the folder that exists: when it cannot be made, the host says why.
    const fs::path state = state_place();
    if (!state.empty()) options.marker = state / "plugins";
    return options;
}

bool names_plugin_file(std::string_view plugin) { return plugin.find('/') != plugin.npos || plugin.ends_with(".so"); }

plugins::PluginHost looking_plugin_host() { return plugins::PluginHost(plugin_options(false)); }

std::vector<plugins::PluginFile> find_plugins() { return looking_plugin_host().scan(); }

std::vector<fs::path> free_plugin(const std::string& plugin) {
    plugins::PluginHost host = looking_plugin_host();
    const std::optional<plugins::Bar> file = host.bar("", plugin);
    const fs::path path = fs::absolute(plugin).lexically_normal();
    std::vector<fs::path> freed;
    for (const plugins::Bar& bar : host.free([&](const plugins::Bar& bar) {
             return (file && bar.build == file->build) || bar.path.stem() == plugin || bar.path == path;
         })) {
        freed.push_back(bar.path);
    }
    if (!freed.empty()) return freed;
    std::string names;
    for (const std::string& name : barred_plugin_names()) names += (names.empty() ? "; barred are " : ", ") + name;
    throw Error("no plugin '" + plugin + "' is barred" + (names.empty() ? "; none is" : names));
}

std::vector<std::string> barred_plugin_names() {
    std::vector<std::string> names;
    const plugins::PluginHost host = looking_plugin_host();
    for (const plugins::Bar& bar : host.bars()) names.push_back(bar.path.stem().string());
    return names;
}

}  // namespace foresay::app
