// The command table as text: for /help and for docs/repl.md.
#include <algorithm>
#include <sstream>

#include "app/repl/command.h"

namespace foresay::app {

namespace {

constexpr std::size_t kCallWidth = 32;
constexpr std::size_t kTextWidth = 96;

struct Habit {
    std::string_view keys;
    std::string_view help;
};

// What is no command but can be typed.
constexpr Habit kHabits[] = {
    {"//TEXT", "say TEXT with one slash in front"},
    {"\\ at the end", "the entry goes on in the next line"},
    {"Ctrl-C", "stops an answer and keeps what there is; twice at the prompt leaves"},
    {"Ctrl-D", "leaves"},
};

std::string padded(std::string_view text) {
    std::string out(text);
    return out + std::string(out.size() < kCallWidth ? kCallWidth - out.size() : 1, ' ');
}

// `text` cut into lines between words. A blank line stays one, and so does the beginning of an indented line.
std::string wrapped(std::string_view text) {
    std::string out;
    std::istringstream lines{std::string(text)};
    std::string line;
    while (std::getline(lines, line)) {
        if (line.starts_with(' ')) {
            out += line + "\n";
            continue;
        }
        std::istringstream words(line);
        std::string word;
        std::size_t column = 0;
        while (words >> word) {
            if (column > 0 && column + 1 + word.size() > kTextWidth) {
                out += '\n';
                column = 0;
            }
            if (column > 0) out += ' ';
            out += word;
            column += word.size() + (column > 0 ? 1 : 0);
        }
        out += '\n';
    }
    return out;
}

// A sentence from a line of help.
std::string sentence(std::string_view help) {
    std::string out(help);
    if (!out.empty() && out.front() >= 'a' && out.front() <= 'z') out.front() = static_cast<char>(out.front() - 32);
    return out + ".";
}

}  // namespace

std::string usage(const ReplCommand& command) {
    std::string out = "/";
    out.append(command.name);
    if (!command.arguments.empty()) out.append(" ").append(command.arguments);
    return out;
}

std::string commands_help() {
    std::string out;
    for (const CommandTopic& topic : command_topics()) {
        out.append(topic.title).append("\n");
        for (const ReplCommand& command : topic.commands) {
            out.append("  ").append(padded(usage(command))).append(command.help).append("\n");
        }
    }
    out.append("Keys\n");
    for (const Habit& habit : kHabits) out.append("  ").append(padded(habit.keys)).append(habit.help).append("\n");
    out.append("/help COMMAND says more. The beginning of a name is enough where only one command has it.\n");
    return out;
}

std::string command_help(const ReplCommand& command) {
    std::string out = usage(command) + "\n" + sentence(command.help) + "\n";
    if (!command.alias.empty()) out.append("Also /").append(command.alias).append(".\n");
    if (!command.details.empty()) out += wrapped(command.details);
    return out;
}

std::string commands_markdown() {
    std::string out =
        "<!-- generated from the command table (app/repl/commands); renew with: foresay repl-reference -->\n"
        "# The conversation loop\n\n"
        "What you write is said to the model; a line that begins with a slash is a command. The beginning of a name "
        "is\n"
        "enough where only one command has it. `/help` shows this list and `/help COMMAND` one entry.\n\n"
        "| key | does |\n|---|---|\n";
    for (const Habit& habit : kHabits)
        out.append("| `").append(habit.keys).append("` | ").append(habit.help).append(" |\n");
    for (const CommandTopic& topic : command_topics()) {
        out.append("\n## ").append(topic.title).append("\n");
        for (const ReplCommand& command : topic.commands) {
            out.append("\n### `").append(usage(command)).append("`\n\n").append(sentence(command.help)).append("\n");
            if (!command.alias.empty()) out.append("Also `/").append(command.alias).append("`.\n");
            if (!command.details.empty()) out.append("\n").append(wrapped(command.details));
        }
    }
    return out;
}

}  // namespace foresay::app
