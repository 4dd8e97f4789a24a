// foresay config: checks and shows configurations, and prints their schema for editors and readers.
#include "app/configuration.h"

#include <exception>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "base/error.h"
#include "core/config/diagnostic.h"
#include "core/config/json_schema.h"
#include "core/config/reference.h"

namespace foresay::app {

namespace {

class Check : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        parser.argument_list(
            paths_, {.value = "FILE", .doc = "configuration file", .hint = ValueHint::config_file, .required = true});
        parser.flag("--load", load_, "also load the plugins, which runs their code, and check their options");
        options_.fetch_models = false;
        options_.config_alone = true;  // the result must not depend on the user's files or environment
    }

    int run() override {
        int status = 0;
        for (const std::string& path : paths_) {
            if (!check(path)) status = 1;
        }
        return status;
    }

private:
    // Checks the models' headers, whether they pair, plugins, chain and device. Prints what is wrong. Without --load no
    // code of a plugin runs, so a configuration from anywhere can be checked.
    bool check(const std::string& path) const {
        Options options = options_;
        options.config = path;
        EngineNeeds needs;
        needs.tokenizer = false;
        needs.weights = false;
        needs.plugins = load_;
        std::string unchecked;
        try {
            const OpenedEngine engine(options, needs);
            for (const core::PluginSpec& plugin : engine.config().plugins) {
                if (!load_) unchecked += (unchecked.empty() ? "" : ", ") + plugin.name;
            }
        } catch (const core::ConfigError& problem) {
            complain(problem.text("foresay: "));
            return false;
        } catch (const Error& problem) {
            complain(std::string("foresay: ") + problem.what());
            return false;
        }
        if (!unchecked.empty()) unchecked = "; not loaded, so their options are not checked (--load): " + unchecked;
        print(path + ": ok" + printable(unchecked) + "\n");
        return true;
    }

    Options options_;
    std::vector<std::string> paths_;
    bool load_ = false;
};

class Show : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        add_config_argument(parser, options_);
        add_no_pager_flag(parser);
        options_.fetch_models = false;
    }

    int run() override {
        const Configuration configuration(options_);
        std::string layers = "# layers, lowest first: default";
        for (const core::ConfigLayer& layer : configuration.layers()) {
            if (layer.place != core::Origin{}.place) layers += ", " + layer.place;
        }
        page(printable(layers) + "\n\n" + core::to_toml(configuration.config(), stage_schemas(), true));
        return 0;
    }

private:
    Options options_;
};

class Schema : public Command {
public:
    void declare(OptionParser&) override {}
    int run() override {
        print(core::to_json_schema(stage_schemas(), engine::source_schemas()));
        return 0;
    }
};

class Reference : public Command {
public:
    void declare(OptionParser& parser) override { add_no_pager_flag(parser); }
    int run() override {
        page(core::to_markdown(stage_schemas(), engine::source_schemas()));
        return 0;
    }
};

constexpr CommandGroup kGroup = CommandGroup::models;
const RegisterCommandFamily kConfig("config", "check and show configurations", kGroup);
const RegisterCommand<Check> kCheck("config check", "check configuration files", kGroup);
const RegisterCommand<Show> kShow("config show", "show every setting and where its value comes from", kGroup);
const RegisterCommand<Schema> kSchema("config schema", "print the JSON Schema of configurations, for editors", kGroup);
const RegisterCommand<Reference> kReference("config reference",
                                            "print every key with its type, default and meaning, as Markdown", kGroup);

}  // namespace

}  // namespace foresay::app
