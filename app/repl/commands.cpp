// The commands of the conversation loop, as one table.
#include <algorithm>
#include <charconv>
#include <string>
#include <vector>

#include "app/output.h"
#include "app/repl/repl.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

void help(Repl&, const std::string&) {
    std::string out;
    for (const ReplCommand& command : repl_commands()) {
        std::string call = "/";
        call.append(command.name).append(" ").append(command.arguments);
        out.append("  ").append(padded(call, 28)).append(command.help).append("\n");
    }
    out +=
        "  //TEXT                      say TEXT with one slash in front\n"
        "Ctrl-C stops an answer and keeps what there is; twice at the prompt, or Ctrl-D once, leaves.\n";
    say(out);
}

// Keys whose change takes effect at once; the others are read when the program starts.
bool changes_now(const std::string& key) {
    return key.starts_with("sampling.") || key.starts_with("speculation.") || key.starts_with("chat.") ||
           (key.starts_with("plugin.") && key.find(".options.") != std::string::npos);
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
    const bool known_table = key.find('.') != std::string::npos;
    if (known_table && !changes_now(key) && (core::find_key(key) || key.starts_with("plugin."))) {
        throw Error("'" + key + "' is read when the program starts; start it with --set " + key + "=VALUE");
    }
    Configuration before = repl.session().configuration();
    repl.session().configuration().set(assignment, "/set");
    try {
        repl.refresh();
    } catch (...) {
        repl.session().configuration() = std::move(before);
        repl.refresh();
        throw;
    }
    const auto& settings = repl.session().config().settings();
    const auto found = settings.find(key);
    if (found != settings.end()) {
        say(key + " = " + core::to_toml(found->second.value) + "\n");
        return;
    }
    for (const core::PluginSpec& plugin : repl.session().config().plugins) {
        for (const auto& [name, setting] : plugin.options) {
            if (key == "plugin." + plugin.name + ".options." + name) {
                say(key + " = " + core::to_toml(setting.value) + "\n");
            }
        }
    }
}

void show(Repl& repl, const std::string& arguments) {
    const core::Config& config = repl.session().config();
    if (arguments.empty() || arguments == "config") {
        say(core::to_toml(config, stage_schemas(), true));
        return;
    }
    if (arguments == "model") {
        const core::Model& model = repl.session().target();
        std::string out = "target   " + model.source().path() + "\n";
        if (const core::Model* draft = repl.session().draft()) out += "draft    " + draft->source().path() + "\n";
        out += "backend  " + repl.session().backend() + "\n";
        out += "context  " + std::to_string(repl.conversation().tokens()) + " of " +
               std::to_string(repl.session().context_length()) + " positions\n";
        say(out);
        return;
    }
    // A key or a table of the configuration.
    std::string out;
    std::vector<std::string> names = {"config", "model"};
    for (const auto& [key, setting] : config.settings()) {
        names.push_back(key);
        if (key == arguments || key.starts_with(arguments + ".")) {
            out += padded(key + " = " + core::to_toml(setting.value), 44) + "# " + setting.origin.text() + "\n";
        }
    }
    if (out.empty())
        throw Error("there is nothing called '" + arguments + "' to show" + core::suggestion(arguments, names));
    say(out);
}

void clear(Repl& repl, const std::string&) {
    repl.conversation().clear();
    if (repl.interactive()) say(dim("A new conversation. /undo brings the old one back.") + "\n");
}

void retry(Repl& repl, const std::string& arguments) {
    if (arguments.empty()) return repl.retry(std::nullopt);
    std::uint64_t seed = 0;
    const char* end = arguments.data() + arguments.size();
    const auto [stop, error] = std::from_chars(arguments.data(), end, seed);
    if (error != std::errc() || stop != end)
        throw Error("the seed of /retry must be a number, not '" + arguments + "'");
    repl.retry(seed);
}

void undo(Repl& repl, const std::string&) {
    if (!repl.conversation().undo()) throw Error("there is nothing to undo");
    const std::size_t turns = repl.conversation().turns().size();
    say(dim("Back to " +
            (turns == 0 ? std::string("the start")
                        : "the state after " + std::to_string(turns) + (turns == 1 ? " answer" : " answers")) +
            ".") +
        "\n");
}

void stats(Repl& repl, const std::string&) {
    const ReplTotals& totals = repl.totals();
    const auto number = [](double value) {
        std::string text = std::to_string(value);
        return text.substr(0, text.find('.') + 2);
    };
    std::string out = "answers   " + std::to_string(totals.answers) + ", " + std::to_string(totals.tokens) + " tokens";
    if (totals.decode_ms > 0)
        out += " at " + number(static_cast<double>(totals.tokens) * 1000.0 / totals.decode_ms) + "/s";
    out += "\nrounds    " + std::to_string(totals.rounds);
    if (totals.drafted > 0) {
        out += "; accepted " + std::to_string(totals.accepted) + " of " + std::to_string(totals.drafted) +
               " drafted tokens (" +
               number(100.0 * static_cast<double>(totals.accepted) / static_cast<double>(totals.drafted)) + " %)";
    }
    out += "\ncontext   " + std::to_string(repl.conversation().tokens()) + " of " +
           std::to_string(repl.session().context_length()) + " positions\n";
    if (!repl.conversation().empty()) {
        const Turn& turn = repl.conversation().turns().back();
        out += "last      seed " + std::to_string(turn.seed) + ", branch " + std::to_string(turn.branch) + "\n";
    }
    say(out);
}

void quit(Repl& repl, const std::string&) { repl.quit(); }

constexpr ReplCommand kCommands[] = {
    {"help", "", "this list", help},
    {"set", "KEY VALUE", "change a key of the configuration for this session", set},
    {"show", "[KEY|config|model]", "the configuration and where its values come from; a key; the models", show},
    {"clear", "", "start a new conversation", clear},
    {"retry", "[SEED]", "the last answer again: the next branch, or another seed", retry},
    {"undo", "", "back to the state before the last answer, retry or clear", undo},
    {"stats", "", "what this session did so far", stats},
    {"quit", "", "leave", quit},
};

}  // namespace

std::span<const ReplCommand> repl_commands() { return kCommands; }

void run_repl_command(Repl& repl, const std::string& line) {
    const auto space = line.find(' ');
    const std::string name = line.substr(1, space == std::string::npos ? std::string::npos : space - 1);
    std::string arguments = space == std::string::npos ? "" : line.substr(space + 1);
    arguments.erase(0, std::min(arguments.find_first_not_of(' '), arguments.size()));
    arguments.erase(arguments.find_last_not_of(' ') + 1);
    std::vector<std::string> names;
    for (const ReplCommand& command : kCommands) {
        if (command.name == name) return command.run(repl, arguments);
        names.emplace_back(command.name);
    }
    const std::string near = core::nearest(name, names);
    throw Error("there is no command /" + name +
                (near.empty() ? "; /help lists them" : "; did you mean /" + near + "?"));
}

}  // namespace foresay::app
