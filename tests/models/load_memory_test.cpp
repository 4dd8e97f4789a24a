// How much host memory loading needs in addition to what the model keeps: what is rearranged for the kernels is there
// op by op, so a model of many layers needs no more than one of few.
#include <gtest/gtest.h>

#include <fstream>
#include <random>

#include "core/models/model.h"
#include "kernels/quant/iq4_xs.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_0.h"
#include "tests/support/allocated.h"
#include "tests/weights/folder_image.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

namespace fs = std::filesystem;
using core::GgufType;
using core::testing::GgufImageBuilder;
using core::testing::image_tensor;
using core::testing::raw;

constexpr std::int64_t kWidth = 512, kWide = 2048, kVocab = 2048;

struct Part {
    const char* gguf;
    const char* module;  // of safetensors
    std::int64_t rows, cols;
};
constexpr Part kParts[] = {
    {"attn_q", "self_attn.q_proj", kWidth, kWidth}, {"attn_k", "self_attn.k_proj", kWidth, kWidth},
    {"attn_v", "self_attn.v_proj", kWidth, kWidth}, {"attn_output", "self_attn.o_proj", kWidth, kWidth},
    {"ffn_gate", "mlp.gate_proj", kWide, kWidth},   {"ffn_up", "mlp.up_proj", kWide, kWidth},
    {"ffn_down", "mlp.down_proj", kWidth, kWide},
};

std::string floats(std::int64_t count) {
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) bytes += raw(0.5f);
    return bytes;
}

// Any bytes are codes; the float16 scales of Type::Block are small.
template <class Type>
std::string random_blocks(std::mt19937& random, std::int64_t values) {
    std::vector<typename Type::Block> blocks(static_cast<std::size_t>(values / Type::kElements));
    auto* const words = reinterpret_cast<unsigned char*>(blocks.data());
    for (std::size_t i = 0; i < blocks.size() * sizeof blocks[0]; ++i) words[i] = static_cast<unsigned char>(random());
    for (auto& block : blocks) {
        block.d = kernels::StoredF16::from_bits(0x1000);
        if constexpr (requires { block.dmin; }) block.dmin = block.d;
    }
    return {reinterpret_cast<const char*>(blocks.data()), blocks.size() * sizeof blocks[0]};
}

// A Llama whose matrices are all in one type of GGUF.
template <class Type>
void write_gguf(const fs::path& file, std::int32_t layers) {
    GgufImageBuilder b;
    std::mt19937 random(7);
    b.text("general.architecture", "llama");
    const auto count = [&](const char* key, std::int64_t value) {
        b.scalar(key, GgufType::u32, static_cast<std::uint32_t>(value));
    };
    count("llama.block_count", layers);
    count("llama.context_length", 64);
    count("llama.embedding_length", kWidth);
    count("llama.feed_forward_length", kWide);
    count("llama.attention.head_count", 4);
    b.scalar("llama.attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5f);
    const auto matrix = [&](const std::string& name, std::int64_t rows, std::int64_t cols) {
        b.tensor(name, {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)}, Type::kGgmlType,
                 random_blocks<Type>(random, rows * cols));
    };
    matrix("token_embd.weight", kVocab, kWidth);
    b.tensor("output_norm.weight", {kWidth}, 0, floats(kWidth));
    for (std::int32_t layer = 0; layer < layers; ++layer) {
        const std::string stem = "blk." + std::to_string(layer) + ".";
        for (const char* norm : {"attn_norm", "ffn_norm"})
            b.tensor(stem + norm + ".weight", {kWidth}, 0, floats(kWidth));
        for (const Part& part : kParts) matrix(stem + part.gguf + ".weight", part.rows, part.cols);
    }
    std::ofstream(file, std::ios::binary) << b.build();
}

