// Commands that show the configuration and change it.
#include <algorithm>
#include <iterator>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/config/nearest.h"
#include "core/config/schema.h"

namespace foresay::app {

namespace {

// The key that `name` is the end of ("seed"), or, if it is the end of none, a part of ("temperature"); `name` itself if
// it is a key, or no part of one. Throws Error if it could be several.
std::string whole_key(Repl& repl, const std::string& name) {
    constexpr std::size_t kMostNamed = 8;
    const Candidates keys = complete_keys({repl, {}, {}});
    if (name.empty() || std::find(keys.begin(), keys.end(), name) != keys.end()) return name;
    Candidates found;
    const auto find = [&](const auto& fits) {
        if (found.empty()) std::copy_if(keys.begin(), keys.end(), std::back_inserter(found), fits);
    };
    find([&](const std::string& key) { return key.ends_with("." + name); });
    find([&](const std::string& key) {
        // Every sampler has on_error, every plugin some more, and they are hardly what a sampler's name stands for.
        const bool part = key.starts_with(name + ".") || key.find("." + name + ".") != std::string::npos;
        return part && std::ranges::none_of(core::plugin_keys(),
                                            [&](const core::KeySpec& own) { return key.ends_with("." + own.key); });
    });
    if (found.empty()) return name;
    const auto yields = [](const std::string& key) {
        const core::KeySpec* spec = core::find_key(key);
        return spec != nullptr && spec->yields;
    };
    if (!std::ranges::all_of(found, yields)) std::erase_if(found, yields);
    if (found.size() == 1) return found.front();
    std::string list;
    for (std::size_t i = 0; i < std::min(found.size(), kMostNamed); ++i) list += (i > 0 ? ", " : "") + found[i];
    if (found.size() > kMostNamed) list += " and others";
    throw Error("'" + name + "' could be " + list + "; write one of them");
}

void set(Repl& repl, const std::string& arguments) {
    const std::size_t end = arguments.find_first_of(" \t\n=");
    if (end == std::string::npos) throw Error("write /set KEY VALUE; /show lists the keys");
    const std::string key = whole_key(repl, arguments.substr(0, end));
    std::string value = arguments.substr(std::min(arguments.find_first_not_of(" \t\n", end), arguments.size()));
    if (value.starts_with('=')) value.erase(0, 1);
    Configuration next = repl.engine().configuration();
    next.set(key + "=" + value, "/set");
    if (key == "chat.system" && !next.config().chat_system.empty()) refuse_system_prompt(repl);
    repl.configure(next);
    const auto& settings = repl.engine().config().settings();
    const auto found = settings.find(key);
    if (found != settings.end()) {
        say(key + " = " + core::to_toml(found->second.value) + "\n");
        return;
    }
    for (const core::PluginSpec& plugin : repl.engine().config().plugins) {
        for (std::size_t i = 0; i < core::plugin_keys().size(); ++i) {
            if (key == "plugin." + plugin.name + "." + core::plugin_keys()[i].key)
                say(key + " = " + core::to_toml(plugin.settings()[i]->value) + "\n");
        }
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
    if (out.empty()) {
        const std::string key = whole_key(repl, arguments);
        if (key != arguments && config.settings().contains(key)) return show(repl, key);
        throw Error("there is no key or table '" + arguments + "'" + core::suggestion(arguments, names));
    }
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
     "stays. The end of a key is enough where only one key ends so, and the name of a sampler with one parameter. /set "
     "KEY=VALUE does the same. Strings need no quotes.\n"
     "\n"
     "    /set seed 3\n"
     "    /set sampling.temperature.value 0.2\n"
     "    /set plugin.wordlist.options.forbid [\"TODO\"]",
     set, complete_keys},
    {"show", "[KEY|TABLE|config|model]", "show the configuration and where its values come from, or the models",
     "Without an argument, or with `config`, prints the whole configuration as TOML.", show, complete_shown},
};

}  // namespace

CommandTopic settings_commands() { return {"Settings", kCommands}; }

}  // namespace foresay::app
