// app/plugin_path.h: the plugin path of this program, and the place of its crash marker.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "plugins/host/plugin_host.h"

namespace foresay::app {

// The plugin path of this program, and where crashes of plugins are recorded: the user's state folder. `runs`: plugins
// will run, so that this process needs a marker of its own.
plugins::PluginOptions plugin_options(bool runs = true);

// Whether `plugin`, as it was typed, is a file and not the name of one on the plugin path.
bool names_plugin_file(std::string_view plugin);

// A host that only looks.
plugins::PluginHost looking_plugin_host();

// Every .so on this program's plugin path. Loads nothing.
std::vector<plugins::PluginFile> find_plugins();

// Frees the barred builds of `plugin`, which is a name or a file, and returns their files. Errors: none is barred.
std::vector<std::filesystem::path> free_plugin(const std::string& plugin);
// The names of all barred plugins.
std::vector<std::string> barred_plugin_names();

}  // namespace foresay::app
