// Commands that change how tokens are sampled: the chain of sampler stages, and plugins.
#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "app/conversation/source_files.h"
#include "app/files.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "app/plugin_settings.h"
#include "app/repl/commands/arguments.h"
#include "app/repl/commands/topics.h"
#include "app/repl/completion.h"
#include "app/repl/rebuilt_plugins.h"
#include "app/repl/repl.h"
#include "app/stage_text.h"
#include "app/statistics.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

constexpr std::size_t kLongestValue = 200;  // of a parameter that is shown: a grammar may have pages

bool is_plugin(const core::Config& config, const std::string& name) {
    return std::any_of(config.plugins.begin(), config.plugins.end(), [&](const auto& p) { return p.name == name; });
}

const core::StageSchema* builtin(const std::string& name) {
    const auto& all = stage_schemas();
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& stage) { return stage.name == name; });
    return found == all.end() ? nullptr : &*found;
}

// The prefix of the configuration keys of a stage's parameters.
std::string prefix_of(const core::Config& config, const std::string& name) {
    return is_plugin(config, name) ? "plugin." + name + ".options." : "sampling." + name + ".";
}

std::vector<std::string> known_stages(const core::Config& config) {
    std::vector<std::string> names;
    for (const core::StageSchema& stage : stage_schemas()) names.push_back(stage.name);
    for (const core::PluginSpec& plugin : config.plugins) names.push_back(plugin.name);
    return names;
}

void check_known(const core::Config& config, const std::string& name) {
    const std::vector<std::string> names = known_stages(config);
    if (std::find(names.begin(), names.end(), name) != names.end()) return;
    throw Error("there is no sampler '" + name + "'" + core::suggestion(name, names) +
                "; /plugin load NAME loads a plugin");
}

std::vector<std::string>::iterator place_in(std::vector<std::string>& chain, const std::string& name) {
    const auto found = std::find(chain.begin(), chain.end(), name);
    if (found == chain.end()) throw Error("the chain has no '" + name + "'" + core::suggestion(name, chain));
    return found;
}

// The chain in order, with the values in use.
std::string chain_text(Repl& repl) {
    std::string out;
    int place = 0;
    for (const samplers::StageSpec& stage : repl.workspace().generator().chain().spec()) {
        out += padded(std::to_string(++place), 4) + padded(stage.name, 14);
        std::string values;
        for (const auto& [name, value] : stage.parameters) {
            std::string text = core::to_toml(core::ConfigValue(value));
            if (text.size() > kLongestValue) text = text.substr(0, kLongestValue) + "...";
            values += (values.empty() ? "" : ", ") + name + " = " + text;
        }
        out += printable(values) + "\n";
    }
    if (out.empty()) out = "The chain is empty: tokens are sampled with the model's own probabilities.\n";
    const core::Config& config = repl.engine().config();
    std::string others;
    for (const core::StageSchema& stage : stage_schemas()) {
        const bool used = std::find(config.chain.begin(), config.chain.end(), stage.name) != config.chain.end();
        if (!used) others += (others.empty() ? "" : ", ") + stage.name;
    }
    const std::size_t columns = stderr_is_terminal() ? terminal_columns() : std::numeric_limits<std::size_t>::max();
    std::string line = wrapped("Others: " + others + ".", columns);
    line.pop_back();  // its newline is not dim
    return out + dim(line) + "\n";
}

std::string stage_help(Repl& repl, const std::string& name) {
    const core::StageSchema* stage = builtin(name);
    if (stage == nullptr) {
        const std::optional<samplers::StageSpec> plugin = repl.engine().stage_spec(name);
        if (plugin && plugin->factory) return printable(describe_stage(plugin->factory->description()));
        return "`foresay plugin show " + name + "` lists the parameters of a plugin.\n";
    }
    std::string out = stage->doc + "\n";
    for (const core::KeySpec& key : stage->parameters) {
        out += "  " + padded(key.key, 14) + padded(core::to_toml(key.fallback), 10) + key.doc + "\n";
    }
    return out;
}

