// Tensors that no kernel multiplies as they are stored: what a model gets for them, made by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>

#include "base/error.h"
#include "core/models/encodings.h"
#include "core/models/model.h"
#include "core/models/model_source.h"
#include "core/models/op_maker.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/q5_0.h"
#include "tests/support/goldens.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/folder_image.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::test {
namespace {

using core::GgufType;
using core::testing::expect_error;
using core::testing::GgufImageBuilder;
using core::testing::raw;
using kernels::QuantType;
namespace fs = std::filesystem;

constexpr std::int64_t kWidth = 64, kVocab = 32;

std::string floats(std::int64_t count) {
    std::string bytes;
    for (std::int64_t i = 0; i < count; ++i) bytes += raw(static_cast<float>(i % 7) * 0.25f);
    return bytes;
}

// A Llama of one layer in float32, with Q in NVFP4 and V in Q5_0.
class Image {
public:
    Image() {
        using Fours = std::vector<kernels::NVFP4::Block>;
        Fours fours(kWidth);
        for (std::size_t r = 0; r < fours.size(); ++r) {
            for (int g = 0; g < 4; ++g) fours[r].scales[g] = static_cast<std::uint8_t>(0x30 + g);
            for (int j = 0; j < 32; ++j)
                fours[r].codes[j] = static_cast<std::uint8_t>(r * 31 + static_cast<unsigned>(j) * 7);
        }
        q.assign(reinterpret_cast<const char*>(fours.data()), fours.size() * sizeof fours[0]);
        std::vector<kernels::Q5_0::Block> fives(kWidth * 2);
        for (std::size_t b = 0; b < fives.size(); ++b) {
            fives[b].d = kernels::StoredF16::from_bits(static_cast<std::uint16_t>(0x2c00 + b));
            for (int j = 0; j < 4; ++j)
                fives[b].fifth[j] = static_cast<std::uint8_t>(b * 13 + static_cast<unsigned>(j));
            for (int j = 0; j < 16; ++j)
                fives[b].low[j] = static_cast<std::uint8_t>(b * 5 + static_cast<unsigned>(j) * 11);
        }
        v.assign(reinterpret_cast<const char*>(fives.data()), fives.size() * sizeof fives[0]);
    }

    std::unique_ptr<core::ModelSource> open() const {
        GgufImageBuilder b;
        b.text("general.architecture", "llama");
        const auto count = [&](const char* key, std::uint32_t value) { b.scalar(key, GgufType::u32, value); };
        count("llama.block_count", 1);
        count("llama.context_length", 64);
        count("llama.embedding_length", kWidth);
        count("llama.feed_forward_length", kWidth);
        count("llama.attention.head_count", 1);
        b.scalar("llama.attention.layer_norm_rms_epsilon", GgufType::f32, 1e-5f);
        const std::vector<std::uint64_t> square = {kWidth, kWidth}, row = {kWidth};
        b.tensor("token_embd.weight", {kWidth, kVocab}, 0, floats(kWidth * kVocab));
        b.tensor("output_norm.weight", row, 0, floats(kWidth));
        for (const char* norm : {"blk.0.attn_norm.weight", "blk.0.ffn_norm.weight"}) {
            b.tensor(norm, row, 0, floats(kWidth));
        }
        b.tensor("blk.0.attn_q.weight", square, 40, q);
        b.tensor("blk.0.attn_v.weight", square, 6, v);
        for (const char* part : {"attn_k", "attn_output", "ffn_gate", "ffn_up", "ffn_down"}) {
            b.tensor(std::string("blk.0.") + part + ".weight", square, 0, floats(kWidth * kWidth));
        }
        if (factor != 0.0f)
            b.tensor("blk.0.attn_q.scale", {factors}, 0, raw(factor) + (factors > 1 ? raw(factor) : ""));
        const fs::path path = fs::path(testing::TempDir()) / ("foresay_packed_" + std::to_string(::getpid()) + ".gguf");
        std::ofstream(path, std::ios::binary) << b.build();
        auto source = core::ModelSource::open(path);
        fs::remove(path);
        return source;
    }
    // What the file means, without a factor.
    float q_value(std::int64_t r, int i) const {
        return kernels::NVFP4::dequantize(reinterpret_cast<const kernels::NVFP4::Block*>(q.data())[r], i);
    }
    float v_value(std::int64_t r, int i) const {
        return kernels::Q5_0::dequantize(reinterpret_cast<const kernels::Q5_0::Block*>(v.data())[2 * r + i / 32],
                                         i % 32);
    }

