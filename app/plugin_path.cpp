#include "app/plugin_path.h"

#include <filesystem>
#include <system_error>

#include "app/files.h"

namespace foresay::app {

namespace fs = std::filesystem;

plugins::PluginOptions plugin_options(bool runs) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    plugins::PluginOptions options;
    options.folders = plugins::default_folders(program);
    options.runs = runs;
    // The place, not the folder that exists: when it cannot be made, the host says why.
    const fs::path state = state_place();
    if (!state.empty()) options.marker = state / "plugins";
    return options;
}

plugins::PluginHost looking_plugin_host() { return plugins::PluginHost(plugin_options(false)); }

std::vector<plugins::PluginFile> find_plugins() { return looking_plugin_host().scan(); }

}  // namespace foresay::app
