// app/repl/command.h: the commands of the conversation loop, as a table.
//
// Help, completion, the suggestions for mistyped names and docs/repl.md are all made from the table.
// To add a command, add an entry to the file of its topic in app/repl/commands/. To add a topic, add a file there, a
// line in commands/topics.h and one in command_table.cpp.
// Errors:   a handler throws Error (or core::ConfigError); the loop prints it and continues.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

class Repl;

// A word of a command's arguments that is to be completed.
struct CompletionRequest {
    Repl& repl;
    std::vector<std::string> before;  // the words before it, without the command's name
    std::string word;                 // the part typed so far; may be empty
};

// What the word could become. The caller drops candidates that do not begin with it. No space is added after one that
// ends in '/', '=', '.' or ':', because more follows.
using Candidates = std::vector<std::string>;

struct ReplCommand {
    std::string_view name;       // without the slash
    std::string_view arguments;  // as help shows them; capitals are placeholders: "[SEED]"
    std::string_view help;       // one line, without a capital or a full stop
    std::string_view details;    // what /help NAME adds: whole sentences; may be empty
    // `arguments`: everything after the name, trimmed of spaces and newlines; may contain newlines.
    void (*run)(Repl& repl, const std::string& arguments) = nullptr;
    Candidates (*complete)(const CompletionRequest& request) = nullptr;  // null: no completion
    std::string_view alias = {};                                         // another name
};

struct CommandTopic {
    std::string_view title;
    std::span<const ReplCommand> commands;
};

// The table, in the order of /help.
std::span<const CommandTopic> command_topics();

// Finds a command by its name, its alias or an unambiguous prefix of its name. Errors: Error with a suggestion.
const ReplCommand& find_command(std::string_view name);

// Splits a command's arguments into words at blanks. Double quotes and backslashes keep blanks inside a word.
std::vector<std::string> split_words(std::string_view arguments);

// Runs "/name arguments".
void run_repl_command(Repl& repl, std::string_view line);

// "/retry [SEED]"
std::string usage(const ReplCommand& command);

// The output of /help and of /help NAME at this terminal width, and the text of docs/repl.md.
std::string commands_help(std::size_t columns);
std::string command_help(const ReplCommand& command, std::size_t columns);
std::string commands_markdown();

}  // namespace foresay::app