    std::string q, v;
    float factor = 0.0f;
    std::uint64_t factors = 1;
};

TEST(PackedSource, HoldsTheNumbersOfTheFile) {
    for (const float factor : {0.0f, 0.3f}) {
        Image image;
        image.factor = factor;
        const auto source = image.open();
        EXPECT_EQ(source->config().file_type, "f32");
        const kernels::TensorView q = source->tensor({.layer = 0, .part = "attn_q"}, {kWidth, kWidth});
        const kernels::TensorView v = source->tensor({.layer = 0, .part = "attn_v"}, {kWidth, kWidth});
        EXPECT_EQ(q.quant_type, QuantType::packed);
        EXPECT_EQ(q.packing->plain, factor == 0.0f ? QuantType::bf16 : QuantType::f32);
        EXPECT_EQ(v.quant_type, QuantType::q8_0);
        std::vector<float> row(kWidth);
        for (std::int64_t r = 0; r < kWidth; ++r) {
            kernels::dequantize_row(q, r, row);
            for (int i = 0; i < kWidth; ++i) {
                const float value = image.q_value(r, i);
                ASSERT_EQ(row[static_cast<std::size_t>(i)], factor == 0.0f ? value : value * factor) << r << ", " << i;
            }
            kernels::dequantize_row(v, r, row);
            for (int i = 0; i < kWidth; ++i) ASSERT_EQ(row[static_cast<std::size_t>(i)], image.v_value(r, i));
        }
    }
}

TEST(PackedSource, CountsTheBytesOfMemory) {
    Image image;
    const auto source = image.open();
    const auto find = [&](const std::string& name) {
        for (const core::Encoding& one : core::encodings_of(*source)) {
            if (one.name == name) return one;
        }
        return core::Encoding{};
    };
    const core::Encoding five = find("Q5_0"), four = find("NVFP4"), plain = find("F32");
    EXPECT_EQ(five.kept, "q8_0");
    EXPECT_EQ(five.matrices, 1);
    EXPECT_EQ(five.values, kWidth * kWidth);
    EXPECT_EQ(five.stored_bytes, kWidth * 2 * 22);
    EXPECT_EQ(five.kept_bytes, kWidth * 2 * 34);
    EXPECT_EQ(five.host_bytes, kWidth * 2 * 22) << "in five bits in the panels of the CPU";
    EXPECT_EQ(four.host_bytes, four.kept_bytes);
    EXPECT_EQ(core::narrowed_bytes(*source), five.kept_bytes - five.host_bytes);
    EXPECT_EQ(four.kept, "packed");
    EXPECT_EQ(four.kept_bytes, kWidth * 2 * (8 + 16));
    EXPECT_EQ(plain.kept, "");
    EXPECT_EQ(source->weight_bytes(), five.kept_bytes + four.kept_bytes + plain.kept_bytes);
    EXPECT_EQ(source->expanded_bytes(), 0) << "panels are as wide as the packed rows";
    image.factor = 2.0f;
    const auto scaled = image.open();
    EXPECT_EQ(scaled->weight_bytes(), source->weight_bytes() + static_cast<std::int64_t>(sizeof(float)));
    EXPECT_EQ(scaled->expanded_bytes(), 0);
}

// A folder of a model of one layer, some of whose modules are GPTQ.
struct GptqFolder {
    static constexpr std::int64_t kOut = core::testing::kOut, kIn = core::testing::kIn;
    core::testing::TemporaryDirectory directory;
    core::testing::FolderImage image;
    std::vector<core::UnpackedMatrices> float32;  // as of the last expanded()

