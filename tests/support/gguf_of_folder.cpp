#include "tests/support/gguf_of_folder.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <optional>
#include <string_view>

#include "base/error.h"
#include "core/weights/safetensors.h"
#include "tests/weights/gguf_image.h"

namespace foresay::test {
namespace {

using core::GgufType;
using nlohmann::json;

struct Family {
    std::string_view architecture;  // in config.json
    std::string_view gguf;
    bool permuted = false;  // rows of Q and K are reordered, so that pairs of rope are neighbours
};

constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", true},
    {"MistralForCausalLM", "llama", true},
    {"MixtralForCausalLM", "llama", true},
    {"Mistral3ForConditionalGeneration", "mistral3", true},
    {"SmolLM3ForCausalLM", "smollm3", true},
    {"GraniteForCausalLM", "granite", true},
    {"GraniteMoeForCausalLM", "granitemoe", true},
    {"GraniteMoeSharedForCausalLM", "granitemoe", true},
    {"Qwen2ForCausalLM", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3"},
    {"Qwen3MoeForCausalLM", "qwen3moe"},
    {"Gemma2ForCausalLM", "gemma2"},
    {"Gemma3ForCausalLM", "gemma3"},
    {"Gemma3ForConditionalGeneration", "gemma3"},
    {"Gemma4ForCausalLM", "gemma4"},
    {"Gemma4ForConditionalGeneration", "gemma4"},
    {"GptOssForCausalLM", "gpt-oss"},
    {"Glm4ForCausalLM", "glm4"},
    {"Glm4MoeForCausalLM", "glm4moe"},
    {"SeedOssForCausalLM", "seed_oss"},
    {"Olmo2ForCausalLM", "olmo2"},
    {"Olmo3ForCausalLM", "olmo2"},
    {"CohereForCausalLM", "command-r"},
    {"Cohere2ForCausalLM", "cohere2"},
    {"Starcoder2ForCausalLM", "starcoder2"},
};

// Names below "model.layers.N." without ".weight" or ".bias", and of the whole model.
struct Name {
    std::string_view folder, gguf;
};
constexpr Name kNames[] = {
    {"embed_tokens", "token_embd"},
    {"norm", "output_norm"},
    {"lm_head", "output"},
    {"embed_tokens_per_layer", "per_layer_token_embd"},
    {"per_layer_model_projection", "per_layer_model_proj"},
    {"per_layer_projection_norm", "per_layer_proj_norm"},
    {"input_layernorm", "attn_norm"},
    {"self_attn.q_proj", "attn_q"},
    {"self_attn.k_proj", "attn_k"},
    {"self_attn.v_proj", "attn_v"},
    {"self_attn.o_proj", "attn_output"},
    {"self_attn.q_norm", "attn_q_norm"},
    {"self_attn.k_norm", "attn_k_norm"},
    {"self_attn.sinks", "attn_sinks"},
    {"post_self_attn_layernorm", "post_attention_norm"},
    {"post_mlp_layernorm", "post_ffw_norm"},
    {"pre_feedforward_layernorm", "ffn_norm"},
    {"post_feedforward_layernorm", "post_ffw_norm"},
    {"pre_feedforward_layernorm_2", "pre_ffw_norm_2"},
    {"post_feedforward_layernorm_1", "post_ffw_norm_1"},
    {"post_feedforward_layernorm_2", "post_ffw_norm_2"},
    {"layer_scalar", "layer_output_scale"},
    {"per_layer_input_gate", "inp_gate"},
    {"per_layer_projection", "proj"},
    {"post_per_layer_input_norm", "post_norm"},
    {"mlp.gate_proj", "ffn_gate"},
    {"mlp.up_proj", "ffn_up"},
    {"mlp.down_proj", "ffn_down"},
    {"mlp.gate_up_proj", "ffn_up"},
    {"mlp.c_fc", "ffn_up"},
    {"mlp.c_proj", "ffn_down"},
    {"mlp.gate", "ffn_gate_inp"},
    {"mlp.router", "ffn_gate_inp"},
    {"router.proj", "ffn_gate_inp"},
    {"block_sparse_moe.gate", "ffn_gate_inp"},
    {"block_sparse_moe.router.layer", "ffn_gate_inp"},
    {"block_sparse_moe.output_linear", "ffn_down_exps"},
    {"shared_mlp.output_linear", "ffn_down_shexp"},
    {"mlp.shared_experts.gate_proj", "ffn_gate_shexp"},
    {"mlp.shared_experts.up_proj", "ffn_up_shexp"},
    {"mlp.shared_experts.down_proj", "ffn_down_shexp"},
    {"experts.gate_up_proj", "ffn_gate_up_exps"},
    {"experts.down_proj", "ffn_down_exps"},
    {"eh_proj", "nextn.eh_proj"},
    {"enorm", "nextn.enorm"},
    {"hnorm", "nextn.hnorm"},
    {"shared_head.head", "nextn.shared_head_head"},
    {"shared_head.norm", "nextn.shared_head_norm"},
};
// Where post_attention_layernorm is called by its place; elsewhere it is the norm before the feed-forward network.
constexpr std::string_view kPostAttention[] = {"gemma2", "gemma3", "gemma4", "olmo2", "seed_oss", "glm4moe", "gpt-oss"};
constexpr std::string_view kExpertParts[][2] = {
    {"gate_proj", "ffn_gate"}, {"up_proj", "ffn_up"}, {"down_proj", "ffn_down"},
    {"w1", "ffn_gate"},        {"w3", "ffn_up"},      {"w2", "ffn_down"},
};

const Family& family_of(const json& config) {
    const std::string name = config.at("architectures").at(0);
    const auto found = std::ranges::find(kFamilies, name, &Family::architecture);
    check(found != std::end(kFamilies), "a family that gguf_of_folder.cpp does not convert");
    return *found;
}

// The text model's keys, without those that are null.
json text_keys(const json& config) {
    json keys = config;
    if (config.contains("text_config")) keys.update(config["text_config"]);
    for (auto it = keys.begin(); it != keys.end();) it = it->is_null() ? keys.erase(it) : std::next(it);
    return keys;
}

json rope_of(const json& c) {
    json rope = json::object();
    if (c.contains("rope_scaling")) rope = c["rope_scaling"];
    if (c.contains("rope_parameters")) rope = c["rope_parameters"];
    if (rope.contains("full_attention") || rope.contains("sliding_attention")) return rope;
    if (c.contains("rope_local_base_freq")) rope["sliding_attention"]["rope_theta"] = c["rope_local_base_freq"];
    if (c.contains("rope_theta") && !rope.contains("rope_theta")) rope["rope_theta"] = c["rope_theta"];
    if (rope.contains("type") && !rope.contains("rope_type")) rope["rope_type"] = rope["type"];
    if (c.contains("partial_rotary_factor")) rope["partial_rotary_factor"] = c["partial_rotary_factor"];
    return rope;
}

bool slides(const json& type) { return type == "sliding_attention"; }

class KeyMaker {
public:
    explicit KeyMaker(const json& config)
        : c_(text_keys(config)), rope_(rope_of(c_)), keys_(std::string(family_of(config).gguf)) {
        const std::string& name = keys_.architecture();
        common();
        if (name != "gemma2") rope();
        if (family_of(config).permuted) {
            whole("vocab_size", "vocab_size");
            keys_.set("rope.dimension_count", head_dim());
        }
        if (name == "mistral3" && c_.value("model_type", "") == "ministral3") {
            number("rope.scaling.yarn_log_multiplier", rope_["mscale_all_dim"]);
            number("attention.temperature_scale", rope_["llama_4_scaling_beta"]);
        }
        if (name.starts_with("granite")) granite();
        if (name == "gemma2" || name == "gemma3" || name == "gemma4" || name == "gpt-oss" || name == "cohere2") {
            whole("attention.sliding_window", "sliding_window");
        }
        if (name == "gemma2") number("attn_logit_softcapping", c_["attn_logit_softcapping"]);
        if (name.starts_with("gemma") && c_.contains("final_logit_softcapping")) {
            number("final_logit_softcapping", c_["final_logit_softcapping"]);
        }
        if (name == "gemma3") gemma3();
        if (name == "gemma4") gemma4();
        if (name == "gpt-oss") whole("expert_feed_forward_length", "intermediate_size");
        if (name == "qwen3moe") whole("expert_feed_forward_length", "moe_intermediate_size");
        if (name.starts_with("glm4")) {
            keys_.set("rope.dimension_count", partial(head_dim(), rope_.value("partial_rotary_factor", 0.5)));
        }
        if (name == "glm4moe") glm4moe();
        if (name == "olmo2" && c_.contains("sliding_window")) {
            whole("attention.sliding_window", "sliding_window");
            std::vector<bool> pattern;
            for (std::uint32_t i = 0; i < layers(); ++i) pattern.push_back((i + 1) % 4 != 0);
            for (std::size_t i = 0; c_.contains("layer_types") && i < pattern.size(); ++i) {
                pattern[i] = slides(c_["layer_types"][i]);
            }
            keys_.set("attention.sliding_window_pattern", pattern);
        }
        if (name == "command-r" || name == "cohere2") {
            number("logit_scale", c_["logit_scale"]);
            keys_.set("rope.scaling.type", std::string("none"));
        }
        if (name == "cohere2") {
            whole("vocab_size", "vocab_size");
            keys_.set("rope.dimension_count", partial(head_dim(), c_.value("rotary_pct", 1.0)));
        }
    }

