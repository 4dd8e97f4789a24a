// What is generated from the program's own tables: the schema and the reference of configurations, the manual page and
// the completions; and the pairings of configs/, each checked.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "app/bench/bench.h"
#include "app/command_line/command.h"
#include "app/command_line/description.h"
#include "app/configuration.h"
#include "core/config/json_schema.h"
#include "core/config/layers.h"
#include "core/config/reference.h"
#include "tests/app/pairings.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

using nlohmann::json;
using ::testing::AllOf;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsSupersetOf;
using ::testing::Not;
using testing::pairings;
using testing::source;
using testing::write_scratch;

namespace fs = std::filesystem;

std::string read(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// What a shell command prints, and nothing when it is not there.
std::string shell(const std::string& command) {
    std::string out;
    const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen((command + " 2>&1").c_str(), "r"), ::pclose);
    std::array<char, 4096> chunk{};
    while (const std::size_t got = std::fread(chunk.data(), 1, chunk.size(), pipe.get())) out.append(chunk.data(), got);
    return out;
}
bool installed(const std::string& program) { return !shell("command -v " + program).empty(); }

TEST(Documents, AreWhatTheProgramSays) {
    EXPECT_EQ(read(source("configs/schema.json")), core::to_json_schema(stage_schemas(), engine::source_schemas()))
        << "renew it: foresay config schema > configs/schema.json";
    EXPECT_EQ(read(source("docs/configuration-reference.md")),
              core::to_markdown(stage_schemas(), engine::source_schemas()))
        << "renew it: foresay config reference > docs/configuration-reference.md";
}

// The subset of JSON Schema that the schema uses, so that it is tested by what it accepts.
bool accepts(const json& schema, const json& value) {
    if (schema.contains("anyOf")) {
        return std::any_of(schema["anyOf"].begin(), schema["anyOf"].end(),
                           [&](const json& s) { return accepts(s, value); });
    }
    if (schema.contains("oneOf")) {
        return 1 == std::count_if(schema["oneOf"].begin(), schema["oneOf"].end(),
                                  [&](const json& s) { return accepts(s, value); });
    }
    if (schema.contains("enum") &&
        std::find(schema["enum"].begin(), schema["enum"].end(), value) == schema["enum"].end())
        return false;
    const std::string type = schema.value("type", "");
    if (type == "string" && !value.is_string()) return false;
    if (type == "boolean" && !value.is_boolean()) return false;
    if (type == "integer" && !value.is_number_integer()) return false;
    if (type == "number" && !value.is_number()) return false;
    if (value.is_number() && schema.contains("minimum") && value < schema["minimum"]) return false;
    if (value.is_number() && schema.contains("maximum") && value > schema["maximum"]) return false;
    if (type == "array") {
        return value.is_array() && std::all_of(value.begin(), value.end(),
                                               [&](const json& item) { return accepts(schema["items"], item); });
    }
    if (type != "object") return true;
    if (!value.is_object()) return false;
    for (const auto& [key, member] : value.items()) {
        if (schema.contains("patternProperties") && key.starts_with("x-")) continue;
        const json properties = schema.value("properties", json::object());
        if (!properties.contains(key)) {
            if (schema.value("additionalProperties", true)) continue;
            return false;
        }
        if (!accepts(properties[key], member)) return false;
    }
    return true;
}

TEST(Documents, TheSchemaAcceptsWhatTheLoaderAcceptsAndNoMore) {
    const json schema = json::parse(core::to_json_schema(stage_schemas(), engine::source_schemas()));
    const auto check = [&](const char* text) { return accepts(schema, json::parse(text)); };
    EXPECT_TRUE(check(R"({"target": {"model": "a.gguf", "context": 0}, "x-notes": 5})"));
    EXPECT_TRUE(check(R"({"extends": ["a.toml"], "sampling": {"chain": ["mine", "top_k"], "top_k": {"k": 3}}})"));
    EXPECT_TRUE(check(R"({"plugin": [{"name": "mine", "options": {"any": [1]}}], "extends": "a.toml"})"));
    EXPECT_FALSE(check(R"({"target": {"modle": "a"}})"));
    EXPECT_FALSE(check(R"({"target": {"context": -1}})"));
    EXPECT_FALSE(check(R"({"speculation": {"mode": "fast"}})"));
    EXPECT_TRUE(check(R"({"speculation": {"sources": ["ngram", "suffix"]}})"));
    EXPECT_FALSE(check(R"({"speculation": {"sources": ["lookup"]}})"));
    EXPECT_FALSE(check(R"({"sampling": {"top_k": {"k": "many"}}})"));
    EXPECT_FALSE(check(R"({"extends": 5})"));
    // Every key has its place, its default fits, and it says what it means.
    const auto expect = [&](const std::string& pointer, const core::KeySpec& spec) {
        const json& property = schema.at(json::json_pointer(pointer));
        EXPECT_TRUE(accepts(property, property.at("default"))) << pointer;
        EXPECT_TRUE(property.at("description").get<std::string>().starts_with(spec.doc)) << pointer;
    };
    for (const core::KeySpec& spec : core::core_schema()) {
        std::string pointer = "/properties/" + spec.key;
        pointer.replace(pointer.find('.'), 1, "/properties/");
        expect(pointer, spec);
    }
    for (const core::StageSchema& stage : stage_schemas()) {
        for (const core::KeySpec& spec : stage.parameters)
            expect("/properties/sampling/properties/" + stage.name + "/properties/" + spec.key, spec);
    }
}

