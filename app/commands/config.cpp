// foresay config: checks and shows configurations, and prints their schema for editors and readers.
#include "app/configuration.h"

#include <exception>
#include <iterator>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/files.h"
#include "app/opened_engine.h"
#include "app/options.h"
#include "app/output.h"
#include "app/pager.h"
#include "app/sampler_import.h"
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

constexpr std::pair<std::string_view, SamplerDialect> kDialects[] = {{"llama.cpp", SamplerDialect::llama_cpp},
                                                                     {"exllamav2", SamplerDialect::exllamav2},
                                                                     {"exllamav3", SamplerDialect::exllamav3},
                                                                     {"tabbyapi", SamplerDialect::tabbyapi}};

std::string dialect_names() {
    std::string out;
    for (const auto& [name, dialect] : kDialects)
        out += (out.empty() ? "" : dialect == std::rbegin(kDialects)->second ? " or " : ", ") + std::string(name);
    return out;
}

SamplerDialect dialect_of(std::string_view name) {
    for (const auto& [known, dialect] : kDialects)
        if (known == name) return dialect;
    throw UsageError("--from is '" + std::string(name) + "'; give " + dialect_names());
}

class Import : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument(file_, {.value = "FILE",
                                .doc = "settings: options of a command line, lines KEY = VALUE or KEY: VALUE, or JSON; "
                                       "- reads standard input",
                                .hint = ValueHint::file,
                                .required = true});
        std::vector<std::string> names;
        for (const auto& [name, dialect] : kDialects) names.emplace_back(name);
        parser.option("--from", from_,
                      {.value = "PROGRAM",
                       .doc = "whose names, order and defaults: " + dialect_names(),
                       .words = std::move(names)});
        parser.details(
            "Prints a table [sampling] with the same stages, in the same order. What has no\n"
            "counterpart is said, in comments and on standard error. Save it as a preset:\n"
            "  foresay config import FILE > ~/.config/foresay/presets/mine.toml\n");
    }

    int run() override {
        const SamplerDialect dialect = dialect_of(from_);
        try {
            const ImportedSamplers imported = import_samplers(read_text(file_, "the settings"), dialect);
            for (const std::string& note : imported.notes) complain("foresay: " + printable(note));
            print(imported.toml);
        } catch (const Error& problem) {
            throw Error("cannot import " + (file_ == "-" ? "the settings" : "'" + file_ + "'") + ": " + problem.what());
        }
        return 0;
    }

private:
    std::string file_, from_ = "llama.cpp";
};

constexpr CommandGroup kGroup = CommandGroup::models;
const RegisterCommandFamily kConfig("config", "check and show configurations", kGroup);
const RegisterCommand<Check> kCheck("config check", "check configuration files", kGroup);
const RegisterCommand<Show> kShow("config show", "show every setting and where its value comes from", kGroup);
const RegisterCommand<Import> kImport("config import", "sampler settings of llama.cpp and ExLlama as a configuration",
                                      kGroup);
const RegisterCommand<Schema> kSchema("config schema", "print the JSON Schema of configurations, for editors", kGroup);
const RegisterCommand<Reference> kReference("config reference",
                                            "print every key with its type, default and meaning, as Markdown", kGroup);

}  // namespace

}  // namespace foresay::app
