// GGUF files of every family: made from folders as llama.cpp's converter makes them (tests/support/gguf_of_folder.h),
// they compute what the folders compute, and their keys are checked. What only GGUF says, or says otherwise, has a case
// of its own: tensors of single experts, joined ones, arrays per layer, Granite 4.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "tests/models/family_models.h"
#include "tests/support/gguf_of_folder.h"
#include "tests/support/goldens.h"
#include "tests/support/model_folder.h"
#include "tests/weights/gguf_image.h"

namespace foresay::test {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::HasSubstr;

struct Case {
    std::string name;  // of a golden, or of a published shape, of which a small model is made
    std::string variant = {};
    json patch = {};  // of the configuration, for what GGUF cannot say
    ConvertOptions options = {};
    std::function<void(GgufKeys&)> change = {};  // of the keys
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name << " " << c.variant; }

std::string test_name(const ::testing::TestParamInfo<Case>& info) {
    std::string name = info.param.name + (info.param.variant.empty() ? "" : "_" + info.param.variant);
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
}

// Logits after 40 tokens, more than two windows.
std::vector<float> logits(const fs::path& path) {
    core::Context context(core::Model::load(core::ModelSource::open(path), backends().front().ops()),
                          {.length = 64, .prefill_rows = 64});
    const std::int32_t vocab = context.model().config().shape.vocab;
    std::vector<std::int32_t> ids;
    for (std::int32_t i = 0; i < 40; ++i) ids.push_back(i * 37 % vocab);
    check(context.prefill(ids), "a prompt of 40 tokens");
    const std::span<const float> logits = context.logits(0);
    return {logits.begin(), logits.end()};
}

class GgufFamily : public ::testing::TestWithParam<Case> {
protected:
    GgufFamily() : made_(fs::path(::testing::TempDir()) / ("foresay_gguf_" + std::to_string(::getpid()))) {
        fs::create_directories(made_);
    }
    ~GgufFamily() override { fs::remove_all(made_); }

    void compare(const fs::path& folder, const json& config) {
        std::ofstream(made_ / "config.json") << config.dump();
        if (!fs::exists(made_ / "model.safetensors")) {
            fs::create_symlink(folder / "model.safetensors", made_ / "model.safetensors");
        }
        GgufKeys keys = gguf_keys(config);
        if (GetParam().change) GetParam().change(keys);
        const std::string image = gguf_image(keys, gguf_tensors(made_, config, GetParam().options));
        std::ofstream(made_ / "made.gguf", std::ios::binary) << image;
        const std::vector<float> wanted = logits(made_), found = logits(made_ / "made.gguf");
        ASSERT_EQ(wanted.size(), found.size());
        float largest = 0.0f;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
            ASSERT_NEAR(wanted[i], found[i], 2e-5f) << "logit " << i;
            largest = std::max(largest, std::abs(wanted[i]));
        }
        EXPECT_GT(largest, 0.01f);
    }

    fs::path made_;
};

using GoldenGgufFamily = GgufFamily;

TEST_P(GoldenGgufFamily, ComputesWhatItsFolderDoes) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const fs::path folder = goldens_folder() / "families" / GetParam().name;
    json config = read_json(folder / "config.published.json");
    if (!GetParam().patch.is_null()) config.merge_patch(GetParam().patch);
    compare(folder, config);
}

// GGUF has no key for the scale of Gemma 2, and none for the window of Mixtral; llama.cpp's reader knows one.
INSTANTIATE_TEST_SUITE_P(
    Goldens, GoldenGgufFamily,
    ::testing::Values(
        Case{"mistral3"}, Case{"gemma2", "", {{"query_pre_attn_scalar", 32}}}, Case{"gemma3"}, Case{"gemma4-e"},
        Case{"gemma4-moe"}, Case{"gemma4-moe", "joined", {}, {.joined_experts = true}}, Case{"smollm3"},
        Case{"mixtral", "", {{"sliding_window", nullptr}}},
        Case{"mixtral", "single", {{"sliding_window", nullptr}}, {.tensor_per_expert = true}},
        Case{"mixtral", "window", {}, {}, [](GgufKeys& keys) { keys.set("attention.sliding_window", 16u); }},
        Case{"glm4_moe"}, Case{"glm4_moe", "joined", {}, {.joined_experts = true}}, Case{"glm4"}, Case{"granitemoe"},
        Case{"granite"}, Case{"qwen3"}, Case{"qwen3_moe"}, Case{"gpt_oss-bf16"}, Case{"seed_oss"}, Case{"olmo2"},
        Case{"cohere2"}, Case{"starcoder2"}),
    test_name);