    // `more`: what the family's config.json has besides.
    explicit GptqFolder(const std::string& architecture, const std::string& more = "", std::int64_t width = kIn,
                        std::int64_t ff = kOut) {
        image.config = core::testing::gptq_image().config;
        plain("model.embed_tokens", {kVocab, width});
        for (const char* norm :
             {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"}) {
            plain(norm, {width});
        }
        plain("model.layers.0.self_attn.q_proj", {kOut, width});
        plain("model.layers.0.self_attn.o_proj", {width, kOut});
        directory.write("config.json",
                        R"({"architectures": [")" + architecture + R"("], "hidden_size": )" + std::to_string(width) +
                            R"(, "intermediate_size": )" + std::to_string(ff) + ", " +
                            R"("num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, )" +
                            R"("head_dim": 32, "vocab_size": 32, "rms_norm_eps": 1e-5, )" +
                            R"("max_position_embeddings": 64, "tie_word_embeddings": true, )" + more +
                            R"("quantization_config": {"quant_method": "gptq", "group_size": 32}})");
    }
    void plain(const std::string& module, const std::vector<std::int64_t>& shape) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        image.tensors[module + ".weight"] =
            core::testing::image_tensor("F16", shape, core::testing::halves(static_cast<std::size_t>(count)));
    }
    // Of the two groups of inputs one has the first half (`order` 0), the even ones (1) or the odd ones (2).
    void quantised(const std::string& module, int bits, int order) {
        core::testing::FolderImage one = core::testing::gptq_image(bits);
        std::vector<std::int32_t> groups;
        for (std::int32_t i = 0; i < kIn; ++i) groups.push_back(order == 0 ? i / 32 : order == 1 ? i % 2 : 1 - i % 2);
        one.tensors["m.g_idx"] = core::testing::image_tensor("I32", {kIn}, groups);
        for (auto& [name, tensor] : one.tensors) image.tensors[module + name.substr(1)] = tensor;
    }
    void erase(const std::string& module) {
        for (const char* part : {".qweight", ".qzeros", ".scales", ".g_idx", ".weight"}) {
            image.tensors.erase(module + part);
        }
    }
    // What a device takes more than the host.
    std::int64_t expanded() {
        directory.write("model.safetensors", image.file());
        const auto source = core::ModelSource::open(directory.path());
        float32 = core::unpacked_on_a_device(*source);
        return source->expanded_bytes();
    }
};
constexpr std::int64_t kValues = GptqFolder::kOut * GptqFolder::kIn, kPacked4 = GptqFolder::kOut * 2 * (4 + 16),
                       kPacked8 = GptqFolder::kOut * 2 * (4 + 32);