void sampler(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.empty()) return say(chain_text(repl));
    const core::Config& config = repl.engine().config();
    std::vector<std::string> chain = config.chain;
    const std::string& verb = words[0];
    const auto name = [&]() -> const std::string& {
        if (words.size() < 2) throw Error("write /sampler " + verb + " NAME; /sampler lists the chain");
        return words[1];
    };
    std::string toml;
    if (verb == "add") {
        check_known(config, name());
        const bool placed = words.size() > 2 && words[2].find('=') == std::string::npos;
        const std::size_t place = placed ? whole_number(words[2], "the place", 1, chain.size() + 1) : chain.size() + 1;
        if (std::find(chain.begin(), chain.end(), name()) != chain.end()) {
            throw Error("the chain already has " + name() + "; /sampler move " + name() + " PLACE moves it");
        }
        chain.insert(chain.begin() + static_cast<std::ptrdiff_t>(place - 1), name());
        toml = chain_toml(chain) + assignments(prefix_of(config, name()), words, placed ? 3 : 2);
    } else if (verb == "remove") {
        if (is_plugin(config, name())) throw Error(name() + " is a plugin; /plugin unload " + name() + " removes it");
        chain.erase(place_in(chain, name()));
        toml = chain_toml(chain);
    } else if (verb == "move") {
        const auto from = place_in(chain, name());
        if (words.size() < 3) throw Error("write /sampler move NAME PLACE");
        const std::size_t place = whole_number(words[2], "the place", 1, chain.size());
        const std::string moved = *from;
        chain.erase(from);
        chain.insert(chain.begin() + static_cast<std::ptrdiff_t>(place - 1), moved);
        toml = chain_toml(chain);
    } else {
        check_known(config, verb);
        if (words.size() == 1) return say(stage_help(repl, verb));
        toml = assignments(prefix_of(config, verb), words, 1);
    }
    Configuration next = repl.engine().configuration();
    next.set_text(toml, "/sampler");
    repl.configure(next);
    say(chain_text(repl));
}

Candidates complete_sampler(const CompletionRequest& request) {
    const core::Config& config = request.repl.engine().config();
    Candidates candidates;
    if (request.before.empty()) {
        candidates = stage_names(request.repl);
        candidates.insert(candidates.end(), {"add", "remove", "move"});
    } else if (request.before.size() == 1 && request.before[0] == "add") {
        candidates = stage_names(request.repl);
    } else if (request.before.size() == 1 && (request.before[0] == "remove" || request.before[0] == "move")) {
        candidates = config.chain;
    } else {
        const std::string& name = request.before[0] == "add" ? request.before[1] : request.before[0];
        if (const core::StageSchema* stage = builtin(name)) {
            for (const core::KeySpec& key : stage->parameters) candidates.push_back(key.key + "=");
        }
    }
    return candidates;
}

// How a plugin of the configuration runs, and what it has cost.
std::string running_text(Repl& repl, const core::PluginSpec& plugin) {
    std::string out;
    if (std::get<bool>(plugin.isolated.value)) {
        out += "  in a process of its own, at most " +
               std::to_string(std::get<std::int64_t>(plugin.deadline_ms.value)) + " ms a call\n";
    }
    for (const samplers::StageReport& report : repl.workspace().generator().chain().reports()) {
        if (report.stage != plugin.name) continue;
        out += "  " + stage_text(report) + "\n";
        if (report.failures > 0) out += "  last failure: " + printable(report.last_failure) + "\n";
        const std::string cost = stage_cost(report, repl.totals().token_ms());
        if (!cost.empty()) out += "  " + cost + "\n";
    }
    return out;
}

void list_plugins(Repl& repl) {
    const core::Config& config = repl.engine().config();
    const auto running = [&](const std::string& name) {
        const auto found = std::ranges::find(config.plugins, name, &core::PluginSpec::name);
        return found != config.plugins.end() ? running_text(repl, *found) : std::string();
    };
    std::string out;
    std::set<std::string> found;
    for (const plugins::PluginFile& file : find_plugins()) {
        out += padded(file.name, 16) + (is_plugin(config, file.name) ? "loaded  " : "        ") +
               printable(file.path.string());
        found.insert(file.name);
        if (!file.problem.empty()) out += "  cannot be loaded: " + printable(file.problem);
        if (file.bar) out += "  " + printable(plugins::PluginHost::bar_text(*file.bar));
        out += "\n" + running(file.name);
    }
    for (const core::PluginSpec& loaded : config.plugins) {  // loaded from a path outside the plugin path
        if (found.contains(loaded.name)) continue;
        out += padded(loaded.name, 16) + "loaded  " + printable(loaded.path.string()) + "\n" + running(loaded.name);
    }
    say(out.empty() ? "No plugins found; set FORESAY_PLUGIN_PATH to the folders that hold them.\n" : out);
}