using SmallGgufFamily = GgufFamily;

TEST_P(SmallGgufFamily, ComputesWhatItsFolderDoes) {
    foresay::testing::write_model_folder(made_, {.shape = GetParam().name, .small = true});
    compare(made_, read_json(made_ / "config.json"));
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SmallGgufFamily,
    ::testing::Values(Case{"olmo-3-7b"}, Case{"command-r-32b"}, Case{"command-r-plus-104b"}, Case{"smollm3-3b"},
                      Case{"gemma-4-26b-a4b"},
                      // As the converter writes the Granite 4 models without Mamba layers.
                      Case{"granite-3.3-2b",
                           "granite_4",
                           {},
                           {},
                           [](GgufKeys& keys) {
                               // Small models have heads of another width than their shape.
                               for (const char* key : {"attention.key_length", "attention.value_length"}) {
                                   keys.set(key, keys.values.at("granite.rope.dimension_count"));
                               }
                               for (const char* key : {"expert_count", "expert_used_count"}) keys.set(key, 0u);
                               for (const char* key : {"ssm.conv_kernel", "ssm.state_size", "ssm.group_count",
                                                       "ssm.inner_size", "ssm.time_step_rank"}) {
                                   keys.set(key, 4u);
                               }
                               keys.set("expert_shared_feed_forward_length", 96u);
                               keys.set("rope.scaling.finetuned", true);
                               keys.set("attention.head_count_kv",
                                        std::vector<std::int32_t>(
                                            std::get<std::uint32_t>(keys.values.at("granite.block_count")), 2));
                           }}),
    test_name);

// What llama.cpp's converter wrote of these goldens is what is made here: no test above rests on names of our own.
TEST(GgufOfFolder, IsWhatTheConverterWrites) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    for (const std::string family : {"gemma3", "glm4", "granite"}) {
        SCOPED_TRACE(family);
        const fs::path folder = goldens_folder() / "families" / family;
        const json config = read_json(folder / "config.json");
        const std::string image = gguf_image(gguf_keys(config), gguf_tensors(folder, config));
        const core::GgufFile made = core::GgufFile::from_memory(core::testing::bytes_of(image), "made.gguf");
        const core::GgufFile real = core::GgufFile::open(folder / (family + "-BF16.gguf"));
        const auto described = [&](const core::GgufFile& file) {
            std::map<std::string, std::string> all;
            for (const core::GgufEntry& entry : file.metadata()) {
                if (entry.key.starts_with(family + ".")) all[std::string(entry.key)] = file.describe(entry);
            }
            return all;
        };
        EXPECT_EQ(described(made), described(real));
        ASSERT_EQ(made.tensors().list().size(), real.tensors().list().size());
        for (const core::TensorInfo& tensor : real.tensors().list()) {
            const core::TensorInfo* const other = made.tensors().find(tensor.name);
            ASSERT_NE(other, nullptr) << tensor.name;
            EXPECT_EQ(other->type, tensor.type) << tensor.name;
            EXPECT_EQ(other->shape, tensor.shape) << tensor.name;
            ASSERT_EQ(other->bytes, tensor.bytes) << tensor.name;
            EXPECT_EQ(std::memcmp(other->data, tensor.data, static_cast<std::size_t>(tensor.bytes)), 0) << tensor.name;
        }
    }
}

