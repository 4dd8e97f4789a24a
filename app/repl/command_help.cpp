// Renders the command table for /help and for docs/repl.md.
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

// What can be typed besides commands.
constexpr Habit kHabits[] = {
    {"//TEXT", "sends TEXT with one slash in front"},
    {"Enter", "sends the entry; where the model continues a document, a newline ends the entry"},
    {"Ctrl-J, Alt-Enter", "begins another line of the entry"},
    {"\"\"\"",
     "alone on a line, begins and ends text of several lines, also after a command (/fim \"\"\"); for text with "
     "such lines, use more quotes at both ends"},
    {"paste", "pasted lines are one entry, sent as they are; a long paste appears as a label"},
    {"Tab", "completes commands, keys, values and files"},
    {"Ctrl-R", "searches earlier entries, again for an older one; the arrow keys step through all of them"},
    {"Ctrl-X Ctrl-E", "edits the entry in $VISUAL or $EDITOR"},
    {"Ctrl-C", "stops an answer and keeps what there is of it; twice at the prompt quits"},
    {"Ctrl-D", "quits"},
};

// An entry of /help: what to type, and what it does, beside it or on the next line if the call is long.
std::string entry(std::string_view call, std::string_view help, std::size_t columns) {
    const std::size_t indent = std::min(kCallColumns, columns / 2);
    std::string out = "  ";
    out += call;
    if (out.size() + 2 > indent) return out + "\n" + wrapped(help, columns, indent);
    return out + wrapped(help, columns, indent).substr(out.size());
}

// `help` with a capital and a full stop.
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
    return out + wrapped("/help COMMAND shows more. A command can be shortened to an unambiguous prefix.", columns);
}

std::string command_help(const ReplCommand& command, std::size_t columns) {
    std::string out = usage(command) + "\n" + wrapped(sentence(command.help), columns);
    if (!command.alias.empty()) out.append("Also /").append(command.alias).append(".\n");
    if (!command.details.empty()) out += wrapped(command.details, columns);
    return out;
}

std::string commands_markdown() {
    std::string out =
        "<!-- generated from the command table (app/repl/commands); regenerate with: foresay repl-reference -->\n"
        "# The conversation loop\n\n"
        "What you write goes to the model; a line that begins with a slash is a command. Commands can be shortened to\n"
        "an unambiguous prefix. `/help` shows this list, `/help COMMAND` one entry.\n\n"
        "A model that does not converse continues a document (the style `complete`). An entry is one or more lines of\n"
        "it: a newline ends it, and one precedes it where an answer stopped within a line, so the line breaks on the\n"
        "screen are those that the model reads. `/print` prints the document, `/more` continues an answer that was "
        "cut.\n"
        "With `/set chat.newline false`, entries are added as they are: the prompt then shows the end of the line "
        "that\n"
        "the entry continues, and the answer continues the last line of the entry. A backslash at the end of a line "
        "is\n"
        "text.\n\n"
        "Piped input is one prompt, whatever it contains: `cat file.py | foresay chat`. With `--lines` it is read line "
        "by\n"
        "line, as if it were typed: `printf 'def f(x):\\n/retry\\n' | foresay chat --lines`. Empty lines are "
        "skipped.\n\n"
        "An entry that begins with a space is not kept in the history. Keys typed during an answer are shown below\n"
        "it and become part of the next entry.\n\n"
        "| key | what it does |\n|---|---|\n";
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
