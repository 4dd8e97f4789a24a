#include "core/models/architecture.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "core/models/limits.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

// Llama's names in a Hugging Face folder, which most families share.
constexpr HfName kHfNames[] = {
    {"token_embd", "embed_tokens"},
    {"output_norm", "norm"},
    {"output", "lm_head"},
    {"attn_norm", "input_layernorm"},
    {"attn_q", "self_attn.q_proj"},
    {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},
    {"attn_output", "self_attn.o_proj"},
    {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},
    {"ffn_norm", "post_attention_layernorm"},
    {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},
    {"ffn_down", "mlp.down_proj"},
};

std::string supported() {
    std::string list;
    for (const Architecture* architecture : architectures()) {
        if (!list.empty()) list += ", ";
        list += architecture->name;
    }
    return list;
}

// Names of Granite 4 with Mamba layers. Folders say so even where all layers have attention.
constexpr std::string_view kGraniteHybrid[] = {"granitehybrid", "GraniteMoeHybridForCausalLM"};

[[noreturn]] void refuse_family(std::string_view name, const std::string& path) {
    const std::string what = path + ": the architecture " + quote(name) + " is not supported";
    if (std::ranges::find(kGraniteHybrid, name) != std::end(kGraniteHybrid)) {
        throw Error(what + ", because Mamba layers are not; Granite 4 models without such layers run as GGUF files");
    }
    throw Error(what + " (supported: " + supported() + ")");
}

void require(bool condition, const std::string& path, const std::string& what) {
    if (!condition) throw Error(path + ": " + what);
}

std::string number(std::int64_t value) { return std::to_string(value); }

bool positive(float value) { return std::isfinite(value) && value > 0.0f; }

void check_rope(const RopeConfig& rope, std::int32_t head_dim, const std::string& path) {
    if (rope.pairs == kernels::RopePairs::none) return;
    require(positive(rope.theta), path, "the rope base frequency is not a positive number");
    require(positive(rope.factor), path, "the rope factor is not a positive number");
    require(rope.dims >= 0 && rope.dims <= head_dim && rope.dims % 2 == 0, path,
            "rope over " + number(rope.dims) + " of " + number(head_dim) + " values of a head is not possible");
    if (rope.scaling == RopeScaling::llama3) {
        require(
            rope.low_freq_factor > 0.0f && rope.high_freq_factor > rope.low_freq_factor && rope.original_context > 0,
            path, "the llama3 rope scaling needs 0 < low_freq_factor < high_freq_factor and an original context");
    }
    if (rope.scaling == RopeScaling::yarn) {
        require(positive(rope.beta_slow) && rope.beta_fast > rope.beta_slow && std::isfinite(rope.beta_fast) &&
                    rope.original_context > 0 && rope.theta > 1.0f,
                path, "the yarn rope scaling needs 0 < beta_slow < beta_fast and an original context");
    }
    if (rope.scaling == RopeScaling::longrope) {
        require(rope.original_context > 1, path, "the longrope scaling needs an original context");
        for (const std::vector<float>* factors : {&rope.short_factors, &rope.long_factors}) {
            require(std::ranges::all_of(*factors, positive), path,
                    "the longrope scaling has a factor that is not positive");
        }
    }
    require(std::isfinite(rope.attention_factor) && rope.attention_factor >= 0.0f, path,
            "the attention factor of rope is not a positive number");
}

}  // namespace

std::span<const Architecture* const> architectures() {
    static const Architecture* const all[] = {
        &llama_architecture(),   &qwen2_architecture(),     &qwen3_architecture(),   &qwen3moe_architecture(),
        &gemma2_architecture(),  &gemma3_architecture(),    &gemma4_architecture(),  &mistral_architecture(),
        &mixtral_architecture(), &gpt_oss_architecture(),   &phi3_architecture(),    &glm4_architecture(),
        &glm4moe_architecture(), &granite_architecture(),   &smollm3_architecture(), &seed_oss_architecture(),
        &olmo2_architecture(),   &command_r_architecture(), &cohere2_architecture(), &starcoder2_architecture()};
    return all;
}