TEST(GgufOfFolder, TheLayersForMultiTokenPredictionAreNamed) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const fs::path folder = goldens_folder() / "families/glm4_moe";
    const json config = read_json(folder / "config.json");
    const fs::path file = fs::path(::testing::TempDir()) / ("foresay_mtp_" + std::to_string(::getpid()) + ".gguf");
    std::ofstream(file, std::ios::binary) << gguf_image(gguf_keys(config), gguf_tensors(folder, config));
    const core::ModelConfig opened = core::ModelSource::open(file)->config();
    fs::remove(file);
    EXPECT_EQ(opened.shape.layers, 3);
    EXPECT_THAT(opened.notes, ::testing::ElementsAre("the layers for multi-token prediction are not used"));
}

// Probabilities of the chosen experts that are not normed again. All experts together have 1, so that nothing changes
// where all are chosen.
TEST(QwenMoeFamily, WeightsOfExpertsAreNormedWhereTheConfigurationSaysSo) {
    const fs::path folder = fs::path(::testing::TempDir()) / ("foresay_topk_" + std::to_string(::getpid()));
    foresay::testing::write_model_folder(folder, {.shape = "qwen3-30b-a3b", .small = true});
    const json config = read_json(folder / "config.json");
    const auto with = [&](int used, const json& normed) {
        json changed = config;
        changed["num_experts_per_tok"] = used;
        changed.merge_patch({{"norm_topk_prob", normed}});
        std::ofstream(folder / "config.json") << changed.dump();
        return logits(folder);
    };
    const auto apart = [](const std::vector<float>& a, const std::vector<float>& b) {
        float most = 0.0f;
        for (std::size_t i = 0; i < a.size(); ++i) most = std::max(most, std::abs(a[i] - b[i]));
        return most;
    };
    ASSERT_EQ(config["num_experts"], 8);
    EXPECT_GT(apart(with(4, true), with(4, false)), 1e-3f);
    EXPECT_EQ(apart(with(4, nullptr), with(4, false)), 0.0f) << "a config.json that says nothing";
    EXPECT_LT(apart(with(8, true), with(8, false)), 1e-5f);
    fs::remove_all(folder);
}

// ---- keys alone, of the configurations in tests/golden/families

core::ModelConfig config_of(const GgufKeys& keys) {
    const std::string image = gguf_image(keys);
    const core::GgufFile file = core::GgufFile::from_memory(core::testing::bytes_of(image), "keys.gguf");
    const NoTensors none;
    core::Keys reader(file, none);
    core::ModelConfig config = core::read_config(reader, core::architecture_for_gguf(keys.architecture(), file.path()));
    core::check_config(config, file.path());
    return config;
}

// "accepted", or the sentence without the file's name.
std::string refusal(const std::string& family, const std::function<void(GgufKeys&)>& change) {
    GgufKeys keys = gguf_keys(json::parse(family_json(family)));
    change(keys);
    try {
        config_of(keys);
    } catch (const Error& error) {
        const std::string sentence = error.what();
        EXPECT_THAT(sentence, ::testing::StartsWith("keys.gguf: "));
        return sentence.substr(std::string_view("keys.gguf: ").size());
    }
    return "accepted";
}

std::string refusal(const std::string& family, const char* key, GgufKeys::Value value) {
    return refusal(family, [&](GgufKeys& keys) { keys.set(key, std::move(value)); });
}