TEST(CommandLine, EveryOptionSaysWhatItIsAndWhatItsValueCanBe) {
    // Values that no list and no folder holds.
    // clang-format off
    const std::vector<std::string> free = {
        "-n", "--seed", "--branch", "--context", "--threads", "--stop", "--temperature", "--width", "--runs", "-p",
        "--session", "SESSION", "MODEL", "--sequences", "--in", "--out", "--arrivals", "--alias", "--drain-seconds",
        "--host", "--listen", "--name", "--new-key", "--origin", "--parallel", "--queue", "--url", "--sampler",
        "NAME", "--port", "--stored-responses", "--clients", "--rate", "--requests", "--against",
        "--key", "--server-model"};
    // clang-format on
    std::vector<std::string> names;
    for (const CommandDescription& command : command_line()) {
        names.push_back(command.name);
        EXPECT_NE(command.doc, "") << command.name;
        for (const OptionDescription& option : command.options) {
            const std::string name = option.names.empty() ? option.value : option.names.front();
            EXPECT_NE(option.doc, "") << command.name << " " << name;
            if (option.value.empty() || option.hint != ValueHint::none) continue;
            EXPECT_THAT(free, Contains(name))
                << command.name << ": give it a hint where it is declared, or name it here";
        }
    }
    EXPECT_THAT(names, IsSupersetOf({"chat", "complete", "bench", "config check", "config show", "plugin list"}));
    EXPECT_THAT(names, Not(Contains("manual")));
}

// Finds a file that registers nothing, or whose object the linker left out.
TEST(CommandLine, EveryFileOfCommandsAndBenchmarksIsOnTheList) {
    std::set<std::string> commands, benchmarks;
    for (const CommandEntry& entry : registered_commands()) {
        std::string word = entry.name.substr(0, entry.name.find(' '));
        std::replace(word.begin(), word.end(), '-', '_');
        commands.insert(word + ".cpp");
        if (entry.name.find(' ') == std::string::npos) continue;
        // A long command of a family may have a file of its own.
        std::string own = entry.name + ".cpp";
        std::replace(own.begin(), own.end(), ' ', '_');
        if (fs::exists(source("app/commands/" + own))) commands.insert(own);
        EXPECT_TRUE(commands.contains(word + ".cpp")) << entry.name << " comes before its first word";
    }
    for (const Benchmark& benchmark : registered_benchmarks()) benchmarks.insert(benchmark.name + ".cpp");
    std::set<std::string> files;
    for (const auto& entry : fs::directory_iterator(source("app/commands"))) files.insert(entry.path().filename());
    EXPECT_EQ(commands, files);
    files.clear();
    for (const auto& entry : fs::directory_iterator(source("app/bench"))) {
        if (read(entry.path()).find("const RegisterBenchmark") != std::string::npos)
            files.insert(entry.path().filename());
    }
    EXPECT_EQ(benchmarks, files);
    EXPECT_GE(benchmarks.size(), 8u);
}

TEST(CommandLine, TheManualPageIsSound) {
    const std::string page = manual_page();
    for (const CommandDescription& command : command_line()) {
        std::string name = command.name;
        for (auto dash = name.find('-'); dash != name.npos; dash = name.find('-', dash + 2)) name.insert(dash, "\\");
        if (name.empty()) continue;
        EXPECT_THAT(page, HasSubstr("\n.SS " + name + "\n"));
    }
    EXPECT_THAT(page, AllOf(HasSubstr("\\fB\\-\\-set\\fR \\fIKEY=VALUE\\fR"), HasSubstr(".SH EXIT STATUS")));
    if (!installed("groff")) GTEST_SKIP() << "groff is not installed";
    EXPECT_EQ(shell("groff -man -ww -z " + write_scratch("foresay.1", page)), "");
}

