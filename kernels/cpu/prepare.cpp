// Weights of the CPU backend: each stage packed into panels once, at load.
#include <string>

#include "base/error.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/stage_checks.h"

namespace foresay::kernels::cpu {
namespace {

std::vector<float> decode(const TensorView& tensor) {
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    if (!tensor.empty()) decode_row(tensor, 0, values);
    return values;
}

Norm prepare_norm(const NormSpec& spec) {
    Norm norm{decode(spec.weight), spec.eps};
    if (spec.plus_one) {
        for (float& w : norm.weight) w += 1.0f;
    }
    return norm;
}

void note_inputs(const PanelMatrix& m, bool& codes, bool& floats) { (is_float(m.encoding) ? floats : codes) = true; }

}  // namespace

int CpuOps::rope_table(const RopeSpec& spec) {
    if (spec.pairs == RopePairs::none || spec.inverse_frequency.empty()) return -1;
    RopeTable table{spec.pairs, {spec.inverse_frequency.begin(), spec.inverse_frequency.end()}, spec.magnitude};
    for (std::size_t i = 0; i < ropes_.size(); ++i) {
        if (ropes_[i].pairs == table.pairs && ropes_[i].magnitude == table.magnitude &&
            ropes_[i].inverse_frequency == table.inverse_frequency) {
            return static_cast<int>(i);
        }
    }
    ropes_.push_back(std::move(table));
    return static_cast<int>(ropes_.size()) - 1;
}

template <class Spec>
std::unique_ptr<Prepared> CpuOps::prepare_out(const Spec& spec, const TensorView& matrix, const TensorView& bias,
                                              const NormSpec& norm) {
    auto stage = std::make_unique<OutStage>();
    stage->matrix = pack(matrix, arena_, pool_);
    stage->bias = decode(bias);
    stage->post_norm = prepare_norm(norm);
    count_work(spec, *stage);
    return stage;
}

std::unique_ptr<Prepared> CpuOps::prepare(const EmbedSpec& spec) {
    check_stage(spec);
    auto stage = std::make_unique<EmbedStage>();
    stage->spec = spec;
    return stage;
}

std::unique_ptr<Prepared> CpuOps::prepare(const AttentionInSpec& spec) {
    check_stage(spec);
    if (spec.shape.head_dim > kMaxHeadDim) {
        throw Error("heads of " + std::to_string(spec.shape.head_dim) + " values are wider than the cpu backend's " +
                    std::to_string(kMaxHeadDim));
    }
    auto stage = std::make_unique<AttentionInStage>();
    stage->shape = spec.shape;
    stage->norm = prepare_norm(spec.norm);
    stage->q_norm = prepare_norm(spec.q_norm);
    stage->k_norm = prepare_norm(spec.k_norm);
    stage->q = pack(spec.q, arena_, pool_);
    stage->k = pack(spec.k, arena_, pool_);
    stage->v = pack(spec.v, arena_, pool_);
    stage->q_bias = decode(spec.q_bias);
    stage->k_bias = decode(spec.k_bias);
    stage->v_bias = decode(spec.v_bias);
    stage->rope = rope_table(spec.rope);
    for (const PanelMatrix* m : {&stage->q, &stage->k, &stage->v}) note_inputs(*m, stage->codes, stage->floats);
    count_work(spec, *stage);
    return stage;
}

std::unique_ptr<Prepared> CpuOps::prepare(const AttendSpec& spec) {
    check_stage(spec);
    auto stage = std::make_unique<AttendStage>();
    stage->spec = spec;
    return stage;
}

std::unique_ptr<Prepared> CpuOps::prepare(const AttentionOutSpec& spec) {
    check_stage(spec);
    return prepare_out(spec, spec.o, spec.bias, spec.post_norm);
}

std::unique_ptr<Prepared> CpuOps::prepare(const MlpInSpec& spec) {
    check_stage(spec);
    auto stage = std::make_unique<MlpInStage>();
    stage->norm = prepare_norm(spec.norm);
    stage->gate = pack(spec.gate, arena_, pool_);
    stage->up = pack(spec.up, arena_, pool_);
    stage->activation = spec.activation;
    for (const PanelMatrix* m : {&stage->gate, &stage->up}) note_inputs(*m, stage->codes, stage->floats);
    count_work(spec, *stage);
    return stage;
}

std::unique_ptr<Prepared> CpuOps::prepare(const MlpOutSpec& spec) {
    check_stage(spec);
    return prepare_out(spec, spec.down, {}, spec.post_norm);
}

std::unique_ptr<Prepared> CpuOps::prepare(const HeadSpec& spec) {
    check_stage(spec);
    auto stage = std::make_unique<HeadStage>();
    stage->norm = prepare_norm(spec.norm);
    stage->matrix = pack(spec.weight, arena_, pool_);
    stage->scale = spec.scale;
    stage->soft_cap = spec.soft_cap;
    count_work(spec, *stage);
    return stage;
}

}  // namespace foresay::kernels::cpu
