// Suggestions for mistyped commands and options. CLI11 only reports that something is missing or unexpected.
#include <CLI/CLI.hpp>

#include "app/command_line/parser.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

bool shown(const CLI::App* command) { return !command->get_group().empty(); }
bool shown(const CLI::Option* option) { return !option->get_group().empty(); }

}  // namespace

std::string mistyped(const CLI::App& root, int argc, const char* const* argv) {
    const CLI::App* app = &root;
    std::string where;
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
        if (!commands.empty() && !word.starts_with('-')) {
            std::vector<std::string> names;
            const CLI::App* chosen = nullptr;
            for (const CLI::App* command : commands) {
                if (command->get_name() == word) chosen = command;
                if (shown(command)) names.push_back(command->get_name());
            }
            if (chosen == nullptr) {
                return "unknown command '" + where + word + "'" + core::suggestion(word, names);
            }
            app = chosen;
            where += word + " ";
            continue;
        }
        const std::string name = word.substr(0, word.find('='));
        if (!name.starts_with("--") || name == "--" || app->get_option_no_throw(name) != nullptr) continue;
        std::vector<std::string> names;
        for (const CLI::Option* option : app->get_options()) {
            if (!shown(option)) continue;
            for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
        }
        const std::string of = where.empty() ? "" : " for " + where.substr(0, where.size() - 1);
        const std::string near = core::nearest(name, names);
        return "unknown option '" + name + "'" + of + (near.empty() ? "" : "; did you mean '" + near + "'?");
    }
    return "";
}

}  // namespace foresay::app
