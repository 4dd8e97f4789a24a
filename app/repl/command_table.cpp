#include <algorithm>
#include <array>

#include "app/repl/command.h"
#include "app/repl/commands/topics.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

constexpr std::string_view kBlank = " \t\r\n";

std::string_view trimmed(std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(kBlank), text.size()));
    return text.substr(0, text.find_last_not_of(kBlank) + 1);
}

// "a, b or c", each with a slash.
std::string listed(const std::vector<std::string>& names) {
    std::string out;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) out += i + 1 == names.size() ? " or " : ", ";
        out += "/" + names[i];
    }
    return out;
}

}  // namespace

std::span<const CommandTopic> command_topics() {
    static const std::array topics = {
        conversation_commands(), branch_commands(),      context_commands(), file_commands(),
        inspection_commands(),   saving_commands(),      sampler_commands(), model_commands(),
        settings_commands(),     measurement_commands(), program_commands(),
    };
    return topics;
}

const ReplCommand& find_command(std::string_view name) {
    std::vector<std::string> names, matches;
    const ReplCommand* match = nullptr;
    for (const CommandTopic& topic : command_topics()) {
        for (const ReplCommand& command : topic.commands) {
            if (command.name == name || (!command.alias.empty() && command.alias == name)) return command;
            names.emplace_back(command.name);
            // A command that destroys something is typed in full.
            if (name.empty() || !command.name.starts_with(name) || command.name.ends_with('!')) continue;
            matches.emplace_back(command.name);
            match = &command;
        }
    }
    if (matches.size() == 1) return *match;
    if (!matches.empty()) {
        throw Error("/" + std::string(name) + " is ambiguous: it could be " + listed(matches));
    }
    const std::string near = name.empty() ? "" : core::nearest(name, names);
    throw Error("unknown command /" + std::string(name) +
                (near.empty() ? "; /help lists them" : "; did you mean /" + near + "?"));
}

std::vector<std::string> split_words(std::string_view arguments) {
    std::vector<std::string> words;
    std::string word;
    bool quoted = false, begun = false;
    for (std::size_t i = 0; i < arguments.size(); ++i) {
        const char c = arguments[i];
        if (c == '\\' && i + 1 < arguments.size()) {
            word += arguments[++i];
            begun = true;
        } else if (c == '"') {
            quoted = !quoted;
            begun = true;
        } else if (!quoted && kBlank.find(c) != std::string_view::npos) {
            if (begun) words.push_back(std::move(word));
            word.clear();
            begun = false;
        } else {
            word += c;
            begun = true;
        }
    }
    if (begun) words.push_back(std::move(word));
    return words;
}

void run_repl_command(Repl& repl, std::string_view line) {
    line.remove_prefix(1);  // the slash
    const std::size_t end = std::min(line.find_first_of(kBlank), line.size());
    find_command(line.substr(0, end)).run(repl, std::string(trimmed(line.substr(end))));
}

}  // namespace foresay::app
