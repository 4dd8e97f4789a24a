#include "core/models/op_maker.h"

#include <cmath>
#include <utility>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/weights/finite.h"

namespace foresay::core {

using kernels::ModelShape;
using kernels::TensorView;

TensorView rows_of(const TensorView& matrix, std::int64_t first, std::int64_t count) {
    check(first >= 0 && count >= 0 && first + count <= matrix.rows, "rows outside a matrix");
    TensorView part = matrix;
    part.rows = count;
    if (part.data != nullptr) part.data += first * matrix.row_bytes();
    return part;
}

// Tables are where the first layer is; what else is of no layer, the LM head most of all, where the last is.
bool OpMaker::is_checked(const TensorName& name) const {
    const std::vector<std::int32_t>& devices = config().devices;
    if (!options_.check_weights) return false;
    if (options_.check_devices == 0 || devices.empty()) return true;
    const bool table = name.is_table() || name.part.starts_with("per_layer");
    const std::int32_t device = name.layer >= 0 ? devices[static_cast<std::size_t>(name.layer)]
                                : table         ? devices.front()
                                                : devices.back();
    return device < 0 || (options_.check_devices >> device & 1u) != 0;
}

TensorView OpMaker::take(const TensorName& name, TensorShape shape) {
    const TensorView view = source_.tensor(name, shape);
    const bool again = name.is_head() && config().tied_head;
    if (options_.bytes_taken != nullptr && !again) *options_.bytes_taken += view.bytes();
    if (!is_checked(name) || again || view.data == nullptr) return view;  // no data: made by the backend
    const std::int64_t row = first_row_not_finite(view);
    if (row < 0) return view;
    throw Error(source_.path() + ": the weights of " + name.text() + " hold NaN or infinities (row " +
                std::to_string(row) + "), so the file is damaged or was converted badly; get it again");
}

TensorView OpMaker::matrix(std::int32_t i, std::string_view part, std::int64_t rows, std::int64_t cols) {
    return take({.layer = i, .part = part}, {rows, cols});
}

TensorView OpMaker::vector(std::int32_t i, std::string_view part, std::int64_t size, std::string_view kind) {
    return take({.layer = i, .part = part, .kind = kind}, {1, size});
}

kernels::NormSpec OpMaker::norm(std::int32_t i, std::string_view part, std::int64_t size) {
    if (part.empty()) return {};
    kernels::NormSpec spec{.weight = vector(i, part, size),
                           .eps = config().norm_eps,
                           .plus_one = config().norm_plus_one,
                           .kind = config().norm_kind};
    if (config().norm_bias) spec.bias = vector(i, part, size, "bias");
    return spec;
}

std::vector<TensorView> OpMaker::experts(std::int32_t i, std::string_view part, std::int64_t rows, std::int64_t cols) {
    std::vector<TensorView> views;
    for (std::int32_t e = 0; e < config().experts.count; ++e) {
        views.push_back(take({.layer = i, .part = part, .expert = e, .experts = config().experts.count}, {rows, cols}));
    }
    return views;
}

TensorView OpMaker::own(std::vector<float> values) {
    const std::vector<float>& kept = own_.emplace_back(std::move(values));
    return {kernels::QuantType::f32, 1, static_cast<std::int64_t>(kept.size()),
            reinterpret_cast<const std::byte*>(kept.data())};
}

std::vector<float> OpMaker::values(const TensorView& view) const {
    std::vector<float> values(static_cast<std::size_t>(view.elements()));
    if (view.data != nullptr) kernels::dequantize_row(view, 0, values);
    return values;
}

TensorView OpMaker::outputs_for(const TensorName& reader, TensorView outputs) {
    const std::span<const std::int32_t> order = source_.input_order(reader);
    if (order.empty() || outputs.empty() || outputs.data == nullptr) return outputs;
    const auto count = static_cast<std::int64_t>(order.size());
    if (outputs.rows == 1 && outputs.cols == count) {
        const std::vector<float> given = values(outputs);
        std::vector<float> moved(given.size());
        for (std::size_t place = 0; place < moved.size(); ++place) {
            moved[place] = given[static_cast<std::size_t>(order[place])];
        }
        return own(std::move(moved));
    }
    check(outputs.rows == count, "a matrix has as many outputs as its reader has inputs");
    return source_.with_rows_in(order, outputs);
}

TensorView OpMaker::with_inputs_in_place(const TensorName& reader, TensorView matrix) {
    if (matrix.packing == nullptr || source_.input_order(reader).empty()) return matrix;
    kernels::Packing& packing = packings_.emplace_back(*matrix.packing);
    packing.order.clear();
    matrix.packing = &packing;
    return matrix;
}

kernels::RopeSpec OpMaker::rope(const RopeConfig& rope, std::int32_t head_dim) {
    const RopeTable& table = ropes_.emplace_back(rope_table(rope, head_dim, options_.context));
    return {
        .pairs = rope.pairs, .inverse_frequency = table.inverse_frequency, .attention_factor = table.attention_factor};
}

void OpMaker::add(OpSpec spec) {
    sink_({std::move(spec), layer_, layer_ < config().shape.layers ? layer(layer_).kv : 0});
    own_.clear();
    ropes_.clear();
    packings_.clear();
    source_.release();
}

kernels::AttentionInSpec OpMaker::attention_in(std::int32_t i, std::string_view norm_name, bool head_norms) {
    const LayerConfig own = layer(i);
    const std::int64_t q = std::int64_t{own.heads} * own.head_dim, kv = std::int64_t{own.kv_heads} * own.head_dim;
    kernels::AttentionInSpec spec{.shape = shape(i), .norm = norm(i, norm_name, width())};
    if (has(i, "attn_qkv")) {
        const TensorView qkv = matrix(i, "attn_qkv", q + 2 * kv, width());
        spec.q = rows_of(qkv, 0, q);
        spec.k = rows_of(qkv, q, kv);
        spec.v = rows_of(qkv, q + kv, kv);
    } else {
        spec.q = matrix(i, "attn_q", q, width());
        if (own.own_kv) {
            spec.k = matrix(i, "attn_k", kv, width());
            spec.v = own.v_is_k ? spec.k : matrix(i, "attn_v", kv, width());
        }
    }
    if (config().qkv_bias) {
        spec.q_bias = vector(i, "attn_q", q, "bias");
        spec.k_bias = vector(i, "attn_k", kv, "bias");
        spec.v_bias = vector(i, "attn_v", kv, "bias");
    }
    if (config().head_norms && head_norms) {
        spec.q_norm = norm(i, "attn_q_norm", own.head_dim);
        if (own.own_kv) spec.k_norm = norm(i, "attn_k_norm", own.head_dim);
    }
    spec.rope = rope(own.rope, own.head_dim);
    spec.temperature = config().temperature;
    return spec;
}

kernels::AttendSpec OpMaker::attend(std::int32_t i) {
    const LayerConfig own = layer(i);
    const float scale = config().attention_scale;
    return {.shape = shape(i),
            .scale = scale != 0.0f ? scale : 1.0f / std::sqrt(static_cast<float>(own.head_dim)),
            .window = own.window,
            .soft_cap = config().attention_cap};
}

kernels::AttentionOutSpec OpMaker::attention_out(std::int32_t i, std::string_view post_norm) {
    const LayerConfig own = layer(i);
    kernels::AttentionOutSpec spec{.shape = shape(i),
                                   .o = matrix(i, "attn_output", width(), std::int64_t{own.heads} * own.head_dim)};
    if (config().attention_out_bias) spec.bias = vector(i, "attn_output", width(), "bias");
    spec.post_norm = norm(i, post_norm, width());
    spec.scale = config().residual_scale;
    return spec;
}

kernels::MlpInSpec OpMaker::mlp_in(std::int32_t i, std::string_view norm_name, bool gated) {
    const std::int64_t ff = layer(i).d_ff;
    const TensorName down{.layer = i, .part = "ffn_down"};
    kernels::MlpInSpec spec{.shape = shape(i), .norm = norm(i, norm_name, width()), .activation = config().activation};
    if (gated) spec.gate = outputs_for(down, matrix(i, "ffn_gate", ff, width()));
    spec.up = outputs_for(down, matrix(i, "ffn_up", ff, width()));
    if (config().mlp_bias) {
        if (gated) spec.gate_bias = outputs_for(down, vector(i, "ffn_gate", ff, "bias"));
        spec.up_bias = outputs_for(down, vector(i, "ffn_up", ff, "bias"));
    }
    return spec;
}

kernels::MlpInSpec OpMaker::fused_mlp_in(std::int32_t i, std::string_view norm_name) {
    const std::int64_t ff = layer(i).d_ff;
    const TensorName down{.layer = i, .part = "ffn_down"};
    kernels::MlpInSpec spec{.shape = shape(i), .norm = norm(i, norm_name, width()), .activation = config().activation};
    if (has(i, "ffn_gate")) {  // split by a tool that quantises
        spec.gate = outputs_for(down, matrix(i, "ffn_gate", ff, width()));
        spec.up = outputs_for(down, matrix(i, "ffn_up_alone", ff, width()));
        return spec;
    }
    const TensorView both = matrix(i, "ffn_up", 2 * ff, width());
    spec.gate = outputs_for(down, rows_of(both, 0, ff));
    spec.up = outputs_for(down, rows_of(both, ff, ff));
    return spec;
}

kernels::MlpOutSpec OpMaker::mlp_out(std::int32_t i, std::string_view post_norm) {
    const TensorName down{.layer = i, .part = "ffn_down"};
    kernels::MlpOutSpec spec{.shape = shape(i),
                             .down = with_inputs_in_place(down, matrix(i, "ffn_down", width(), layer(i).d_ff))};
    if (config().mlp_bias) spec.bias = vector(i, "ffn_down", width(), "bias");
    spec.post_norm = norm(i, post_norm, width());
    spec.scale = config().residual_scale;
    return spec;
}

kernels::MoeSpec OpMaker::moe(std::int32_t i, std::string_view norm_name) {
    const ExpertConfig& e = config().experts;
    kernels::MoeSpec spec{.shape = shape(i), .norm = norm(i, norm_name, width())};
    spec.router.weight = matrix(i, "ffn_gate_inp", e.count, width());
    if (e.router_bias) spec.router.bias = vector(i, "ffn_gate_inp", e.count, "bias");
    if (e.choice_bias) spec.router.choice_bias = vector(i, "exp_probs_b", e.count, "bias");
    spec.router.gating = e.gating;
    spec.router.renormalize = e.renormalize;
    spec.router.scale = e.scale;
    spec.router.groups = e.groups;
    spec.router.groups_used = e.groups_used;
    spec.gate = experts(i, "ffn_gate_exps", e.d_ff, width());
    spec.up = experts(i, "ffn_up_exps", e.d_ff, width());
    spec.down = experts(i, "ffn_down_exps", width(), e.d_ff);
    if (e.biases) {
        spec.gate_bias = take({.layer = i, .part = "ffn_gate_exps", .kind = "bias"}, {e.count, e.d_ff});
        spec.up_bias = take({.layer = i, .part = "ffn_up_exps", .kind = "bias"}, {e.count, e.d_ff});
        spec.down_bias = take({.layer = i, .part = "ffn_down_exps", .kind = "bias"}, {e.count, width()});
    }
    spec.activation = config().activation;
    spec.limit = config().activation_limit;
    spec.scale = config().residual_scale;
    return spec;
}

void OpMaker::add_experts(std::int32_t i, std::string_view norm_name) {
    const std::int64_t shared = config().experts.shared_ff;
    if (shared == 0) return add(moe(i, norm_name));
    kernels::MoeSpec routed = moe(i, norm_name);
    routed.keep_branch = true;
    add(std::move(routed));
    ModelShape own = shape(i);
    own.d_ff = static_cast<std::int32_t>(shared);
    const TensorName down{.layer = i, .part = "ffn_down_shexp"};
    add(kernels::MlpInSpec{.shape = own,
                           .norm = norm(i, norm_name, width()),
                           .gate = outputs_for(down, matrix(i, "ffn_gate_shexp", shared, width())),
                           .up = outputs_for(down, matrix(i, "ffn_up_shexp", shared, width())),
                           .activation = config().activation});
    add(kernels::MlpOutSpec{.shape = own,
                            .down = with_inputs_in_place(down, matrix(i, "ffn_down_shexp", width(), shared)),
                            .add_branch = true,
                            .scale = config().residual_scale});
}

void OpMaker::add_plain_layer(std::int32_t i, std::string_view mlp_norm) {
    add_attention(i);
    if (layer(i).experts) return add_experts(i, mlp_norm);
    add_mlp(i, mlp_norm);
}

void OpMaker::add_attention(std::int32_t i, std::string_view norm_name, std::string_view post_norm) {
    add(attention_in(i, norm_name));
    add(attend(i));
    add(attention_out(i, post_norm));
}

void OpMaker::add_mlp(std::int32_t i, std::string_view norm_name, std::string_view post_norm) {
    add(mlp_in(i, norm_name));
    add(mlp_out(i, post_norm));
}

void OpMaker::run() {
    const ModelConfig& c = config();
    const Architecture& family = architecture(c.architecture);
    layer_ = 0;
    add(kernels::EmbedSpec{.table = matrix(-1, "token_embd", c.shape.vocab, width()),
                           .scale = c.embedding_scale,
                           .devices = c.shape.devices});
    if (family.before_layers != nullptr) family.before_layers(*this);
    for (layer_ = 0; layer_ < c.shape.layers; ++layer_) family.layer(*this, layer_);
    add(kernels::LmHeadSpec{.shape = c.shape,
                            .norm = norm(-1, "output_norm", width()),
                            .weight = matrix(-1, "output", c.shape.vocab, width()),
                            .scale = c.logit_scale,
                            .soft_cap = c.logit_cap});
}

namespace {

// Has every tensor that is asked for, without data, and writes down which.
class Inventory final : public ModelSource {
public:
    explicit Inventory(const ModelConfig& config) { config_ = config; }

    TensorView tensor(const TensorName& name, TensorShape shape) override {
        uses.push_back({name, shape});
        return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
    }
    bool has(const TensorName&) const override { return false; }
    std::int64_t weight_bytes() override { return 0; }

    std::vector<TensorUse> uses;
};

}  // namespace

std::vector<TensorUse> tensors_of(const ModelConfig& config) {
    Inventory inventory(config);
    const OpMaker::Sink ignore = [](const PlacedOp&) {};
    OpMaker(inventory, {.context = config.context_length, .check_weights = false}, ignore).run();
    return std::move(inventory.uses);
}

}  // namespace foresay::core
