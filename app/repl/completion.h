// app/repl/completion.h: completion of the word at the cursor.
//
// Cost:     paths read a directory and plugins the plugin folders; everything else is in memory.
// Errors:   none: a folder that cannot be read has no candidates.
#pragma once

#include <string>
#include <string_view>

#include "app/repl/command.h"

namespace foresay::app {

// Replacements for the last word of `line`, which ends at the cursor.
struct LineCompletion {
    std::size_t start = 0;  // where that word begins, in bytes
    Candidates candidates;  // sorted, each once, all beginning with the word
};
LineCompletion complete_line(Repl& repl, std::string_view line);

// The bytes that all candidates begin with.
std::string common_beginning(const Candidates& candidates);

// The candidates in as many columns as fit, file names without their folders.
std::string in_columns(const Candidates& candidates, std::size_t columns);

// For the commands' own completion functions.
Candidates complete_files(const CompletionRequest& request);     // files and folders; "~/" is the home
Candidates complete_keys(const CompletionRequest& request);      // keys that /set takes
Candidates complete_commands(const CompletionRequest& request);  // names of commands
Candidates stage_names(Repl& repl);                              // built-in samplers and loaded plugins
Candidates plugin_names();                                       // plugins found on the plugin path

}  // namespace foresay::app
