#include "app/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <map>
#include <sstream>

#include "app/command_line/command_line.h"
#include "app/configuration.h"
#include "base/error.h"
#include "core/config/nearest.h"
#include "core/models/shapes.h"

namespace foresay::app {

namespace {

constexpr const char* kDefaultEncoding = "q4_0";
constexpr const char* kShared = "Every command";  // the group of the options that all have
const std::vector<std::string> kBenches = {"decode",  "verify", "prefill", "speculation",
                                           "kernels", "replay", "repl",    "inflation"};

// A flag's value for a command that allows it once: CLI11 keeps the last of several by itself only when told to.
template <typename T>
CLI::Option* flag(CLI::App& app, const std::string& name, T& value, const std::string& doc) {
    return app.add_option(name, value, doc)->take_last();
}

// Whole numbers are read here before CLI11 converts them, because it cuts what is too large down to the largest.
std::string check_whole(const std::string& text) {
    std::int64_t value = -1;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error == std::errc() && stop == end && value >= 0) return "";
    return "must be a whole number from 0 to " + std::to_string(std::numeric_limits<std::int64_t>::max()) + ", not '" +
           text + "'";
}

void add_common(CLI::App& app, Options& options) {
    app.add_option("--set", options.sets, "set a configuration key: key.path=value (repeatable)")
        ->allow_extra_args(false)
        ->group(kShared);
    flag(app, "--model", options.model, "model instead of a configuration")->group(kShared);
    flag(app, "--draft", options.draft, "draft model")->group(kShared);
    flag(app, "--shape", options.shape, "published shape with random weights, for benchmarks")->group(kShared);
    flag(app, "--encoding", options.encoding, "weight encoding of --shape and --inflate (q4_0)")->group(kShared);
    flag(app, "--context", options.context, "positions of the context")->group(kShared);
    flag(app, "--threads", options.threads, "threads that compute")->group(kShared);
    flag(app, "--device", options.device, "auto, cpu or cuda[:N]")->group(kShared);
    flag(app, "--kv-cache", options.kv_cache, "keys and values in 16 bits (f16) or in 8 (q8)")->group(kShared);
}

// For the commands that measure or compare.
void add_inflation(CLI::App& app, Options& options) {
    flag(app, "--inflate", options.inflate,
         "embed the target in a published shape that computes the same function: the cost is that of the large shape, "
         "the tokens are the small model's, and results say so");
    flag(app, "--inflate-draft", options.inflate_draft, "the same for the draft");
    flag(app, "--draft-encoding", options.draft_encoding, "weight encoding of --inflate-draft (q4_0)");
}

void add_sampling(CLI::App& app, Options& options) {
    flag(app, "-n", options.max_tokens,
         "longest completion in tokens (256, of benchmarks 128; 0: to the end of the context)")
        ->check(check_whole);
    flag(app, "--seed", options.seed, "seed of the noise")->check(check_whole);
    flag(app, "--branch", options.branch, "another text from the same seed")->check(check_whole);
    flag(app, "--speculation", options.speculation, "auto, off, or a fixed number of drafted tokens");
}

CLI::App* add_chat(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("chat", "talk to a model, or let it continue what you write");
    add_common(*command, options);
    command->add_option("CONFIG", options.config, "configuration file");
    add_sampling(*command, options);
    command->add_flag("--simple-io", options.simple_io, "plain lines, without editing and cursor movements");
    auto* last = command->add_flag("--continue,-c", options.continue_last, "go on with the session used last");
    flag(*command, "--session", options.session, "go on with the session of this name, or begin it")->excludes(last);
    command->add_flag("--no-save", options.no_save, "do not save the conversation");
    return command;
}

CLI::App* add_complete(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("complete", "one completion, streamed to standard output");
    add_common(*command, options);
    add_inflation(*command, options);
    command->add_option("CONFIG", options.config, "configuration file");
    auto* prompt = flag(*command, "-p", options.prompt, "prompt");
    flag(*command, "-f", options.file, "file that holds the prompt")->excludes(prompt);
    add_sampling(*command, options);
    command->add_option("--temperature", options.temperatures, "temperature; 0 takes the best token")
        ->expected(1)
        ->take_last();
    command->add_option("--stop", options.stop, "text that ends the completion (repeatable)")->allow_extra_args(false);
    command->add_flag("--ignore-eos", options.ignore_eos, "go on behind an end of text");
    command->add_flag("--json", options.json, "print one JSON object");
    command->add_flag("--token-ids", options.token_ids, "print token ids instead of text");
    return command;
}

CLI::App* add_bench(CLI::App& app, Options& options) {
    CLI::App* command =
        app.add_subcommand("bench", "measure: decode, verify, prefill, speculation, kernels, replay, repl, inflation");
    add_common(*command, options);
    add_inflation(*command, options);
    command->add_option("ARGS", options.paths, "[CONFIG] and what to measure")->required()->expected(1, 2);
    add_sampling(*command, options);
    command->add_option("--temperature", options.temperatures, "temperature (repeatable)")->allow_extra_args(false);
    flag(*command, "--prompts", options.prompts_file, "prompts for speculation and replay, one JSON object per line");
    flag(*command, "--runs", options.runs, "runs of each measurement (3)")->check(CLI::Range(1, 1000));
    command->add_flag("--json", options.json, "print one JSON object");
    return command;
}

CLI::App* add_perplexity(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("perplexity", "how well a model predicts a text");
    add_common(*command, options);
    add_inflation(*command, options);
    command->add_option("CONFIG", options.config, "configuration file");
    flag(*command, "-f", options.file, "file that holds the text")->required();
    command->add_flag("--json", options.json, "print one JSON object");
    return command;
}

CLI::App* add_logits(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("logits", "raw logits, for comparisons");
    add_common(*command, options);
    add_inflation(*command, options);
    flag(*command, "--tokens", options.tokens_file, "JSON file: {\"tokens\": [...], \"positions\": [...]}")->required();
    flag(*command, "--width", options.width, "feed so many tokens at a time as decode rows")->check(CLI::Range(1, 64));
    command->add_flag("--hex", options.hex, "print the bits of each number");
    return command;
}

CLI::App* add_tokenize(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("tokenize", "token ids of a text");
    add_common(*command, options);
    flag(*command, "-f", options.file, "file that holds the text");
    command->add_flag("--no-special", options.no_special, "no BOS, and special-token text is plain text");
    command->add_flag("--json", options.json, "print one JSON object");
    return command;
}

CLI::App* add_inspect(CLI::App& app, Options& options) {
    CLI::App* command = app.add_subcommand("inspect", "metadata, tensors and sizes of models; two: can they pair?");
    add_common(*command, options);
    add_inflation(*command, options);
    command->add_option("PATH", options.paths, "model")->required();
    return command;
}

// Which subcommand was chosen, nested ones included.
Command chosen(const CLI::App& app, Options& options) {
    if (app.got_subcommand("chat")) return Command::chat;
    if (app.got_subcommand("complete")) return Command::complete;
    if (app.got_subcommand("perplexity")) return Command::perplexity;
    if (app.got_subcommand("logits")) return Command::logits;
    if (app.got_subcommand("tokenize")) return Command::tokenize;
    if (app.got_subcommand("inspect")) return Command::inspect;
    if (app.got_subcommand("repl-reference")) return Command::repl_reference;
    if (app.got_subcommand("config")) {
        const CLI::App* config = app.get_subcommand("config");
        if (config->got_subcommand("check")) return Command::config_check;
        if (config->got_subcommand("schema")) return Command::config_schema;
        return config->got_subcommand("reference") ? Command::config_reference : Command::config_show;
    }
    if (app.got_subcommand("completion")) return Command::completion;
    if (app.got_subcommand("manual")) return Command::manual;
    if (app.got_subcommand("session")) {
        const CLI::App* session = app.get_subcommand("session");
        if (session->got_subcommand("list")) return Command::session_list;
        if (session->got_subcommand("delete")) return Command::session_delete;
        return session->got_subcommand("show") ? Command::session_show : Command::session_replay;
    }
    if (app.got_subcommand("plugin")) {
        return app.get_subcommand("plugin")->got_subcommand("list") ? Command::plugin_list : Command::plugin_show;
    }
    // bench: its positionals are an optional configuration and what to measure.
    options.bench = options.paths.back();
    if (options.paths.size() == 2) options.config = options.paths.front();
    if (std::find(kBenches.begin(), kBenches.end(), options.bench) == kBenches.end()) {
        throw UsageError("there is no benchmark '" + options.bench +
                         "'; known are decode, verify, prefill, speculation, kernels, replay, repl and inflation");
    }
    return Command::bench;
}

void check_together(const Options& options) {
    if (!options.shape.empty() && (!options.model.empty() || !options.config.empty())) {
        throw UsageError("--shape stands instead of a model or a configuration; leave one of them out");
    }
    if (options.shape.empty() && options.inflate.empty() && !options.encoding.empty()) {
        throw UsageError(
            "--encoding is that of a --shape or of --inflate; the weights of a model have the encoding of its file");
    }
    if (!options.shape.empty() && !options.inflate.empty()) {
        throw UsageError("--shape has random weights and --inflate those of a model; leave one of them out");
    }
    if (options.inflate_draft.empty() && !options.draft_encoding.empty()) {
        throw UsageError("--draft-encoding is that of --inflate-draft; name a shape there");
    }
    if (options.bench == "repl" && !(options.inflate.empty() && options.inflate_draft.empty())) {
        throw UsageError("bench repl measures conversations, which have no inflated models; leave --inflate out");
    }
    if ((options.command == Command::logits || options.command == Command::tokenize) && options.model.empty() &&
        options.shape.empty()) {
        throw UsageError("name the model with --model PATH");
    }
    if (!options.speculation.empty() && options.speculation != "auto" && options.speculation != "off") {
        int count = -1;
        const char* end = options.speculation.data() + options.speculation.size();
        const auto [stop, error] = std::from_chars(options.speculation.data(), end, count);
        if (error != std::errc() || stop != end || count < 0 || count > core::kMaxDraft) {
            throw UsageError("--speculation must be auto, off or a number up to " + std::to_string(core::kMaxDraft) +
                             ", not '" + options.speculation + "'");
        }
    }
}

// A value may begin with a dash ("-p '- item'"); CLI11 takes such an argument for a flag unless it is joined to its own.
std::vector<std::string> joined(int argc, const char* const* argv) {
    std::vector<std::string> out;
    for (int i = 1; i < argc; ++i) {
        const std::string argument = argv[i];
        const bool takes_text = argument == "-p" || argument == "--stop";
        if (takes_text && i + 1 < argc && argv[i + 1][0] == '-') {
            out.push_back(argument + (argument == "-p" ? "" : "=") + argv[++i]);
        } else {
            out.push_back(argument);
        }
    }
    std::reverse(out.begin(), out.end());  // as CLI11 wants them
    return out;
}

core::ConfigLayer layer(const std::string& flag, const std::string& assignment) {
    return core::override_layer(assignment, flag);
}

// What a shell can offer for a value, by the name of the option or argument. Numbers and free text are not here.
void add_hint(OptionDescription& option) {
    struct Known {
        std::string_view name;
        ValueHint hint;
        std::vector<std::string> words = {};
    };
    std::vector<std::string> encodings, stages;
    for (int i = 0; i < kernels::kEncodings; ++i) {
        encodings.emplace_back(kernels::info(static_cast<kernels::Encoding>(i)).name);
    }
    for (const core::StageSchema& stage : stage_schemas()) stages.push_back(stage.name);
    const std::vector<Known> table = {
        {"--set", ValueHint::config_setting},
        {"--model", ValueHint::file},
        {"--draft", ValueHint::file},
        {"--shape", ValueHint::words, core::published_shape_names()},
        {"--inflate", ValueHint::words, core::published_shape_names()},
        {"--inflate-draft", ValueHint::words, core::published_shape_names()},
        {"--encoding", ValueHint::words, encodings},
        {"--draft-encoding", ValueHint::words, encodings},
        {"--device", ValueHint::words, {"auto", "cpu", "cuda"}},
        {"--kv-cache", ValueHint::words, {"f16", "q8"}},
        {"--speculation", ValueHint::words, {"auto", "off"}},
        {"-f", ValueHint::file},
        {"--tokens", ValueHint::file},
        {"--prompts", ValueHint::file},
        {"CONFIG", ValueHint::config_file},
        {"FILE", ValueHint::config_file},
        {"PATH", ValueHint::file},
        {"ARGS", ValueHint::words, kBenches},
        {"SHELL", ValueHint::words, completion_shells()},
        {"NAME", ValueHint::words, stages},
    };
    for (const Known& known : table) {
        const bool named = std::find(option.names.begin(), option.names.end(), known.name) != option.names.end();
        if (!named && (!option.names.empty() || option.value != known.name)) continue;
        option.hint = known.hint;
        option.words = known.words;
    }
}

// What stands for the value of an option in help: the type says nothing to a person.
std::string value_name(const CLI::Option& option) {
    static const std::map<std::string, std::string> names = {
        {"set", "KEY=VALUE"}, {"model", "PATH"},    {"draft", "PATH"},      {"shape", "NAME"},
        {"encoding", "NAME"}, {"device", "DEVICE"}, {"kv-cache", "f16|q8"}, {"speculation", "auto|off|N"},
        {"stop", "TEXT"},     {"session", "NAME"},  {"p", "TEXT"},          {"f", "FILE"},
        {"tokens", "FILE"},   {"prompts", "FILE"},  {"seed", "SEED"},       {"branch", "BRANCH"},
        {"temperature", "T"},
    };
    for (const auto* list : {&option.get_lnames(), &option.get_snames()}) {
        for (const std::string& name : *list) {
            if (const auto found = names.find(name); found != names.end()) return found->second;
        }
    }
    return option.get_type_name().find("TEXT") != std::string::npos ? "TEXT" : "N";
}

OptionDescription describe(const CLI::Option& option) {
    OptionDescription out;
    for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
    for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
    if (option.get_positional() && out.names.empty()) {
        out.value = option.get_name();
        out.required = option.get_required();
    } else if (option.get_items_expected_max() > 0) {
        out.value = value_name(option);
    }
    out.doc = option.get_description();
    out.shared = option.get_group() == kShared;
    out.repeatable = option.get_items_expected_max() > 1;
    add_hint(out);
    return out;
}

CommandDescription describe(const std::string& name, const CLI::App& app) {
    CommandDescription out{name, app.get_description(), "", {}};
    for (const bool arguments : {false, true}) {
        for (const CLI::Option* option : app.get_options()) {
            OptionDescription described = describe(*option);
            if (described.names.empty() == arguments) out.options.push_back(std::move(described));
        }
    }
    return out;
}

// The whole command line.
void build(CLI::App& app, Options& options) {
    app.name("foresay");
    app.description("foresay: a large model and a small one, and text that depends on the large one alone");
    app.set_version_flag("--version", std::string("foresay ") + FORESAY_VERSION);
    app.require_subcommand(1);
    app.set_help_flag("-h,--help", "print this help");
    for (auto add : {add_chat, add_complete, add_bench, add_perplexity, add_logits, add_tokenize, add_inspect}) {
        add(app, options);
    }
    CLI::App* config = app.add_subcommand("config", "check and show configurations");
    config->require_subcommand(1);
    CLI::App* check = config->add_subcommand("check", "check configuration files");
    add_common(*check, options);
    check->add_option("FILE", options.paths, "configuration file")->required();
    CLI::App* show = config->add_subcommand("show", "the whole configuration, with the origin of each value");
    add_common(*show, options);
    show->add_option("CONFIG", options.config, "configuration file");
    CLI::App* plugin = app.add_subcommand("plugin", "the stages that a chain can have");
    plugin->require_subcommand(1);
    add_common(*plugin->add_subcommand("list", "every built-in stage and every plugin found"), options);
    CLI::App* plugin_show = plugin->add_subcommand("show", "one of them, with its parameters");
    add_common(*plugin_show, options);
    plugin_show->add_option("NAME", options.name, "stage, plugin, or a plugin's file")->required();
    config->add_subcommand("schema", "a JSON Schema of configurations, for editors");
    config->add_subcommand("reference", "every key with its type, default and meaning, as Markdown");
    CLI::App* completion = app.add_subcommand("completion", "a script that teaches a shell to complete foresay");
    completion->add_option("SHELL", options.name, "bash, zsh or fish")->required();
    app.add_subcommand("manual", "the manual page, for man")->group("");
    CLI::App* session = app.add_subcommand("session", "saved conversations");
    session->require_subcommand(1);
    session->add_subcommand("list", "every saved conversation, the one used last first");
    CLI::App* session_show = session->add_subcommand("show", "the text of one");
    session_show->add_option("SESSION", options.name, "name or path of a session")->required();
    CLI::App* session_replay = session->add_subcommand("replay", "draw every answer of one again, and compare");
    add_common(*session_replay, options);
    session_replay->add_option("SESSION", options.name, "name or path of a session")->required();
    CLI::App* session_delete = session->add_subcommand("delete", "delete some for good");
    session_delete->add_option("SESSION", options.paths, "names of sessions")->required();
    // Makes docs/repl.md; of no use to anybody else, so help does not name it.
    app.add_subcommand("repl-reference", "the commands of chat as Markdown")->group("");
}

}  // namespace

