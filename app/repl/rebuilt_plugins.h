// app/repl/rebuilt_plugins.h: plugins that `foresay plugin dev` builds while a conversation has them loaded.
//
// Such a plugin's file X.so has a file X.so.dev beside it while that program runs. When the plugin was built again, its
// new code is loaded before the next entry. Without X.so.dev, code changes only by /plugin reload and the like.
//
// Errors:   none: what cannot be loaded is said, and the code from before goes on.
#pragma once

#include <filesystem>
#include <string>

namespace foresay::app {

class Repl;

// The file that says that a plugin is being worked on.
std::filesystem::path dev_marker(const std::filesystem::path& library);

// How to see what new code changes in the last answer: a sentence, or nothing where no answer could be compared.
std::string comparison_hint(Repl& repl);

// Before an entry: loads what was built again since the last call of either function.
void reload_rebuilt_plugins(Repl& repl);
// After an entry, which may have loaded plugins: these are the builds that run.
void note_plugin_builds(Repl& repl) noexcept;

}  // namespace foresay::app