// What the words after /plugin load name. `options` is set to the index of the first KEY=VALUE word.
core::PluginSpec plugin_to_load(const std::vector<std::string>& words, std::size_t& options) {
    core::PluginSpec spec;
    const bool is_path = names_plugin_file(words[1]);
    const bool named = words.size() > 2 && words[2].find('=') == std::string::npos;
    options = is_path && named ? 3 : 2;
    if (!is_path) {
        spec.name = words[1];
        return spec;
    }
    spec.path = std::filesystem::absolute(user_path(words[1])).lexically_normal();
    spec.name = named ? words[2] : spec.path.stem().string();
    if (named) return spec;
    // The file's name need not be the sampler's, as long as there is no choice.
    const auto samplers = looking_plugin_host().load_all(spec.path);
    std::string names;
    for (const auto& sampler : samplers) {
        const std::string& name = sampler->description().name;
        if (name == spec.name) return spec;
        names += (names.empty() ? "" : ", ") + name;
    }
    if (samplers.size() > 1) {
        throw Error(words[1] + " holds the samplers " + names + "; write /plugin load " + words[1] + " NAME");
    }
    spec.name = names;
    return spec;
}

void plugin(Repl& repl, const std::string& arguments) {
    const std::vector<std::string> words = split_words(arguments);
    if (words.empty() || (words.size() == 1 && words[0] == "list")) return list_plugins(repl);
    const bool load = words[0] == "load";
    if (words.size() < 2 || (!load && words[0] != "unload" && words[0] != "reload" && words[0] != "free")) {
        throw Error(
            "write /plugin list, /plugin load NAME or PATH, /plugin unload NAME, /plugin reload NAME, or "
            "/plugin free NAME");
    }
    if (words[0] == "free") {
        for (const auto& path : free_plugin(words[1])) say("Freed " + printable(path.string()) + ".\n");
        return;
    }
    const core::Config& config = repl.engine().config();
    if (words[0] == "reload") {
        if (!is_plugin(config, words[1])) throw Error("no plugin " + words[1] + " is loaded; /plugin lists them");
        repl.configure(repl.engine().configuration());  // which loads every plugin whose file has changed
        const std::string hint = comparison_hint(repl);
        say(chain_text(repl) + (hint.empty() ? hint : dim(hint) + "\n"));
        return;
    }
    std::vector<core::PluginSpec> loaded = config.plugins;
    std::vector<std::string> chain = config.chain;
    std::size_t options_at = 2;
    core::PluginSpec spec;
    if (load) {
        spec = plugin_to_load(words, options_at);
        if (is_plugin(config, spec.name)) throw Error("the plugin " + spec.name + " is already loaded");
        loaded.push_back(spec);
        chain.insert(chain.begin(), spec.name);
    } else {
        spec.name = words[1];
        if (!is_plugin(config, spec.name)) throw Error("no plugin " + spec.name + " is loaded; /plugin lists them");
        std::erase_if(loaded, [&](const auto& other) { return other.name == spec.name; });
        std::erase(chain, spec.name);
    }
    Configuration next = repl.engine().configuration();
    next.set_text(plugins_toml(loaded) + chain_toml(chain), "/plugin");
    if (load) {
        const std::string options = assignments(prefix_of(next.config(), spec.name), words, options_at);
        if (!options.empty()) next.set_text(options, "/plugin");
    }
    repl.configure(next);
    say(chain_text(repl));
}

