// Ops::prepare of the CPU backend: weights are packed into panels once, at load.
#include <algorithm>
#include <string>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/op_checks.h"
#include "kernels/quant/packing.h"

namespace foresay::kernels::cpu {
namespace {

std::vector<float> dequantize(const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (!tensor.empty()) dequantize_row(tensor, 0, values);
    return values;
}

Norm prepare_norm(const NormSpec& spec) {
    Norm norm{dequantize(spec.weight), spec.eps, spec.kind, dequantize(spec.bias)};
    if (spec.plus_one) {
        for (float& w : norm.weight) w += 1.0f;
    }
    return norm;
}

// The values, and zeros up to a multiple of 16.
std::vector<float> padded(std::vector<float> values) {
    values.resize(static_cast<std::size_t>(round_up(static_cast<int64_t>(values.size()), 16)));
    return values;
}

// The biases of each expert.
std::vector<std::vector<float>> prepare_biases(const TensorView& biases) {
    std::vector<std::vector<float>> all;
    for (int64_t e = 0; e < biases.rows; ++e) {
        std::vector<float> values(static_cast<std::size_t>(biases.cols));
        dequantize_row(biases, e, values);
        all.push_back(padded(std::move(values)));
    }
    return all;
}

// Records in which form `m`, if there is one, reads activations: int8 codes or float32.
void note_form(const PanelMatrix& m, bool& codes, bool& floats) {
    if (m.panels > 0) (m.reads_floats() ? floats : codes) = true;
}

// Of mlp_out, what follows its matrix.
std::unique_ptr<ProjectionOp> after_matrix(const MlpOutSpec& spec) {
    auto op = std::make_unique<ProjectionOp>();
    op->post_norm = prepare_norm(spec.post_norm);
    op->inner_norm = prepare_norm(spec.inner_norm);
    op->add_branch = spec.add_branch;
    op->scale = spec.scale;
    op->stream_scale = spec.stream_scale;
    return op;
}

// Of moe, what follows the experts.
std::unique_ptr<MoeOp> after_experts(const MoeSpec& spec) {
    auto op = std::make_unique<MoeOp>(spec.router, spec.shape);
    op->post_norm = prepare_norm(spec.post_norm);
    op->down_bias = prepare_biases(spec.down_bias);
    op->keep_branch = spec.keep_branch;
    op->scale = spec.scale;
    op->stream_scale = spec.stream_scale;
    return op;
}

}  // namespace

int CpuOps::rope_table(const RopeSpec& spec) {
    if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return -1;
    RopeTable table{spec.pairs, {spec.inverse_frequency.begin(), spec.inverse_frequency.end()}, spec.attention_factor};
    for (std::size_t i = 0; i < ropes_.size(); ++i) {
        if (ropes_[i].pairs == table.pairs && ropes_[i].attention_factor == table.attention_factor &&
            ropes_[i].inverse_frequency == table.inverse_frequency) {
            return static_cast<int>(i);
        }
    }
    ropes_.push_back(std::move(table));
    return static_cast<int>(ropes_.size()) - 1;
}

PanelMatrix CpuOps::pack(const TensorView& tensor, std::initializer_list<const TensorView*> others) {
    static const std::vector<std::int32_t> kOwn;
    const auto order_of = [](const TensorView& view) -> const std::vector<std::int32_t>& {
        return view.packing != nullptr ? view.packing->order : kOwn;
    };
    const auto agrees = [&](const TensorView* other) {
        return other->empty() || is_float(other->quant_type) || order_of(*other) == order_of(tensor);
    };
    if (order_of(tensor).empty() || std::ranges::all_of(others, agrees)) return pack(tensor);
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    const auto width = static_cast<std::size_t>(tensor.cols);
    for (int64_t r = 0; r < tensor.rows; ++r) {
        dequantize_row(tensor, r, std::span(values).subspan(static_cast<std::size_t>(r) * width, width));
    }
    return pack({QuantType::f32, tensor.rows, tensor.cols, reinterpret_cast<const std::byte*>(values.data())});
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const EmbedSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<EmbedOp>();
    op->spec = spec;
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const AttentionInSpec& spec) {
    check_op(spec);
    if (spec.shape.head_dim > kMaxHeadDim) {
        throw Error("heads of " + std::to_string(spec.shape.head_dim) + " values are wider than the cpu backend's " +
                    std::to_string(kMaxHeadDim));
    }
    auto op = std::make_unique<AttentionInOp>();
    op->shape = spec.shape;
    op->norm = prepare_norm(spec.norm);
    op->q_norm = prepare_norm(spec.q_norm);
    op->k_norm = prepare_norm(spec.k_norm);
    op->v_norm = prepare_norm(spec.v_norm);
    op->whole_norms = spec.whole_norms;
    op->temperature = spec.temperature;
    op->q = pack(spec.q, {&spec.k, &spec.v});
    op->k = pack(spec.k, {&spec.q, &spec.v});
    op->v = pack(spec.v, {&spec.q, &spec.k});
    op->q_bias = dequantize(spec.q_bias);
    op->k_bias = dequantize(spec.k_bias);
    op->v_bias = dequantize(spec.v_bias);
    op->rope = rope_table(spec.rope);
    for (const PanelMatrix* m : {&op->q, &op->k, &op->v}) note_form(*m, op->codes, op->floats);
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const AttendSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<AttendOp>();
    op->spec = spec;
    op->sinks = dequantize(spec.sinks);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const AttentionOutSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<ProjectionOp>();
    op->matrix = pack(spec.o);
    op->bias = dequantize(spec.bias);
    op->post_norm = prepare_norm(spec.post_norm);
    op->scale = spec.scale;
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const MlpInSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<MlpInOp>();
    op->norm = prepare_norm(spec.norm);
    op->gate = pack(spec.gate, {&spec.up});
    op->up = pack(spec.up, {&spec.gate});
    op->activation = spec.activation;
    op->limit = spec.limit;
    op->gate_bias = padded(dequantize(spec.gate_bias));
    op->up_bias = padded(dequantize(spec.up_bias));
    for (const PanelMatrix* m : {&op->gate, &op->up}) note_form(*m, op->codes, op->floats);
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const MlpOutSpec& spec) {
    check_op(spec);
    std::unique_ptr<ProjectionOp> op = after_matrix(spec);
    op->matrix = pack(spec.down);
    op->bias = dequantize(spec.bias);
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const MoeSpec& spec) {
    check_op(spec);
    return prepare_mixture(spec);
}

std::unique_ptr<MoeOp> CpuOps::prepare_mixture(const MoeSpec& spec) {
    std::unique_ptr<MoeOp> op = after_experts(spec);
    op->norm = prepare_norm(spec.norm);
    op->router_norm = prepare_norm(spec.router.norm);
    // Scores are float32, however the router is stored.
    const auto width = static_cast<std::size_t>(spec.router.weight.cols);
    std::vector<float> router(static_cast<std::size_t>(spec.router.weight.elements()));
    for (int64_t e = 0; e < spec.router.weight.rows; ++e) {
        dequantize_row(spec.router.weight, e, std::span(router).subspan(static_cast<std::size_t>(e) * width, width));
    }
    op->router = pack({QuantType::f32, spec.router.weight.rows, spec.router.weight.cols,
                       reinterpret_cast<const std::byte*>(router.data())});
    for (std::size_t e = 0; e < spec.gate.size(); ++e) {
        note_form(op->gate.emplace_back(pack(spec.gate[e], {&spec.up[e]})), op->codes, op->floats);
        note_form(op->up.emplace_back(pack(spec.up[e], {&spec.gate[e]})), op->codes, op->floats);
    }
    for (const TensorView& expert : spec.down) {
        note_form(op->down.emplace_back(pack(expert)), op->down_codes, op->down_floats);
    }
    op->gate_bias = prepare_biases(spec.gate_bias);
    op->up_bias = prepare_biases(spec.up_bias);
    op->activation = spec.activation;
    op->limit = spec.limit;
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare_finish(const MlpOutSpec& spec) {
    check(spec.down.empty() && spec.bias.empty(), "the sums are there");
    return after_matrix(spec);
}

std::unique_ptr<PreparedOp> CpuOps::prepare_experts(const MoeSpec& spec, Part experts) {
    std::unique_ptr<MoeOp> op = prepare_mixture(part_of(spec, experts));
    op->part = MoePart::experts;
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare_expert_sum(const MoeSpec& spec) {
    std::unique_ptr<MoeOp> op = after_experts(spec);
    op->part = MoePart::sum;
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const PerLayerEmbedSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<PerLayerEmbedOp>();
    op->table = spec.table;
    op->projection = pack(spec.projection);
    op->norm = prepare_norm(spec.norm);
    op->table_scale = spec.table_scale;
    op->projection_scale = spec.projection_scale;
    op->scale = spec.scale;
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const PerLayerSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<PerLayerOp>();
    op->layer = spec.layer;
    op->gate = pack(spec.gate);
    op->projection = pack(spec.projection);
    op->post_norm = prepare_norm(spec.post_norm);
    op->activation = spec.activation;
    op->stream_scale = spec.stream_scale;
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const LmHeadSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<LmHeadOp>();
    op->norm = prepare_norm(spec.norm);
    op->matrix = pack(spec.weight);
    op->scale = spec.scale;
    op->soft_cap = spec.soft_cap;
    count_work(spec, *op);
    return op;
}

}  // namespace foresay::kernels::cpu
