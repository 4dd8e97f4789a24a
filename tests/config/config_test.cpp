// What a configuration may hold, and how foresay reports everything else.
#include "core/config/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <limits>

#include "core/config/diagnostic.h"
#include "core/config/layers.h"
#include "core/config/nearest.h"
#include "core/config/toml_tree.h"
#include "kernels/kv_names.h"

namespace foresay::core {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

namespace fs = std::filesystem;

std::vector<StageSchema> stages() {
    return {
        {"penalties", "", {{"repeat", ValueType::real, 1.0, 0, 10, {}, ""}}},
        {"top_k", "", {{"k", ValueType::integer, std::int64_t{40}, 0, 512, {}, ""}}},
        {"top_p", "", {{"p", ValueType::real, 0.95, 0, 1, {}, ""}}},
        {"temperature", "", {{"value", ValueType::real, 0.6, 0, 100, {}, ""}}},
        {"logit_bias",
         "",
         {{"ids", ValueType::integer_list, std::vector<std::int64_t>{}, 0, {}, {}, ""},
          {"values",
           ValueType::real_list,
           std::vector<double>{},
           -std::numeric_limits<double>::infinity(),
           1000,
           {},
           ""},
          {"strict", ValueType::boolean, false, {}, {}, {}, ""}}},
    };
}

class ConfigTest : public ::testing::Test {
protected:
    ConfigTest() {
        directory_ = fs::temp_directory_path() / ("foresay_config_" + std::to_string(::getpid()));
        fs::create_directories(directory_ / "models");
        for (const char* name : {"target.gguf", "draft.gguf"}) std::ofstream(directory_ / "models" / name) << "x";
    }
    ~ConfigTest() override { fs::remove_all(directory_); }

