// Commands about the program itself.
#include <algorithm>
#include <string>

#include "app/output.h"
#include "app/pager.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"
#include "app/terminal.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kWidest = 110;  // columns; longer lines are hard to read

void help(Repl&, const std::string& arguments) {
    const std::size_t columns = std::min(terminal_columns(), kWidest);
    if (arguments.empty()) return page_message(commands_help(columns));
    const std::size_t slash = arguments.starts_with('/') ? 1 : 0;
    page_message(command_help(find_command(std::string_view(arguments).substr(slash)), columns));
}

void view(Repl& repl, const std::string& arguments) {
    if (!arguments.empty() && arguments != "on" && arguments != "off") {
        throw Error("write /view on or /view off, not /view " + arguments);
    }
    if (const std::string why = repl.why_no_tint(); !why.empty()) {
        if (arguments == "on") throw Error("drafted tokens cannot be marked here, because " + why);
        return say("Answers are plain text, because " + why + ".\n");
    }
    if (!arguments.empty()) repl.tint_drafts(arguments == "on");
    say(repl.tints_drafts() ? "Drafted tokens are marked in answers; /view off colours code again.\n"
                            : "Code is coloured in answers; /view on marks drafted tokens instead.\n");
}

Candidates complete_switch(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    return {"on", "off"};
}

void editor(Repl& repl, const std::string& arguments) { repl.offer(repl.edited_text(arguments)); }

void quit(Repl& repl, const std::string&) { repl.quit(); }

constexpr ReplCommand kCommands[] = {
    {"help", "[COMMAND]", "show this list, or more about one command", "", help, complete_commands, "?"},
    {"editor", "[TEXT]", "write the next message in $VISUAL or $EDITOR",
     "When you leave the editor, the text is at the prompt, and Enter sends it. Ctrl-X Ctrl-E does the same with what "
     "you have typed so far.",
     editor},
    {"view", "[on|off]", "mark the tokens of answers that were drafted and accepted",
     "They are green, or underlined if NO_COLOR is set, and code has no other colours meanwhile. Off by default. The "
     "text does not change.",
     view, complete_switch},
    {"quit", "", "quit foresay", "Ctrl-D at an empty prompt does the same.", quit, nullptr, "exit"},
};

}  // namespace

CommandTopic program_commands() { return {"Program", kCommands}; }

}  // namespace foresay::app
