// Parses the command line: every registered command declares its options, CLI11 parses, and the chosen command is
// returned. Also turns CLI11's errors into ours.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "app/command_line/parser.h"
#include "app/output.h"
#include "base/error.h"

namespace foresay::app {

namespace {

const char* heading(CommandGroup group) {
    switch (group) {
        case CommandGroup::generate:
            return "Generate text";
        case CommandGroup::models:
            return "Models and configuration";
        case CommandGroup::measure:
            return "Measure";
        case CommandGroup::other:
            return "Other commands";
        case CommandGroup::hidden:
            break;
    }
    return "";
}

struct ParserNode {
    CommandEntry entry;
    CLI::App* parent = nullptr;
    CLI::App* app = nullptr;
    std::unique_ptr<Command> command;  // null for a family
    CommandDescription description;
    std::unique_ptr<OptionParser> options;
};

const OptionDescription kHelp{{"-h", "--help"}, "", "print this help and exit"};

const OptionDescription kVersion{{"--version"}, "", "print the version and exit"};

// --color and --no-color, which every command has, and which may also stand before the command.
constexpr const char* kColorDoc = "colour messages and text: auto (on a terminal), always or never";
constexpr const char* kNoColorDoc = "the same as --color never";

void take_color(const std::string& when) {
    if (when != "auto" && when != "always" && when != "never") {
        throw UsageError("--color must be auto, always or never, not '" + when + "'");
    }
    choose_colours(when == "auto" ? Colours::automatic : when == "always" ? Colours::always : Colours::never);
}

void add_color_options(OptionParser& parser) {
    parser.common(true);
    parser.option("--color", take_color, {.value = "WHEN", .doc = kColorDoc, .words = {"auto", "always", "never"}});
    parser.flag(
        "--no-color", [] { choose_colours(Colours::never); }, kNoColorDoc);
    parser.common(false);
}
constexpr const char* kProgramDoc = "run a large language model, sped up by a small draft model";

class ProgramParser {
public:
    ProgramParser() {
        app_.name("foresay");
        app_.set_help_flag("-h,--help");
        app_.set_version_flag("--version", std::string("foresay ") + FORESAY_VERSION);
        options_ = std::make_unique<OptionParser>(app_, description_);
        description_.options = {kHelp, kVersion};
        add_color_options(*options_);
        for (CommandEntry& entry : registered_commands()) add(std::move(entry));
    }

    CLI::App& app() { return app_; }

    // The chosen command; null if none was given, or only a family.
    ParserNode* chosen() {
        for (ParserNode& node : nodes_) {
            if (node.command && node.app->parsed()) return &node;
        }
        return nullptr;
    }

    // The recognised words: "foresay config".
    std::string given_words() const {
        std::string words = "foresay";
        for (const CLI::App* app = &app_; !app->get_subcommands().empty();) {
            app = app->get_subcommands().front();
            words += " " + app->get_name();
        }
        return words;
    }

    std::string help() {
        const CLI::App* last = &app_;
        while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
        return help_of(last);
    }

    // What --help prints for the program, a family or a command.
    std::string help_of(const CLI::App* app) const {
        if (app == &app_) return command_list_help("foresay", kProgramDoc, headings(nullptr), description_.options);
        for (const ParserNode& node : nodes_) {
            if (node.app == app && node.command) return command_help(node.description);
        }
        return command_list_help("foresay " + app->get_name(), app->get_description(), headings(app), {kHelp});
    }

    std::vector<std::string> any_text_names() const {
        std::vector<std::string> names;
        for (const ParserNode& node : nodes_) {
            if (!node.options) continue;
            names.insert(names.end(), node.options->any_text_names().begin(), node.options->any_text_names().end());
        }
        return names;
    }

    std::vector<CommandDescription> descriptions() const {
        std::vector<CommandDescription> out = {description_};
        for (const ParserNode& node : nodes_) {
            if (node.command && node.entry.group != CommandGroup::hidden) out.push_back(node.description);
        }
        return out;
    }

private:
    void add(CommandEntry entry) {
        ParserNode& node = nodes_.emplace_back();
        node.entry = std::move(entry);
        const std::string& name = node.entry.name;
        node.description.name = name;
        node.description.doc = node.entry.doc;
        node.parent = &app_;
        std::string word = name;
        if (const auto space = name.find(' '); space != name.npos) {
            node.parent = app_.get_subcommand(name.substr(0, space));
            node.description.parent_doc = node.parent->get_description();
            word = name.substr(space + 1);
        }
        node.app = node.parent->add_subcommand(word, node.entry.doc);
        if (node.entry.group == CommandGroup::hidden) node.app->group("");
        if (node.entry.make == nullptr) return;
        node.description.options.push_back(kHelp);
        node.command = node.entry.make();
        node.options = std::make_unique<OptionParser>(*node.app, node.description);
        node.command->declare(*node.options);
        add_color_options(*node.options);
    }