// On a device gate and up interleave: where their codes differ in width, both take the wider ones; of unlike types,
// both become float32. And so do matrices in an order of inputs beside others that have another.
TEST(PackedSource, CountsWhatUnlikeNeighboursTakeOnADevice) {
    GptqFolder folder("LlamaForCausalLM");
    const std::string layer = "model.layers.0.";
    folder.plain(layer + "mlp.down_proj", {GptqFolder::kIn, GptqFolder::kOut});
    const auto expanded = [&](const std::string& first, int first_bits, int first_order, const std::string& second,
                              int second_bits, int second_order) {
        for (const std::string module : {"mlp.gate_proj", "mlp.up_proj", "self_attn.k_proj", "self_attn.v_proj"}) {
            folder.erase(layer + module);
            if (module == first) {
                folder.quantised(layer + module, first_bits, first_order);
            } else if (module == second) {
                folder.quantised(layer + module, second_bits, second_order);
            } else {
                folder.plain(layer + module, {GptqFolder::kOut, GptqFolder::kIn});
            }
        }
        return folder.expanded();
    };
    const auto expect_float32 = [&](std::int64_t matrices, const std::string& example, const std::string& reason) {
        ASSERT_EQ(folder.float32.size(), 1u);
        EXPECT_EQ(folder.float32[0].matrices, matrices);
        EXPECT_EQ(folder.float32[0].bytes, matrices * 4 * kValues);
        EXPECT_THAT(folder.float32[0].example, ::testing::HasSubstr(example));
        EXPECT_EQ(folder.float32[0].reason, reason);
    };
    const std::string gate = "mlp.gate_proj", up = "mlp.up_proj", k = "self_attn.k_proj", v = "self_attn.v_proj";
    // In the same order they stay packed, and a panel keeps the zeros of each 32 inputs.
    EXPECT_EQ(expanded(gate, 4, 1, up, 4, 1), 0);
    EXPECT_TRUE(folder.float32.empty());
    EXPECT_EQ(expanded(gate, 4, 1, up, 8, 1), kPacked8 - kPacked4) << "the wider codes for both";
    EXPECT_TRUE(folder.float32.empty());
    EXPECT_EQ(expanded(gate, 4, 1, up, 4, 2), 2 * 4 * kValues - 2 * kPacked4) << "other orders";
    expect_float32(2, "mlp.gate_proj.qweight", "gate and up interleave there, and differ");
    EXPECT_EQ(expanded(gate, 4, 1, "", 0, 0), 4 * kValues - kPacked4 + 2 * kValues) << "beside float16";
    EXPECT_EQ(expanded(k, 4, 1, v, 4, 1), 4 * 2 * kValues - 2 * kPacked4) << "Q has no order";
    expect_float32(2, "self_attn.k_proj.qweight", "matrices of the same input have another order of it");
    EXPECT_EQ(expanded(k, 4, 0, v, 4, 0), 0) << "without orders";
    EXPECT_TRUE(folder.float32.empty());
}

// What gate and up write is what down reads as it lies: their rows, and their biases, have the order of down's inputs.
TEST(PackedSource, OutputsLieInTheOrderOfTheirReader) {
    constexpr std::int64_t kWide = GptqFolder::kIn, kNarrow = GptqFolder::kOut;
    GptqFolder folder("LlamaForCausalLM", R"("mlp_bias": true, "attention_bias": false, )", kNarrow, kWide);
    const std::string layer = "model.layers.0.";
    for (const char* module : {"self_attn.k_proj", "self_attn.v_proj"})
        folder.plain(layer + module, {GptqFolder::kOut, kNarrow});
    for (const std::string module : {"mlp.gate_proj", "mlp.up_proj"}) {
        folder.plain(layer + module, {kWide, kNarrow});
        folder.image.tensors[layer + module + ".bias"] =
            core::testing::image_tensor("F16", {kWide}, core::testing::halves(static_cast<std::size_t>(kWide)));
    }
    folder.image.tensors[layer + "mlp.down_proj.bias"] =
        core::testing::image_tensor("F16", {kNarrow}, core::testing::halves(static_cast<std::size_t>(kNarrow)));
    folder.quantised(layer + "mlp.down_proj", 4, 1);
    folder.directory.write("model.safetensors", folder.image.file());
    const auto source = core::ModelSource::open(folder.directory.path());
    const auto values = [](const kernels::TensorView& view) {
        std::vector<std::vector<float>> rows(static_cast<std::size_t>(view.rows));
        for (std::int64_t r = 0; r < view.rows; ++r) {
            rows[static_cast<std::size_t>(r)].resize(static_cast<std::size_t>(view.cols));
            kernels::dequantize_row(view, r, rows[static_cast<std::size_t>(r)]);
        }
        return rows;
    };
    const auto stored = [&](std::string_view part, core::TensorShape shape, std::string_view kind = "weight") {
        return values(source->tensor({.layer = 0, .part = part, .kind = kind}, shape));
    };
    const auto gate = stored("ffn_gate", {kWide, kNarrow}), up = stored("ffn_up", {kWide, kNarrow}),
               down = stored("ffn_down", {kNarrow, kWide}), gate_bias = stored("ffn_gate", {1, kWide}, "bias"),
               up_bias = stored("ffn_up", {1, kWide}, "bias");
    const std::span<const std::int32_t> given = source->input_order({.layer = 0, .part = "ffn_down"});
    const std::vector<std::size_t> order(given.begin(), given.end());
    ASSERT_EQ(order.size(), static_cast<std::size_t>(kWide));
    ASSERT_FALSE(std::ranges::is_sorted(order));

    int seen = 0;
    const core::OpMaker::Sink look = [&](const core::PlacedOp& op) {
        if (const auto* in = std::get_if<kernels::MlpInSpec>(&op.spec)) {
            ++seen;
            const auto gate_rows = values(in->gate), up_rows = values(in->up);
            for (std::size_t place = 0; place < order.size(); ++place) {
                EXPECT_EQ(gate_rows[place], gate[order[place]]);
                EXPECT_EQ(up_rows[place], up[order[place]]);
                EXPECT_EQ(values(in->gate_bias)[0][place], gate_bias[0][order[place]]);
                EXPECT_EQ(values(in->up_bias)[0][place], up_bias[0][order[place]]);
            }
        }
        if (const auto* out = std::get_if<kernels::MlpOutSpec>(&op.spec)) {
            ++seen;
            ASSERT_NE(out->down.packing, nullptr);
            EXPECT_TRUE(out->down.packing->order.empty());
            const auto rows = values(out->down);
            for (std::size_t r = 0; r < rows.size(); ++r) {
                for (std::size_t place = 0; place < order.size(); ++place) {
                    EXPECT_EQ(rows[r][place], down[r][order[place]]);
                }
            }
        }
    };
    core::OpMaker(*source, {.context = 64}, look).run();
    EXPECT_EQ(seen, 2);
}

