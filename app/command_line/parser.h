// app/command_line/parser.h: how a command declares its options and arguments, and how a command line is parsed.
//
// A declaration has everything about an option: the variable it sets, its help, what a shell offers for its value, and
// which values are valid. Help, the manual page and the completions are generated from the declarations.
// Errors:   parse_command_line() throws UsageError (exit status 2) for an invalid command line.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/description.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace foresay::app {

inline constexpr std::int64_t kAnyInteger = std::numeric_limits<std::int64_t>::min();

struct OptionText {
    std::string value;  // the value's name in help: "FILE"
    std::string doc;
    ValueHint hint = ValueHint::none;
    std::vector<std::string> words = {};  // what a shell offers; replaces the hint
    std::int64_t least = 0;               // of an integer; kAnyInteger: the configuration checks its range
    std::int64_t most = std::numeric_limits<std::int64_t>::max();
    bool required = false;
    bool any_text = false;      // the value may begin with a dash: -p '- item'
    bool once = false;          // giving it twice is a mistake; otherwise the last value counts
    std::string old_name = "";  // accepted, but not shown in help
};

struct Options;  // app/options.h

class OptionParser {
public:
    OptionParser(CLI::App& app, CommandDescription& description) : app_(app), description_(description) {}
    OptionParser(const OptionParser&) = delete;
    OptionParser& operator=(const OptionParser&) = delete;

    // Options with a value. `names`: "--continue,-c".
    void option(const std::string& names, std::string& value, OptionText text);
    void option(const std::string& names, std::optional<std::string>& value, OptionText text);
    void option(const std::string& names, int& value, OptionText text);
    void option(const std::string& names, std::optional<std::int64_t>& value, OptionText text);
    // Calls `take` with the text of the value, after parsing, in the order of the declarations.
    using Take = std::function<void(const std::string& value)>;
    void option(const std::string& names, Take take, OptionText text);
    void integer_option(const std::string& names, Take take, OptionText text);
    void number_option(const std::string& names, Take take, OptionText text);

    // Options that can be given several times.
    void option_list(const std::string& names, std::vector<std::string>& values, OptionText text);
    void option_list(const std::string& names, std::vector<double>& values, OptionText text);
    using TakeAll = std::function<void(const std::vector<std::string>& values)>;
    void option_list(const std::string& names, TakeAll take, OptionText text);

    // Options without a value.
    void flag(const std::string& names, bool& value, const std::string& doc);
    void flag(const std::string& names, std::function<void()> take, const std::string& doc);

    // Positional arguments. OptionText::value is their name in help.
    void argument(std::string& value, OptionText text);
    void argument_list(std::vector<std::string>& values, OptionText text, int least = 1, int most = kUnbounded);
    static constexpr int kUnbounded = std::numeric_limits<int>::max();

    // Makes two options that are already declared mutually exclusive.
    void exclude(const std::string& first, const std::string& second);
    // Marks the options declared from now on as common ones, which help and the manual page list separately.
    void common(bool on) { common_ = on; }
    // The arguments as help shows them, if their names alone are not enough: "[CONFIG] BENCHMARK".
    void usage(const std::string& text) { description_.usage = text; }
    // More about the command, below its options in help. Lines of at most 80 columns.
    void details(const std::string& text) { description_.details = text; }

    // The command opens the model of these options, which may have layers on several hosts (app/hosts.h).
    void over_hosts(const Options& options) { over_hosts_ = &options; }
    const Options* over_hosts() const { return over_hosts_; }

    // Adds a check that runs once all options are parsed. It may fill in values and throw UsageError.
    void after_parsing(std::function<void()> check) { checks_.push_back(std::move(check)); }
    void finish() const;

    // Names of options with `any_text`.
    const std::vector<std::string>& any_text_names() const { return any_text_names_; }

private:
    template <typename T>
    CLI::Option* add(const std::string& names, T& value, const OptionText& text);
    CLI::Option* add_take(const std::string& names, Take take, const OptionText& text);
    void refuse_twice(const std::string& name);
    // Records the option for help, the manual page and the completions.
    void describe(CLI::Option* option, const OptionText& text, bool argument = false);

    CLI::App& app_;
    CommandDescription& description_;
    std::vector<std::function<void()>> checks_;
    std::vector<std::string> any_text_names_;
    bool common_ = false;
    const Options* over_hosts_ = nullptr;
};

struct ParsedCommand {
    std::unique_ptr<Command> command;
    std::optional<std::string> text;      // of --help or --version: print it and exit; `command` is null
    const Options* over_hosts = nullptr;  // of the command: OptionParser::over_hosts()
};

ParsedCommand parse_command_line(int argc, const char* const* argv);

// What `foresay help WORDS` prints: the same as `foresay WORDS --help`. Throws UsageError for an unknown command.
std::string help_of(const std::vector<std::string>& words);

// An error with a suggestion if the command line has an unknown command or option; empty otherwise. `app`: the
// program's parser.
std::string mistyped(const CLI::App& app, int argc, const char* const* argv);

}  // namespace foresay::app