    GgufKeys take() { return std::move(keys_); }

private:
    std::uint32_t layers() const { return c_["num_hidden_layers"]; }
    std::uint32_t head_dim() const {
        if (c_.contains("head_dim")) return c_["head_dim"];
        return c_["hidden_size"].get<std::uint32_t>() / c_["num_attention_heads"].get<std::uint32_t>();
    }
    static std::uint32_t partial(std::uint32_t dim, double share) { return static_cast<std::uint32_t>(dim * share); }
    void number(const char* key, const json& value) { keys_.set(key, value.get<float>()); }
    bool whole(const char* key, const char* folder) {
        if (c_.contains(folder)) keys_.set(key, c_[folder].get<std::uint32_t>());
        return c_.contains(folder);
    }

    void common() {
        whole("block_count", "num_hidden_layers");
        whole("context_length", "max_position_embeddings");
        whole("embedding_length", "hidden_size");
        whole("feed_forward_length", "intermediate_size");
        whole("attention.head_count", "num_attention_heads");
        whole("attention.head_count_kv", "num_key_value_heads");
        if (c_.contains("rms_norm_eps")) number("attention.layer_norm_rms_epsilon", c_["rms_norm_eps"]);
        for (const char* folder : {"layer_norm_eps", "norm_epsilon"}) {
            if (c_.contains(folder)) number("attention.layer_norm_epsilon", c_[folder]);
        }
        if (!whole("expert_count", "num_local_experts")) whole("expert_count", "num_experts");
        if (!whole("expert_used_count", "num_experts_per_tok")) whole("expert_used_count", "top_k_experts");
        whole("expert_group_count", "n_group");
        whole("expert_group_used_count", "topk_group");
        if (!keys_.architecture().starts_with("granite") && c_.contains("head_dim")) {
            whole("attention.key_length", "head_dim");
            whole("attention.value_length", "head_dim");
        }
    }

