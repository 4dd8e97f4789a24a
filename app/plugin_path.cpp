#include "app/plugin_path.h"

#include <filesystem>
#include <system_error>

#include "app/files.h"

namespace foresay::app {

namespace fs = std::filesystem;

plugins::PluginOptions plugin_options(bool marker) {
    std::error_code ignored;
    const fs::path program = fs::read_symlink("/proc/self/exe", ignored).parent_path();
    plugins::PluginOptions options;
    options.folders = plugins::default_folders(program);
    const fs::path state = marker ? state_folder() : fs::path();
    if (!state.empty()) options.marker = state / "plugins";
    return options;
}

std::unique_ptr<plugins::PluginHost> make_plugin_host() {
    return std::make_unique<plugins::PluginHost>(plugin_options());
}

std::vector<plugins::PluginFile> find_plugins() { return plugins::PluginHost(plugin_options(false)).scan(); }

}  // namespace foresay::app
