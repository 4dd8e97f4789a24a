// foresay plugin: lists and describes the sampler stages, built-in ones and plugins.
#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "app/command_line/command.h"
#include "app/command_line/parser.h"
#include "app/configuration.h"
#include "app/options.h"
#include "app/output.h"
#include "app/plugin_path.h"
#include "base/error.h"
#include "core/config/nearest.h"
#include "core/config/value.h"

namespace foresay::app {

namespace {

std::string padded(const std::string& text, std::size_t width) {
    return text + std::string(text.size() < width ? width - text.size() : 1, ' ');
}

std::string type_name(samplers::ParameterType type) {
    switch (type) {
        case samplers::ParameterType::boolean:
            return "boolean";
        case samplers::ParameterType::integer:
            return "integer";
        case samplers::ParameterType::real:
            return "number";
        case samplers::ParameterType::text:
            return "string";
        case samplers::ParameterType::choice:
            return "choice";
        case samplers::ParameterType::text_list:
            return "list of strings";
        case samplers::ParameterType::integer_list:
            return "list of integers";
        case samplers::ParameterType::real_list:
            return "list of numbers";
    }
    return "value";
}

std::string range_of(const samplers::ParameterSchema& parameter) {
    std::string out;
    const auto number = [](double value) { return core::to_toml(core::ConfigValue(value)); };
    if (parameter.min) out += ", at least " + number(*parameter.min);
    if (parameter.max) out += ", at most " + number(*parameter.max);
    for (const std::string& choice : parameter.choices)
        out += (&choice == parameter.choices.data() ? ": " : ", ") + choice;
    return out;
}

std::string describe(const samplers::StageDescription& stage) {
    std::string out = stage.name + "\n  " + stage.doc + "\n";
    const samplers::StageTraits& traits = stage.traits;
    out += "  state: ";
    out += traits.memory == samplers::StageMemory::stateless ? "none"
           : traits.memory == samplers::StageMemory::history ? "the tokens so far"
                                                             : "the tokens so far and their probabilities";
    if (traits.randomised) out += "; uses keyed random numbers";
    if (traits.masks_only) out += "; only drops candidates";
    out += traits.whole_vocabulary ? "; sees the whole vocabulary" : "; sees the best candidates";
    if (!traits.clonable) out += "; hidden from the draft";
    out += "\n";
    for (const samplers::ParameterSchema& parameter : stage.parameters) {
        out += "  " + padded(parameter.name + " = " + core::to_toml(parameter.fallback), 28) + parameter.doc + " (" +
               type_name(parameter.type) + range_of(parameter) + ")\n";
    }
    return out;
}

class List : public Command {
public:
    void declare(OptionParser& parser) override { add_common_options(parser, options_); }

    int run() override {
        std::string out = "built-in\n";
        for (const auto& factory : samplers::builtin_factories()) {
            out += "  " + padded(factory->description().name, 18) + factory->description().doc + "\n";
        }
        const auto host = make_plugin_host();
        const auto files = host->scan();
        out += files.empty() ? "no plugins on the plugin path\n" : "plugins\n";
        for (const plugins::PluginFile& file : files) {
            out += "  " + padded(file.name, 18) + file.path.string();
            out += file.problem.empty() ? "\n" : "  cannot be loaded: " + file.problem + "\n";
        }
        print(out);
        return 0;
    }

private:
    Options options_;
};

class Show : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options_);
        std::vector<std::string> stages;
        for (const core::StageSchema& stage : stage_schemas()) stages.push_back(stage.name);
        parser.argument(name_, {.value = "NAME",
                                .doc = "stage, plugin, or a plugin's file",
                                .words = std::move(stages),
                                .required = true});
        parser.flag("--load", load_, "load the file NAME, which runs its code, and describe its samplers");
    }

    int run() override {
        if (const auto builtin = samplers::find_builtin(name_)) {
            print(describe(builtin->description()));
            return 0;
        }
        const std::filesystem::path path(name_);
        if (path.extension() == ".so" && !load_) {
            const plugins::PluginFile file = plugins::PluginHost::inspect(std::filesystem::absolute(path));
            if (!file.problem.empty()) {
                throw Error("plugin '" + file.path.string() + "' cannot be loaded: " + file.problem);
            }
            print(printable(file.path.string()) +
                  "\n  looks like a sampler plugin. Its samplers and parameters are known only to its code:\n"
                  "  if you trust the file, add --load.\n");
            return 0;
        }
        const auto host = make_plugin_host();
        if (path.extension() == ".so") {
            print(describe(host->load(path.stem().string(), std::filesystem::absolute(path))->description()));
            return 0;
        }
        std::vector<std::string> names;
        for (const auto& factory : samplers::builtin_factories()) names.push_back(factory->description().name);
        for (const plugins::PluginFile& file : host->scan()) names.push_back(file.name);
        if (std::find(names.begin(), names.end(), name_) == names.end()) {
            throw Error("there is no stage or plugin '" + name_ + "'" + core::suggestion(name_, names));
        }
        print(describe(host->load(name_)->description()));
        return 0;
    }

private:
    Options options_;
    std::string name_;
    bool load_ = false;
};

constexpr CommandGroup kGroup = CommandGroup::models;
const RegisterCommandFamily kPlugin("plugin", "list and describe sampler stages and plugins", kGroup);
const RegisterCommand<List> kList("plugin list", "list the built-in stages and the plugins found", kGroup);
const RegisterCommand<Show> kShow("plugin show", "describe a stage or plugin and its parameters", kGroup);

}  // namespace

}  // namespace foresay::app
