// Every key of the schema, those of the built-in stages included, in every layer: it takes effect, it is shown with its
// origin, and a mistake in it is reported with file, line, column and a suggestion.
#include "app/configuration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "app/command_line/parser.h"
#include "app/options.h"
#include "base/error.h"
#include "core/config/diagnostic.h"
#include "core/config/layers.h"
#include "engine/configuration.h"

namespace foresay::app {
namespace {

using core::ConfigValue;
using core::KeySpec;
using core::ValueType;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

namespace fs = std::filesystem;

// Every key by its whole dotted name.
std::vector<KeySpec> every_key() {
    std::vector<KeySpec> keys;
    for (const KeySpec& key : core::core_schema()) keys.push_back(*engine::find_key(key.key));
    for (const core::StageSchema& stage : stage_schemas()) {
        for (KeySpec parameter : stage.parameters) {
            parameter.key = "sampling." + stage.name + "." + parameter.key;
            keys.push_back(std::move(parameter));
        }
    }
    return keys;
}

std::string table_of(const std::string& key) { return key.substr(0, key.rfind('.')); }
std::string name_of(const std::string& key) { return key.substr(key.rfind('.') + 1); }

// The options that Configuration reads, as a command of the program declares them.
class ReadOptions : public Command {
public:
    void declare(OptionParser& parser) override {
        add_common_options(parser, options);
        add_config_argument(parser, options);
        add_sampling_options(parser, options);
        add_temperature_option(parser, options);
    }
    int run() override { return 0; }

    Options options;
};
const RegisterCommand<ReadOptions> kReadOptions("read-options", "of this test", CommandGroup::hidden);

Options options_of(const std::vector<const char*>& arguments) {
    const ParsedCommand parsed = parse_command_line(static_cast<int>(arguments.size()), arguments.data());
    return dynamic_cast<const ReadOptions&>(*parsed.command).options;
}

class Configurations : public ::testing::Test {
protected:
    Configurations() : folder_(fs::temp_directory_path() / ("foresay_layers_" + std::to_string(::getpid()))) {
        fs::remove_all(folder_);
        write("model.gguf", "x");
        write("other.gguf", "x");
        for (const char* name : {"XDG_CONFIG_HOME", "XDG_CONFIG_DIRS"}) {
            ::setenv(name, (folder_ / name).c_str(), 1);
        }
    }
    ~Configurations() override {
        clear_environment();
        fs::remove_all(folder_);
    }

    std::string write(const std::string& name, const std::string& text) const {
        fs::create_directories((folder_ / name).parent_path());
        std::ofstream(folder_ / name, std::ios::binary) << text;
        return (folder_ / name).string();
    }
    void set_variable(const std::string& name, const std::string& value) {
        ::setenv(name.c_str(), value.c_str(), 1);
        variables_.push_back(name);
    }
    void clear_environment() {
        for (const std::string& name : variables_) ::unsetenv(name.c_str());
        variables_.clear();
    }

    // A value that `spec` allows and that is not its default.
    ConfigValue sample(const KeySpec& spec) const {
        if (spec.key == "sampling.chain") return std::vector<std::string>{"top_k"};
        if (spec.key == "runtime.device") return std::string("cpu");
        if (spec.key == "runtime.devices") return std::vector<std::string>{"cpu", "reference"};
        if (spec.key == "draft.device") return std::string("cpu");
        if (spec.key == "sampling.preset") return std::string("exact");
        if (spec.paths) return std::vector<std::string>{(folder_ / "words").string()};
        switch (spec.type) {
            case ValueType::boolean:
                return !std::get<bool>(spec.fallback);
            case ValueType::integer: {
                const std::int64_t value = std::get<std::int64_t>(spec.fallback) + 1;
                return spec.max && static_cast<double>(value) > *spec.max ? value - 2 : value;
            }
            case ValueType::real: {
                const double low = spec.min.value_or(0.0);
                const double value = low + (std::min(spec.max.value_or(low + 8.0), low + 8.0) - low) / 4.0;
                return value == std::get<double>(spec.fallback) ? low : value;
            }
            case ValueType::choice:
                return spec.choices.back() == std::get<std::string>(spec.fallback) ? spec.choices.front()
                                                                                   : spec.choices.back();
            case ValueType::path:
                return (folder_ / "other.gguf").string();
            case ValueType::text:
            case ValueType::any:
                return std::string("words");
            case ValueType::text_list:
                return std::vector<std::string>{spec.choices.empty() ? "words" : spec.choices.back()};
            case ValueType::integer_list:
                return std::vector<std::int64_t>{3, 4};
            case ValueType::real_list:
                return std::vector<double>{0.5};
        }
        return std::string();
    }