const Architecture& architecture_for_gguf(std::string_view name, const std::string& path) {
    for (const Architecture* architecture : architectures()) {
        if (std::ranges::find(architecture->gguf_names, name) != architecture->gguf_names.end()) return *architecture;
    }
    refuse_family(name, path);
}

const Architecture& architecture_for_hf(std::string_view name, const std::string& path) {
    for (const Architecture* architecture : architectures()) {
        if (std::ranges::find(architecture->hf_names, name) != architecture->hf_names.end()) return *architecture;
    }
    refuse_family(name, path);
}

const Architecture& architecture(std::string_view name) {
    for (const Architecture* architecture : architectures()) {
        if (architecture->name == name) return *architecture;
    }
    check(false, "a configuration of an unknown architecture");
    return *architectures().front();
}

HfName hf_name(const Architecture& family, std::string_view part, std::string_view kind) {
    const auto find = [&](std::span<const HfName> names, std::string_view wanted) -> const HfName* {
        const auto found =
            std::ranges::find_if(names, [&](const HfName& n) { return n.part == part && n.kind == wanted; });
        return found != names.end() ? &*found : nullptr;
    };
    const HfName* name = find(family.hf_tensors, kind);
    if (name == nullptr && kind != "weight") {
        // Usually the bias of a weight has the weight's name.
        name = find(family.hf_tensors, "weight");
        if (name != nullptr && name->hf.ends_with('!')) name = nullptr;
    }
    if (name == nullptr) name = find(kHfNames, "weight");
    return name != nullptr ? *name : HfName{};
}

void check_config(const ModelConfig& config, const std::string& path) {
    const kernels::ModelShape& s = config.shape;
    require(s.layers > 0 && s.layers <= kMostLayers, path,
            "a model of " + number(s.layers) + " layers is not possible");
    require(s.d_model > 0 && s.d_model <= kMostWidth, path, "a width of " + number(s.d_model) + " is not possible");
    require(config.context_length > 0, path, "a context of " + number(config.context_length) + " is not possible");
    require(std::isfinite(config.norm_eps) && config.norm_eps >= 0.0f, path, "the norm's epsilon is not a number");
    require(config.layers.empty() || config.layers.size() == static_cast<std::size_t>(s.layers), path,
            number(static_cast<std::int64_t>(config.layers.size())) + " layers are described and the model has " +
                number(s.layers));
    for (std::int32_t i = 0; i < s.layers; ++i) {
        const LayerConfig layer = layer_config(config, i);
        require(layer.d_ff > 0 && layer.d_ff <= kMostFeedForward, path,
                "a feed-forward width of " + number(layer.d_ff) + " is not possible");
        require(layer.heads > 0 && layer.heads <= kMostHeads, path,
                number(layer.heads) + " attention heads are not possible");
        require(layer.kv_heads > 0 && layer.heads % layer.kv_heads == 0, path,
                number(layer.heads) + " query heads cannot share " + number(layer.kv_heads) + " key-value heads");
        require(layer.head_dim > 0 && layer.head_dim <= kMostHeadWidth && layer.head_dim % 2 == 0, path,
                "a head width of " + number(layer.head_dim) + " is not possible");
        require(layer.window >= 0, path, "a window of " + number(layer.window) + " positions is not possible");
        check_rope(layer.rope, layer.head_dim, path);
    }
    for (const float value : {config.attention_scale, config.attention_cap, config.logit_cap, config.embedding_scale,
                              config.residual_scale, config.logit_scale, config.experts.scale}) {
        require(std::isfinite(value), path, "a scale or a soft cap is not a finite number");
    }
    require(config.attention_cap >= 0.0f && config.logit_cap >= 0.0f, path, "a soft cap is negative");
    const ExpertConfig& e = config.experts;
    require(e.count >= 0 && e.count <= kMostExperts && e.d_ff >= 0 && e.d_ff <= kMostFeedForward && e.shared_ff >= 0 &&
                e.shared_ff <= kMostFeedForward,
            path, "experts of such a number or width are not possible");
}

}  // namespace foresay::core
