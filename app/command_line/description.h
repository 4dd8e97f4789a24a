// app/command_line/description.h: the program's commands and options as plain data, for help, the manual page and shell
// completion. Recorded while the commands declare their options, so that they cannot drift apart.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace foresay::app {

// What a shell should offer for an option's value or for an argument.
enum class ValueHint : std::uint8_t {
    none,            // free text, a number
    file,            // any file or folder: models, prompts
    config_file,     // a configuration
    config_setting,  // KEY=VALUE
    words,           // one of OptionDescription::words
};

struct OptionDescription {
    std::vector<std::string> names;  // "-n", "--seed"; empty for an argument without a name
    std::string value;               // name of the value or the argument, as help shows it; empty for a flag
    std::string doc;
    bool shared = false;    // one of the common options
    bool required = false;  // the argument must be given
    bool repeatable = false;
    ValueHint hint = ValueHint::none;
    std::vector<std::string> words;
};

struct CommandDescription {
    std::string name;  // "complete", "config check"
    std::string doc;
    std::string parent_doc;                  // of "config" in "config check"; empty for a command of one word
    std::string usage;                       // of its arguments, if their names alone do not show it
    std::string details;                     // more about the command; empty for most
    std::vector<OptionDescription> options;  // named ones in the order of their declaration, then arguments
};

// All commands but the hidden ones, in the order of help; "" is the program itself, with --help and --version.
std::vector<CommandDescription> command_line();

// What `foresay COMMAND --help` prints.
std::string command_help(const CommandDescription& command);

// A heading of help with its commands, each with its doc.
struct CommandHeading {
    std::string title;
    std::vector<std::pair<std::string, std::string>> commands;
};
// What --help prints for the program and for a family.
std::string command_list_help(const std::string& name, const std::string& doc,
                              const std::vector<CommandHeading>& headings,
                              const std::vector<OptionDescription>& options);

// The manual page, for man(1).
std::string manual_page();

// A completion script. `shell` is one of completion_shells(). Errors: UsageError for any other.
std::string completion_script(std::string_view shell);
std::vector<std::string> completion_shells();

}  // namespace foresay::app