TEST(CommandLine, BashCompletes) {
    const std::string script = write_scratch("foresay.bash", completion_script("bash"));
    const auto complete = [&](const std::string& words) {
        return shell("bash -c '. " + script + "; cd " + source(".") + "; COMP_WORDS=(foresay " + words +
                     "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _foresay; echo \"${COMPREPLY[*]}\"'");
    };
    EXPECT_EQ(complete("inspe"), "inspect\n");
    EXPECT_EQ(complete("chat --thr"), "--threads\n");
    EXPECT_EQ(complete("complete --speculation \"\""), "auto off\n");
    EXPECT_EQ(complete("config s"), "schema show\n");
    EXPECT_EQ(complete("config show --set sampling.top_k"), "sampling.top_k.k= sampling.top_k.on_error=\n");
    EXPECT_THAT(complete("chat configs/py"), HasSubstr("configs/python-coder.toml"));
    EXPECT_THAT(complete("chat configs/sch"), Not(HasSubstr("schema.json")));
    EXPECT_EQ(complete("bench --quant q8"), "q8_0\n");
    EXPECT_THAT(complete("inspect READ"), HasSubstr("README.md"));
    EXPECT_EQ(complete("completion z"), "zsh\n");
    EXPECT_EQ(complete("bench --seed 1 dec"), "decode\n");
}

TEST(CommandLine, ZshAndFishTakeTheirScripts) {
    EXPECT_THAT(completion_script("zsh"), AllOf(HasSubstr("#compdef foresay"), HasSubstr("--speculation[")));
    EXPECT_THAT(completion_script("fish"), AllOf(HasSubstr("complete -c foresay"), HasSubstr("-l speculation")));
    EXPECT_THROW(completion_script("tcsh"), std::exception);
    if (installed("zsh")) {
        EXPECT_EQ(shell("zsh -n " + write_scratch("_foresay", completion_script("zsh"))), "");
    }
    if (installed("fish")) {
        const std::string script = write_scratch("foresay.fish", completion_script("fish"));
        EXPECT_EQ(shell("fish --no-config -n " + script), "");
        EXPECT_THAT(shell("fish --no-config -c 'source " + script + "; complete -C \"foresay chat --spec\"'"),
                    HasSubstr("--speculation\t"));
    }
}

// The commands in a page's code blocks, as a shell takes them: "./run ..." up to the remark after it.
std::vector<std::string> commands_of(const std::string& page) {
    std::vector<std::string> commands;
    std::ifstream file(source(page));
    bool inside = false, code = false;
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with("```")) {
            inside = !inside;
            code = inside && line == "```";
        }
        const auto run = line.find("./run ");
        const bool variables = line.starts_with("FORESAY_");
        if (!code || run == std::string::npos || (run > 0 && !variables)) continue;
        const auto remark = line.find("    ", run);
        commands.push_back(line.substr(0, remark));
        commands.back().replace(run, 5, FORESAY_PROGRAM);
    }
    return commands;
}

TEST(Guides, TheirCommandsRun) {
    const fs::path home = testing::scratch();
    std::size_t ran = 0;
    for (const std::string page : {"README.md", "docs/getting-started.md", "docs/configuration.md"}) {
        for (const std::string& command : commands_of(page)) {
            // The reader's own models and plugins do not exist here; setting up, testing, measuring and fetching have
            // tests of their own.
            if (std::regex_search(command, std::regex("big.gguf|my-pair.toml|floor.so| hf:|"
                                                      "foresay (setup|test|record|format|bench|pull)")))
                continue;
            ++ran;
            const std::string all = "cd " + source(".") + " && env XDG_CONFIG_HOME=" + (home / "none").string() +
                                    " XDG_CONFIG_DIRS=" + (home / "none").string() +
                                    " XDG_STATE_HOME=" + home.string() + " FORESAY_LOG=error " + command +
                                    " </dev/null >/dev/null";
            const std::string error = shell(all + " && echo fine");
            EXPECT_EQ(error, "fine\n") << page << ": " << command;
        }
    }
    EXPECT_GT(ran, 8u);
}

// The memory that the comments give must follow from the shapes.
constexpr double kGib = 1024.0 * 1024.0 * 1024.0;

// Bytes that a position takes in the cache, as float16 keys and values.
double cached(const kernels::ModelShape& shape) { return 2.0 * 2.0 * shape.layers * shape.kv_heads * shape.head_dim; }

