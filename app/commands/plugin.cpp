// foresay plugin: lists and describes the sampler stages, built-in ones and plugins, and frees plugins that are barred.
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
#include "app/plugin_trust.h"
#include "app/stage_text.h"
#include "app/terminal.h"
#include "base/error.h"
#include "core/config/nearest.h"

namespace foresay::app {

namespace {

class List : public Command {
public:
    void declare(OptionParser& parser) override { add_common_options(parser, options_); }

    int run() override {
        std::string out = "built-in\n";
        for (const auto& factory : samplers::builtin_factories()) {
            out += "  " + padded(factory->description().name, 18) + factory->description().doc + "\n";
        }
        const plugins::PluginHost host = looking_plugin_host();
        const auto files = host.scan();
        out += files.empty() ? "no plugins on the plugin path\n" : "plugins\n";
        for (const plugins::PluginFile& file : files) {
            out += "  " + padded(file.name, 18) + file.path.string();
            if (!file.problem.empty()) out += "  cannot be loaded: " + file.problem;
            if (file.bar) out += "  " + plugins::PluginHost::bar_text(*file.bar);
            out += "\n";
        }
        out += elsewhere(host, files);
        if (!host.bars().empty()) out += "`foresay plugin free NAME` allows a barred plugin again\n";
        out = printable(out);
        print(out);
        return 0;
    }

private:
    // The barred builds that the list of files does not show.
    static std::string elsewhere(const plugins::PluginHost& host, const std::vector<plugins::PluginFile>& files) {
        std::string out;
        for (const plugins::Bar& bar : host.bars()) {
            const bool shown = std::any_of(files.begin(), files.end(),
                                           [&](const auto& file) { return file.bar && file.bar->build == bar.build; });
            if (shown) continue;
            const bool present = host.bar("", bar.path).has_value();
            out += "  " + padded(bar.path.stem().string(), 18) + bar.path.string() + "  " +
                   plugins::PluginHost::bar_text(bar) +
                   (present ? "" : " (another build is there now, or none, and is not barred)") + "\n";
        }
        return out.empty() ? out : "barred\n" + out;
    }

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
            print(describe_stage(builtin->description()));
            return 0;
        }
        plugins::PluginHost host = looking_plugin_host();
        const std::filesystem::path path(name_);
        const bool is_file = names_plugin_file(name_);
        if (is_file && !load_) {
            const plugins::PluginFile file = plugins::PluginHost::inspect(std::filesystem::absolute(path));
            if (!file.problem.empty()) {
                throw Error("plugin '" + file.path.string() + "' cannot be loaded: " + file.problem);
            }
            print(printable(file.path.string()) +
                  "\n  looks like a sampler plugin. Its samplers and parameters are known only to its code:\n"
                  "  if you trust the file, add --load.\n");
            return 0;
        }
        if (is_file) {
            for (const auto& factory : host.load_all(std::filesystem::absolute(path))) {
                print(printable(describe_stage(factory->description())));
            }
            return 0;
        }
        std::vector<std::string> names;
        for (const auto& factory : samplers::builtin_factories()) names.push_back(factory->description().name);
        for (const plugins::PluginFile& file : host.scan()) names.push_back(file.name);
        if (std::find(names.begin(), names.end(), name_) == names.end()) {
            throw Error("there is no stage or plugin '" + name_ + "'" + core::suggestion(name_, names));
        }
        print(printable(describe_stage(host.load(name_)->description())));
        return 0;
    }

private:
    Options options_;
    std::string name_;
    bool load_ = false;
};

class Free : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument_list(
            plugins_,
            {.value = "PLUGIN", .doc = "name or file of a barred plugin", .hint = ValueHint::file, .required = true});
        parser.details(
            "A plugin that crashed is barred: that build of it is not loaded again. Free it\n"
            "when something else was to blame; a corrected build is loaded anyway.\n"
            "`foresay plugin list` shows what is barred, since when, and why.\n");
    }

    int run() override {
        for (const std::string& plugin : plugins_) {
            for (const std::filesystem::path& path : free_plugin(plugin))
                print(printable("freed " + path.string()) + "\n");
        }
        return 0;
    }

private:
    std::vector<std::string> plugins_;
};

class Trust : public Command {
public:
    void declare(OptionParser& parser) override {
        parser.argument_list(files_,
                             {.value = "FILE", .doc = "file of a plugin", .hint = ValueHint::file, .required = true});
        parser.details(
            "A plugin that only a saved session names is not loaded from outside the plugin\n"
            "path until it is trusted. Trust goes by the contents of the file: a copy is\n"
            "trusted, too, and a file that has changed is not.\n");
    }

    int run() override {
        for (const std::string& file : files_) {
            const std::string digest = trust_plugin(file);
            print(printable("trusted " + file) + ", SHA-256 " + digest + "\n");
        }
        return 0;
    }

private:
    std::vector<std::string> files_;
};

constexpr CommandGroup kGroup = CommandGroup::models;
const RegisterCommandFamily kPlugin("plugin", "list and describe sampler stages and plugins", kGroup);
const RegisterCommand<List> kList("plugin list", "list the built-in stages and the plugins found", kGroup);
const RegisterCommand<Show> kShow("plugin show", "describe a stage or plugin and its parameters", kGroup);
const RegisterCommand<Trust> kTrust("plugin trust", "let saved sessions load a plugin's file", kGroup);
const RegisterCommand<Free> kFree("plugin free", "allow plugins again that have crashed", kGroup);

}  // namespace

}  // namespace foresay::app