std::vector<CommandDescription> command_line() {
    Options options;
    CLI::App app;
    build(app, options);
    std::vector<CommandDescription> commands = {describe("", app)};
    const auto shown = [](const CLI::App* command) { return !command->get_group().empty(); };
    for (const CLI::App* command : app.get_subcommands(shown)) {
        const auto children = command->get_subcommands(shown);
        for (const CLI::App* child : children) {
            commands.push_back(describe(command->get_name() + " " + child->get_name(), *child));
            commands.back().parent_doc = command->get_description();
        }
        if (children.empty()) commands.push_back(describe(command->get_name(), *command));
    }
    return commands;
}

namespace {

// What CLI11 says of a mistyped command or option is that something is missing or was not expected; this is which, and
// what was probably meant. Empty where the mistake is another one.
std::string mistyped(const CLI::App& root, int argc, const char* const* argv) {
    const CLI::App* app = &root;
    std::string where;
    const auto lacks = [&](const std::string& what) {
        return (where.empty() ? "there is" : where + " has") + " no " + what;
    };
    for (int i = 1; i < argc; ++i) {
        const std::string word = argv[i];
        const auto commands = app->get_subcommands([](const CLI::App*) { return true; });
        if (!commands.empty() && !word.starts_with('-')) {
            std::vector<std::string> names;
            const CLI::App* chosen = nullptr;
            for (const CLI::App* command : commands) {
                if (command->get_name() == word) chosen = command;
                if (!command->get_group().empty()) names.push_back(command->get_name());
            }
            if (chosen == nullptr) return lacks("command '") + word + "'" + core::suggestion(word, names);
            app = chosen;
            where += (where.empty() ? "" : " ") + word;
            continue;
        }
        const std::string name = word.substr(0, word.find('='));
        if (!name.starts_with("--") || name == "--" || app->get_option_no_throw(name) != nullptr) continue;
        std::vector<std::string> names;
        for (const CLI::Option* option : app->get_options()) {
            for (const std::string& known : option->get_lnames()) names.push_back("--" + known);
        }
        const std::string near = core::nearest(name, names);
        return lacks("option '") + name + "'" + (near.empty() ? "" : "; did you mean '" + near + "'?");
    }
    return "";
}

}  // namespace

