// Which files of a repository make up a model.
#include "hub/choice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace foresay::hub {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<HubFile> files(std::initializer_list<const char*> paths) {
    std::vector<HubFile> out;
    for (const char* path : paths) out.push_back({path, 10, std::string(64, 'a')});
    return out;
}

std::string chosen(const std::vector<HubFile>& files, const std::string& choice = "") {
    const ModelFiles model = choose(files, choice, "ann/x");
    return model.gguf ? model.path : "folder";
}

std::string refusal(const std::vector<HubFile>& files, const std::string& choice = "") {
    try {
        return "took " + chosen(files, choice);
    } catch (const Error& problem) {
        return problem.what();
    }
}

TEST(HubChoice, ReadsTheQuantisationInAName) {
    const std::vector<std::pair<const char*, const char*>> names = {
        {"Qwen3-0.6B-Q8_0.gguf", "Q8_0"},
        {"qwen2.5-0.5b-instruct-q4_k_m.gguf", "Q4_K_M"},
        {"llama-2-7b.Q4_K_M.gguf", "Q4_K_M"},
        {"gemma_3_1b_q4_0.gguf", "Q4_0"},
        {"Llama-3.2-1B-Instruct-IQ4_XS.gguf", "IQ4_XS"},
        {"Qwen3-8B-UD-Q4_K_XL.gguf", "UD-Q4_K_XL"},
        {"Qwen3-8B-UD-IQ2_XXS.gguf", "UD-IQ2_XXS"},
        {"gpt-oss-20b-MXFP4.gguf", "MXFP4"},
        {"x-mxfp4_moe.gguf", "MXFP4_MOE"},
        {"model-BF16.gguf", "BF16"},
        {"model-fp16.gguf", "FP16"},
        {"model.f16.gguf", "F16"},
        {"bitnet-TQ1_0.gguf", "TQ1_0"},
        {"Q4_K_M/model-Q4_K_M-00001-of-00003.gguf", "Q4_K_M"},
        {"UD-Q2_K_XL/model-00001-of-00003.gguf", "UD-Q2_K_XL"},
        {"BF16/model.gguf", "BF16"},
        {"model.gguf", ""},
        {"Q-star-7b.gguf", ""},
        {"Qwen3-4B.gguf", ""},
        {"q3abc.gguf", ""},
        {"iq-test.gguf", ""},
    };
    for (const auto& [name, quant] : names) EXPECT_EQ(quant_of(name), quant) << name;
}

TEST(HubChoice, TakesAQuantisationInAnyCase) {
    const auto repo = files({"x-Q4_K_M.gguf", "x-Q4_K_S.gguf", "x-Q8_0.gguf", "x-UD-Q6_K_XL.gguf", "x-F16.gguf",
                             "mmproj-x-Q8_0.gguf", "imatrix-Q4_0.gguf", "x.imatrix.gguf", "README.md"});
    EXPECT_EQ(chosen(repo, "q8_0"), "x-Q8_0.gguf");
    EXPECT_EQ(chosen(repo, "Q4_K_S"), "x-Q4_K_S.gguf");
    EXPECT_EQ(chosen(repo, "Q6_K_XL"), "x-UD-Q6_K_XL.gguf");
    EXPECT_EQ(chosen(repo, "Q6_K"), "x-UD-Q6_K_XL.gguf");
    EXPECT_EQ(chosen(repo, "fp16"), "x-F16.gguf");
    EXPECT_EQ(chosen(repo, "x-F16.gguf"), "x-F16.gguf");
    EXPECT_THAT(refusal(repo, "Q4_K"), AllOf(HasSubstr("ann/x has several models that 'Q4_K' may mean"),
                                             HasSubstr("after a colon: Q4_K_M, Q4_K_S")));
    EXPECT_THAT(refusal(repo, "Q2_K"),
                AllOf(HasSubstr("ann/x has no 'Q2_K'"), HasSubstr("F16, Q4_K_M, Q4_K_S, Q8_0, UD-Q6_K_XL")));
    EXPECT_THAT(refusal(repo, "safetensors"), HasSubstr("has no 'safetensors'"));
}

TEST(HubChoice, HasAPreference) {
    EXPECT_EQ(chosen(files({"x-Q8_0.gguf", "x-Q4_0.gguf", "x-Q4_K_M.gguf"})), "x-Q4_K_M.gguf");
    EXPECT_EQ(chosen(files({"x-Q8_0.gguf", "x-Q4_0.gguf", "x-Q2_K.gguf"})), "x-Q4_0.gguf");
    EXPECT_EQ(chosen(files({"x-Q8_0.gguf", "x-Q2_K.gguf"})), "x-Q8_0.gguf");
    EXPECT_EQ(chosen(files({"x-F16.gguf", "x-IQ1_S.gguf"})), "x-F16.gguf");
    EXPECT_EQ(chosen(files({"x-IQ1_S.gguf"})), "x-IQ1_S.gguf") << "there is no other";
    EXPECT_EQ(chosen(files({"anything.gguf"})), "anything.gguf");
    EXPECT_THAT(refusal(files({"x-IQ1_S.gguf", "x-IQ2_S.gguf"})),
                AllOf(HasSubstr("ann/x has several models;"), HasSubstr("IQ1_S, IQ2_S")));
    EXPECT_THAT(refusal(files({"large-Q4_0.gguf", "small-Q4_0.gguf", "x-Q8_0.gguf"})),
                AllOf(HasSubstr("several models of Q4_0"), HasSubstr("large-Q4_0.gguf, small-Q4_0.gguf")));
    EXPECT_EQ(chosen(files({"large-Q4_0.gguf", "small-Q4_0.gguf"}), "small-q4_0.gguf"), "small-Q4_0.gguf");
    std::vector<HubFile> many;
    for (char c = 'a'; c <= 'z'; ++c) many.push_back({std::string(1, c) + ".gguf", 1, ""});
    EXPECT_THAT(refusal(many), HasSubstr("k.gguf, l.gguf and 14 more"));
}