void grammar(Repl& repl, const std::string& arguments) {
    const std::size_t space = arguments.find(' ');
    const std::string word = arguments.substr(0, space);
    const std::string rest = space == arguments.npos ? "" : arguments.substr(arguments.find_first_not_of(' ', space));
    if (word.empty()) throw Error("write /grammar FILE, /grammar json, /grammar regex EXPRESSION, or /grammar off");
    const core::Config& config = repl.engine().config();
    std::vector<std::string> chain = config.chain;
    std::erase(chain, "grammar");
    std::string language = word;
    std::string text = rest;
    if (word == "json" || word == "off") {
        if (!rest.empty()) throw Error("/grammar " + word + " takes nothing after it");
    } else if (word != "regex") {
        const std::string file = arguments;
        if (!file.ends_with(".json") && !file.ends_with(".gbnf"))
            throw Error("/grammar reads a JSON Schema (FILE.json) or GBNF (FILE.gbnf), not " + file);
        language = file.ends_with(".json") ? "json_schema" : "gbnf";
        text = read_file(file, "the grammar", core::kMaxConfigBytes);
    }
    if (word == "off") {
        language = "none";
    } else {
        chain.insert(chain.begin(), "grammar");
    }
    Configuration next = repl.engine().configuration();
    next.set_text(chain_toml(chain) + "sampling.grammar.language = " + core::to_toml(core::ConfigValue(language)) +
                      "\nsampling.grammar.text = " + core::to_toml(core::ConfigValue(text)) +
                      "\nsampling.grammar.file = \"\"\n",
                  "/grammar " + (word == "off" || word == "json" || word == "regex" ? word : arguments));
    repl.configure(next);
    say(chain_text(repl));
}

Candidates complete_grammar(const CompletionRequest& request) {
    if (!request.before.empty()) return {};
    Candidates words = {"json", "off", "regex"};
    const Candidates files = complete_files(request);
    words.insert(words.end(), files.begin(), files.end());
    return words;
}

Candidates complete_plugin(const CompletionRequest& request) {
    if (request.before.empty()) return {"list", "load", "unload", "reload", "free"};
    if (request.before.size() > 1) return {};
    Candidates names;
    if (request.before[0] == "unload" || request.before[0] == "reload") {
        for (const core::PluginSpec& plugin : request.repl.engine().config().plugins) names.push_back(plugin.name);
    } else if (request.before[0] == "free") {
        names = barred_plugin_names();
    } else if (request.before[0] == "load") {
        names = plugin_names();
        const Candidates files = complete_files(request);
        names.insert(names.end(), files.begin(), files.end());
    }
    return names;
}

constexpr ReplCommand kCommands[] = {
    {"sampler", "[NAME KEY=VALUE...|add|remove|move]", "show or change the sampler chain",
     "    /sampler                        show the chain and the values in use\n"
     "    /sampler top_k                  show what a sampler does, and its parameters\n"
     "    /sampler top_k k=20             set a parameter\n"
     "    /sampler add min_p 3 p=0.1      add a sampler in third place; without a number, at the end\n"
     "    /sampler move temperature 1     move a sampler to the first place\n"
     "    /sampler remove top_p           remove a sampler",
     sampler, complete_sampler},
    {"grammar", "FILE|json|regex EXPRESSION|off", "keep answers within a grammar",
     "FILE.json is a JSON Schema, FILE.gbnf a grammar in the notation of llama.cpp; json is any JSON value. The stage "
     "'grammar' becomes the first of the chain; /sampler grammar lists its other parameters. docs/grammars.md says "
     "what of schemas is supported.",
     grammar, complete_grammar},
    {"plugin", "[list|load NAME|unload NAME|reload NAME|free NAME]", "list, load or unload sampler plugins",
     "NAME is looked up on the plugin path; with a slash in it, or .so at its end, it is a file, and a word after it "
     "says which of its samplers is meant if there are several. The plugin becomes the first stage of the chain, and "
     "KEY=VALUE words are its options: /plugin load wordlist 'forbid=[\"TODO\"]'. /sampler move moves it to another "
     "place. /plugin reload NAME takes up a file that was built again; /retry SEED, with the seed of the last answer "
     "(0 unless it was set), then shows what changed. A plugin that has crashed is barred: it is not loaded until it "
     "is built again, or /plugin free NAME allows it.",
     plugin, complete_plugin},
};

}  // namespace

CommandTopic sampler_commands() { return {"Sampling", kCommands}; }

}  // namespace foresay::app