// The experts of a layer stay packed together, in orders of their own, or none of them does.
TEST(PackedSource, CountsWhatExpertsTakeOnADevice) {
    GptqFolder folder("MixtralForCausalLM", R"("num_local_experts": 2, "num_experts_per_tok": 1, )");
    const std::string layer = "model.layers.0.", experts = layer + "block_sparse_moe.experts.";
    for (const char* part : {"k_proj", "v_proj"}) {
        folder.plain(layer + "self_attn." + part, {GptqFolder::kOut, GptqFolder::kIn});
    }
    folder.plain(layer + "block_sparse_moe.gate", {2, GptqFolder::kIn});
    for (const char* expert : {"0", "1"}) {
        folder.plain(experts + expert + ".w2", {GptqFolder::kIn, GptqFolder::kOut});
    }
    for (const char* module : {"0.w1", "0.w3"}) folder.quantised(experts + module, 4, 1);
    for (const char* module : {"1.w1", "1.w3"}) folder.quantised(experts + module, 4, 2);
    EXPECT_EQ(folder.expanded(), 0) << "orders of their own";
    EXPECT_TRUE(folder.float32.empty());
    folder.quantised(experts + "1.w3", 4, 1);
    EXPECT_EQ(folder.expanded(), 4 * (4 * kValues - kPacked4)) << "up is in another order than gate";
    ASSERT_EQ(folder.float32.size(), 1u);
    EXPECT_EQ(folder.float32[0].matrices, 4);
    EXPECT_EQ(folder.float32[0].reason, "the experts of a layer share a layout there, and differ");
}

TEST(PackedSource, RefusesFactorsOfAnotherNumber) {
    Image image;
    image.factor = 1.0f;
    image.factors = 2;
    expect_error([&] { image.open(); }, "the tensor blk.0.attn_q.scale should be one F32 number");
}