    // The commands of the program (`family` null) or of a family.
    std::vector<CommandHeading> headings(const CLI::App* family) const {
        std::vector<CommandHeading> out;
        for (const ParserNode& node : nodes_) {
            if (node.parent != (family ? family : &app_) || node.entry.group == CommandGroup::hidden) continue;
            const std::string title = family ? "Commands" : heading(node.entry.group);
            if (out.empty() || out.back().title != title) out.push_back({title, {}});
            out.back().commands.emplace_back(node.app->get_name(), node.entry.doc);
        }
        return out;
    }

    CLI::App app_;
    CommandDescription description_{.name = "", .doc = kProgramDoc};
    std::unique_ptr<OptionParser> options_;  // of the program itself
    std::deque<ParserNode> nodes_;           // a deque, because the parsers hold references to its elements
};

// Joins a value that begins with a dash to its option ("-p" "- item" becomes "-p- item"); CLI11 would take it for
// another option.
std::vector<std::string> joined(int argc, const char* const* argv, const std::vector<std::string>& any_text_names) {
    std::vector<std::string> out;
    bool command = false;  // a word that is no option was there
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const bool takes_any =
            std::find(any_text_names.begin(), any_text_names.end(), argument) != any_text_names.end();
        if (takes_any && i + 1 < argc && argv[i + 1][0] == '-') {
            out.push_back(argument + (argument.starts_with("--") ? "=" : "") + argv[++i]);
            continue;
        }
        out.push_back(argument);
        if (command || argument.starts_with('-')) continue;
        command = i < 2 || std::string_view(argv[i - 1]) != "--color";
        // CLI11 would take the command to explain for the command itself.
        if (argument == "help" && i + 1 < argc && argv[i + 1][0] != '-') out.push_back("--");
    }
    std::reverse(out.begin(), out.end());  // as CLI11 wants them
    return out;
}

// Whether `name` is an option without a value, of the program or of the command that was given.
bool is_flag(const CLI::App& root, const std::string& name) {
    for (const CLI::App* app = &root;; app = app->get_subcommands().front()) {
        const CLI::Option* option = app->get_option_no_throw(name);
        if (option != nullptr && option->get_items_expected_max() == 0) return true;
        if (app->get_subcommands().empty()) return false;
    }
}

// The option at the beginning of one of CLI11's messages ("-p: 1 required TEXT missing", "PATH is required").
std::string option_of(const CLI::ParseError& problem) {
    const std::string what = problem.what();
    return what.substr(0, what.find_first_of(": "));
}

// Our message for a parse error: none of CLI11's reaches the user.
std::string sentence(const CLI::ParseError& problem, const CLI::App& app, int argc, const char* const* argv) {
    const auto status = static_cast<CLI::ExitCodes>(problem.get_exit_code());
    if (status == CLI::ExitCodes::ExtrasError || status == CLI::ExitCodes::RequiredError) {
        const std::string what = mistyped(app, argc, argv);
        if (!what.empty()) return what;
    }
    switch (status) {
        case CLI::ExitCodes::RequiredError:
            return option_of(problem) + " is required";
        case CLI::ExitCodes::ValidationError:
            return problem.what();  // our own checks, after the option's name
        case CLI::ExitCodes::ArgumentMismatch:
            for (int i = 1; i < argc; ++i) {  // --json=5
                const std::string word = argv[i];
                const std::string name = word.substr(0, word.find('='));
                if (word.starts_with("--") && name != word && is_flag(app, name)) return name + " takes no value";
            }
            if (!option_of(problem).starts_with('-')) return "too many arguments: there is one " + option_of(problem);
            return option_of(problem) + " needs a value";
        default:
            break;
    }
    if (const auto rest = app.remaining(true); !rest.empty()) return "unexpected argument '" + rest[0] + "'";
    return "the command line cannot be understood";
}

}  // namespace

std::string help_of(const std::vector<std::string>& words) {
    ProgramParser parser;
    const CLI::App* app = &parser.app();
    for (const std::string& word : words) {
        const auto found = app->get_subcommands([&](const CLI::App* command) { return command->get_name() == word; });
        if (found.empty()) {
            std::vector<const char*> line = {"foresay"};
            for (const std::string& each : words) line.push_back(each.c_str());
            const std::string what = mistyped(parser.app(), static_cast<int>(line.size()), line.data());
            throw UsageError((what.empty() ? "unexpected argument '" + word + "'" : what) + " (see foresay --help)");
        }
        app = found.front();
    }
    return parser.help_of(app);
}

std::vector<CommandDescription> command_line() { return ProgramParser().descriptions(); }

ParsedCommand parse_command_line(int argc, const char* const* argv) {
    ProgramParser parser;
    try {
        parser.app().parse(joined(argc, argv, parser.any_text_names()));
    } catch (const CLI::CallForHelp&) {
        return {nullptr, parser.help(), nullptr};
    } catch (const CLI::CallForVersion& version) {
        return {nullptr, version.what() + std::string("\n"), nullptr};
    } catch (const CLI::ParseError& problem) {
        throw UsageError(sentence(problem, parser.app(), argc, argv) + " (see " + parser.given_words() + " --help)");
    }
    ParserNode* node = parser.chosen();
    if (node == nullptr) throw UsageError("a command is required (see " + parser.given_words() + " --help)");
    node->options->finish();
    return {std::move(node->command), std::nullopt, node->options->over_hosts()};
}

}  // namespace foresay::app
