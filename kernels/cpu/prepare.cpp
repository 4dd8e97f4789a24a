// Ops::prepare of the CPU backend: weights are packed into panels once, at load.
#include <string>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/op_checks.h"

namespace foresay::kernels::cpu {
namespace {

std::vector<float> dequantize(const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (!tensor.empty()) dequantize_row(tensor, 0, values);
    return values;
}

Norm prepare_norm(const NormSpec& spec) {
    Norm norm{dequantize(spec.weight), spec.eps};
    if (spec.plus_one) {
        for (float& w : norm.weight) w += 1.0f;
    }
    return norm;
}

// Records in which form `m` reads activations: int8 codes or float32.
void note_form(const PanelMatrix& m, bool& codes, bool& floats) { (is_float(m.quant_type) ? floats : codes) = true; }

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

template <class Spec>
std::unique_ptr<PreparedOp> CpuOps::prepare_out(const Spec& spec, const TensorView& matrix, const TensorView& bias,
                                                const NormSpec& norm) {
    auto op = std::make_unique<ProjectionOp>();
    op->matrix = pack(matrix, arena_, pool_);
    op->bias = dequantize(bias);
    op->post_norm = prepare_norm(norm);
    count_work(spec, *op);
    return op;
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
    op->q = pack(spec.q, arena_, pool_);
    op->k = pack(spec.k, arena_, pool_);
    op->v = pack(spec.v, arena_, pool_);
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
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const AttentionOutSpec& spec) {
    check_op(spec);
    return prepare_out(spec, spec.o, spec.bias, spec.post_norm);
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const MlpInSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<MlpInOp>();
    op->norm = prepare_norm(spec.norm);
    op->gate = pack(spec.gate, arena_, pool_);
    op->up = pack(spec.up, arena_, pool_);
    op->activation = spec.activation;
    for (const PanelMatrix* m : {&op->gate, &op->up}) note_form(*m, op->codes, op->floats);
    count_work(spec, *op);
    return op;
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const MlpOutSpec& spec) {
    check_op(spec);
    return prepare_out(spec, spec.down, {}, spec.post_norm);
}

std::unique_ptr<PreparedOp> CpuOps::prepare(const LmHeadSpec& spec) {
    check_op(spec);
    auto op = std::make_unique<LmHeadOp>();
    op->norm = prepare_norm(spec.norm);
    op->matrix = pack(spec.weight, arena_, pool_);
    op->scale = spec.scale;
    op->soft_cap = spec.soft_cap;
    count_work(spec, *op);
    return op;
}

}  // namespace foresay::kernels::cpu
