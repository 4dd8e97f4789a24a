// core/models/gemma4.cpp: Gemma 4: wider heads, fewer of them, and a rope of their own in the layers that see all;
// norms of V; and, by model, experts beside the dense network (26B-A4B), or per-layer embeddings and layers that share
// keys and values (E2B, E4B).

#include "core/models/gemma.h"
#include "core/models/limits.h"

namespace foresay::core {
namespace {

constexpr std::string_view kGgufNames[] = {"gemma4"};
constexpr std::string_view kHfNames[] = {"Gemma4ForCausalLM", "Gemma4ForConditionalGeneration"};
constexpr HfName kHfTensors[] = {
    {"post_attention_norm", "post_attention_layernorm"},
    {"ffn_norm", "pre_feedforward_layernorm"},
    {"post_ffw_norm", "post_feedforward_layernorm"},
    {"layer_output_scale", "layer_scalar!"},
    {"ffn_gate_inp", "router.proj"},
    {"ffn_gate_inp", "router.scale!", HfForm::whole, "scale"},
    {"ffn_down_exps", "router.per_expert_scale!", HfForm::whole, "scale"},
    {"ffn_gate_exps", "experts.gate_up_proj!", HfForm::first_half},
    {"ffn_up_exps", "experts.gate_up_proj!", HfForm::second_half},
    {"ffn_down_exps", "experts.down_proj!"},
    {"pre_ffw_norm_2", "pre_feedforward_layernorm_2"},
    {"post_ffw_norm_1", "post_feedforward_layernorm_1"},
    {"post_ffw_norm_2", "post_feedforward_layernorm_2"},
    {"per_layer_token_embd", "embed_tokens_per_layer"},
    {"per_layer_model_proj", "per_layer_model_projection"},
    {"per_layer_proj_norm", "per_layer_projection_norm"},
    {"inp_gate", "per_layer_input_gate"},
    {"proj", "per_layer_projection"},
    {"post_norm", "post_per_layer_input_norm"},
};

// The heads of each layer: by arrays and two widths in GGUF; in config.json by keys of global layers, or by a table of
// the layers that differ.
void read_heads(Keys& keys, ModelConfig& config, const std::vector<bool>& sliding) {
    const auto layers = static_cast<std::size_t>(config.shape.layers);
    const std::int32_t narrow = keys.count_or("attention.key_length_swa", "head_dim", config.shape.head_dim);
    const std::int32_t wide = keys.count_or("attention.key_length", "global_head_dim", narrow);
    keys.ignore(
        {"attention.value_length_swa", "rope.dimension_count_swa", "num_global_key_value_heads", "per_layer_config"});
    std::vector<std::int32_t> kv_heads = keys.counts("attention.head_count_kv", "num_key_value_heads", layers);
    const bool k_is_v = keys.flag_or({}, "attention_k_eq_v", false);
    for (std::size_t i = 0; i < layers; ++i) {
        LayerConfig& layer = config.layers[i];
        layer.head_dim = sliding[i] ? narrow : wide;
        layer.kv_heads = kv_heads[i];
        if (k_is_v && !sliding[i]) {
            layer.kv_heads = keys.count_or({}, "num_global_key_value_heads", layer.kv_heads);
            layer.v_is_k = true;
        }
        const std::string own = "per_layer_config." + std::to_string(i) + ".";
        layer.head_dim = keys.count_or({}, own + "head_dim", layer.head_dim);
        layer.kv_heads = keys.count_or({}, own + "num_key_value_heads", layer.kv_heads);
        if (layer.head_dim > kMostHeadWidth) {
            keys.refuse(sliding[i] ? "attention.key_length_swa" : "attention.key_length",
                        sliding[i] ? "head_dim" : "global_head_dim",
                        "is " + std::to_string(layer.head_dim) + ", which is not possible");
        }
        if (keys.gguf()) layer.v_is_k = !keys.has_tensor(static_cast<std::int32_t>(i), "attn_v");
    }
}

// The last layers attend to the keys and values of the last layer before them that is of their kind.
void share_keys_and_values(Keys& keys, ModelConfig& config, const std::vector<bool>& sliding) {
    const std::int32_t shared = keys.count_or("attention.shared_kv_layers", "num_kv_shared_layers", 0);
    if (shared >= config.shape.layers) {
        keys.refuse("attention.shared_kv_layers", "num_kv_shared_layers", "leaves no layer with keys and values");
    }
    const auto first = static_cast<std::size_t>(config.shape.layers - shared);
    const bool double_wide = keys.flag_or({}, "use_double_wide_mlp", false);
    for (std::size_t i = first; i < config.layers.size(); ++i) {
        std::size_t source = first;
        while (source > 0 && sliding[source - 1] != sliding[i]) --source;
        if (source == 0)
            keys.refuse("attention.shared_kv_layers", "num_kv_shared_layers",
                        "names a kind of layer that no other layer has");
        LayerConfig& layer = config.layers[i];
        layer.own_kv = false;
        layer.kv = config.layers[source - 1].kv;
        layer.head_dim = config.layers[source - 1].head_dim;
        layer.kv_heads = config.layers[source - 1].kv_heads;
        if (double_wide) layer.d_ff *= 2;
    }
}

void read_own_experts(Keys& keys, ModelConfig& config) {
    const bool experts =
        keys.gguf() ? keys.count_or("expert_count", {}, 0) > 0 : keys.flag_or({}, "enable_moe_block", false);
    keys.ignore(
        {"num_experts", "top_k_experts", "moe_intermediate_size", "expert_used_count", "expert_feed_forward_length"});
    if (!experts) return;
    ExpertConfig& e = config.experts;
    e.count = keys.count("expert_count", "num_experts");
    e.used = keys.count("expert_used_count", "top_k_experts");
    if (e.count < 2) keys.refuse("expert_count", "num_experts", "is below 2");
    if (e.used < 1 || e.used > e.count)
        keys.refuse("expert_used_count", "top_k_experts", "is not between 1 and their number");
    e.d_ff = keys.count("expert_feed_forward_length", "moe_intermediate_size");
    e.renormalize = true;
    config.shape.experts = e.count;
    config.shape.experts_used = e.used;
    config.shape.expert_ff = e.d_ff;
}

void read(Keys& keys, ModelConfig& config) {
    read_gemma(keys, config);
    config.norm_plus_one = false;
    config.attention_scale = 1.0f;
    config.head_norms = true;
    constexpr std::string_view kPerLayer[] = {"embedding_length_per_layer_input", "hidden_size_per_layer_input"};
    config.shape.per_layer = keys.count_or(kPerLayer[0], kPerLayer[1], 0);
    if (config.shape.per_layer > kMostWidth) {
        keys.refuse(kPerLayer[0], kPerLayer[1],
                    "is " + std::to_string(config.shape.per_layer) + ", which is not possible");
    }
    const std::vector<bool> sliding = sliding_layers(keys, config, 6);
    set_sliding(config, sliding);
    read_heads(keys, config, sliding);
    if (keys.is_array("feed_forward_length", {})) {
        const std::vector<std::int32_t> widths = keys.counts("feed_forward_length", {}, sliding.size());
        for (std::size_t i = 0; i < widths.size(); ++i) config.layers[i].d_ff = widths[i];
    }
    share_keys_and_values(keys, config, sliding);
    read_own_experts(keys, config);
    for (std::size_t i = 0; i < config.layers.size(); ++i) {
        LayerConfig& layer = config.layers[i];
        layer.experts = config.experts.count > 0;
        if (keys.gguf()) {
            if (!sliding[i]) continue;
            layer.rope = {};
            layer.rope.theta = keys.positive_or("rope.freq_base_swa", {}, 10000.0f);
        } else {
            layer.rope = read_rope(keys, layer.head_dim, kernels::RopePairs::half_split,
                                   sliding[i] ? "sliding_attention" : "full_attention");
        }
    }
    config.rope = config.layers.front().rope;
}

// A factor that multiplies the whole residual stream after the layer.
float layer_scale(OpMaker& maker, std::int32_t i) {
    const std::vector<float> scale = maker.values(maker.vector(i, "layer_output_scale", 1));
    return scale.front();
}

void add_mlp(OpMaker& maker, std::int32_t i, bool last) {
    const std::int64_t width = maker.width();
    if (maker.layer(i).experts) {
        kernels::MoeSpec spec = maker.moe(i, "pre_ffw_norm_2");
        std::vector<float> scale = maker.values(maker.vector(i, "ffn_gate_inp", width, "scale"));
        for (float& value : scale) value /= std::sqrt(static_cast<float>(width));
        spec.router.norm = {.weight = maker.own(std::move(scale)), .eps = maker.config().norm_eps};
        spec.router.factor = maker.vector(i, "ffn_down_exps", maker.config().experts.count, "scale");
        spec.post_norm = maker.norm(i, "post_ffw_norm_2", width);
        spec.keep_branch = true;
        maker.add(std::move(spec));
    }
    maker.add(maker.mlp_in(i));
    kernels::MlpOutSpec out = maker.mlp_out(i, "post_ffw_norm");
    if (maker.layer(i).experts) {
        out.inner_norm = maker.norm(i, "post_ffw_norm_1", width);
        out.add_branch = true;
    }
    if (last) out.stream_scale = layer_scale(maker, i);
    maker.add(out);
}

void layer(OpMaker& maker, std::int32_t i) {
    const LayerConfig own = maker.layer(i);
    const std::int64_t part = maker.config().shape.per_layer;
    kernels::AttentionInSpec in = maker.attention_in(i);
    if (own.own_kv) {
        std::vector<float> ones(static_cast<std::size_t>(own.head_dim), 1.0f);
        in.v_norm = {.weight = maker.own(std::move(ones)), .eps = maker.config().norm_eps};
    }
    maker.add(in);
    maker.add(maker.attend(i));
    maker.add(maker.attention_out(i, "post_attention_norm"));
    add_mlp(maker, i, part == 0);
    if (part == 0) return;
    maker.add(kernels::PerLayerSpec{.shape = maker.shape(i),
                                    .layer = i,
                                    .gate = maker.matrix(i, "inp_gate", part, maker.width()),
                                    .projection = maker.matrix(i, "proj", maker.width(), part),
                                    .post_norm = maker.norm(i, "post_norm", maker.width()),
                                    .activation = maker.config().activation,
                                    .stream_scale = layer_scale(maker, i)});
}

void before_layers(OpMaker& maker) {
    const kernels::ModelShape& s = maker.config().shape;
    if (s.per_layer == 0) return;
    const std::int64_t all = std::int64_t{s.layers} * s.per_layer;
    maker.add(kernels::PerLayerEmbedSpec{.shape = s,
                                         .table = maker.matrix(-1, "per_layer_token_embd", s.vocab, all),
                                         .projection = maker.matrix(-1, "per_layer_model_proj", all, s.d_model),
                                         .norm = maker.norm(-1, "per_layer_proj_norm", s.per_layer),
                                         .table_scale = gemma_embedding_scale(s.per_layer),
                                         .projection_scale = 1.0f / std::sqrt(static_cast<float>(s.d_model)),
                                         .scale = std::sqrt(0.5f)});
}

// Parameters of the text model, tables included: the files have 0.15 to 0.55 billion for images besides, and those of
// E2B and E4B 0.3 billion for sound.
constexpr std::string_view kShapeKeys =
    R"("head_dim": 256, "global_head_dim": 512, "vocab_size": 262144, "final_logit_softcapping": 30,
    "rope_parameters": {"full_attention": {"rope_type": "proportional", "rope_theta": 1000000,
    "partial_rotary_factor": 0.25}, "sliding_attention": {"rope_type": "default", "rope_theta": 10000}})";
constexpr PublishedShape kShapes[] = {
    {"gemma-4-e2b", "google/gemma-4-E2B-it", 4.650,
     R"("num_hidden_layers": 35, "hidden_size": 1536, "num_attention_heads": 8, "num_key_value_heads": 1,
     "intermediate_size": 6144, "num_kv_shared_layers": 20, "use_double_wide_mlp": true,
     "sliding_window_pattern": 5, "sliding_window": 512, "max_position_embeddings": 131072,
     "hidden_size_per_layer_input": 256)"},
    {"gemma-4-e4b", "google/gemma-4-E4B-it", 7.550,
     R"("num_hidden_layers": 42, "hidden_size": 2560, "num_attention_heads": 8, "num_key_value_heads": 2,
     "intermediate_size": 10240, "num_kv_shared_layers": 18, "sliding_window_pattern": 6, "sliding_window": 512,
     "max_position_embeddings": 131072, "hidden_size_per_layer_input": 256)"},
    {"gemma-4-26b-a4b", "google/gemma-4-26B-A4B-it", 25.200,
     R"("num_hidden_layers": 30, "hidden_size": 2816, "num_attention_heads": 16, "num_key_value_heads": 8,
     "intermediate_size": 2112, "num_global_key_value_heads": 2, "enable_moe_block": true, "num_experts": 128,
     "top_k_experts": 8, "moe_intermediate_size": 704, "sliding_window": 1024, "max_position_embeddings": 262144,
     "attention_k_eq_v": true)"},
    {"gemma-4-31b", "google/gemma-4-31B-it", 30.700,
     R"("num_hidden_layers": 60, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
     "intermediate_size": 21504, "num_global_key_value_heads": 4, "sliding_window": 1024,
     "max_position_embeddings": 262144, "attention_k_eq_v": true)"},
};

}  // namespace

const Architecture& gemma4_architecture() {
    static const Architecture architecture{.name = "gemma4",
                                           .gguf_names = kGgufNames,
                                           .hf_names = kHfNames,
                                           .hf_context_length = 131072,
                                           .hf_head_dim = 256,
                                           .hf_tied = true,
                                           .layers_differ = true,
                                           .hf_tensors = kHfTensors,
                                           .read = read,
                                           .layer = layer,
                                           .before_layers = before_layers,
                                           .shape_keys = kShapeKeys,
                                           .shapes = kShapes};
    return architecture;
}

}  // namespace foresay::core
