// tests/laws/rewritten_draft.h: the bundled draft in formats of other tools, rounded in the plainest way: a folder of
// GPTQ in an order of activity, and a GGUF file whose types change from matrix to matrix.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "core/models/model_source.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"
#include "kernels/quant/quantize.h"
#include "tests/models/backends.h"
#include "tests/weights/folder_image.h"
#include "tests/weights/gguf_image.h"

namespace foresay::test {

// A matrix of the draft in float32.
struct DraftMatrix {
    core::TensorName name;
    std::string module;  // below model.layers.N, as Hugging Face names it
    std::int64_t rows = 0, cols = 0;
    std::vector<float> values;
};

class RewrittenDraft {
public:
    RewrittenDraft() : source_(core::ModelSource::open(bundled_path("draft"))) {}

    // Groups of 64 inputs that lie scattered. Matrices that read the same input share their order, as GPTQ makes it;
    // in every second layer each has its own, which no kernel takes.
    std::filesystem::path write_gptq(const std::filesystem::path& folder) {
        core::testing::FolderImage image;
        for (std::int32_t layer = 0; layer < shape().layers; ++layer) {
            const std::string stem = "model.layers." + std::to_string(layer) + ".";
            unsigned order = static_cast<unsigned>(layer) * 100;
            for (DraftMatrix& matrix : matrices(layer)) {
                const std::string& part = matrix.module;
                const bool reads_another =
                    part.ends_with("o_proj") || part.ends_with("gate_proj") || part.ends_with("down_proj");
                if (reads_another || layer % 2 == 1) ++order;
                if (part.ends_with("q_proj") || part.ends_with("k_proj")) halves_apart(matrix);
                add_gptq(image, stem + part, matrix, order);
            }
            add_floats(image, stem + "input_layernorm.weight", {.layer = layer, .part = "attn_norm"});
            add_floats(image, stem + "post_attention_layernorm.weight", {.layer = layer, .part = "ffn_norm"});
        }
        add_floats(image, "model.norm.weight", {.part = "output_norm"});
        const std::vector<float> table = values({.part = "token_embd"}, shape().vocab, shape().d_model);
        std::vector<std::uint16_t> halves;
        for (const float value : table) halves.push_back(kernels::f32_to_f16(value));
        image.tensors["model.embed_tokens.weight"] =
            core::testing::image_tensor("F16", {shape().vocab, shape().d_model}, halves);
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "model.safetensors", std::ios::binary) << image.file();
        std::ofstream(folder / "config.json")
            << R"({"architectures": ["LlamaForCausalLM"], "hidden_size": )" << shape().d_model
            << R"(, "intermediate_size": )" << shape().d_ff << R"(, "num_hidden_layers": )" << shape().layers
            << R"(, "num_attention_heads": )" << shape().heads << R"(, "num_key_value_heads": )" << shape().kv_heads
            << R"(, "head_dim": )" << shape().head_dim << R"(, "vocab_size": )" << shape().vocab
            << R"(, "max_position_embeddings": )" << config().context_length << R"(, "rms_norm_eps": )"
            << config().norm_eps << R"(, "rope_theta": )" << config().rope.theta
            << R"(, "tie_word_embeddings": true, "quantization_config": {"quant_method": "gptq", "bits": 4, )"
            << R"("group_size": 64, "desc_act": true, "sym": true}})";
        return folder;
    }

    // Types of llama-quantize that have kernels of their own, and others that are rearranged, side by side.
    std::filesystem::path write_mixed_gguf(const std::filesystem::path& file) {
        core::testing::GgufImageBuilder b;
        using core::GgufType;
        b.text("general.architecture", "llama");
        const auto count = [&](const char* key, std::int32_t value) {
            b.scalar(key, GgufType::u32, static_cast<std::uint32_t>(value));
        };
        count("llama.block_count", shape().layers);
        count("llama.context_length", config().context_length);
        count("llama.embedding_length", shape().d_model);
        count("llama.feed_forward_length", shape().d_ff);
        count("llama.attention.head_count", shape().heads);
        count("llama.attention.head_count_kv", shape().kv_heads);
        count("llama.rope.dimension_count", shape().head_dim);
        b.scalar("llama.attention.layer_norm_rms_epsilon", GgufType::f32, config().norm_eps);
        b.scalar("llama.rope.freq_base", GgufType::f32, config().rope.theta);
        const auto norm = [&](core::TensorName name) {
            std::string bytes;
            for (const float value : values(name, 1, shape().d_model)) bytes += core::testing::raw(value);
            b.tensor(name.text(), {static_cast<std::uint64_t>(shape().d_model)}, 0, bytes);
        };
        int next = 0;
        const auto matrix = [&](const core::TensorName& name, std::int64_t rows, std::int64_t cols,
                                const std::vector<float>& numbers) {
            const Coded coded = in_type(next++, numbers, cols);
            b.tensor(name.text(), {static_cast<std::uint64_t>(cols), static_cast<std::uint64_t>(rows)}, coded.type,
                     coded.bytes);
        };
        matrix({.part = "token_embd"}, shape().vocab, shape().d_model,
               values({.part = "token_embd"}, shape().vocab, shape().d_model));
        norm({.part = "output_norm"});
        for (std::int32_t layer = 0; layer < shape().layers; ++layer) {
            norm({.layer = layer, .part = "attn_norm"});
            norm({.layer = layer, .part = "ffn_norm"});
            for (const DraftMatrix& one : matrices(layer)) matrix(one.name, one.rows, one.cols, one.values);
        }
        std::ofstream(file, std::ios::binary) << b.build();
        return file;
    }

private:
    const core::ModelConfig& config() const { return source_->config(); }
    const kernels::ModelShape& shape() const { return source_->config().shape; }