// What the packed rows hold is checked when the model is loaded, as all weights are.
TEST(PackedSource, FindsScalesThatAreNotFinite) {
    const auto ops = kernels::make_reference_ops();
    Image image;
    image.factor = std::numeric_limits<float>::quiet_NaN();
    expect_error([&] { core::Model::load(image.open(), *ops); },
                 "the weights of blk.0.attn_q.weight hold NaN or infinities (row 0)");
    Image five;
    const std::uint16_t infinity = 0x7c00;
    std::memcpy(five.v.data() + 11 * 2 * sizeof(kernels::Q5_0::Block), &infinity, sizeof infinity);
    expect_error([&] { core::Model::load(five.open(), *ops); },
                 "the weights of blk.0.attn_v.weight hold NaN or infinities (row 11)");
}

// A folder of MLX with a quantised embedding, which is the head as well, and a bias of zero where a Llama has none.
TEST(PackedSource, ReadsAFolderWithAQuantisedTable) {
    using core::testing::image_tensor;
    using core::testing::some_words;
    const core::testing::TemporaryDirectory directory;
    core::testing::FolderImage image;
    const auto quantised = [&](const std::string& name, std::int64_t rows) {
        const auto groups = static_cast<std::size_t>(rows * 2);
        image.tensors[name + ".weight"] =
            image_tensor("U32", {rows, kWidth / 8}, some_words(static_cast<std::size_t>(rows * kWidth / 8), 5));
        image.tensors[name + ".scales"] = image_tensor("F32", {rows, 2}, std::vector<float>(groups, 0.25f));
        image.tensors[name + ".biases"] = image_tensor("F32", {rows, 2}, std::vector<float>(groups, -1.0f));
    };
    const auto plain = [&](const std::string& name, std::vector<std::int64_t> shape) {
        std::int64_t count = 1;
        for (const std::int64_t size : shape) count *= size;
        image.tensors[name] = image_tensor("F32", shape, std::vector<float>(static_cast<std::size_t>(count), 0.5f));
    };
    quantised("model.embed_tokens", kVocab);
    quantised("model.layers.0.self_attn.q_proj", kWidth);
    image.tensors["model.layers.0.self_attn.q_proj.bias"] =
        image_tensor("F32", {kWidth}, std::vector<float>(static_cast<std::size_t>(kWidth), 0.0f));
    for (const char* part : {"self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj", "mlp.gate_proj", "mlp.up_proj",
                             "mlp.down_proj"}) {
        plain(std::string("model.layers.0.") + part + ".weight", {kWidth, kWidth});
    }
    for (const char* norm :
         {"model.norm", "model.layers.0.input_layernorm", "model.layers.0.post_attention_layernorm"}) {
        plain(std::string(norm) + ".weight", {kWidth});
    }
    directory.write("model.safetensors", image.file());
    directory.write("config.json",
                    R"({"architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 64, )"
                    R"("num_hidden_layers": 1, "num_attention_heads": 1, "num_key_value_heads": 1, )"
                    R"("vocab_size": 32, "rms_norm_eps": 1e-5, "max_position_embeddings": 64, )"
                    R"("tie_word_embeddings": true, "quantization": {"group_size": 32, "bits": 4}, )"
                    R"("quantization_config": {"group_size": 32, "bits": 4}})");
    const auto source = core::ModelSource::open(directory.path());
    EXPECT_TRUE(source->config().tied_head);
    EXPECT_EQ(source->config().shape.vocab, kVocab);
    EXPECT_EQ(source->embedding_bytes(), kVocab * 2 * (4 + 16));
    const kernels::TensorView head = source->tensor({.part = "output"}, {kVocab, kWidth});
    const std::vector<std::uint32_t> words = some_words(static_cast<std::size_t>(kVocab * kWidth / 8), 5);
    std::vector<float> row(kWidth);
    for (std::int64_t r = 0; r < kVocab; ++r) {
        kernels::dequantize_row(head, r, row);
        for (std::int64_t i = 0; i < kWidth; ++i) {
            const std::uint32_t code = words[static_cast<std::size_t>(r * kWidth / 8 + i / 8)] >> (4 * (i % 8)) & 15u;
            ASSERT_EQ(row[static_cast<std::size_t>(i)], static_cast<float>(code) * 0.25f - 1.0f) << r << ", " << i;
        }
    }
    // Tables stay where they are.
    source->release();
    EXPECT_EQ(source->tensor({.part = "token_embd"}, {kVocab, kWidth}).data, head.data);
    const auto expect_refused = [&](const core::testing::FolderImage& changed, const std::string& part) {
        directory.write("model.safetensors", changed.file());
        expect_error([&] { core::ModelSource::open(directory.path()); }, part);
    };
    const std::string layer = "model.layers.0.self_attn.";
    // Companions that are left over: of a plain matrix, of no matrix at all, and of another format beside this one's.
    for (const std::string stray : {"self_attn.k_proj.scales", "mlp.other_proj.scales", "self_attn.q_proj.g_idx",
                                    "self_attn.q_proj.qweight", "self_attn.q_proj.weight_packed"}) {
        core::testing::FolderImage more = image;
        more.tensors["model.layers.0." + stray] =
            image_tensor("F32", {kWidth, 2}, std::vector<float>(2 * kWidth, 0.25f));
        expect_refused(more, "the tensor 'model.layers.0." + stray + "' is not known for the architecture");
    }
    core::testing::FolderImage nan = image;
    const float none = std::numeric_limits<float>::quiet_NaN();
    std::memcpy(nan.tensors[layer + "q_proj.scales"].bytes.data() + 3 * sizeof none, &none, sizeof none);
    directory.write("model.safetensors", nan.file());
    const auto ops = kernels::make_reference_ops();
    expect_error([&] { core::Model::load(core::ModelSource::open(directory.path()), *ops); },
                 "tensor 'model.layers.0.self_attn.q_proj.scales' of MLX has the scale nan at [1, 1]");
    // A bias that is not zero would change the model.
    image.tensors["model.layers.0.self_attn.q_proj.bias"].bytes[7] = '\x3f';
    expect_refused(image, "q_proj.bias");
}