ParsedOptions parse_options(int argc, const char* const* argv) {
    ParsedOptions parsed;
    Options& options = parsed.options;
    CLI::App app;
    build(app, options);
    try {
        app.parse(joined(argc, argv));
    } catch (const CLI::ParseError& problem) {
        std::ostringstream out, error;
        const int status = app.exit(problem, out, error);
        if (status != 0) {
            const bool unknown = status == static_cast<int>(CLI::ExitCodes::ExtrasError) ||
                                 status == static_cast<int>(CLI::ExitCodes::RequiredError);
            const std::string what = unknown ? mistyped(app, argc, argv) : "";
            throw UsageError((what.empty() ? problem.what() : what) + " (foresay --help lists the commands)");
        }
        parsed.text = out.str();
        return parsed;
    }
    options.command = chosen(app, options);
    check_together(options);
    if (options.encoding.empty()) options.encoding = kDefaultEncoding;
    if (options.draft_encoding.empty()) options.draft_encoding = kDefaultEncoding;
    return parsed;
}

std::vector<core::ConfigLayer> option_layers(const Options& options) {
    std::vector<core::ConfigLayer> layers;
    for (std::size_t i = 0; i < options.sets.size(); ++i) {
        layers.push_back(layer("--set #" + std::to_string(i + 1), options.sets[i]));
    }
    const auto add = [&](const std::string& flag, const std::string& key, const std::string& value) {
        layers.push_back(layer(flag, key + "=" + value));
    };
    const auto quoted = [](const std::string& text) { return core::to_toml(core::ConfigValue(text)); };
    if (!options.model.empty()) {
        add("--model", "target.model", quoted(options.model));
        layers.back().text += "\ndraft.model = \"\"";  // a model alone means no draft
    }
    if (!options.shape.empty()) {
        add("--shape", "target.model", quoted(""));
        layers.back().text += "\ndraft.model = \"\"";
    }
    if (!options.draft.empty()) add("--draft", "draft.model", quoted(options.draft));
    if (options.context) add("--context", "target.context", std::to_string(*options.context));
    if (options.threads) add("--threads", "runtime.threads", std::to_string(*options.threads));
    if (!options.device.empty()) add("--device", "runtime.device", quoted(options.device));
    if (!options.kv_cache.empty()) add("--kv-cache", "runtime.kv_cache", quoted(options.kv_cache));
    if (options.seed) add("--seed", "sampling.seed", std::to_string(*options.seed));
    if (options.branch) add("--branch", "sampling.branch", std::to_string(*options.branch));
    if (options.no_save) add("--no-save", "chat.save", "false");
    if (options.command == Command::chat && options.max_tokens) {
        add("-n", "chat.max_tokens", std::to_string(*options.max_tokens));
    }
    if (options.command != Command::bench && !options.temperatures.empty()) {
        std::ostringstream number;
        number.precision(17);
        number << options.temperatures.back();
        add("--temperature", "sampling.temperature.value", number.str());
    }
    const std::string& speculation = options.speculation;
    if (speculation == "auto" || speculation == "off") {
        add("--speculation", "speculation.mode", speculation);
    } else if (speculation.find_first_not_of('0') == std::string::npos) {
        if (!speculation.empty()) add("--speculation", "speculation.mode", "off");
    } else {
        add("--speculation", "speculation.length", speculation);
        layers.back().text += "\nspeculation.mode = \"fixed\"";
    }
    return layers;
}

}  // namespace foresay::app
