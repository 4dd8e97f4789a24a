// Commands that show the configuration and change it.
#include <algorithm>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

void set(Repl& repl, const std::string& arguments) {
    std::string assignment = arguments;
    if (assignment.find('=') == std::string::npos) {
        const auto space = assignment.find(' ');
        if (space != std::string::npos) assignment[space] = '=';
    }
    const auto equals = assignment.find('=');
    if (equals == std::string::npos) throw Error("write /set KEY VALUE; /show lists the keys");
    std::string key = assignment.substr(0, equals);
    key.erase(key.find_last_not_of(' ') + 1);
    Configuration next = repl.engine().configuration();
    next.set(assignment, "/set");
    repl.configure(next);
    const auto& settings = repl.engine().config().settings();
    const auto found = settings.find(key);
    if (found != settings.end()) {
        say(key + " = " + core::to_toml(found->second.value) + "\n");
        return;
    }
    for (const core::PluginSpec& plugin : repl.engine().config().plugins) {
        for (const auto& [name, setting] : plugin.options) {
            if (key == "plugin." + plugin.name + ".options." + name) {
                say(key + " = " + core::to_toml(setting.value) + "\n");
            }
        }
    }
}

void show(Repl& repl, const std::string& arguments) {
    const core::Config& config = repl.engine().config();
    if (arguments.empty() || arguments == "config") {
        page_message(core::to_toml(config, stage_schemas(), true));
        return;
    }
    if (arguments == "model") {
        const core::Model& model = repl.engine().target();
        std::string out = "target   " + model.source().path() + "\n";
        if (const core::Model* draft = repl.engine().draft()) out += "draft    " + draft->source().path() + "\n";
        out += "backend  " + repl.engine().backend() + "\n";
        if (const std::string& why = repl.engine().why_no_device(); !why.empty()) out += "no GPU   " + why + "\n";
        out += "context  " + std::to_string(repl.conversation().tokens()) + " of " +
               std::to_string(repl.engine().context_length()) + " positions\n";
        say(out);
        return;
    }
    // A key or a table of the configuration.
    std::string out;
    std::vector<std::string> names = {"config", "model"};
    for (const auto& [key, setting] : config.settings()) {
        names.push_back(key);
        names.push_back(key.substr(0, key.rfind('.')));
        if (key == arguments || key.starts_with(arguments + ".")) {
            out += padded(key + " = " + core::to_toml(setting.value), 44) + "# " + setting.origin.text() + "\n";
        }
    }
    if (out.empty()) throw Error("there is no key or table '" + arguments + "'" + core::suggestion(arguments, names));
    page_message(out);
}

Candidates complete_shown(const CompletionRequest& request) {
    Candidates names = {"config", "model"};
    if (!request.before.empty()) return {};
    for (const auto& [key, setting] : request.repl.engine().config().settings()) {
        names.push_back(key);
        names.push_back(key.substr(0, key.find('.')));
    }
    return names;
}

constexpr ReplCommand kCommands[] = {
    {"set", "KEY VALUE", "change a configuration key for this conversation",
     "Takes effect with the next answer. If the key names another model, that model is loaded and the conversation "
     "stays. /set KEY=VALUE does the same. Strings need no quotes.\n"
     "\n"
     "    /set sampling.temperature.value 0.2\n"
     "    /set plugin.wordlist.options.forbid [\"TODO\"]",
     set, complete_keys},
    {"show", "[KEY|TABLE|config|model]", "show the configuration and where its values come from, or the models",
     "Without an argument, or with `config`, prints the whole configuration as TOML.", show, complete_shown},
};

}  // namespace

CommandTopic settings_commands() { return {"Settings", kCommands}; }

}  // namespace foresay::app