TEST(HubChoice, TakesPartsInOrderAndNoneThatAreMissing) {
    const auto split =
        files({"x-Q4_0-00003-of-00003.gguf", "x-Q4_0-00001-of-00003.gguf", "x-Q4_0-00002-of-00003.gguf"});
    const ModelFiles model = choose(split, "", "ann/x");
    EXPECT_EQ(model.path, "x-Q4_0-00001-of-00003.gguf");
    EXPECT_EQ(model.choice, "Q4_0");
    EXPECT_EQ(model.bytes(), 30);
    EXPECT_EQ(model.files[2].path, "x-Q4_0-00003-of-00003.gguf");
    EXPECT_EQ(chosen(split, "x-Q4_0-00001-of-00003.gguf"), model.path);
    EXPECT_EQ(chosen(split, "x-Q4_0.gguf"), model.path);
    EXPECT_THAT(refusal(files({"x-Q4_0-00001-of-00003.gguf", "x-Q4_0-00003-of-00003.gguf"})),
                HasSubstr("only a part of x-Q4_0-00001-of-00003.gguf (2 of 3 parts)"));
    EXPECT_EQ(chosen(files({"x-Q4_0-00001-of-00003.gguf", "x-Q8_0.gguf"})), "x-Q8_0.gguf");
    EXPECT_EQ(chosen(files({"x-00000-of-00003.gguf"})), "x-00000-of-00003.gguf") << "no part";
    // The same name in two numbers of parts is two models.
    EXPECT_THAT(
        refusal(files({"x-Q4_0-00001-of-00001.gguf", "x-Q4_0-00001-of-00002.gguf", "x-Q4_0-00002-of-00002.gguf"})),
        HasSubstr("several models of Q4_0"));
}

TEST(HubChoice, TakesAFolderWithoutOtherFormats) {
    const auto repo =
        files({"config.json", "tokenizer.json", "tokenizer.model", "model.safetensors", "pytorch_model.bin",
               "consolidated.00.pth", "onnx/model.onnx", "original/config.json", "qwen.tiktoken", "chat_template.jinja",
               "README.md", "generation_config.json", "quant_config.json"});
    const ModelFiles model = choose(repo, "", "ann/x");
    std::vector<std::string> names;
    for (const HubFile& file : model.files) names.push_back(file.path);
    EXPECT_THAT(names,
                ElementsAre("config.json", "tokenizer.json", "tokenizer.model", "model.safetensors", "qwen.tiktoken",
                            "chat_template.jinja", "generation_config.json", "quant_config.json"));
    EXPECT_EQ(model.path, "");
    EXPECT_EQ(chosen(repo, "safetensors"), "folder");
    EXPECT_THAT(refusal(files({"pytorch_model.bin", "config.json"})), HasSubstr("no GGUF file and no folder"));
    EXPECT_THAT(refusal(files({"model.safetensors"})), HasSubstr("no GGUF file and no folder"));
    EXPECT_THAT(refusal({}), HasSubstr("no GGUF file and no folder"));
    // A repository with both.
    const auto both = files({"config.json", "model.safetensors", "x-Q4_0.gguf"});
    EXPECT_EQ(chosen(both), "x-Q4_0.gguf");
    EXPECT_EQ(chosen(both, "safetensors"), "folder");
}

TEST(HubChoice, AddsTheShardsOfAnIndex) {
    const auto repo =
        files({"config.json", "model.safetensors.index.json", "a.safetensors", "b.safetensors", "c.safetensors"});
    ModelFiles model = choose(repo, "", "ann/x");
    ASSERT_NE(index_of(model), nullptr);
    add_shards(model, repo, R"({"weight_map": {"x": "b.safetensors", "y": "a.safetensors", "z": "b.safetensors"}})",
               "ann/x");
    ASSERT_EQ(model.files.size(), 4u);
    EXPECT_EQ(model.files[2].path, "a.safetensors");
    EXPECT_EQ(model.files[3].path, "b.safetensors");
    const auto refused = [&](const std::string& index) {
        ModelFiles again = choose(repo, "", "ann/x");
        try {
            add_shards(again, repo, index, "ann/x");
        } catch (const Error& problem) {
            return std::string(problem.what());
        }
        return std::string();
    };
    EXPECT_THAT(refused(R"({"weight_map": {"x": "d.safetensors"}})"),
                HasSubstr("names d.safetensors, which is not there"));
    EXPECT_THAT(refused(R"({"weight_map": {"x": "../d"}})"), HasSubstr("a file that cannot be one"));
    EXPECT_THAT(refused(R"({"weight_map": {"x": 5}})"), HasSubstr("a file that cannot be one"));
    for (const std::string& index : {std::string("{}"), std::string("[]"), std::string("{\"weight_map\": 1}"),
                                     std::string(1 << 20, '['), std::string("\0\0", 2)}) {
        EXPECT_THAT(refused(index), HasSubstr("is not an index of safetensors"));
    }
    // One whole file counts before an index, as when a folder is read.
    EXPECT_EQ(index_of(choose(files({"config.json", "model.safetensors.index.json", "model.safetensors"}), "", "x")),
              nullptr);
}

}  // namespace
}  // namespace foresay::hub
