// Commands about the program itself.
#include <string>

#include "app/output.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/repl.h"

namespace foresay::app {

namespace {

void help(Repl&, const std::string& arguments) {
    if (arguments.empty()) return say(commands_help());
    const std::size_t slash = arguments.starts_with('/') ? 1 : 0;
    say(command_help(find_command(std::string_view(arguments).substr(slash))));
}

void quit(Repl& repl, const std::string&) { repl.quit(); }

constexpr ReplCommand kCommands[] = {
    {"help", "[COMMAND]", "this list, or more about one command", "", help, complete_commands, "?"},
    {"quit", "", "leave", "Ctrl-D at an empty prompt is the same.", quit, nullptr, "exit"},
};

}  // namespace

CommandTopic program_commands() { return {"Program", kCommands}; }

}  // namespace foresay::app