    Config load(const std::string& text, const std::vector<std::string>& sets = {}) {
        layers_ = {{"test.toml", text, directory_}};
        for (const std::string& set : sets) {
            layers_.push_back(override_layer(set, "--set #" + std::to_string(layers_.size())));
        }
        ConfigRequest request;
        request.layers = layers_;
        request.stages = stages_;
        request.sources = sources_;
        request.find_model = find_model_;
        return load_config(request);
    }
    // The message of the error that `text` must raise.
    std::string error(const std::string& text, const std::vector<std::string>& sets = {}) {
        try {
            load(text, sets);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "no error";
    }

    const std::string target_ = "[target]\nmodel = \"models/target.gguf\"\n";
    fs::path directory_;
    std::vector<ConfigLayer> layers_;
    FindModel find_model_;
    const std::vector<StageSchema> stages_ = stages();
    std::vector<SourceSchema> sources_ = {{"draft", "a model", {}}, {"ngram", "a lookup", {"suffix", "lookup"}}};
};

TEST_F(ConfigTest, OlderNamesOfSourcesAreReplaced) {
    const Config config = load(target_ + "[speculation]\nsources = [\"suffix\", \"draft\"]\n");
    EXPECT_THAT(config.sources, ElementsAre("ngram", "draft"));
    EXPECT_THAT(to_toml(config, stages_, false), HasSubstr("sources = [\"ngram\", \"draft\"]"));
    EXPECT_THAT(error(target_ + "[speculation]\nsources = [\"lookups\"]\n"),
                HasSubstr("must be one of draft, ngram, not 'lookups'"));
    // Without a list of sources, their names are not checked.
    sources_.clear();
    EXPECT_THAT(load(target_ + "[speculation]\nsources = [\"any\"]\n").sources, ElementsAre("any"));
}

TEST_F(ConfigTest, ModelsOfTheHubAreFoundOnceAllElseIsRight) {
    const std::string pair = "[target]\nmodel = \"hf:ann/large:Q4_0\"\n[draft]\nmodel = \"hf:ann/small\"\n";
    EXPECT_THAT(error(pair), HasSubstr("test.toml:2:9: names a model of the hub"));
    std::vector<std::string> asked;
    find_model_ = [&](const std::string& name) {
        asked.push_back(name);
        return fs::path("/cache") / name.substr(3);
    };
    const Config config = load(pair);
    EXPECT_THAT(asked, ElementsAre("hf:ann/large:Q4_0", "hf:ann/small"));
    EXPECT_EQ(config.target_model, "/cache/ann/large:Q4_0");
    EXPECT_EQ(config.draft_model, "/cache/ann/small");
    // What is shown and saved is the name.
    EXPECT_THAT(to_toml(config, stages_, false), HasSubstr("model = \"hf:ann/large:Q4_0\""));
    asked.clear();
    EXPECT_EQ(load(pair, {"target.model=" + (directory_ / "models/target.gguf").string()}).draft_model,
              "/cache/ann/small");
    EXPECT_THAT(asked, ElementsAre("hf:ann/small")) << "only what counts in the end";
    asked.clear();
    EXPECT_THAT(error(pair + "[sampling]\nseed = -1\n"), HasSubstr("'sampling.seed'"));
    EXPECT_TRUE(asked.empty()) << "nothing is fetched for a configuration that cannot run";
    find_model_ = [](const std::string&) -> fs::path { throw Error("no network"); };
    EXPECT_THAT(error(pair), HasSubstr("test.toml:2:9: no network"));
}

TEST_F(ConfigTest, EveryKeyArrives) {
    const Config config = load(R"(
[target]
model = "models/target.gguf"
context = 1024
[draft]
model = "models/draft.gguf"
head = "file"
folders = ["drafts", "/srv/models"]
device = "cpu"
[speculation]
mode = "fixed"
max_draft = 9
length = 7
sources = ["draft"]
[sampling]
seed = 12
branch = 3
preset = "code"
chain = ["words", "top_k", "temperature"]
[sampling.top_k]
k = 17
[sampling.temperature]
value = 1
[[plugin]]
name = "words"
[plugin.options]
forbid = ["TODO"]
limit = 3
share = 0.5
strict = true
[chat]
style = "complete"
max_tokens = 99
system = "Be brief."
newline = false
read_ahead = false
fim_order = "spm"
template = "models/target.gguf"
reasoning = "low"
date = "2026-01-31"
save = false
keep_sessions = 7
language = "go"
about = "It completes."
template_args = { terse = true }
[runtime]
device = "cuda:1"
devices = ["cuda:1", "cpu"]
split_mode = "layer"
device_shares = [1, 2]
row_handover = "link"
device_layers = [3, 4]
host_layers = [2, 5]
device_mib = [24576, 0]
threads = 2
kv_cache = "q8"
isa = "avx2"
check_files = false
[cache]
host_mib = 64
folder = "pages"
disk_mib = 1000
[x-notes]
anything = "goes"
)");
    EXPECT_EQ(config.target_model, directory_ / "models/target.gguf");
    EXPECT_EQ(config.target_context, 1024);
    EXPECT_EQ(config.draft_model, directory_ / "models/draft.gguf");
    EXPECT_THAT(config.draft_folders, ElementsAre(directory_ / "drafts", "/srv/models"));
    EXPECT_TRUE(config.draft_head_as_stored);
    EXPECT_EQ(config.speculation_mode, SpeculationMode::fixed);
    EXPECT_EQ(config.max_draft, 9);
    EXPECT_EQ(config.draft_length, 7);
    EXPECT_THAT(config.sources, ElementsAre("draft"));
    EXPECT_EQ(config.seed, 12u);
    EXPECT_EQ(config.branch, 3u);
    EXPECT_THAT(config.chain, ElementsAre("words", "top_k", "temperature"));
    EXPECT_EQ(config.chat_style, "complete");
    EXPECT_EQ(config.chat_max_tokens, 99);
    EXPECT_EQ(config.chat_system, "Be brief.");
    EXPECT_FALSE(config.chat_newline);
    EXPECT_FALSE(config.chat_read_ahead);
    EXPECT_FALSE(config.chat_save);
    EXPECT_EQ(config.chat_keep_sessions, 7);
    EXPECT_EQ(config.chat_fim_order, "spm");
    EXPECT_EQ(config.chat_template, directory_ / "models/target.gguf");
    EXPECT_EQ(config.chat_reasoning, "low");
    EXPECT_EQ(config.chat_date, "2026-01-31");
    EXPECT_EQ(std::get<bool>(config.template_args().at("terse").value), true);
    EXPECT_EQ(config.chat_language, "go");
    EXPECT_EQ(config.chat_about, "It completes.");
    EXPECT_EQ(config.device, "cuda:1");
    EXPECT_THAT(config.devices, ElementsAre("cuda:1", "cpu"));
    EXPECT_THAT(config.device_layers, ElementsAre(3, 4));
    EXPECT_EQ(config.threads, 2);
    EXPECT_EQ(config.kv_format, kernels::KvFormat::q8);
    EXPECT_EQ(config.isa, "avx2");
    EXPECT_FALSE(config.check_files);
    EXPECT_EQ(config.cache_host_mib, 64);
    EXPECT_EQ(config.cache_folder, directory_ / "pages");
    EXPECT_EQ(config.cache_disk_mib, 1000);
    EXPECT_EQ(std::get<std::int64_t>(config.stage("top_k").at("k").value), 17);
    EXPECT_EQ(std::get<double>(config.stage("temperature").at("value").value), 1.0);
    EXPECT_TRUE(config.stage("top_p").empty());
    ASSERT_EQ(config.plugins.size(), 1u);
    EXPECT_EQ(config.plugins[0].name, "words");
    ASSERT_EQ(config.plugins[0].options.size(), 4u);
    EXPECT_EQ(config.plugins[0].options[0].first, "forbid");
    EXPECT_THAT(std::get<std::vector<std::string>>(config.plugins[0].options[0].second.value), ElementsAre("TODO"));
    EXPECT_EQ(std::get<std::int64_t>(config.plugins[0].options[1].second.value), 3);
    EXPECT_EQ(std::get<double>(config.plugins[0].options[2].second.value), 0.5);
    EXPECT_EQ(std::get<bool>(config.plugins[0].options[3].second.value), true);
    // Nothing in the schema was left out of the text above.
    for (const KeySpec& spec : core_schema()) {
        EXPECT_EQ(config.setting(spec.key).origin.place, "test.toml") << spec.key;
    }
}

// A key may leave the end of its name to another key, never to none, and to one alone.
TEST_F(ConfigTest, AKeyThatYieldsLeavesItsEndToOneOther) {
    const auto last = [](const KeySpec& spec) { return spec.key.substr(spec.key.rfind('.')); };
    std::vector<std::string> yielding;
    for (const KeySpec& spec : core_schema()) {
        if (!spec.yields) continue;
        yielding.push_back(spec.key);
        const auto others = std::ranges::count_if(
            core_schema(), [&](const KeySpec& other) { return !other.yields && last(other) == last(spec); });
        EXPECT_EQ(others, 1) << spec.key;
    }
    EXPECT_THAT(yielding, ElementsAre("draft.device"));
}

TEST_F(ConfigTest, DraftsMayBeFoundOrLeftOut) {
    for (const std::string word : {"auto", "none", ""}) {
        const Config config = load(target_ + "[draft]\nmodel = \"" + word + "\"\n");
        EXPECT_EQ(config.draft_auto, word == "auto") << word;
        EXPECT_EQ(config.draft_model, "") << word << " is no path";
        EXPECT_EQ(std::get<std::string>(config.setting("draft.model").value), word);
    }
}

TEST_F(ConfigTest, DefaultsAreTheSchemas) {
    const Config config = load(target_);
    EXPECT_EQ(config.target_context, 0);
    EXPECT_TRUE(config.draft_model.empty());
    EXPECT_TRUE(config.draft_auto);
    EXPECT_EQ(config.draft_folders, std::vector<std::filesystem::path>{resolve_path("~/models", {})});
    EXPECT_EQ(config.speculation_mode, SpeculationMode::automatic);
    EXPECT_EQ(config.max_draft, 16);
    EXPECT_THAT(config.chain, ElementsAre("penalties", "top_k", "top_p", "temperature"));
    EXPECT_TRUE(config.setting("sampling.seed").origin.is_default());
    EXPECT_EQ(config.isa, "");
}

TEST_F(ConfigTest, UnknownKeysNameTheirPlaceAndTheNearestKey) {
    EXPECT_EQ(error(target_ + "contxt = 5\n"),
              "test.toml:3:1: unknown key 'contxt' in [target]; did you mean 'context'?\n    contxt = 5\n    ^");
    EXPECT_THAT(error(target_ + "[sampling]\n  seeed = 5\n"),
                AllOf(StartsWith("test.toml:4:3: unknown key 'seeed' in [sampling]; did you mean 'seed'?"),
                      HasSubstr("\n      seeed = 5\n      ^")));
    EXPECT_THAT(error(target_ + "[speculatoin]\nmode = \"off\"\n"),
                StartsWith("test.toml:3:2: unknown table [speculatoin]; did you mean 'speculation'?"));
    EXPECT_THAT(error(target_ + "[sampling.temprature]\nvalue = 1\n"),
                HasSubstr("unknown table [sampling.temprature]; did you mean 'temperature'?"));
    EXPECT_THAT(error(target_ + "[sampling.top_k]\nkk = 1\n"), HasSubstr("unknown key 'kk' in [sampling.top_k]"));
    // The right key in the wrong place.
    EXPECT_THAT(error(target_ + "[runtime]\nmax_draft = 1\n"), HasSubstr("did you mean 'speculation.max_draft'?"));
}

TEST_F(ConfigTest, TypesAreExact) {
    EXPECT_THAT(error(target_ + "context = true\n"),
                StartsWith("test.toml:3:11: 'target.context' must be an integer, not a boolean"));
    EXPECT_THAT(error(target_ + "context = 1.0\n"), HasSubstr("must be an integer, not a number with a fraction"));
    EXPECT_THAT(error(target_ + "context = -1\n"), HasSubstr("must be between 0 and 1048576, not -1"));
    EXPECT_THAT(error("[target]\nmodel = 5\n"),
                HasSubstr("'target.model' must be a string that names a file, not an integer"));
    EXPECT_THAT(error(target_ + "[speculation]\nmode = \"of\"\n"),
                HasSubstr("must be one of auto, off, fixed, not 'of'; did you mean 'off'?"));
    EXPECT_THAT(error(target_ + "[speculation]\nsources = [\"drat\"]\n"), HasSubstr("did you mean 'draft'?"));
    EXPECT_THAT(error(target_ + "[sampling]\nchain = \"top_k\"\n"),
                HasSubstr("must be a list of strings, not a string"));
    EXPECT_THAT(error(target_ + "[sampling]\nchain = [1]\n"),
                HasSubstr("must be a list of strings, but holds an integer"));
    EXPECT_THAT(error(target_ + "[sampling.top_p]\np = nan\n"), HasSubstr("must be between 0 and 1, not nan"));
    EXPECT_THAT(error(target_ + "[sampling.top_p]\np = 1.5\n"), HasSubstr("must be between 0 and 1, not 1.5"));
    EXPECT_THAT(error(target_ + "[sampling.logit_bias]\nstrict = 1\n"),
                HasSubstr("must be true or false, not an integer"));
    EXPECT_THAT(error(target_ + "[sampling.logit_bias]\nids = [1, 2.5]\n"), HasSubstr("list of integers, but holds"));
    EXPECT_THAT(error("target = 5\n"), HasSubstr("'target' must be a table, not an integer; write [target]"));
    EXPECT_THAT(error(target_ + "[sampling]\ntop_k = 5\n"), HasSubstr("'sampling.top_k' must be a table"));
    EXPECT_THAT(error(target_ + "[sampling]\nseed = 1979-05-27\n"), HasSubstr("not a date or time"));
    EXPECT_THAT(error("[target]\nmodel = \"a\\u0000b\"\n"), HasSubstr("zero byte"));
    EXPECT_THAT(error(target_ + "[runtime]\ndevice = \"gpu\"\n"),
                HasSubstr("must be auto, cpu, cuda or cuda:N, not 'gpu'"));
}

TEST_F(ConfigTest, AListOfDevices) {
    const auto list = [&](const std::string& text) { return target_ + "[runtime]\n" + text; };
    EXPECT_THAT(load(list("devices = [\"cpu\", \"cuda:7\", \"reference\"]\n")).devices,
                ElementsAre("cpu", "cuda:7", "reference"));
    // One is no list, and a list that is not there needs no layers.
    const Config one = load(list("devices = [\"reference\"]\ndevice_layers = [9]\n"));
    EXPECT_EQ(one.device, "reference");
    EXPECT_THAT(one.devices, IsEmpty());
    EXPECT_THAT(load(list("device_layers = [9, 1]\n")).devices, IsEmpty());
    EXPECT_THAT(error(list("devices = [\"cuda:0\", \"gpu\"]\n")),
                StartsWith("test.toml:4:11: 'runtime.devices' must name cpu, cuda or cuda:N, not 'gpu'"));
    EXPECT_THAT(error(list("devices = [\"auto\", \"cpu\"]\n")), HasSubstr("not 'auto'"));
    EXPECT_THAT(error(list("devices = [\"cpu\", \"\"]\n")), HasSubstr("not ''"));
    EXPECT_THAT(error(list("devices = [\"cuda\", \"cpu\", \"cuda:00\"]\n")), HasSubstr("names cuda:0 twice"));
    EXPECT_THAT(error(list("devices = [\"cpu\", \"cpu\"]\n")), HasSubstr("names cpu twice"));
    EXPECT_THAT(error(list("devices = [\"cpu\", \"cuda\"]\ndevice_layers = [1]\n")),
                StartsWith("test.toml:5:17: 'runtime.device_layers' has 1 number and 'runtime.devices' 2 devices"));
    EXPECT_THAT(error(list("devices = [\"cpu\", \"cuda\"]\ndevice_layers = [1, -1]\n")), HasSubstr("-1"));
    EXPECT_THAT(error(list("devices = [\"cpu\", \"cuda\"]\ndevice_mib = [1, 2, 3]\n")),
                StartsWith("test.toml:5:14: 'runtime.device_mib' has 3 numbers and 'runtime.devices' 2 devices"));
    // A draft is on one of them.
    const std::string two = "devices = [\"cpu\", \"cuda:1\"]\n";
    EXPECT_EQ(to_toml(load(list(two + "[draft]\ndevice = \"cuda:1\"\n")).setting("draft.device").value), "\"cuda:1\"");
    EXPECT_THAT(error(list(two + "[draft]\ndevice = \"cuda:0\"\n")),
                StartsWith("test.toml:6:10: 'draft.device' must be one of 'runtime.devices', cpu, cuda:1, not "
                           "'cuda:0'"));
    EXPECT_THAT(load(list("[draft]\ndevice = \"cuda:0\"\n")).devices, IsEmpty());
}

TEST_F(ConfigTest, KeysAndValuesOfTheCacheAreNamedTogetherOrApart) {
    using kernels::KvType;
    const auto cache = [&](const std::string& value) {
        const Config config = load(target_ + "[runtime]\nkv_cache = " + value + "\n");
        return std::pair(config.kv_format, std::get<std::string>(config.setting("runtime.kv_cache").value));
    };
    const auto mixed = kernels::kv_format(KvType::q8, KvType::q4);
    EXPECT_EQ(cache("\"q4\"").first, kernels::kv_format(KvType::q4, KvType::q4));
    EXPECT_EQ(cache("\"q6\"").first, kernels::kv_format(KvType::q6, KvType::q6));
    // The text and a table are the same setting.
    for (const char* same : {"\"k=q8,v=q4\"", "{k = \"q8\", v = \"q4\"}", "{v = \"q4\", k = \"q8\"}"}) {
        EXPECT_EQ(cache(same), std::pair(mixed, std::string("k=q8,v=q4"))) << same;
    }
    EXPECT_EQ(cache("{k = \"q8\", v = \"q8\"}"), std::pair(kernels::KvFormat::q8, std::string("q8")));
    EXPECT_EQ(load(target_, {"runtime.kv_cache=k=q8,v=q4"}).kv_format, mixed);
    const auto wrong = [&](const std::string& value) {
        return error(target_ + "[runtime]\nkv_cache = " + value + "\n");
    };
    EXPECT_THAT(wrong("\"q5\""), HasSubstr("test.toml:4:12: 'runtime.kv_cache' must be one of f16, q8, q6, q4, "));
    EXPECT_THAT(wrong("{k = \"q8\"}"),
                StartsWith("test.toml:4:12: 'runtime.kv_cache' lacks 'v'; a table must name all of its parts"));
    EXPECT_THAT(wrong("{k = \"q8\", v = \"q3\"}"),
                StartsWith("test.toml:4:27: 'runtime.kv_cache.v' must be one of f16, q8, q6, q4, not 'q3'"));
    EXPECT_THAT(wrong("{k = \"q8\", v = 4}"), StartsWith("test.toml:4:27: 'runtime.kv_cache.v' must be"));
    EXPECT_THAT(wrong("{k = \"q8\", w = \"q4\"}"), HasSubstr("unknown key 'w' in [runtime.kv_cache]"));
    // float16 stands for both, or for neither.
    EXPECT_THAT(wrong("{k = \"f16\", v = \"q4\"}"), HasSubstr("must be one of f16, q8, q6, q4, k="));
}

TEST_F(ConfigTest, AllErrorsComeAtOnceUpToALimit) {
    const std::string two = error(target_ + "contxt = 5\n[chat]\nstyle = 1\n");
    EXPECT_THAT(two, AllOf(HasSubstr("test.toml:3:1:"), HasSubstr("test.toml:5:9:")));
    std::string many = target_ + "[chat]\n";
    for (int i = 0; i < 50; ++i) many += "key" + std::to_string(i) + " = 1\n";
    try {
        load(many);
        FAIL() << "no error";
    } catch (const ConfigError& problem) {
        EXPECT_EQ(problem.diagnostics().size(), static_cast<std::size_t>(kMaxDiagnostics));
        EXPECT_THAT(problem.what(), HasSubstr("\nand 30 more"));
    }
}

TEST_F(ConfigTest, FilesMustExistAndAreRelativeToTheFile) {
    EXPECT_THAT(error("[target]\nmodel = \"models/none.gguf\"\n"),
                AllOf(StartsWith("test.toml:2:9: 'target.model': no file at "), HasSubstr("models/none.gguf")));
    EXPECT_THAT(error(target_ + "[draft]\nmodel = \"none.gguf\"\n"),
                StartsWith("test.toml:4:9: 'draft.model': no file at"));
    EXPECT_THAT(error(target_ + "[[plugin]]\nname = \"w\"\npath = \"w.so\"\n[sampling]\nchain = [\"w\"]\n"),
                HasSubstr("plugin 'w': no file at"));
    EXPECT_THAT(error("[chat]\nstyle = \"auto\"\n"), HasSubstr("test.toml: no target model; set 'model' in [target]"));
    EXPECT_EQ(load("[target]\nmodel = \"models/../models/./target.gguf\"\n").target_model,
              directory_ / "models/target.gguf");
}

TEST_F(ConfigTest, OverridesPassTheSameChecks) {
    const Config config =
        load(target_, {"sampling.seed=42", "speculation.mode=off", "sampling.chain=[\"top_k\"]", "sampling.top_k.k = 3",
                       "chat.style=\"llama3\"", "target.model=" + (directory_ / "models/draft.gguf").string()});
    EXPECT_EQ(config.seed, 42u);
    EXPECT_EQ(config.speculation_mode, SpeculationMode::off);
    EXPECT_THAT(config.chain, ElementsAre("top_k"));
    EXPECT_EQ(std::get<std::int64_t>(config.stage("top_k").at("k").value), 3);
    EXPECT_EQ(config.chat_style, "llama3");
    EXPECT_EQ(config.target_model, directory_ / "models/draft.gguf");
    EXPECT_EQ(config.setting("sampling.seed").origin.place, "--set #1");
    EXPECT_THAT(error(target_, {"sampling.sed=1"}),
                StartsWith("--set #1: unknown key 'sed' in [sampling]; did you mean 'seed'?"));
    EXPECT_THAT(error(target_, {"sampling.seed=1", "target.context=many"}),
                StartsWith("--set #2: 'target.context' must be an integer, not a string"));
    EXPECT_THROW(override_layer("sampling.seed", "--set #1"), UsageError);
    EXPECT_THROW(override_layer("=1", "--set #1"), UsageError);
    EXPECT_THAT(error(target_, {"sampling.chain=[\"top_k\""}), HasSubstr("must be a list of strings, not a string"));
}

TEST_F(ConfigTest, ChainAndPluginsMustAgree) {
    const std::string plugin = "[[plugin]]\nname = \"words\"\n";
    // A plugin that the chain does not name is not used, so its file need not be there.
    EXPECT_EQ(load(target_ + plugin).plugins.size(), 1u);
    EXPECT_EQ(load(target_ + plugin + "path = \"none.so\"\n", {"sampling.chain=[\"top_k\"]"}).chain.size(), 1u);
    EXPECT_THAT(
        error(target_ + "[sampling]\nchain = [\"topk\"]\n"),
        StartsWith("test.toml:4:9: 'sampling.chain' names 'topk', which is not a stage; did you mean 'top_k'?"));
    EXPECT_THAT(error(target_ + "[sampling]\nchain = [\"top_k\", \"top_k\"]\n"), HasSubstr("names 'top_k' twice"));
    EXPECT_THAT(error(target_ + "[[plugin]]\nname = \"top_k\"\n"), HasSubstr("is a built-in stage"));
    EXPECT_THAT(error(target_ + plugin + plugin), HasSubstr("plugin 'words' is named twice"));
    EXPECT_THAT(error(target_ + "[[plugin]]\npath = \"models\"\n"), HasSubstr("a [[plugin]] needs a name"));
    EXPECT_THAT(error(target_ + "[[plugin]]\nname = \"w\"\noption = 1\n"), HasSubstr("did you mean 'options'?"));
    EXPECT_THAT(error(target_ + "plugin = 5\n"), HasSubstr("unknown key 'plugin' in [target]"));
    EXPECT_THAT(error("plugin = 5\n" + target_), HasSubstr("'plugin' must be a list of tables; write [[plugin]]"));
    EXPECT_THAT(error(target_ + "[plugin]\nname = \"words\"\n"),
                AllOf(StartsWith("test.toml:4:1: "), HasSubstr("write [[plugin]]")));
    EXPECT_THAT(error(target_ + plugin + "[sampling.words]\na = 1\n"), HasSubstr("belong in [plugin.options]"));
    const std::string good = target_ + plugin + "[plugin.options]\nforbid = [\"a\"]\n[sampling]\nchain = [\"words\"]\n";
    EXPECT_EQ(load(good).plugins.size(), 1u);
    EXPECT_TRUE(load(good, {"plugin=[]", "sampling.chain=[]"}).plugins.empty());
    EXPECT_THAT(error(good, {"plugin=[]"}),
                StartsWith("--set #1: this list of plugins replaces the one of a lower layer, but sampling.chain still "
                           "names 'words' (test.toml:8:9); load it here too, or set sampling.chain\n"));
    const Config changed = load(good, {"plugin.words.options.forbid=[\"b\"]", "plugin.words.options.fast=yes"});
    EXPECT_THAT(std::get<std::vector<std::string>>(changed.plugins[0].options[0].second.value), ElementsAre("b"));
    EXPECT_EQ(std::get<std::string>(changed.plugins[0].options[1].second.value), "yes");
    EXPECT_THAT(error(good, {"plugin.wods.options.forbid=[\"b\"]"}), HasSubstr("did you mean 'words'?"));
    EXPECT_THAT(error(target_ + plugin + "[plugin.options]\na = [1, \"b\"]\n"), HasSubstr("not a mixed one"));
    EXPECT_THAT(error(target_ + plugin + "[plugin.options]\na = {b = 1}\n"), HasSubstr("not a table"));
}

TEST_F(ConfigTest, ALongListOfMistakesIsShort) {
    std::string chain;
    for (int i = 0; i < 100'000; ++i) chain += (i > 0 ? ", \"" : "\"") + std::string("n") + std::to_string(i) + "\"";
    const std::string message = error(target_, {"sampling.chain=[" + chain + "]"});
    EXPECT_THAT(message, AllOf(StartsWith("--set #1: 'sampling.chain' names 'n0', which is not a stage"),
                               HasSubstr("\nand 99980 more")));
    EXPECT_LT(message.size(), 10'000u);
    EXPECT_LT(error(target_, {"sampling.chain=[\"" + std::string(100'000, 'x') + "\"]"}).size(), 1'000u);
}

TEST_F(ConfigTest, NumbersThatNoIntegerHoldsAreAnsweredWithTheRange) {
    const std::string range = "must be between 0 and 9223372036854775807, not ";
    for (const std::string number : {"18446744073709551615", "99999999999999999999", "-99999999999999999999"}) {
        EXPECT_THAT(error(target_, {"sampling.seed=" + number}),
                    StartsWith("--set #1: 'sampling.seed' " + range + number + "\n"));
        EXPECT_THAT(error(target_ + "[sampling]\nseed = " + number + "\n"),
                    AllOf(StartsWith("test.toml:4:8: "), HasSubstr(number), HasSubstr("9223372036854775807")));
    }
    EXPECT_THAT(error(target_, {"sampling.seed=1e20"}), HasSubstr(range + "1e+20"));
    EXPECT_THAT(error(target_, {"sampling.seed=3.0"}),
                HasSubstr("must be an integer, not a number with a fraction; write 3\n"));
    EXPECT_THAT(error(target_, {"sampling.seed=3.5"}), HasSubstr("must be an integer, not a number with a fraction\n"));
    EXPECT_THAT(error(target_, {"sampling.seed=\"9007199254740993\""}), HasSubstr("; write 9007199254740993\n"));
    EXPECT_THAT(error(target_, {"target.context=99999999999999999999"}),
                HasSubstr("must be between 0 and 1048576, not 9999"));
    EXPECT_EQ(load(target_, {"sampling.seed=9223372036854775807"}).seed, 9223372036854775807u);
}

TEST_F(ConfigTest, AnInfiniteBoundIsAValueThatMayStandThere) {
    const Config config = load(target_ +
                               "[sampling]\nchain = [\"logit_bias\"]\n[sampling.logit_bias]\nids = [5, 6]\n"
                               "values = [-inf, 2.5]\n[[plugin]]\nname = \"p\"\n[plugin.options]\n"
                               "list = [-inf]\n");
    EXPECT_THAT(std::get<std::vector<double>>(config.stage("logit_bias").at("values").value),
                ElementsAre(-std::numeric_limits<double>::infinity(), 2.5));
    EXPECT_THAT(error(target_, {"sampling.logit_bias.values=[inf]"}), HasSubstr("must be between -inf and 1000"));
    EXPECT_THAT(error(target_, {"sampling.logit_bias.values=[nan]"}), HasSubstr("must be between -inf and 1000"));
    EXPECT_THAT(error(target_, {"sampling.temperature.value=inf"}), HasSubstr("must be between 0 and 100"));
    // A plugin's own limits are checked when it is loaded.
    EXPECT_THAT(std::get<std::vector<double>>(config.plugins[0].options[0].second.value), testing::SizeIs(1));
}

// The caret is under the first character of the value.
TEST_F(ConfigTest, CaretsAreUnderTheValue) {
    const auto caret = [](const std::string& message) {
        const auto line = message.find("\n    "), mark = message.rfind("\n    ");
        const std::string source = message.substr(line + 5, mark - line - 5), below = message.substr(mark + 5);
        return below.empty() || below.back() != '^' ? "no caret" : source.substr(below.size() - 1);
    };
    const std::vector<std::pair<std::string, std::string>> sets = {
        {"sampling.seed=-1", "-1"},
        {"sampling.seed=+x", "\"+x\""},
        {"sampling.temperature.value=-0.5", "-0.5"},
        {"sampling.temperature.value=-inf", "-inf"},
        {"runtime.device=foo", "\"foo\""},
        {"sampling.chain=[\"topk\"]", "[\"topk\"]"},
        {"target.model=none.gguf", "\"none.gguf\""},
        {"sampling.seed=true", "true"},
        {"sampling.seed=99999999999999999999", "\"99999999999999999999\""},
    };
    for (const auto& [set, value] : sets) EXPECT_EQ(caret(error(target_, {set})), value) << error(target_, {set});
    EXPECT_EQ(caret(error(target_ + "[sampling]\nseed   =   -1  # why\n")), "-1  # why");
    EXPECT_EQ(caret(error(target_ + "[runtime]\ndevice = 'foo'\n")), "'foo'");
}

TEST_F(ConfigTest, BrokenTomlIsOneSentence) {
    EXPECT_THAT(error("[target\nmodel = 1\n"), StartsWith("test.toml:1:8: not TOML: "));
    EXPECT_THAT(error("a = 1\na = 2\n"), AllOf(StartsWith("test.toml:2:5: not TOML: "), HasSubstr("a = 2")));
    EXPECT_THAT(error(std::string("a = \"\xff\"\n")), HasSubstr("not TOML"));
    EXPECT_THAT(error(target_ + "cont\u00e9xt = 5\n"),
                StartsWith("test.toml:3:1: not TOML: only ASCII characters are allowed outside strings"));
    EXPECT_EQ(load("\xef\xbb\xbf# caf\u00e9\n" + target_ + "[x-n]\na = \"\u00e9\"\n").target_context, 0);
    EXPECT_THAT(error(target_ + "context = 0\"\u02f1\"\n"),
                StartsWith("test.toml:3:1: not TOML: a string is not allowed here"));
    for (const std::string header : {"[%]", "[[ %]]", "[\x0f]", "[.a]", "[=", " [ ["}) {
        EXPECT_THAT(error(target_ + "[chat]\n" + header + "\n"), StartsWith("test.toml:4:")) << header;
    }
    EXPECT_THAT(error("a = " + std::string(100000, '[')), HasSubstr("nests deeper than 32 levels"));
    std::string dotted = "a";
    for (int i = 0; i < 200000; ++i) dotted += ".a";
    EXPECT_THAT(error(dotted + " = 1\n"), HasSubstr("nests deeper than 32 levels"));
    EXPECT_THAT(error("[" + dotted + "]\n"), HasSubstr("nests deeper than 32 levels"));
    EXPECT_THAT(error("x = \"[[[[\\\"[[[[\"\n" + target_), HasSubstr("unknown key 'x'"));
    EXPECT_THAT(error(std::string(kMaxConfigBytes + 1, ' ')), HasSubstr("is larger than"));
    // A control byte of the file does not reach the terminal.
    EXPECT_THAT(error("\x1b[31m = 1\n"), Not(HasSubstr("\x1b")));
}

TEST_F(ConfigTest, ShowsEverythingWithItsOrigin) {
    const std::string text = target_ +
                             "[sampling]\nseed = 3\nchain = [\"top_k\", \"words\"]\n[[plugin]]\nname = \"words\"\n"
                             "[plugin.options]\nforbid = [\"a\\\"b\"]\n";
    const Config config = load(text, {"speculation.max_draft=5"});
    const std::string shown = to_toml(config, stages_, true);
    EXPECT_THAT(shown,
                AllOf(HasSubstr("seed = 3"), HasSubstr("# test.toml:4:1"), HasSubstr("# --set #1"),
                      HasSubstr("[sampling.top_k]\nk = 40"), HasSubstr("# default"), HasSubstr("[plugin.options]")));
    // What is shown loads again, to the same configuration.
    const std::string plain = to_toml(config, stages_, false);
    EXPECT_EQ(to_toml(load(plain), stages_, false), plain);
}

TEST_F(ConfigTest, ReadsFilesWithinLimits) {
    EXPECT_THROW(read_config_file(directory_ / "none.toml"), Error);
    EXPECT_THROW(read_config_file(directory_), Error);
    std::ofstream(directory_ / "large.toml") << std::string(kMaxConfigBytes + 1, '\n');
    EXPECT_THROW(read_config_file(directory_ / "large.toml"), Error);
    std::ofstream(directory_ / "good.toml") << target_;
    EXPECT_EQ(read_config_file(directory_ / "good.toml").text, target_);
    EXPECT_THROW(read_config_file("/dev/zero"), Error);
    std::ofstream(directory_ / "model.gguf") << "GGUF\3";
    try {
        read_config_file(directory_ / "model.gguf");
        ADD_FAILURE() << "a model was read as a configuration";
    } catch (const Error& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("write --model "));
    }
}

TEST(Nearest, FindsWhatWasMeant) {
    const std::vector<std::string> words = {"temperature", "top_k", "top_p", "seed"};
    EXPECT_EQ(nearest("tempurature", words), "temperature");
    EXPECT_EQ(nearest("temp", words), "temperature");
    EXPECT_EQ(nearest("top_q", words), "top_k");
    EXPECT_EQ(nearest("sede", words), "seed");
    EXPECT_EQ(nearest("banana", words), "");
    EXPECT_EQ(edit_distance("ab", "ba"), 1);
    EXPECT_EQ(edit_distance("", "abc"), 3);
    EXPECT_EQ(edit_distance(std::string(100000, 'a'), "b"), 64);
    EXPECT_EQ(suggestion("banana", words), "; known are temperature, top_k, top_p, seed");
}

TEST(Toml, KeepsFileOrderAndPositions) {
    Diagnostic error;
    const auto tree = parse_toml("zebra = 1\napple = [true, \"x\"]\n[mid.deep]\nk = 2.5\n", "t", error);
    ASSERT_TRUE(tree);
    ASSERT_EQ(tree->members.size(), 3u);
    EXPECT_EQ(tree->members[0].key, "zebra");
    EXPECT_EQ(tree->members[1].key, "apple");
    EXPECT_EQ(tree->members[1].line, 2);
    EXPECT_EQ(tree->members[1].value.items.size(), 2u);
    EXPECT_EQ(tree->members[2].value.members[0].value.members[0].column, 1);
}

}  // namespace
}  // namespace foresay::core