    void rope() {
        const json full = rope_.contains("full_attention") ? rope_["full_attention"] : rope_;
        const std::string type = full.value("rope_type", "");
        if (type == "linear" || type == "yarn") {
            keys_.set("rope.scaling.type", type);
            number("rope.scaling.factor", full["factor"]);
        }
        if (type == "yarn") {
            keys_.set("rope.scaling.original_context_length",
                      full["original_max_position_embeddings"].get<std::uint32_t>());
            if (full.contains("attention_factor")) number("rope.scaling.yarn_attn_factor", full["attention_factor"]);
            if (full.contains("beta_fast")) number("rope.scaling.yarn_beta_fast", full["beta_fast"]);
            if (full.contains("beta_slow")) number("rope.scaling.yarn_beta_slow", full["beta_slow"]);
        }
        if (full.contains("rope_theta")) number("rope.freq_base", full["rope_theta"]);
        if (rope_.contains("sliding_attention")) number("rope.freq_base_swa", rope_["sliding_attention"]["rope_theta"]);
    }

    void granite() {
        number("attention.scale", c_["attention_multiplier"]);
        number("embedding_scale", c_["embedding_multiplier"]);
        number("residual_scale", c_["residual_multiplier"]);
        number("logit_scale", c_["logits_scaling"]);
        whole("expert_shared_feed_forward_length", "shared_intermediate_size");
    }