    std::vector<float> values(const core::TensorName& name, std::int64_t rows, std::int64_t cols) {
        const kernels::TensorView view = source_->tensor(name, {rows, cols});
        std::vector<float> all(static_cast<std::size_t>(rows * cols));
        for (std::int64_t r = 0; r < rows; ++r) {
            kernels::dequantize_row(
                view, r, std::span(all).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols)));
        }
        return all;
    }

    std::vector<DraftMatrix> matrices(std::int32_t layer) {
        const std::int64_t wide = shape().d_model, ff = shape().d_ff, heads = shape().heads * shape().head_dim,
                           kv = shape().kv_heads * shape().head_dim;
        std::vector<DraftMatrix> all = {{{.part = "attn_q"}, "self_attn.q_proj", heads, wide, {}},
                                        {{.part = "attn_k"}, "self_attn.k_proj", kv, wide, {}},
                                        {{.part = "attn_v"}, "self_attn.v_proj", kv, wide, {}},
                                        {{.part = "attn_output"}, "self_attn.o_proj", wide, heads, {}},
                                        {{.part = "ffn_gate"}, "mlp.gate_proj", ff, wide, {}},
                                        {{.part = "ffn_up"}, "mlp.up_proj", ff, wide, {}},
                                        {{.part = "ffn_down"}, "mlp.down_proj", wide, ff, {}}};
        for (DraftMatrix& one : all) {
            one.name.layer = layer;
            one.values = values(one.name, one.rows, one.cols);
        }
        return all;
    }

    // GGUF has the two rows of a pair that rotates beside each other, Hugging Face half a head apart.
    void halves_apart(DraftMatrix& matrix) const {
        const std::int64_t head = shape().head_dim;
        std::vector<float> out(matrix.values.size());
        for (std::int64_t r = 0; r < matrix.rows; ++r) {
            const std::int64_t in = r % head, from = r - in + 2 * (in % (head / 2)) + in / (head / 2);
            std::copy_n(matrix.values.begin() + from * matrix.cols, matrix.cols, out.begin() + r * matrix.cols);
        }
        matrix.values = std::move(out);
    }

    static void add_gptq(core::testing::FolderImage& image, const std::string& module, const DraftMatrix& matrix,
                         unsigned seed) {
        constexpr std::int64_t kGroup = 64;
        const std::int64_t rows = matrix.rows, cols = matrix.cols, groups = cols / kGroup;
        std::vector<std::int32_t> group_of(static_cast<std::size_t>(cols));
        for (std::size_t i = 0; i < group_of.size(); ++i) group_of[i] = static_cast<std::int32_t>(i) / kGroup;
        std::mt19937 random(seed);
        for (std::size_t i = group_of.size() - 1; i > 0; --i) std::swap(group_of[i], group_of[random() % (i + 1)]);
        std::vector<std::uint32_t> codes(static_cast<std::size_t>(cols / 8 * rows));
        std::vector<std::uint16_t> scales(static_cast<std::size_t>(groups * rows));
        for (std::int64_t r = 0; r < rows; ++r) {
            const float* const row = matrix.values.data() + r * cols;
            std::vector<float> largest(static_cast<std::size_t>(groups));
            const auto group = [&](std::int64_t i) {
                return static_cast<std::size_t>(group_of[static_cast<std::size_t>(i)]);
            };
            for (std::int64_t i = 0; i < cols; ++i) largest[group(i)] = std::max(largest[group(i)], std::fabs(row[i]));
            for (std::int64_t g = 0; g < groups; ++g) {
                scales[static_cast<std::size_t>(g * rows + r)] =
                    kernels::f32_to_f16(largest[static_cast<std::size_t>(g)] / 7.0f);
            }
            for (std::int64_t i = 0; i < cols; ++i) {
                const float scale = kernels::f16_to_f32(
                    scales[group(i) * static_cast<std::size_t>(rows) + static_cast<std::size_t>(r)]);
                const float code = scale == 0.0f ? 0.0f : std::clamp(std::round(row[i] / scale), -8.0f, 7.0f);
                codes[static_cast<std::size_t>(i / 8 * rows + r)] |= static_cast<std::uint32_t>(code + 8.0f)
                                                                     << (4 * (i % 8));
            }
        }
        using core::testing::image_tensor;
        image.tensors[module + ".qweight"] = image_tensor("I32", {cols / 8, rows}, codes);
        // The first version stores zeros less one.
        image.tensors[module + ".qzeros"] =
            image_tensor("I32", {groups, rows / 8},
                         std::vector<std::uint32_t>(static_cast<std::size_t>(groups * rows / 8), 0x77777777u));
        image.tensors[module + ".scales"] = image_tensor("F16", {groups, rows}, scales);
        image.tensors[module + ".g_idx"] = image_tensor("I32", {cols}, group_of);
    }

    void add_floats(core::testing::FolderImage& image, const std::string& name, const core::TensorName& from) {
        image.tensors[name] = core::testing::image_tensor("F32", {shape().d_model}, values(from, 1, shape().d_model));
    }

    struct Coded {
        std::uint32_t type = 0;
        std::string bytes;
    };
    // In the type number `turn` of those that take turns.
    static Coded in_type(int turn, const std::vector<float>& values, std::int64_t cols) {
        switch (turn % 6) {
            case 0:
                return in_blocks<kernels::Q5_0>(values, [](const float* x, kernels::Q5_0::Block& out) {
                    const float d = largest_of(x) / 15.0f;
                    out.d = stored(d);
                    for (int i = 0; i < 32; ++i) {
                        const unsigned code = code_of(x[i], d, 16, 31);
                        out.low[i % 16] = static_cast<std::uint8_t>(out.low[i % 16] | (code & 15u) << (i / 16 * 4));
                        out.fifth[i / 8] = static_cast<std::uint8_t>(out.fifth[i / 8] | (code >> 4) << (i % 8));
                    }
                });
            case 1:
                return native<kernels::Q4_K>(values, cols);
            case 2:
                return in_blocks<kernels::Q4_1>(values, [](const float* x, kernels::Q4_1::Block& out) {
                    const auto [low, high] = std::minmax_element(x, x + 32);
                    const float d = (*high - *low) / 15.0f;
                    out.d = stored(d);
                    out.m = stored(*low);
                    for (int i = 0; i < 32; ++i) {
                        const unsigned code = code_of(x[i] - *low, d, 0, 15);
                        out.codes[i % 16] = static_cast<std::uint8_t>(out.codes[i % 16] | code << (i / 16 * 4));
                    }
                });
            case 3:
                return native<kernels::Q6_K>(values, cols);
            case 4:
                return in_blocks<kernels::IQ4_NL>(values, [](const float* x, kernels::IQ4_NL::Block& out) {
                    const float d = largest_of(x) / 113.0f;
                    out.d = stored(d);
                    for (int i = 0; i < 32; ++i) {
                        const auto apart = [&](std::int8_t number) {
                            return std::fabs(x[i] - d * static_cast<float>(number));
                        };
                        const auto* const best = std::ranges::min_element(kernels::kIq4Numbers, {}, apart);
                        const auto code = static_cast<unsigned>(best - kernels::kIq4Numbers);
                        out.indices[i % 16] = static_cast<std::uint8_t>(out.indices[i % 16] | code << (i / 16 * 4));
                    }
                });
            default:
                return native<kernels::Q8_0>(values, cols);
        }
    }
    static float largest_of(const float* x) {
        float largest = 0.0f;
        for (int i = 0; i < 32; ++i) largest = std::max(largest, std::fabs(x[i]));
        return largest;
    }
    static kernels::StoredF16 stored(float value) { return kernels::StoredF16::from_bits(kernels::f32_to_f16(value)); }
    static unsigned code_of(float value, float d, int middle, int most) {
        const float code = d == 0.0f ? 0.0f : std::round(value / d);
        return static_cast<unsigned>(std::clamp(static_cast<int>(code) + middle, 0, most));
    }
    template <class Type, class Encode>
    static Coded in_blocks(const std::vector<float>& values, Encode encode) {
        std::vector<typename Type::Block> blocks(values.size() / 32, typename Type::Block{});
        for (std::size_t b = 0; b < blocks.size(); ++b) encode(values.data() + 32 * b, blocks[b]);
        return {Type::kGgmlType, {reinterpret_cast<const char*>(blocks.data()), blocks.size() * sizeof blocks[0]}};
    }
    template <class Type>
    static Coded native(const std::vector<float>& values, std::int64_t cols) {
        const std::int64_t row = kernels::row_bytes(Type::kQuantType, cols);
        const std::int64_t rows = static_cast<std::int64_t>(values.size()) / cols;
        std::string bytes(static_cast<std::size_t>(row * rows), '\0');
        for (std::int64_t r = 0; r < rows; ++r) {
            kernels::quantize_row(
                Type::kQuantType,
                std::span(values).subspan(static_cast<std::size_t>(r * cols), static_cast<std::size_t>(cols)),
                std::as_writable_bytes(
                    std::span(bytes).subspan(static_cast<std::size_t>(r * row), static_cast<std::size_t>(row))));
        }
        return {Type::kGgmlType, std::move(bytes)};
    }

    std::unique_ptr<core::ModelSource> source_;
};

}  // namespace foresay::test
