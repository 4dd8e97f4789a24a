// Every configuration of configs/ as its user starts it, with small models of its families in place of the published
// ones: files are found, vocabularies pair, the chain is built, the chat format finds its tokens, and text comes out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/app/pairings.h"
#include "tests/app/program.h"
#include "tests/app/small_model.h"
#include "tests/support/model_folder.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::vector<std::string> ready_pairings() {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(source("configs"))) {
        const std::string name = entry.path().filename();
        const bool any_family = shape_pairings().contains(name);
        if (entry.path().extension() == ".toml" && name != "python-coder.toml" && !any_family) names.push_back(name);
    }
    std::sort(names.begin(), names.end());
    return names;
}

class Configs : public ::testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        ASSERT_TRUE(pairings().contains(GetParam())) << "add its shapes to tests/app/pairings.h";
        write_models(pairings().at(GetParam()));
    }
    static void write_models(const Pairing& pair) {
        write_small_model(scratch() / "target.gguf", pair.family, pair.target, false, false);
        write_small_model(scratch() / "draft.gguf", pair.family, pair.draft, pair.tied_draft,
                          pair.family != Family::codellama);
    }
    // The command with the configuration and the small files, on the processor, where every machine can run it.
    static Call call(const std::string& command, const std::string& config, std::vector<std::string> more) {
        Call call;
        call.arguments = {command, source("configs/" + config), "--device", "cpu", "--threads", "2"};
        for (const char* role : {"target", "draft"}) {
            const std::string key = std::string(role) + ".model=" + (scratch() / role).string() + ".gguf";
            call.arguments.insert(call.arguments.end(), {"--set", key});
        }
        call.arguments.insert(call.arguments.end(), more.begin(), more.end());
        return call;
    }
};

TEST_P(Configs, Complete) {
    const Outcome outcome =
        run(call("complete", GetParam(),
                 {"-p", "def f(x):", "-n", "8", "--seed", "1", "--speculation", "4", "--ignore-eos", "--json"}));
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json.at("token_ids").size(), 8u) << outcome.out;
    EXPECT_GT(json.at("speculation").at("drafted"), 0) << outcome.out;
}

TEST_P(Configs, TalkInTheirChatFormat) {
    Call talk = call("chat", GetParam(), {"--lines", "-n", "8", "--seed", "1", "--no-save"});
    const Family family = pairings().at(GetParam()).family;
    const bool formatted = family == Family::qwen2 || family == Family::llama3;
    talk.input = (formatted ? "/system Be brief.\n" : "") + std::string("def f(x):\n/tokens\n/print\n/quit\n");
    const Outcome outcome = run(talk);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_NE(outcome.out, "");
    EXPECT_THAT(outcome.error, HasSubstr("def")) << "what /tokens says";
    // In quotes, as one token.
    const std::map<Family, std::string> marks = {{Family::qwen2, "\"<|im_start|>\""},
                                                 {Family::llama3, "\"<|eot_id|>\""}};
    const auto mark = marks.find(family);
    if (mark != marks.end()) {
        EXPECT_THAT(outcome.error, HasSubstr(mark->second));
    }
    // The conversation as the model reads it.
    if (family == Family::qwen2) {
        EXPECT_THAT(outcome.error, HasSubstr("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\ndef f(x):"
                                             "<|im_end|>\n<|im_start|>assistant\n"));
    }
}

// A control: files of another family are refused, so that the tests above do see the vocabularies.
TEST_P(Configs, RefuseADraftOfAnotherFamily) {
    const Family other = pairings().at(GetParam()).family == Family::llama3 ? Family::qwen2 : Family::llama3;
    for (const auto& [name, pair] : pairings()) {
        if (pair.family == other) write_small_model(scratch() / "draft.gguf", other, pair.draft, true, true);
    }
    const Outcome outcome = run(call("complete", GetParam(), {"-p", "def", "-n", "2"}));
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.error, HasSubstr("cannot draft for"));
}

// Those of published shapes, with small models of them as folders.
class ShapeConfigs : public ::testing::TestWithParam<std::string> {
protected:
    static Outcome complete(const FolderTokenizer& draft_tokenizer) {
        const ShapePairing& pair = shape_pairings().at(GetParam());
        const auto target = write_model_folder(scratch() / "target", {.shape = pair.target, .small = true});
        Call call;
        call.arguments = {"complete",
                          source("configs/" + GetParam()),
                          "--device",
                          "cpu",
                          "--threads",
                          "1",
                          "--set",
                          "target.model=" + target.string(),
                          "-p",
                          "def f(x): def f(x): def f(x):",
                          "-n",
                          "24",
                          "--seed",
                          "1",
                          "--speculation",
                          "4",
                          "--ignore-eos",
                          "--json"};
        if (has_draft()) {
            const auto draft = write_model_folder(scratch() / "draft",
                                                  {.shape = pair.draft, .small = true, .tokenizer = draft_tokenizer});
            call.arguments.insert(call.arguments.end(), {"--set", "draft.model=" + draft.string()});
        }
        return run(call);
    }
    static bool has_draft() { return !shape_pairings().at(GetParam()).draft.empty(); }
    void TearDown() override {
        fs::remove_all(scratch() / "target");
        fs::remove_all(scratch() / "draft");
    }
};

TEST_P(ShapeConfigs, Complete) {
    const Outcome outcome = complete({});
    ASSERT_EQ(outcome.status, 0) << outcome.error;
    const auto json = nlohmann::json::parse(outcome.out);
    EXPECT_EQ(json.at("token_ids").size(), 24u) << outcome.out;
    EXPECT_GT(json.at("speculation").at("drafted"), 0) << outcome.out;
}

TEST_P(ShapeConfigs, RefuseADraftOfAnotherTokenizer) {
    if (!has_draft()) return;
    const Outcome outcome = complete({.prefix = "mot"});
    EXPECT_NE(outcome.status, 0);
    EXPECT_THAT(outcome.error, HasSubstr("cannot draft for"));
}

std::vector<std::string> shape_configs() {
    std::vector<std::string> names;
    for (const auto& [name, pair] : shape_pairings()) names.push_back(name);
    return names;
}

INSTANTIATE_TEST_SUITE_P(All, ShapeConfigs, ::testing::ValuesIn(shape_configs()), [](const auto& info) {
    std::string name = info.param.substr(0, info.param.rfind('.'));
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
    return name;
});

INSTANTIATE_TEST_SUITE_P(All, Configs, ::testing::ValuesIn(ready_pairings()), [](const auto& info) {
    std::string name = info.param.substr(0, info.param.rfind('.'));
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '-' || c == '.'; }, '_');
    return name;
});

}  // namespace
}  // namespace foresay::testing
