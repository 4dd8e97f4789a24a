// Parses the command line: every registered command declares its options, CLI11 parses, and the chosen command is
// returned. Also turns CLI11's errors into ours.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <deque>

#include "app/command_line/parser.h"
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
constexpr const char* kProgramDoc = "run a large language model, sped up by a small draft model";

class ProgramParser {
public:
    ProgramParser() {
        app_.name("foresay");
        app_.set_help_flag("-h,--help");
        app_.set_version_flag("--version", std::string("foresay ") + FORESAY_VERSION);
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
        if (const ParserNode* node = chosen()) return command_help(node->description);
        const auto given = app_.get_subcommands();
        if (given.empty()) return command_list_help("foresay", kProgramDoc, headings(nullptr), {kHelp, kVersion});
        const CLI::App* family = given.front();
        return command_list_help(given_words(), family->get_description(), headings(family), {kHelp});
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
        std::vector<CommandDescription> out = {{.name = "", .doc = kProgramDoc}};
        out.front().options = {kHelp, kVersion};
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
    std::deque<ParserNode> nodes_;  // a deque, because the parsers hold references to its elements
};

// Joins a value that begins with a dash to its option ("-p" "- item" becomes "-p- item"); CLI11 would take it for
// another option.
std::vector<std::string> joined(int argc, const char* const* argv, const std::vector<std::string>& any_text_names) {
    std::vector<std::string> out;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const bool takes_any =
            std::find(any_text_names.begin(), any_text_names.end(), argument) != any_text_names.end();
        if (takes_any && i + 1 < argc && argv[i + 1][0] == '-') {
            out.push_back(argument + (argument.starts_with("--") ? "=" : "") + argv[++i]);
        } else {
            out.push_back(argument);
        }
    }
    std::reverse(out.begin(), out.end());  // as CLI11 wants them
    return out;
}

// Our message for a parse error, or CLI11's if we have none.
std::string sentence(const CLI::ParseError& problem, const CLI::App& app, int argc, const char* const* argv) {
    const int status = problem.get_exit_code();
    const bool extra = status == static_cast<int>(CLI::ExitCodes::ExtrasError);
    if (extra || status == static_cast<int>(CLI::ExitCodes::RequiredError)) {
        const std::string what = mistyped(app, argc, argv);
        if (!what.empty()) return what;
    }
    if (const auto rest = app.remaining(true); extra && !rest.empty()) return "unexpected argument '" + rest[0] + "'";
    const std::string what = problem.what();
    if (status == static_cast<int>(CLI::ExitCodes::ArgumentMismatch)) {
        return what.substr(0, what.find(':')) + " needs a value";
    }
    return what;
}

}  // namespace

std::vector<CommandDescription> command_line() { return ProgramParser().descriptions(); }

ParsedCommand parse_command_line(int argc, const char* const* argv) {
    ProgramParser parser;
    try {
        parser.app().parse(joined(argc, argv, parser.any_text_names()));
    } catch (const CLI::CallForHelp&) {
        return {nullptr, parser.help()};
    } catch (const CLI::CallForVersion& version) {
        return {nullptr, version.what() + std::string("\n")};
    } catch (const CLI::ParseError& problem) {
        throw UsageError(sentence(problem, parser.app(), argc, argv) + " (see " + parser.given_words() + " --help)");
    }
    ParserNode* node = parser.chosen();
    if (node == nullptr) throw UsageError("a command is required (see " + parser.given_words() + " --help)");
    node->options->finish();
    return {std::move(node->command), std::nullopt};
}

}  // namespace foresay::app
