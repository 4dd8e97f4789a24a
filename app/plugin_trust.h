// app/plugin_trust.h: which plugins may run, when a saved session or a configuration names them.
//
// Such a file may come from anywhere, and a plugin is native code. So it alone cannot make the program load a plugin
// from outside the plugin path: the user must have loaded that plugin before, or allow it at a terminal. What is
// allowed is remembered in the state folder, in `plugins.allowed`, by the file's contents (SHA-256): a file that has
// changed is asked for again, and a copy of one that has not is not. What the user names on the command line, in the
// environment or in a conversation needs no asking.
//
// Errors:   Error with one sentence that says what to do.
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>

#include "core/config/config.h"

namespace foresay::app {

// Throws Error if `config` has a plugin that only a session or a configuration file names, outside the plugin path, and
// that is not allowed, after asking for it at a terminal.
void check_plugin_trust(const core::Config& config);

// Why what would be loaded from `path` must not be: it is not what check_plugin_trust() found there last. Empty: it may
// be loaded. For plugins::PluginOptions::admit.
std::string admit_plugin(const std::filesystem::path& path, std::span<const std::byte> bytes);

// Remembers the plugins of `config` outside the plugin path as allowed: they are about to be named in a session.
void remember_plugins(const core::Config& config);

// Remembers the contents of `file` as allowed, and returns their SHA-256. Throws Error for what is no plugin, what
// every user of the machine can change, and where nothing can be remembered.
std::string trust_plugin(const std::filesystem::path& file);

}  // namespace foresay::app