    // A configuration with these arguments, on top of a model.
    Configuration load(std::vector<std::string> arguments) const {
        std::vector<const char*> all = {"foresay", "read-options", "--set"};
        const std::string model = "target.model=" + (folder_ / "model.gguf").string();
        all.push_back(model.c_str());
        for (const std::string& argument : arguments) all.push_back(argument.c_str());
        return Configuration(options_of(all));
    }
    // The same where a layer states every key that is needed.
    Configuration load_bare(std::vector<std::string> arguments) const {
        std::vector<const char*> all = {"foresay", "read-options"};
        for (const std::string& argument : arguments) all.push_back(argument.c_str());
        return Configuration(options_of(all));
    }
    std::string error(const std::vector<std::string>& arguments) const {
        try {
            load_bare(arguments);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "no error";
    }

    // The text of a file that states `value` for `key`, in line 3, and a model where it must.
    std::string file_text(const std::string& key, const std::string& value) const {
        std::string text = "# a comment\n[" + table_of(key) + "]\n" + name_of(key) + " = " + value + "\n";
        if (key == "target.model") return text;
        const std::string model = "model = \"" + (folder_ / "model.gguf").string() + "\"\n";
        return text + (table_of(key) == "target" ? model : "[target]\n" + model);
    }

    void expect_arrived(const Configuration& configuration, const KeySpec& spec, const std::string& origin) const {
        const core::Config& config = configuration.config();
        const auto found = config.settings().find(spec.key);
        ASSERT_NE(found, config.settings().end()) << spec.key << " in " << origin;
        EXPECT_EQ(found->second.value, sample(spec)) << spec.key << " in " << origin;
        EXPECT_EQ(found->second.origin.text(), origin) << spec.key;
        const std::string shown = core::to_toml(config, stage_schemas(), true);
        const std::string line = "\n" + name_of(spec.key) + " = " + core::to_toml(sample(spec)) + " ";
        const std::size_t place = shown.find(line);
        ASSERT_NE(place, std::string::npos) << spec.key << " is not shown:\n" << shown;
        EXPECT_TRUE(shown.substr(place + 1, shown.find('\n', place + 1) - place - 1).ends_with("# " + origin)) << shown;
    }

    fs::path folder_;
    std::vector<std::string> variables_;
};

TEST_F(Configurations, EveryKeyCanBeSetInEveryFile) {
    for (const KeySpec& spec : every_key()) {
        const std::string text = file_text(spec.key, core::to_toml(sample(spec)));
        for (const std::string name : {"XDG_CONFIG_DIRS/foresay/config.toml", "XDG_CONFIG_HOME/foresay/config.toml"}) {
            const std::string path = write(name, text);
            expect_arrived(load_bare({}), spec, path + ":3:1");
            fs::remove(path);
        }
        const std::string config = write("config.toml", text);
        expect_arrived(load_bare({config}), spec, config + ":3:1");
        const std::string extending = write("sub/extending.toml", "extends = \"../config.toml\"\n");
        expect_arrived(load_bare({extending}), spec, config + ":3:1");
    }
}

TEST_F(Configurations, OnErrorReachesTheChain) {
    using OnError = samplers::StageSpec::OnError;
    const std::string file = write("config.toml",
                                   "[sampling]\nchain = [\"mirostat\", \"top_k\", \"words\", \"dice\"]\n"
                                   "[sampling.mirostat]\non_error = \"skip\"\ntau = 4.0\n"
                                   "[[plugin]]\nname = \"words\"\non_error = \"skip\"\n[[plugin]]\nname = \"dice\"\n");
    // Any factory will do for a plugin.
    const engine::PluginFactories plugins = {{"words", samplers::find_builtin("xtc")},
                                             {"dice", samplers::find_builtin("xtc")}};
    const auto policies = [&](const std::vector<std::string>& arguments) {
        std::vector<OnError> found;
        for (const samplers::StageSpec& stage : engine::chain_spec(load(arguments).config(), plugins)) {
            found.push_back(stage.on_error);
            for (const auto& [name, value] : stage.parameters) EXPECT_NE(name, "on_error") << "is no parameter";
        }
        return found;
    };
    EXPECT_THAT(policies({file}), ElementsAre(OnError::skip, OnError::stop, OnError::skip, OnError::stop));
    EXPECT_THAT(policies({file, "--set", "sampling.mirostat.on_error=stop", "--set", "sampling.top_k.on_error=skip",
                          "--set", "plugin.words.on_error=stop", "--set", "plugin.dice.on_error=skip"}),
                ElementsAre(OnError::stop, OnError::skip, OnError::stop, OnError::skip));
    // A saved configuration keeps it.
    const std::string saved = core::to_toml(load({file}).config(), stage_schemas(), false);
    EXPECT_THAT(policies({write("saved.toml", saved)}),
                ElementsAre(OnError::skip, OnError::stop, OnError::skip, OnError::stop));
    EXPECT_THAT(error({file, "--set", "plugin.dice.on_error=ignore"}),
                AllOf(HasSubstr("'on_error' of a plugin must be"), HasSubstr("stop"), HasSubstr("skip")));
}

TEST_F(Configurations, EveryKeyCanBeSetByOverrides) {
    for (const KeySpec& spec : every_key()) {
        const std::string value = core::to_toml(sample(spec));
        set_variable(core::variable_of(spec.key), value);
        if (spec.key == "target.model") {
            expect_arrived(load_bare({}), spec, "FORESAY_TARGET__MODEL");
        } else {
            expect_arrived(load({}), spec, core::variable_of(spec.key));
        }
        clear_environment();
        expect_arrived(load({"--set", spec.key + "=" + value}), spec, "--set #2");
        Configuration session = load({});
        session.set(spec.key + "=" + value, "/set");
        expect_arrived(session, spec, "/set");
    }
}

TEST_F(Configurations, FlagsAreOverridesWithANameOfTheirOwn) {
    const std::string other = (folder_ / "other.gguf").string();
    const std::vector<std::array<std::string, 4>> flags = {
        {"--model", other, "target.model", "\"" + other + "\""},
        {"--draft", other, "draft.model", "\"" + other + "\""},
        {"--context", "77", "target.context", "77"},
        {"--threads", "3", "runtime.threads", "3"},
        {"--device", "cpu", "runtime.device", "\"cpu\""},
        {"--device", "cpu", "runtime.devices", "[]"},
        {"--device", "cpu,reference", "runtime.devices", "[\"cpu\", \"reference\"]"},
        {"--kv-cache", "q8", "runtime.kv_cache", "\"q8\""},
        {"--seed", "5", "sampling.seed", "5"},
        {"--branch", "6", "sampling.branch", "6"},
        {"--temperature", "0.25", "sampling.temperature.value", "0.25"},
        {"--speculation", "off", "speculation.mode", "\"off\""},
        {"--speculation", "7", "speculation.length", "7"},
    };
    for (const auto& [flag, value, key, shown] : flags) {
        const Configuration configuration = load({flag, value});
        const core::Setting& setting = configuration.config().settings().at(key);
        EXPECT_EQ(core::to_toml(setting.value), shown) << flag;
        EXPECT_EQ(setting.origin.text(), flag);
    }
}

TEST_F(Configurations, HigherLayersWin) {
    const std::string model = "[target]\nmodel = \"" + (folder_ / "model.gguf").string() + "\"\n";
    const auto file = [&](const std::string& name, int seed, const std::string& begin = "") {
        return write(name, begin + model + "[sampling]\nseed = " + std::to_string(seed) + "\n");
    };
    const auto seed = [](const Configuration& configuration) { return configuration.config().seed; };
    EXPECT_EQ(seed(load({})), 0u);
    file("XDG_CONFIG_DIRS/foresay/config.toml", 1);
    EXPECT_EQ(seed(load({})), 1u);
    file("XDG_CONFIG_HOME/foresay/config.toml", 2);
    EXPECT_EQ(seed(load({})), 2u);
    file("base.toml", 3);
    EXPECT_EQ(seed(load({write("empty.toml", "extends = \"base.toml\"\n")})), 3u);
    const std::string config = file("config.toml", 4, "extends = [\"base.toml\"]\n");
    EXPECT_EQ(seed(load({config})), 4u);
    set_variable("FORESAY_SAMPLING__SEED", "5");
    EXPECT_EQ(seed(load({config})), 5u);
    EXPECT_EQ(seed(load({config, "--set", "sampling.seed=6"})), 6u);
    Configuration session = load({config, "--seed", "7", "--set", "sampling.seed=6"});
    EXPECT_EQ(seed(session), 7u);
    session.set("sampling.seed=8", "/set");
    EXPECT_EQ(seed(session), 8u);
    // What is refused changes nothing.
    EXPECT_THROW(session.set("sampling.seed=many", "/set"), Error);
    EXPECT_EQ(seed(session), 8u);
}

TEST_F(Configurations, EveryWrongTypeIsAnsweredWithItsPlaceAndASuggestion) {
    for (const KeySpec& spec : every_key()) {
        std::string wrong = "\"many\"", slip = "[1979-05-27]";
        switch (spec.type) {
            case ValueType::boolean:
                slip = "\"yes\"";
                break;
            case ValueType::integer:
            case ValueType::real:
                slip = "\"" + core::to_toml(sample(spec)) + "\"";
                break;
            case ValueType::choice:
                wrong = "5";
                slip = "\"" + spec.choices.front().substr(0, spec.choices.front().size() - 1) + "\"";
                break;
            case ValueType::path:
            case ValueType::text:
                wrong = "[1, 2]";
                slip = "5";
                break;
            case ValueType::text_list:
                slip = core::to_toml(ConfigValue(std::get<std::vector<std::string>>(sample(spec))[0]));
                break;
            default:
                slip = "3";
                break;
        }
        for (const std::string& value : {wrong, slip}) {
            const std::string path = write("wrong.toml", file_text(spec.key, value));
            const std::string column = std::to_string(name_of(spec.key).size() + 4);
            const std::string message = error({path});
            EXPECT_THAT(message, StartsWith(path + ":3:" + column + ": '" + spec.key + "' must be ")) << value;
            EXPECT_THAT(message, HasSubstr("\n    " + name_of(spec.key) + " = " + value + "\n    ")) << "no caret";
            if (value == slip) {
                EXPECT_THAT(message, AnyOf(HasSubstr("; write "), HasSubstr("; did you mean '"))) << spec.key;
            }
        }
        // An override of free text takes anything, and so does a folder that may have to be made.
        if ((spec.type == ValueType::text && spec.key != "runtime.device") || spec.key == "cache.folder") continue;
        EXPECT_THAT(error({"--set", spec.key + "={}"}), StartsWith("--set #1: '" + spec.key + "'"));
        set_variable(core::variable_of(spec.key), "{}");
        EXPECT_THAT(error({}), StartsWith(core::variable_of(spec.key) + ": '" + spec.key + "'"));
        clear_environment();
    }
}

TEST_F(Configurations, EveryNearMissIsAnsweredWithWhatWasMeant) {
    for (const KeySpec& spec : every_key()) {
        const std::string name = name_of(spec.key);
        const std::string miss = table_of(spec.key) + "." + name.substr(0, 1) + name;  // the first letter twice
        const std::string path = write("miss.toml", file_text(miss, "1"));
        EXPECT_THAT(error({path}), AllOf(StartsWith(path + ":3:1: unknown key '" + name_of(miss) + "' in [" +
                                                    table_of(spec.key) + "]; did you mean '" + name + "'?\n    "),
                                         HasSubstr("\n    ^")));
        const std::string table = table_of(spec.key);
        const std::string table_miss = table.substr(0, table.size() - 1) + "x" + table.substr(table.size() - 1);
        const std::string other = write("miss.toml", file_text(table_miss + "." + name, "1"));
        const std::size_t part = table.rfind('.') + 1;
        EXPECT_THAT(error({other}),
                    AllOf(StartsWith(other + ":2:" + std::to_string(part + 2) + ": unknown table [" + table_miss + "]"),
                          HasSubstr("; did you mean '")));
        EXPECT_THAT(error({"--set", miss + "=1"}), StartsWith("--set #1: unknown key '" + name_of(miss) + "'"));
        set_variable(core::variable_of(miss), "1");
        EXPECT_THAT(error({}), AllOf(StartsWith(core::variable_of(miss) + ": unknown key '" + name_of(miss) + "'"),
                                     HasSubstr("did you mean '" + name + "'?")));
        clear_environment();
    }
}

TEST_F(Configurations, VariablesWithSingleUnderscoresAreASlip) {
    set_variable("FORESAY_SPECULATION_MAX_DRAFT", "4");
    EXPECT_THAT(error({}), AllOf(StartsWith("unknown variable FORESAY_SPECULATION_MAX_DRAFT;"),
                                 HasSubstr("did you mean FORESAY_SPECULATION__MAX_DRAFT")));
    clear_environment();
    set_variable("FORESAY_SAMPLING_TOP_K_K", "4");
    EXPECT_THAT(error({}), HasSubstr("no error"));  // not a key of the table, so not taken for one
}

TEST_F(Configurations, EveryVariableMeansOneKey) {
    std::vector<std::string> names;
    for (const KeySpec& spec : every_key()) names.push_back(core::variable_of(spec.key));
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
    EXPECT_EQ(core::variable_of("sampling.top_k.k"), "FORESAY_SAMPLING__TOP_K__K");
}

TEST_F(Configurations, ABareModelLeavesNoDraftOfTheFilesBelow) {
    const std::string pair = "[target]\nmodel = \"" + (folder_ / "model.gguf").string() + "\"\n[draft]\nmodel = \"" +
                             (folder_ / "other.gguf").string() + "\"\n";
    write("XDG_CONFIG_HOME/foresay/config.toml", pair + "[sampling]\nseed = 3\n");
    EXPECT_EQ(load_bare({}).config().draft_model, folder_ / "other.gguf");
    const std::string alone = write("alone.toml", "[target]\nmodel = \"other.gguf\"\n");
    const Configuration configuration = load_bare({alone});
    EXPECT_EQ(configuration.config().target_model, folder_ / "other.gguf");
    EXPECT_EQ(configuration.config().draft_model, "");
    EXPECT_TRUE(configuration.config().draft_auto);
    EXPECT_EQ(configuration.config().seed, 3u);
    // A file that extends a pair keeps its draft.
    write("pair.toml", pair);
    const std::string child = write("child.toml", "extends = \"pair.toml\"\n[target]\nmodel = \"other.gguf\"\n");
    EXPECT_EQ(load_bare({child}).config().draft_model, folder_ / "other.gguf");
}

TEST_F(Configurations, TheBundledPairIsThereWhenNobodyNamesAModel) {
    const Configuration bundled = load_bare({});
    EXPECT_THAT(bundled.config().target_model.string(), HasSubstr("python-coder"));
    EXPECT_FALSE(bundled.config().draft_model.empty());
    // The user's own settings win over it.
    write("XDG_CONFIG_HOME/foresay/config.toml", "[sampling.temperature]\nvalue = 0.125\n");
    EXPECT_EQ(std::get<double>(load_bare({}).config().stage("temperature").at("value").value), 0.125);
    EXPECT_TRUE(load({}).config().plugins.empty());
    // So do those of a file that names no model; one that names a model, if only to say that there is none, is alone.
    const std::string cold = write("cold.toml", "[sampling.temperature]\nvalue = 0.25\n");
    EXPECT_EQ(load_bare({cold}).config().target_model, bundled.config().target_model);
    EXPECT_EQ(std::get<double>(load_bare({cold}).config().stage("temperature").at("value").value), 0.25);
    EXPECT_EQ(load_bare({write("sub/child.toml", "extends = \"../cold.toml\"\n")}).config().plugins.size(), 1u);
    const std::string none = write("none.toml", "[target]\nmodel = \"\"\n");
    EXPECT_THAT(error({none}), StartsWith(none + ":2:9: no target model; set 'model' in [target]"));
}

// As /model and a request that loads a model do it.
TEST_F(Configurations, TheBundledPairGoesWithItsModel) {
    const Configuration bundled = load_bare({"--seed", "7"});
    Configuration next = bundled;
    next.set_text("sampling.temperature.value = 0.125", "/set");
    EXPECT_EQ(next.config().plugins.size(), 1u) << "no model is named";
    const std::string model = "target.model = " + core::to_toml(ConfigValue((folder_ / "model.gguf").string()));
    next.set_text(model, "/model");
    EXPECT_EQ(next.config().target_model, folder_ / "model.gguf");
    EXPECT_EQ(next.config().draft_model, "");
    EXPECT_TRUE(next.config().draft_auto);
    EXPECT_TRUE(next.config().plugins.empty());
    EXPECT_NE(next.config().target_context, bundled.config().target_context);
    EXPECT_NE(next.config().chain, bundled.config().chain);
    EXPECT_EQ(next.config().seed, 7u) << "the layers above stay";
    EXPECT_EQ(std::get<double>(next.config().stage("temperature").at("value").value), 0.125);
    // The pair of a file stays below: that file was named.
    Configuration named = load_bare({write("named.toml", model + "\ntarget.context = 512\n")});
    named.set_text("target.model = " + core::to_toml(ConfigValue((folder_ / "other.gguf").string())), "/model");
    EXPECT_EQ(named.config().target_context, 512);
    // On error nothing changes.
    Configuration kept = bundled;
    EXPECT_THROW(kept.set_text("target.model = \"no.gguf\"", "/model"), Error);
    EXPECT_EQ(kept.layers().size(), bundled.layers().size());
    EXPECT_EQ(kept.config().target_model, bundled.config().target_model);
}

TEST_F(Configurations, PluginsOutsideTheChainAreWarnedAboutOnlyInTheirOwnFile) {
    const std::string plugin = "[[plugin]]\nname = \"words\"\n";
    const auto warnings = [&](const std::vector<std::string>& arguments) { return unused_stages(load(arguments)); };
    const std::string file = write("plugin.toml", plugin);
    EXPECT_THAT(warnings({file}),
                ElementsAre(file + ":1:1: the plugin does nothing, because sampling.chain does not name "
                                   "'words'; add it there or remove its [[plugin]]"));
    const std::string both = write("both.toml", plugin + "[sampling]\nchain = [\"words\", \"top_k\"]\n");
    EXPECT_TRUE(warnings({both}).empty());
    // A chain on top may leave the plugins below out.
    EXPECT_TRUE(warnings({both, "--set", "sampling.chain=[\"top_k\"]"}).empty());
    EXPECT_TRUE(warnings({write("top.toml", "extends = \"both.toml\"\n[sampling]\nchain = [\"top_k\"]\n")}).empty());
}

}  // namespace
}  // namespace foresay::app