    void gemma3() {
        if (!keys_.values.contains("gemma3.rope.freq_base")) keys_.set("rope.freq_base", 1000000.0f);
    }

    void gemma4() {
        std::vector<bool> sliding;
        const std::uint32_t period = c_.value("sliding_window_pattern", 6u);
        for (std::uint32_t i = 0; i < layers(); ++i) {
            sliding.push_back(c_.contains("layer_types") ? slides(c_["layer_types"][i]) : (i + 1) % period != 0);
        }
        const std::uint32_t shared = c_.value("num_kv_shared_layers", 0u), wide = c_["global_head_dim"];
        keys_.set("attention.shared_kv_layers", shared);
        keys_.set("embedding_length_per_layer_input", c_.value("hidden_size_per_layer_input", 0u));
        keys_.set("attention.sliding_window_pattern", sliding);
        keys_.set("attention.key_length", wide);
        keys_.set("attention.value_length", wide);
        keys_.set("attention.key_length_swa", head_dim());
        keys_.set("attention.value_length_swa", head_dim());
        whole("expert_feed_forward_length", "moe_intermediate_size");
        if (c_.value("use_double_wide_mlp", false)) {
            std::vector<std::int32_t> widths(layers(), c_["intermediate_size"].get<std::int32_t>());
            for (std::uint32_t i = layers() - shared; i < layers(); ++i) widths[i] *= 2;
            keys_.set("feed_forward_length", widths);
        }
        if (c_.contains("num_global_key_value_heads")) {
            std::vector<std::int32_t> heads;
            for (const bool slide : sliding) {
                const json& count = c_[slide ? "num_key_value_heads" : "num_global_key_value_heads"];
                heads.push_back(count.get<std::int32_t>());
            }
            keys_.set("attention.head_count_kv", heads);
        }
        keys_.set("rope.dimension_count", wide);
        keys_.set("rope.dimension_count_swa", head_dim());
    }

    void glm4moe() {
        const std::uint32_t extra = c_.value("num_nextn_predict_layers", 0u);
        keys_.set("block_count", layers() + extra);
        keys_.set("nextn_predict_layers", extra);
        whole("expert_count", "n_routed_experts");
        whole("expert_feed_forward_length", "moe_intermediate_size");
        whole("expert_shared_count", "n_shared_experts");
        whole("leading_dense_block_count", "first_k_dense_replace");
        keys_.set("expert_gating_func", 2u);
        number("expert_weights_scale", c_["routed_scaling_factor"]);
        keys_.set("expert_weights_norm", c_["norm_topk_prob"].get<bool>());
    }

