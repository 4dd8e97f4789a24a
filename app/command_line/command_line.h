// app/command_line/command_line.h: the program's commands and options as plain data, for the manual page and the shells'
// completions. The data comes from the parser itself (app/options.cpp), so that nothing can be forgotten.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
    std::string value;               // what the value or the argument is called; empty for a switch
    std::string doc;
    bool shared = false;    // every command has it
    bool required = false;  // an argument that may not be left out
    bool repeatable = false;
    ValueHint hint = ValueHint::none;
    std::vector<std::string> words;
};

struct CommandDescription {
    std::string name;  // "complete", "config check"
    std::string doc;
    std::string parent_doc;                  // of "config" in "config check"; empty for a command of one word
    std::vector<OptionDescription> options;  // named ones in the parser's order, then arguments
};

// The commands that a person calls, in the order of the program's help; "" is the program itself, with --help and
// --version.
std::vector<CommandDescription> command_line();

// The manual page, for man(1).
std::string manual_page();

// A completion script. `shell` is one of completion_shells(). Errors: UsageError for any other.
std::string completion_script(std::string_view shell);
std::vector<std::string> completion_shells();

}  // namespace foresay::app
