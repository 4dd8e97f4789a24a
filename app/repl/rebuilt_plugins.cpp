#include "app/repl/rebuilt_plugins.h"

#include <chrono>
#include <map>
#include <string>
#include <system_error>

#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"

namespace foresay::app {

namespace fs = std::filesystem;

namespace {

// When the files of loaded plugins were written, as far as is known. There is one conversation in a process.
std::map<fs::path, fs::file_time_type>& known_builds() {
    static std::map<fs::path, fs::file_time_type> known;
    return known;
}

}  // namespace

std::string comparison_hint(Repl& repl) {
    // /retry alone takes another branch, and with it another noise.
    if (repl.conversation().empty() || repl.conversation().last().branch != 0) return {};
    const std::string seed = std::to_string(repl.conversation().last().seed);
    return "/retry " + seed + " repeats the last answer with the same noise, so that only the code differs.";
}

fs::path dev_marker(const fs::path& library) { return library.string() + ".dev"; }

void reload_rebuilt_plugins(Repl& repl) {
    std::string names;
    for (const core::PluginSpec& plugin : repl.engine().config().plugins) {
        std::error_code missing;
        const fs::file_time_type written = fs::last_write_time(plugin.path, missing);
        if (plugin.path.empty() || missing || !fs::exists(dev_marker(plugin.path), missing)) continue;
        const auto [known, first] = known_builds().try_emplace(plugin.path, written);
        if (first || known->second == written) continue;
        known->second = written;
        names += (names.empty() ? "" : ", ") + plugin.name;
    }
    if (names.empty()) return;
    try {
        repl.configure(repl.engine().configuration());  // which loads every plugin whose file has changed
        const std::string hint = comparison_hint(repl);
        say(dim("Built again and loaded: " + names + "." + (hint.empty() ? "" : " ") + hint) + "\n");
    } catch (const Error& problem) {
        complain(std::string("foresay: ") + problem.what() + "; the code from before goes on");
    }
}

void note_plugin_builds(Repl& repl) noexcept {
    try {
        for (const core::PluginSpec& plugin : repl.engine().config().plugins) {
            std::error_code missing;
            const fs::file_time_type written = fs::last_write_time(plugin.path, missing);
            if (!plugin.path.empty() && !missing) known_builds().try_emplace(plugin.path, written);
        }
    } catch (const std::exception&) {
        // A build that is not known is taken for the one that runs.
    }
}

}  // namespace foresay::app