TEST(GgufKeysOfFamilies, BadOnesAreRefusedByName) {
    using Counts = std::vector<std::int32_t>;
    using Flags = std::vector<bool>;
    for (const char* key : {"block_count", "embedding_length", "feed_forward_length", "attention.head_count"}) {
        const auto erased = [&](GgufKeys& keys) { keys.erase(key); };
        EXPECT_THAT(refusal("qwen3", erased), HasSubstr("'qwen3." + std::string(key) + "' is missing"));
        EXPECT_THAT(refusal("qwen3", key, 0x7fffffffu), HasSubstr("qwen3." + std::string(key) + " is 2147483647"));
    }
    EXPECT_THAT(refusal("qwen3", "attention.magic", 2u), HasSubstr("'qwen3.attention.magic' is not known"));
    EXPECT_THAT(refusal("qwen3", "block_count", std::string("two")), HasSubstr("qwen3.block_count"));
    EXPECT_THAT(refusal("qwen3", "attention.head_count", 0u), HasSubstr("qwen3.attention.head_count is 0"));
    EXPECT_THAT(refusal("qwen3", "rope.freq_base", 0.0f), HasSubstr("qwen3.rope.freq_base is 0"));
    EXPECT_THAT(refusal("qwen3", "rope.freq_base", std::nanf("")), HasSubstr("qwen3.rope.freq_base is not a finite"));
    EXPECT_THAT(refusal("qwen3", "rope.dimension_count", 9u), HasSubstr("rope over 9 of 32 values"));
    EXPECT_THAT(refusal("qwen3", "rope.scaling.type", std::string("dynamic")),
                HasSubstr("qwen3.rope.scaling.type is 'dynamic', which is not supported"));
    EXPECT_THAT(refusal("qwen3", "rope.scaling.type", std::string("yarn")),
                HasSubstr("'qwen3.rope.scaling.original_context_length' is missing"));
    EXPECT_THAT(refusal("qwen3", "attention.value_length", 16u), HasSubstr("qwen3.attention.value_length differs"));
    EXPECT_THAT(refusal("qwen3", "attention.head_count_kv", Counts(3, 2)), "accepted");
    EXPECT_THAT(refusal("smollm3", "attention.head_count_kv", Counts{2, 2}),
                HasSubstr("smollm3.attention.head_count_kv has 2 entries, the model needs 5"));
    EXPECT_THAT(refusal("smollm3", "attention.head_count_kv", Counts{2, 2, 1, 2, 2}),
                HasSubstr("smollm3.attention.head_count_kv differs between layers"));
    EXPECT_THAT(refusal("smollm3", "attention.head_count_kv", Counts{2, 2, -1, 2, 2}),
                HasSubstr("smollm3.attention.head_count_kv is -1"));
    for (const char* family : {"gemma2", "gemma3", "gpt_oss", "cohere2", "gemma4-moe"}) {
        EXPECT_THAT(refusal(family, "attention.sliding_window", 0u), HasSubstr(".attention.sliding_window is 0"))
            << family;
    }
    EXPECT_THAT(refusal("gemma3", "attention.sliding_window_pattern", 0u),
                HasSubstr("gemma3.attention.sliding_window_pattern is 0"));
    EXPECT_THAT(refusal("gemma4-e", "attention.sliding_window_pattern", Flags{true}),
                HasSubstr("gemma4.attention.sliding_window_pattern has 1 entries, the model needs 4"));
    EXPECT_THAT(refusal("gemma4-e", "feed_forward_length", Counts{32, 32}),
                HasSubstr("gemma4.feed_forward_length has 2 entries, the model needs 4"));
    EXPECT_THAT(refusal("gemma4-e", "attention.shared_kv_layers", 4u),
                HasSubstr("gemma4.attention.shared_kv_layers leaves no layer"));
    EXPECT_THAT(refusal("gemma4-e", "attention.key_length_swa", 4096u),
                HasSubstr("gemma4.attention.key_length_swa is 4096"));
    EXPECT_THAT(refusal("gemma4-moe", "expert_used_count", 5u), HasSubstr("gemma4.expert_used_count"));
    EXPECT_THAT(refusal("qwen3_moe", "expert_count", 1u), HasSubstr("qwen3moe.expert_count is 1; a mixture has two"));
    EXPECT_THAT(refusal("qwen3_moe", "expert_count", 0x7fffffffu), HasSubstr("qwen3moe.expert_count is 2147483647"));
    EXPECT_THAT(refusal("qwen3_moe", "expert_used_count", 9u),
                HasSubstr("qwen3moe.expert_used_count is 9 of 8 experts"));
    EXPECT_THAT(refusal("mixtral", "expert_used_count", 0u), HasSubstr("llama.expert_used_count is 0 of 4 experts"));
    EXPECT_THAT(refusal("glm4_moe", "expert_gating_func", 9u), HasSubstr("glm4moe.expert_gating_func is 9"));
    EXPECT_THAT(refusal("glm4_moe", "expert_group_count", 3u),
                HasSubstr("glm4moe.expert_group_count is 3, which does not divide 4 experts"));
    EXPECT_THAT(refusal("glm4_moe", "expert_shared_count", 0x7fffffffu),
                HasSubstr("glm4moe.expert_shared_count is 2147483647"));
    EXPECT_THAT(refusal("glm4_moe", "nextn_predict_layers", 4u), HasSubstr("a model of 0 layers"));
    EXPECT_THAT(refusal("granite", "logit_scale", 0.0f), HasSubstr("granite.logit_scale is 0"));
    EXPECT_THAT(refusal("mistral3", "attention.temperature_length", 0u),
                HasSubstr("mistral3.attention.temperature_length is 0"));
    EXPECT_THAT(refusal("mistral3", "rope.scaling.yarn_ext_factor", 0.5f),
                HasSubstr("mistral3.rope.scaling.yarn_ext_factor is not 1"));
}

