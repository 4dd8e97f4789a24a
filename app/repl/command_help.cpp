// The command table as text: for /help and for docs/repl.md.
#include <algorithm>

#include "app/repl/command.h"
#include "app/terminal.h"

namespace foresay::app {

namespace {

constexpr std::size_t kCallColumns = 26;
constexpr std::size_t kMarkdownColumns = 100;

struct Habit {
    std::string_view keys;
    std::string_view help;
};

// What is no command but can be typed.
constexpr Habit kHabits[] = {
    {"//TEXT", "say TEXT with one slash in front"},
    {"\\ at the end", "the entry goes on in the next line; Alt-Enter does the same anywhere"},
    {"\"\"\"TEXT\"\"\"", "text of several lines, also behind the name of a command"},
    {"paste", "several lines are one entry, said as they are; a long one stands in the line as a label"},
    {"Tab", "completes commands, keys, values and files"},
    {"Ctrl-R", "searches what was entered before, again for an older entry; the arrow keys step through all"},
    {"Ctrl-X Ctrl-E", "edits the entry in $VISUAL or $EDITOR"},
    {"Ctrl-C", "stops an answer and keeps what there is; twice at the prompt leaves"},
    {"Ctrl-D", "leaves"},
};

// A line of /help: what to type, and beside it, or below where it is long, what that does.
std::string entry(std::string_view call, std::string_view help, std::size_t columns) {
    const std::size_t indent = std::min(kCallColumns, columns / 2);
    std::string out = "  ";
    out += call;
    if (out.size() + 2 > indent) return out + "\n" + wrapped(help, columns, indent);
    return out + wrapped(help, columns, indent).substr(out.size());
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

std::string commands_help(std::size_t columns) {
    std::string out;
    for (const CommandTopic& topic : command_topics()) {
        out.append(topic.title).append("\n");
        for (const ReplCommand& command : topic.commands) out += entry(usage(command), command.help, columns);
    }
    out.append("Keys\n");
    for (const Habit& habit : kHabits) out += entry(habit.keys, habit.help, columns);
    return out + wrapped("/help COMMAND says more. An unambiguous beginning of a name is enough.", columns);
}

std::string command_help(const ReplCommand& command, std::size_t columns) {
    std::string out = usage(command) + "\n" + wrapped(sentence(command.help), columns);
    if (!command.alias.empty()) out.append("Also /").append(command.alias).append(".\n");
    if (!command.details.empty()) out += wrapped(command.details, columns);
    return out;
}

std::string commands_markdown() {
    std::string out =
        "<!-- generated from the command table (app/repl/commands); renew with: foresay repl-reference -->\n"
        "# The conversation loop\n\n"
        "What you write goes to the model; a line that begins with a slash is a command. An unambiguous beginning of "
        "a\n"
        "command's name is enough. `/help` shows this list and `/help COMMAND` one entry.\n\n"
        "An entry that begins with a space is not kept in the history. Keys typed during an answer are shown below it "
        "and\n"
        "belong to the next entry.\n\n"
        "| key | does |\n|---|---|\n";
    for (const Habit& habit : kHabits)
        out.append("| `").append(habit.keys).append("` | ").append(habit.help).append(" |\n");
    for (const CommandTopic& topic : command_topics()) {
        out.append("\n## ").append(topic.title).append("\n");
        for (const ReplCommand& command : topic.commands) {
            out.append("\n### `").append(usage(command)).append("`\n\n").append(sentence(command.help)).append("\n");
            if (!command.alias.empty()) out.append("Also `/").append(command.alias).append("`.\n");
            if (!command.details.empty()) out.append("\n").append(wrapped(command.details, kMarkdownColumns));
        }
    }
    return out;
}

}  // namespace foresay::app