    json c_, rope_;
    GgufKeys keys_;
};

// ---- tensors

GgufTensor values_of(const core::TensorInfo& info) {
    check(info.type == "BF16" || info.type == "F32", "a tensor that gguf_of_folder.cpp does not convert");
    GgufTensor tensor{info.shape, std::vector<float>(static_cast<std::size_t>(info.elements()))};
    for (std::size_t i = 0; i < tensor.values.size(); ++i) {
        if (info.type == "F32") {
            std::memcpy(&tensor.values[i], info.data + 4 * i, 4);
        } else {
            std::uint16_t half;
            std::memcpy(&half, info.data + 2 * i, 2);
            const std::uint32_t bits = std::uint32_t{half} << 16;
            std::memcpy(&tensor.values[i], &bits, 4);
        }
    }
    return tensor;
}

// Rows first, first + step, ... of the last two dimensions; of vectors in a batch: the values.
GgufTensor part_of(const GgufTensor& from, std::size_t dimension, std::int64_t first, std::int64_t count,
                   std::int64_t step) {
    GgufTensor part{from.shape, {}};
    part.shape[dimension] = count;
    std::int64_t outer = 1, inner = 1;
    for (std::size_t d = 0; d < dimension; ++d) outer *= from.shape[d];
    for (std::size_t d = dimension + 1; d < from.shape.size(); ++d) inner *= from.shape[d];
    for (std::int64_t o = 0; o < outer; ++o) {
        for (std::int64_t i = 0; i < count; ++i) {
            const auto begin = from.values.begin() + (o * from.shape[dimension] + first + i * step) * inner;
            part.values.insert(part.values.end(), begin, begin + inner);
        }
    }
    return part;
}

// Of each head the halves of its rows become neighbours.
GgufTensor permuted(const GgufTensor& from, std::int64_t heads) {
    GgufTensor to{from.shape, {}};
    const std::int64_t rows = from.shape[0], half = rows / heads / 2;
    const std::int64_t width = from.shape.size() > 1 ? from.shape[1] : 1;
    for (std::int64_t head = 0; head < heads; ++head) {
        for (std::int64_t pair = 0; pair < half; ++pair) {
            for (std::int64_t side = 0; side < 2; ++side) {
                const auto row = from.values.begin() + ((head * 2 + side) * half + pair) * width;
                to.values.insert(to.values.end(), row, row + width);
            }
        }
    }
    return to;
}

// The last two dimensions exchanged.
GgufTensor transposed(const GgufTensor& from) {
    GgufTensor to{from.shape, std::vector<float>(from.values.size())};
    const std::size_t n = from.shape.size();
    std::swap(to.shape[n - 1], to.shape[n - 2]);
    const std::int64_t rows = from.shape[n - 2], cols = from.shape[n - 1];
    for (std::size_t i = 0; i < from.values.size(); ++i) {
        const auto at = static_cast<std::int64_t>(i);
        const std::int64_t matrix = at / (rows * cols), r = at / cols % rows, c = at % cols;
        to.values[static_cast<std::size_t>((matrix * cols + c) * rows + r)] = from.values[i];
    }
    return to;
}

class TensorMaker {
public:
    TensorMaker(const std::filesystem::path& folder, const json& config, const ConvertOptions& options)
        : c_(text_keys(config)), family_(family_of(config)), options_(options) {
        const core::SafetensorsDir dir = core::SafetensorsDir::open(folder);
        for (const core::TensorInfo& info : dir.tensors().list()) add(info);
        for (auto& [name, experts] : experts_) stack(name, experts);
        if (options_.joined_experts) join();
        if (family_.gguf == "gemma4") add_rope_freqs();
    }

    std::map<std::string, GgufTensor> take() { return std::move(out_); }

private:
    void add(const core::TensorInfo& info) {
        std::string name = info.name;
        if (name.find("vision") != std::string::npos || name.find("multi_modal") != std::string::npos) return;
        for (const std::string_view prefix :
             {"model.language_model.", "language_model.model.", "language_model.", "model."}) {
            if (!name.starts_with(prefix)) continue;
            name.erase(0, prefix.size());
            break;
        }
        std::string block;
        constexpr std::string_view kLayers = "layers.";
        if (name.starts_with(kLayers)) {
            const std::size_t end = name.find('.', kLayers.size());
            block = "blk." + name.substr(kLayers.size(), end - kLayers.size()) + ".";
            name.erase(0, end + 1);
        }
        std::string kind = "weight";
        for (const std::string_view suffix : {".weight", ".bias"}) {
            if (!name.ends_with(suffix)) continue;
            kind = suffix.substr(1);
            name.resize(name.size() - suffix.size());
        }
        add(block, name, kind, values_of(info));
    }

