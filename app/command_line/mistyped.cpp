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
        const bool is_long = word.starts_with("--") && word.size() > 2;
        const bool is_short = !is_long && word.size() > 1 && word[0] == '-' && (word[1] < '0' || word[1] > '9');
        if (!is_long && !is_short) continue;
        const std::string name = is_long ? word.substr(0, word.find('=')) : word.substr(0, 2);
        if (const CLI::Option* option = app->get_option_no_throw(name)) {
            // The value of the option is not an option, whatever it begins with.
            const bool joined = is_long ? name != word : word.size() > 2;
            if (option->get_items_expected_max() > 0 && !joined) ++i;
            continue;
        }
        std::vector<std::string> names;
        for (const CLI::Option* option : app->get_options()) {
            if (!shown(option)) continue;
            for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
        }
        const std::string of = where.empty() ? "" : " for " + where.substr(0, where.size() - 1);
        const std::string near = is_long ? core::nearest(name, names) : "";
        return "unknown option '" + name + "'" + of + (near.empty() ? "" : "; did you mean '" + near + "'?");
    }
    return "";
}

}  // namespace foresay::app