// The same as a folder of GPTQ with zeros, groups of 128, the inputs in no order or in one.
void write_gptq(const fs::path& folder, std::int32_t layers, bool in_order) {
    constexpr std::int64_t kGroup = 128;
    core::testing::FolderImage image;
    const auto plain = [&](const std::string& name, std::vector<std::int64_t> shape, std::int64_t values) {
        image.tensors[name] =
            image_tensor("F16", std::move(shape), core::testing::halves(static_cast<std::size_t>(values)));
    };
    plain("model.embed_tokens.weight", {kVocab, kWidth}, kVocab * kWidth);
    plain("model.norm.weight", {kWidth}, kWidth);
    for (std::int32_t layer = 0; layer < layers; ++layer) {
        const std::string stem = "model.layers." + std::to_string(layer) + ".";
        for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
            plain(stem + norm + ".weight", {kWidth}, kWidth);
        }
        for (const Part& part : kParts) {
            const std::int64_t groups = part.cols / kGroup;
            const auto words = [&](std::int64_t rows, std::int64_t cols) {
                return image_tensor("I32", {rows, cols},
                                    core::testing::some_words(static_cast<std::size_t>(rows * cols), 3));
            };
            image.tensors[stem + part.module + ".qweight"] = words(part.cols / 8, part.rows);
            image.tensors[stem + part.module + ".qzeros"] = words(groups, part.rows / 8);
            image.tensors[stem + part.module + ".scales"] =
                image_tensor("F16", {groups, part.rows},
                             std::vector<std::uint16_t>(static_cast<std::size_t>(groups * part.rows), 0x1000));
            std::vector<std::int32_t> order;
            for (std::int64_t i = 0; i < part.cols; ++i) {
                order.push_back(static_cast<std::int32_t>(in_order ? i % groups : i / kGroup));
            }
            image.tensors[stem + part.module + ".g_idx"] = image_tensor("I32", {part.cols}, order);
        }
    }
    fs::create_directories(folder);
    std::ofstream(folder / "model.safetensors", std::ios::binary) << image.file();
    std::ofstream(folder / "config.json")
        << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 512, "intermediate_size": 2048, )"
        << R"("num_hidden_layers": )" << layers << R"(, "num_attention_heads": 4, "num_key_value_heads": 4, )"
        << R"("vocab_size": 2048, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, "tie_word_embeddings": true, )"
        << R"("quantization_config": {"quant_method": "gptq", "group_size": 128}})";
}

struct Loading {
    std::int64_t needed = 0;  // bytes in addition to those that the model keeps
    std::int64_t kept = 0;
};

// The panels of the kernels do not come from operator new; what they are made from does, and tables that are packed.
Loading load(const fs::path& path, kernels::Ops& ops) {
    std::shared_ptr<const core::Model> model;
    const std::size_t before = bytes_in_use();
    const std::size_t most = most_bytes_used_by([&] { model = core::Model::load(core::ModelSource::open(path), ops); });
    const auto kept = static_cast<std::int64_t>(bytes_in_use() - before);
    return {static_cast<std::int64_t>(most) - kept, kept};
}

// `largest`: bytes of the op that has most as the kernels take it. `table`: of the embedding table, where it is packed.
template <class Write>
void expect_little(const std::string& what, std::int64_t largest, std::int64_t table, Write write) {
    const core::testing::TemporaryDirectory directory;
    const auto ops = kernels::make_cpu_ops({.threads = 2});
    constexpr std::int64_t kBeside = 1 << 20;      // tiles of codes, descriptions of tensors
    constexpr std::int64_t kKeptBeside = 1 << 19;  // norms, orders of inputs, descriptions of tensors
    std::int64_t needed[2] = {};
    for (const int many : {0, 1}) {
        const fs::path path = directory.path() / (many == 0 ? "few" : "many");
        write(path, many == 0 ? 1 : 5);
        const Loading loading = load(path, *ops);
        needed[many] = loading.needed;
        EXPECT_LE(needed[many], largest + kBeside) << what;
        EXPECT_LE(loading.kept, table + kKeptBeside) << what << ": what ops were made from is still there";
    }
    EXPECT_LE(needed[1], needed[0] + kBeside) << what << ": more layers need more";
    std::printf("%s: %.1f MB in addition to what is kept, %.1f MB with 5 layers\n", what.c_str(),
                static_cast<double>(needed[0]) * 1e-6, static_cast<double>(needed[1]) * 1e-6);
}

TEST(LoadMemory, StagesAreRearrangedOneByOne) {
    constexpr std::int64_t kGateAndUp = 2 * kWide * kWidth, kTable = kVocab * kWidth;
    expect_little("Q4_K", 0, 0, [](const fs::path& path, int layers) { write_gguf<kernels::Q4_K>(path, layers); });
    expect_little("Q5_0, which becomes Q8_0", kGateAndUp * 34 / 32, kTable * 34 / 32,
                  [](const fs::path& path, int layers) { write_gguf<kernels::Q5_0>(path, layers); });
    expect_little("IQ4_XS, packed", kGateAndUp * 37 / 64, kTable * 37 / 64,
                  [](const fs::path& path, int layers) { write_gguf<kernels::IQ4_XS>(path, layers); });
    for (const bool in_order : {false, true}) {
        expect_little(in_order ? "GPTQ in an order" : "GPTQ", kGateAndUp * 17 / 32, 0,
                      [&](const fs::path& path, int layers) { write_gptq(path, layers, in_order); });
    }
}

}  // namespace
}  // namespace foresay::test
