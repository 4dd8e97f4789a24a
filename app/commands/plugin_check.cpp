// foresay plugin check: finds out whether the samplers of a plugin keep the contract.
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/configuration.h"
#include "app/options.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/config/config.h"
#include "core/config/nearest.h"
#include "engine/configuration.h"
#include "plugins/host/plugin_check.h"

namespace foresay::app {

namespace {

namespace fs = std::filesystem;
using Outcome = plugins::CheckResult::Outcome;

class Check : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument_list(arguments_,
                             {.value = "PLUGIN [KEY=VALUE...]",
                              .doc = "file or name of a plugin, or a built-in stage, and parameters for its samplers",
                              .hint = ValueHint::file,
                              .required = true});
        parser.option("--sampler", options_.sampler, {.value = "NAME", .doc = "check this sampler only"});
        std::vector<std::string> names;
        for (const auto& [name, doc] : plugins::check_names()) names.push_back(name);
        parser.option_list("--only", options_.checks,
                           {.value = "CHECK", .doc = "make this check only; may be repeated", .words = names});
        parser.integer_option("--seed", [this](const std::string& value) { options_.seed = std::stoull(value); },
                              {.value = "N", .doc = "seed of the texts that are made up (1)"});
        add_json_flag(parser, json_);
        std::string details =
            "Runs the plugin's code, each check in a process of its own. The status is 1 when a\n"
            "check fails. The checks:\n";
        for (const auto& [name, doc] : plugins::check_names()) details += "  " + padded(name, 16) + doc + "\n";
        parser.details(details);
    }

    int run() override {
        check_names_are_known();
        read_parameters();
        if (!json_) {
            options_.report = [this](const plugins::CheckResult& result) { print_line(result); };
        }
        const std::vector<plugins::CheckResult> results = check();
        if (results.empty())
            throw Error("nothing was checked: '" + arguments_[0] +
                        "' is built in, and --only names checks of a plugin's file");
        const auto count = [&](Outcome outcome) {
            return std::ranges::count_if(results, [&](const auto& result) { return result.outcome == outcome; });
        };
        const auto failed = count(Outcome::failed);
        if (json_) {
            nlohmann::ordered_json list = nlohmann::ordered_json::array();
            for (const plugins::CheckResult& result : results) list.push_back(object_of(result));
            print(nlohmann::ordered_json({{"plugin", arguments_[0]}, {"failed", failed}, {"results", std::move(list)}})
                      .dump(2, ' ', false, nlohmann::json::error_handler_t::replace) +
                  "\n");
        } else {
            print(std::to_string(count(Outcome::passed)) + " passed, " + std::to_string(failed) + " failed, " +
                  std::to_string(count(Outcome::skipped)) + " skipped\n");
        }
        return failed > 0 ? 1 : 0;
    }

private:
    void check_names_are_known() const {
        std::vector<std::string> names;
        for (const auto& [name, doc] : plugins::check_names()) names.push_back(name);
        for (const std::string& wanted : options_.checks) {
            if (std::ranges::find(names, wanted) == names.end())
                throw UsageError("--only: there is no check '" + wanted + "'" + core::suggestion(wanted, names));
        }
    }

    // Values are TOML, or a text without quotes; a plugin states their types.
    void read_parameters() {
        std::string toml = "[[plugin]]\nname = \"plugin\"\n[plugin.options]\n";
        for (std::size_t i = 1; i < arguments_.size(); ++i)
            toml += core::override_layer(arguments_[i], "parameter " + std::to_string(i)).text + "\n";
        const core::Config config = engine::load_config({{"the parameters", toml, fs::current_path(), true}}, false);
        for (const auto& [key, setting] : config.plugins.at(0).options)
            options_.parameters.emplace_back(key, setting.value);
    }

    std::vector<plugins::CheckResult> check() {
        const std::string& name = arguments_[0];
        if (const auto builtin = samplers::find_builtin(name)) return plugins::check_sampler(builtin, options_);
        const fs::path file =
            names_plugin_file(name) ? fs::path(name) : plugins::find_plugin(name, plugin_options(false).folders);
        if (file.empty()) throw Error("there is no built-in stage or plugin '" + name + "'");
        return plugins::check_plugin(file, options_);
    }

    void print_line(const plugins::CheckResult& result) {
        if (!result.sampler.empty() && result.sampler != shown_) {
            shown_ = result.sampler;
            print(printable(shown_) + "\n");
        }
        const std::string outcome(plugins::name(result.outcome));
        const bool bare = result.text.empty();
        print(printable("  " + padded(outcome, 9) + (bare ? result.check : padded(result.check, 28) + result.text)) +
              "\n");
    }

    static nlohmann::ordered_json object_of(const plugins::CheckResult& result) {
        nlohmann::ordered_json object;
        if (!result.sampler.empty()) object["sampler"] = result.sampler;
        object["check"] = result.check;
        object["outcome"] = plugins::name(result.outcome);
        if (!result.text.empty()) object["text"] = result.text;
        return object;
    }

    std::vector<std::string> arguments_;
    plugins::CheckOptions options_;
    bool json_ = false;
    std::string shown_;  // the sampler whose lines are being printed
};

const RegisterCommand<Check> kCheck("plugin check", "find out whether a plugin keeps the contract",
                                    CommandGroup::models);

}  // namespace

}  // namespace foresay::app