    void add(const std::string& block, const std::string& name, const std::string& kind, GgufTensor tensor) {
        const auto put = [&](const std::string& gguf, GgufTensor made) { out_[block + gguf] = std::move(made); };
        if (add_expert(block, name, tensor)) return;
        const std::size_t rows = tensor.shape.size() > 2 ? 1 : 0;  // of a matrix, or of each expert's
        if (name == "block_sparse_moe.input_linear" || name == "shared_mlp.input_linear") {
            const std::string end = name.starts_with("shared") ? "_shexp.weight" : "_exps.weight";
            const std::int64_t half = tensor.shape[rows] / 2;
            put("ffn_gate" + end, part_of(tensor, rows, 0, half, 1));
            put("ffn_up" + end, part_of(tensor, rows, half, half, 1));
        } else if (name == "mlp.gate.e_score_correction_bias") {
            put("exp_probs_b.bias", std::move(tensor));
        } else if (name == "router.scale") {
            put("ffn_gate_inp.scale", std::move(tensor));
        } else if (name == "router.per_expert_scale") {
            put("ffn_down_exps.scale", std::move(tensor));
        } else if (name.starts_with("mlp.experts.gate_up_proj")) {  // gpt-oss: interleaved
            const bool bias = name.ends_with("_bias");
            if (!bias) tensor = transposed(tensor);
            const std::string end = bias ? ".bias" : ".weight";
            put("ffn_gate_exps" + end, part_of(tensor, 1, 0, tensor.shape[1] / 2, 2));
            put("ffn_up_exps" + end, part_of(tensor, 1, 1, tensor.shape[1] / 2, 2));
        } else if (name == "mlp.experts.down_proj") {
            put("ffn_down_exps.weight", transposed(tensor));
        } else if (name == "mlp.experts.down_proj_bias") {
            put("ffn_down_exps.bias", std::move(tensor));
        } else {
            put(mapped(block, name) + "." + kind, changed(name, std::move(tensor)));
        }
    }

    std::string mapped(const std::string& block, const std::string& name) const {
        if (name == "embed_tokens" && !block.empty()) return "nextn.embed_tokens";
        if (name == "post_attention_layernorm") {
            const bool by_place = std::ranges::find(kPostAttention, family_.gguf) != std::end(kPostAttention);
            return by_place ? "post_attention_norm" : "ffn_norm";
        }
        const auto found = std::ranges::find(kNames, std::string_view(name), &Name::folder);
        check(found != std::end(kNames), "a tensor that gguf_of_folder.cpp does not know");
        return std::string(found->gguf);
    }

    GgufTensor changed(const std::string& name, GgufTensor tensor) const {
        if (family_.permuted && name == "self_attn.q_proj") return permuted(tensor, c_["num_attention_heads"]);
        if (family_.permuted && name == "self_attn.k_proj") return permuted(tensor, c_["num_key_value_heads"]);
        if ((family_.gguf == "gemma2" || family_.gguf == "gemma3") && name.ends_with("norm")) {
            for (float& value : tensor.values) value += 1.0f;
        }
        return tensor;
    }

    // "mlp.experts.3.gate_proj": kept until all are there.
    bool add_expert(const std::string& block, const std::string& name, GgufTensor& tensor) {
        const std::size_t at = name.find("experts.");
        if (at == std::string::npos) return false;
        const std::string rest = name.substr(at + std::string_view("experts.").size());
        if (rest.empty() || std::isdigit(static_cast<unsigned char>(rest[0])) == 0) return false;
        const std::size_t dot = rest.find('.');
        const std::string_view part = std::string_view(rest).substr(dot + 1);
        for (const auto& [folder, gguf] : kExpertParts) {
            if (part == folder) experts_[block + std::string(gguf)][std::stoi(rest.substr(0, dot))] = std::move(tensor);
        }
        return true;
    }

    void stack(const std::string& name, std::map<int, GgufTensor>& experts) {
        GgufTensor all{experts.begin()->second.shape, {}};
        all.shape.insert(all.shape.begin(), static_cast<std::int64_t>(experts.size()));
        for (auto& [e, one] : experts) {
            all.values.insert(all.values.end(), one.values.begin(), one.values.end());
            if (options_.tensor_per_expert) out_[name + "." + std::to_string(e) + ".weight"] = std::move(one);
        }
        if (!options_.tensor_per_expert) out_[name + "_exps.weight"] = std::move(all);
    }