core::ModelConfig config_with(const std::string& family, const std::function<void(GgufKeys&)>& change) {
    GgufKeys keys = gguf_keys(json::parse(family_json(family)));
    change(keys);
    return config_of(keys);
}

// Gemma's files lack the scale of scores: by their layers those of 27B are known, whose scale is that of a head as wide
// as the model's width by its heads.
TEST(GgufKeysOfFamilies, TheScaleOfGemmaIsByItsLayers) {
    const auto scale = [](const char* family, std::uint32_t layers) {
        return config_with(family,
                           [&](GgufKeys& keys) {
                               keys.set("block_count", layers);
                               keys.set("embedding_length", 512u);
                               keys.set("attention.head_count", 2u);
                               keys.set("attention.head_count_kv", 1u);
                           })
            .attention_scale;
    };
    EXPECT_FLOAT_EQ(scale("gemma2", 46), 1.0f / 16.0f);
    EXPECT_FLOAT_EQ(scale("gemma2", 42), 1.0f / std::sqrt(32.0f));
    EXPECT_FLOAT_EQ(scale("gemma3", 62), 1.0f / 16.0f);
    EXPECT_FLOAT_EQ(scale("gemma3", 48), 1.0f / std::sqrt(32.0f));
}

TEST(GgufKeysOfFamilies, TheTemperatureHasALengthOfItsOwn) {
    EXPECT_EQ(config_with("mistral3", [](GgufKeys&) {}).temperature.length, 32);
    EXPECT_EQ(config_with("mistral3", [](GgufKeys& keys) { keys.set("attention.temperature_length", 8u); })
                  .temperature.length,
              8);
}

// A file of Granite 4 with Mamba layers, as the converter writes it: refused by what it is, not by a key that is
// unknown.
TEST(GgufKeysOfFamilies, GraniteWithMambaLayersIsRefused) {
    GgufKeys keys("granitehybrid");
    keys.set("block_count", 3u);
    keys.set("attention.head_count_kv", std::vector<std::int32_t>{0, 0, 4});
    keys.set("ssm.conv_kernel", 4u);
    const fs::path file = fs::path(::testing::TempDir()) / ("foresay_hybrid_" + std::to_string(::getpid()) + ".gguf");
    std::ofstream(file, std::ios::binary) << gguf_image(keys);
    try {
        core::ModelSource::open(file);
        ADD_FAILURE() << "accepted";
    } catch (const Error& error) {
        EXPECT_THAT(error.what(), HasSubstr("'granitehybrid' is not supported, because Mamba layers are not"));
    }
    fs::remove(file);
}

// Granite's switch for rope.
TEST(GgufKeysOfFamilies, GraniteMayHaveNoRope) {
    const auto pairs = [](bool rope) {
        return config_with("granite", [&](GgufKeys& keys) { keys.set("rope.scaling.finetuned", rope); }).rope.pairs;
    };
    EXPECT_EQ(pairs(true), kernels::RopePairs::adjacent);
    EXPECT_EQ(pairs(false), kernels::RopePairs::none);
}

}  // namespace
}  // namespace foresay::test