// All matrices once, the embedding table and the head with them.
double parameters(const kernels::ModelShape& s, bool tied) {
    const double attention = 2.0 * s.d_model * s.heads * s.head_dim + 2.0 * s.d_model * s.kv_heads * s.head_dim;
    return s.layers * (attention + 3.0 * s.d_model * s.d_ff) + (tied ? 1.0 : 2.0) * s.vocab * s.d_model;
}

struct Sizes {
    double parameters = 0.0, cached = 0.0;
};

Sizes sizes_of(const std::string& shape, std::int32_t vocab) {
    core::ModelConfig config = core::published_shape(shape);
    if (vocab > 0) config.shape.vocab = vocab;
    double cached = 0.0;
    for (const kernels::KvLayer& layer : core::kv_shape(config).layers) {
        cached += 2.0 * 2.0 * layer.heads * layer.head_dim;
    }
    return {static_cast<double>(core::parameter_count(config)), cached};
}

// Of the target and of the draft of a configuration.
std::pair<Sizes, Sizes> sizes(const std::string& name) {
    if (const auto found = testing::shape_pairings().find(name); found != testing::shape_pairings().end()) {
        const testing::ShapePairing& pair = found->second;
        return {sizes_of(pair.target, 0), pair.draft.empty() ? Sizes{} : sizes_of(pair.draft, pair.draft_vocab)};
    }
    const testing::Pairing& pair = pairings().at(name);
    return {{parameters(pair.target, false), cached(pair.target)},
            {parameters(pair.draft, pair.tied_draft), cached(pair.draft)}};
}

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    return text;
}

TEST(Pairings, AreSoundAndSayWhatTheyTake) {
    std::size_t seen = 0;
    for (const auto& entry : fs::directory_iterator(source("configs"))) {
        const std::string name = entry.path().filename();
        if (entry.path().extension() != ".toml" || name == "python-coder.toml") continue;
        SCOPED_TRACE(name);
        const bool any_family = testing::shape_pairings().contains(name);
        ASSERT_TRUE(any_family || pairings().contains(name)) << "add its shapes to tests/app/pairings.h";
        ++seen;
        core::ConfigRequest request;
        request.layers = core::read_config_layers(entry.path());
        request.stages = stage_schemas();
        request.need_files = false;
        const core::Config config = core::load_config(request);
        EXPECT_FALSE(config.target_model.empty());
        const bool draft_named = !any_family || !testing::shape_pairings().at(name).draft.empty();
        EXPECT_EQ(config.draft_model.empty(), !draft_named);
        EXPECT_FALSE(config.draft_auto);
        // Models of the hub have a template of their own.
        EXPECT_EQ(config.chat_style == "auto", any_family) << "a ready pairing knows its models' format";
        const std::string text = read(entry.path());
        EXPECT_THAT(text, AllOf(HasSubstr("# Files:"), HasSubstr("# Memory:"), HasSubstr("# Draft length:")));
        std::smatch found;
        const std::regex memory(
            "weights ([0-9.]+) GiB(?: and ([0-9.]+) GiB)?, cache ([0-9.]+) GiB[^:]*: about ([0-9.]+) GiB");
        const std::string line = std::regex_replace(text, std::regex("\n# +"), " ");
        ASSERT_TRUE(std::regex_search(line, found, memory)) << "no line on memory";
        const auto [target, draft] = sizes(name);
        const double cache = (target.cached + draft.cached) * config.target_context / kGib;
        EXPECT_NEAR(std::stod(found[3]), cache, 0.06);
        const auto bits = [](const fs::path& path) {
            const std::string file = lower(path.string());
            if (file.find("mxfp4") != std::string::npos) return 4.63;    // with the rest in Q8_0
            return file.find("q8_0") != std::string::npos ? 8.5 : 4.85;  // of Q4_K_M, on average
        };
        EXPECT_NEAR(std::stod(found[1]), target.parameters * bits(config.target_model) / 8 / kGib,
                    0.04 * std::stod(found[1]));
        EXPECT_EQ(found[2].matched, draft_named);
        const double weights_of_draft = found[2].matched ? std::stod(found[2]) : 0.0;
        EXPECT_NEAR(weights_of_draft, draft.parameters * bits(config.draft_model) / 8 / kGib, 0.12);
        const double all = std::stod(found[1]) + weights_of_draft + std::stod(found[3]);
        EXPECT_NEAR(std::stod(found[4]), all, 0.7);
    }
    EXPECT_EQ(seen, pairings().size() + testing::shape_pairings().size());
}

}  // namespace
}  // namespace foresay::app