// The blocks of gpt-oss's experts, with one shape in the header in place of another that has as many bytes.
TEST(PackedSource, RefusesBlocksOfOtherShapes) {
    FORESAY_SKIP_WITHOUT_GOLDENS();
    const fs::path golden = goldens_folder() / "formats/mxfp4-gpt-oss";
    const auto read = [&](const char* name) {
        std::ifstream file(golden / name, std::ios::binary);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    const core::testing::TemporaryDirectory directory;
    directory.write("config.json", read("config.json"));
    const std::string good = read("model.safetensors"), experts = "model.layers.0.mlp.experts.";
    const auto expect_refused = [&](const std::string& tensor, const std::string& from, const std::string& to,
                                    const std::string& sentence) {
        const std::string before = "\"" + experts + tensor + R"(":{"dtype":"U8","shape":)";
        std::string bytes = good;
        const std::size_t at = bytes.find(before + from);
        ASSERT_NE(at, bytes.npos) << tensor;
        ASSERT_EQ(from.size(), to.size());
        bytes.replace(at + before.size(), from.size(), to);
        directory.write("model.safetensors", bytes);
        expect_error([&] { core::ModelSource::open(directory.path()); },
                     "the tensor " + experts + tensor + " should be " + sentence);
    };
    expect_refused("down_proj_blocks", "[4,256,3,16]", "[4,256,16,3]", "4 x 256 x 3 x 16 but is 4 x 256 x 16 x 3");
    expect_refused("down_proj_scales", "[4,256,3]", "[4,128,6]", "4 x 256 x 3 but is 4 x 128 x 6");
    expect_refused("gate_up_proj_blocks", "[4,192,8,16]", "[2,384,8,16]", "4 x 192 x 8 x 16 but is 2 x 384 x 8 x 16");
    directory.write("model.safetensors", good);
    EXPECT_NO_THROW(core::ModelSource::open(directory.path()));
}

}  // namespace
}  // namespace foresay::test
