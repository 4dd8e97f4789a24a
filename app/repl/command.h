// app/repl/command.h: a command of the conversation loop, as data, and the table of all of them.
//
// Help, completion, the suggestions for mistyped names and docs/repl.md come from the table; nothing is said twice.
// To add a command: an entry in the file of its topic in app/repl/commands/. To add a topic: a file there, its line in
// commands/topics.h and one in command_table.cpp.
// Errors:   a handler throws Error (or core::ConfigError); the loop says it and goes on.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

class Repl;

// The word of a command's arguments at the cursor.
struct CompletionRequest {
    Repl& repl;
    std::vector<std::string> before;  // the words in front of it, without the command's name
    std::string word;                 // what stands of it so far; may be empty
};

// What the word could become. Those that do not begin with it are dropped by the caller. One that ends in '/', '=' or
// '.' is not finished: no space follows it.
using Candidates = std::vector<std::string>;

struct ReplCommand {
    std::string_view name;       // without the slash
    std::string_view arguments;  // as help shows them; capitals stand for what is filled in: "[SEED]"
    std::string_view help;       // one line, neither capital nor full stop
    std::string_view details;    // what /help NAME says besides: whole sentences; may be empty
    // `arguments`: all behind the name, without spaces and newlines at its ends; may hold newlines.
    void (*run)(Repl& repl, const std::string& arguments) = nullptr;
    Candidates (*complete)(const CompletionRequest& request) = nullptr;  // null: there is nothing to complete
    std::string_view alias = {};                                         // another name
};

struct CommandTopic {
    std::string_view title;
    std::span<const ReplCommand> commands;
};

// The table, in the order of /help.
std::span<const CommandTopic> command_topics();

// The command of a name, an alias, or the beginning of a name that only one has. Errors: Error with a suggestion.
const ReplCommand& find_command(std::string_view name);

// The words of a command's arguments. Blanks separate them; double quotes and backslashes keep blanks inside one.
std::vector<std::string> split_words(std::string_view arguments);

// Runs "/name arguments".
void run_repl_command(Repl& repl, std::string_view line);

// "/retry [SEED]"
std::string usage(const ReplCommand& command);

// The whole table as /help shows it on so many columns, one command as /help NAME shows it, and docs/repl.md.
std::string commands_help(std::size_t columns);
std::string command_help(const ReplCommand& command, std::size_t columns);
std::string commands_markdown();

}  // namespace foresay::app