    void join() {
        std::map<std::string, GgufTensor> joined;
        for (const auto& [name, gate] : out_) {
            const std::size_t at = name.find("ffn_gate_exps.weight");
            if (at == std::string::npos) continue;
            const std::string block = name.substr(0, at);
            const GgufTensor& up = out_.at(block + "ffn_up_exps.weight");
            GgufTensor both{gate.shape, {}};
            both.shape[1] *= 2;
            const std::int64_t size = gate.shape[1] * gate.shape[2];
            for (std::int64_t e = 0; e < gate.shape[0]; ++e) {
                for (const GgufTensor* one : {&gate, &up}) {
                    const auto begin = one->values.begin() + e * size;
                    both.values.insert(both.values.end(), begin, begin + size);
                }
            }
            joined[block + "ffn_gate_up_exps.weight"] = std::move(both);
        }
        std::erase_if(out_, [](const auto& one) {
            return one.first.ends_with("ffn_gate_exps.weight") || one.first.ends_with("ffn_up_exps.weight");
        });
        out_.merge(joined);
    }

    // Pairs that do not rotate are divided by 1e30.
    void add_rope_freqs() {
        const std::int64_t pairs = c_["global_head_dim"].get<std::int64_t>() / 2;
        const json& full = c_["rope_parameters"]["full_attention"];
        const double rotated = static_cast<double>(pairs) * full["partial_rotary_factor"].get<double>();
        GgufTensor freqs{{pairs}, std::vector<float>(static_cast<std::size_t>(pairs), 1e30f)};
        std::fill_n(freqs.values.begin(), static_cast<std::int64_t>(rotated), 1.0f);
        out_["rope_freqs.weight"] = std::move(freqs);
    }

    json c_;
    const Family& family_;
    ConvertOptions options_;
    std::map<std::string, GgufTensor> out_;
    std::map<std::string, std::map<int, GgufTensor>> experts_;
};

struct WriteValue {
    core::testing::GgufImageBuilder& b;
    const std::string& key;

    void operator()(std::uint32_t value) const { b.scalar(key, GgufType::u32, value); }
    void operator()(float value) const { b.scalar(key, GgufType::f32, value); }
    void operator()(bool value) const { b.scalar<std::uint8_t>(key, GgufType::boolean, value ? 1 : 0); }
    void operator()(const std::string& value) const { b.text(key, value); }
    void operator()(const std::vector<std::int32_t>& values) const { b.array(key, GgufType::i32, values); }
    void operator()(const std::vector<float>& values) const { b.array(key, GgufType::f32, values); }
    void operator()(const std::vector<bool>& values) const {
        b.array(key, GgufType::boolean, std::vector<std::uint8_t>(values.begin(), values.end()));
    }
};

}  // namespace

GgufKeys gguf_keys(const json& config) { return KeyMaker(config).take(); }

std::map<std::string, GgufTensor> gguf_tensors(const std::filesystem::path& folder, const json& config,
                                               const ConvertOptions& options) {
    return TensorMaker(folder, config, options).take();
}

std::string gguf_image(const GgufKeys& keys, const std::map<std::string, GgufTensor>& tensors) {
    core::testing::GgufImageBuilder b;
    for (const auto& [key, value] : keys.values) std::visit(WriteValue{b, key}, value);
    constexpr std::uint32_t kF32 = 0, kBf16 = 30;
    for (const auto& [name, tensor] : tensors) {
        const bool single = tensor.shape.size() == 1 || name.ends_with("_norm.weight") || !name.ends_with(".weight") ||
                            name.find("ffn_gate_inp") != std::string::npos;
        std::string data;
        for (const float value : tensor.values) {
            std::uint32_t bits;
            std::memcpy(&bits, &value, sizeof bits);
            data += single ? core::testing::raw(value) : core::testing::raw(static_cast<std::uint16_t>(bits >> 16));
        }
        b.tensor(name, {tensor.shape.rbegin(), tensor.shape.rend()}, single ? kF32 : kBf16, data);
    }
    return b.build();
}

json read_json(const std::filesystem::path& file) {
    std::ifstream stream(file);
    check(static_cast<bool>(stream), "a JSON file that is not there");
    return json::parse(stream);
}

}  // namespace foresay::test
