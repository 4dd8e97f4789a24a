// The weights of each op on the device, and the arguments of its launches.
//
// A constructor packs the op's matrices into one stack (Panels): q, k and v; gate and up, interleaved; or one matrix. A
// launch() describes the op once, as GemvOp, GemvStep and EpilogueArgs. Prefill rows go to PrefillMatrix, if that can
// take them. All others go to decode_rows(), which adds steps to a LinearSequence; the decode kernel runs at flush().
//
// Every pointer in the description refers to row 0 of the call. Where decode_rows() needs several passes, the `shift`
// of the op moves them: a new pointer per row of the batch must be added there as well.

#include "kernels/cuda/linear.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/decode/linear_sequence.h"
#include "kernels/cuda/device/device_context.h"

namespace foresay::kernels::cuda {

namespace {

// Rows of one pass over the weights: all of them, or as many as leave room for two slots of the ring, so that loading
// overlaps with multiplying. Halved until they fit. Only speed depends on it: a row's bits never do (law 1).
std::int32_t rows_that_fit(QuantType quant_type, const GemvOp& op, std::int32_t rows) {
    const DeviceInfo& device = DeviceContext::current().info();
    GemvOp planned = op;
    GemvPlan plan;
    while (
        !plan_gemv(quant_type, gemv_scratch(), device.shared_bytes, device.processors, 2, {&planned, 1}, rows, plan)) {
        check(rows > 1, "one row of activations fits into shared memory");
        rows = (rows + 1) / 2;
    }
    return rows;
}

// For calls without a sequence. It is large (the arguments of a launch, 32 KiB), so one per thread is kept. discard():
// an exception may have left steps in it.
LinearSequence& sequence_alone() {
    thread_local LinearSequence sequence;
    sequence.discard();
    return sequence;
}

// All parts of a stack times the rows of a call, in as few passes over the weights as shared memory allows: a step of
// the decode kernel per part and pass, or a launch of mixed_gemm for as many as that takes. `shift(pass, t)` moves
// every pointer of the pass that has an entry per row of the batch by t rows.
template <class Shift>
void decode_rows(const Panels& panels, const LinearCall& call, GemvOp op, GemvStep step, EpilogueArgs epilogue,
                 Shift shift) {
    LinearSequence& sequence = call.sequence != nullptr ? *call.sequence : sequence_alone();
    // What all parts have in common, then part by part.
    op.inputs = static_cast<std::int32_t>(panels.inputs());
    op.inputs_inverse = 1.0f / static_cast<float>(op.inputs);
    for (const Panels::Part& part : panels.parts()) {
        step.panels = part.data.data();
        op.panel_count = part.panels;
        op.blocks = part.blocks;
        epilogue.first_row = static_cast<std::int32_t>(part.first_row);
        epilogue.rows = static_cast<std::int32_t>(part.rows);
        // Each pass reads the weights once. Parts may differ in quantisation type, and so in the rows that fit.
        for (std::int32_t t = 0; t < call.rows;) {
            const std::int32_t many =
                call.mixed != nullptr ? mixed_rows(part.quant_type, op, call.rows - t, *call.mixed) : 0;
            if (many > 0) {
                GemvOp pass = op;
                pass.epilogue = epilogue;
                shift(pass, t);
                sequence.flush();
                launch_mixed_gemm(part.quant_type, pass, step, many, *call.mixed, call.stream);
                t += many;
                continue;
            }
            const std::int32_t rows = rows_that_fit(part.quant_type, op, std::min(call.rows - t, kDecodeTile));
            GemvOp pass = op;
            pass.epilogue = epilogue;
            shift(pass, t);
            sequence.state()->add(part.quant_type, call, rows, pass, step);
            t += rows;
        }
    }
    if (call.sequence == nullptr) sequence.flush();
}

TensorView with_shape(const TensorView& view, std::int64_t rows, std::int64_t cols) {
    check(view.rows == rows && view.cols == cols, "a matrix has the shape that its op expects");
    return view;
}

// The biases of q, k and v, one after the other; zeros where one is absent. Empty if all are.
DeviceBuffer<float> stacked_bias(std::span<const TensorView> biases, std::span<const std::int64_t> rows) {
    std::vector<float> values;
    bool any = false;
    for (std::size_t i = 0; i < biases.size(); ++i) {
        const std::size_t begin = values.size();
        values.resize(begin + static_cast<std::size_t>(rows[i]));
        if (biases[i].empty()) continue;
        any = true;
        if (biases[i].data != nullptr) dequantize_row(biases[i], 0, std::span(values).subspan(begin));
    }
    return any ? to_device(std::span<const float>(values)) : DeviceBuffer<float>();
}

// The biases of gate and up in the order of their packed rows.
DeviceBuffer<float> interleaved_bias(const TensorView& gate, const TensorView& up, std::int64_t units) {
    if (gate.empty() && up.empty()) return {};
    std::vector<float> values(static_cast<std::size_t>(2 * units)), one(static_cast<std::size_t>(units));
    for (std::size_t which = 0; which < 2; ++which) {
        const TensorView& bias = which == 0 ? gate : up;
        if (bias.empty() || bias.data == nullptr) continue;
        dequantize_row(bias, 0, one);
        for (std::size_t i = 0; i < one.size(); ++i) values[2 * i + which] = one[i];
    }
    return to_device(std::span<const float>(values));
}

}  // namespace

// ---------------------------------------------------------------------------------------------------- small vectors

DeviceBuffer<float> device_vector(const TensorView& view) {
    if (view.empty()) return {};
    std::vector<float> values(static_cast<std::size_t>(view.cols));  // zeros for synthetic weights
    if (view.data != nullptr) dequantize_row(view, 0, values);
    return to_device(std::span<const float>(values));
}

// plus_one (Gemma) is added here, on the host, so that kernels only multiply.
DeviceNorm::DeviceNorm(const NormSpec& spec)
    : bias(device_vector(spec.bias)), eps(spec.eps), centered(spec.kind == NormKind::layer) {
    std::vector<float> values(static_cast<std::size_t>(spec.weight.cols), 1.0f);  // no data: synthetic weights
    if (spec.weight.data != nullptr) dequantize_row(spec.weight, 0, values);
    if (spec.plus_one && spec.weight.data != nullptr) {
        for (float& value : values) value += 1.0f;
    }
    weight = to_device(std::span<const float>(values));
}

// ----------------------------------------------------------------------------------------------------- attention_in

AttentionInLinear::AttentionInLinear(const AttentionInSpec& spec, WholeStack whole)
    : shape_(spec.shape),
      norm_(fused_norm(spec.norm)),
      head_norms_(!spec.q_norm.empty() || !spec.k_norm.empty() || !spec.v_norm.empty()),
      pairs_(spec.rope.pairs),
      rotated_(spec.rope.pairs == RopePairs::none ? 0
                                                  : static_cast<std::int32_t>(2 * spec.rope.inverse_frequency.size())) {
    // Without keys and values of its own the layer attends to those of an earlier one.
    if (spec.k.empty()) shape_.kv_heads = 0;
    const std::int64_t q = static_cast<std::int64_t>(shape_.heads) * shape_.head_dim;
    const std::int64_t kv = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
    // The two rows that rope rotates together become a pair of packed rows, so that one thread of the epilogue has both
    // sums. With adjacent pairs they already are neighbours. V is not rotated.
    const HeadOrder order{shape_.head_dim, pairs_ == RopePairs::half_split ? rotated_ : 0};
    std::vector<PackSource> sources = {{with_shape(spec.q, q, shape_.d_model), order}};
    if (kv > 0) {
        sources.push_back({with_shape(spec.k, kv, shape_.d_model), order});
        sources.push_back({with_shape(spec.v, kv, shape_.d_model), HeadOrder{}});
    }
    // The PrefillMatrix keeps no weights of its own: it dequantises the panels in each call.
    panels_ = Panels(sources, RowOrder::stacked);
    input_ = PrefillMatrix(panels_, whole);
    // Biases stay in the order of the stack; the epilogue knows which rows a pair of packed rows is.
    const TensorView biases[] = {spec.q_bias, spec.k_bias, spec.v_bias};
    const std::int64_t rows[] = {q, kv, kv};
    bias_ = stacked_bias(biases, rows);
}

void AttentionInLinear::launch(const LinearCall& call, const Io& io) const {
    check(!head_norms_ || io.raw != nullptr, "an op with head norms leaves raw projections");
    const std::int32_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    EpilogueArgs epilogue;
    epilogue.kind = io.new_kv != nullptr ? Epilogue::attention_in_new_kv : Epilogue::attention_in;
    // Three ways out: q and the cache (kv, cell, v_cell); q and new_kv; or raw, which excludes the others.
    epilogue.out = io.q;
    epilogue.raw = io.raw;
    epilogue.out_stride = io.raw != nullptr ? q + 2 * kv : q;
    epilogue.query_rows = q;
    epilogue.kv_rows = kv;
    epilogue.head_dim = shape_.head_dim;
    epilogue.head_inverse = inverse_of(shape_.head_dim);
    epilogue.half_split = pairs_ == RopePairs::half_split;
    // Packed rows are reordered for half_split pairs whether or not this launch rotates, so the epilogue must know.
    epilogue.rotated = io.rope != nullptr || epilogue.half_split ? rotated_ : 0;
    epilogue.rope = io.rope;
    epilogue.cell = io.cell;
    epilogue.head_stride = io.head_stride;
    epilogue.v_cell = io.v_cell;
    epilogue.new_kv = io.new_kv;
    // Addresses of the layer go to the step, everything else to the op, which layers share (LinearSequence).
    GemvOp op;
    op.x = io.x;
    op.eps = norm_.eps;
    const GemvStep step{.norm = norm_.weight.data(), .bias = bias_.data(), .kv = io.kv};
    if (input_.takes(call)) return input_.run(panels_, call, op, step, epilogue);
    decode_rows(panels_, call, op, step, epilogue, [&](GemvOp& pass, std::int32_t t) {
        pass.x += static_cast<std::int64_t>(t) * shape_.d_model;
        EpilogueArgs& f = pass.epilogue;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
        if (f.rope != nullptr) f.rope += static_cast<std::int64_t>(t) * (f.rotated / 2);
        if (f.cell != nullptr) f.cell += t;
        if (f.v_cell != nullptr) f.v_cell += t;
        if (f.new_kv != nullptr) f.new_kv += static_cast<std::int64_t>(t) * 2 * f.kv_rows;
    });
}

std::int64_t AttentionInLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

// ------------------------------------------------------------------------------------------- attention_out, mlp_out

OutLinear::OutLinear(const AttentionOutSpec& spec) : OutLinear(spec.o, spec.bias, spec.scale) {}
OutLinear::OutLinear(const MlpOutSpec& spec, WholeStack whole) : OutLinear(spec.down, spec.bias, spec.scale, whole) {}
OutLinear::OutLinear(const TensorView& matrix, const TensorView& bias, float scale, WholeStack whole)
    : bias_(device_vector(bias)), scale_(scale) {
    const PackSource source[] = {{matrix, {}}};
    panels_ = Panels(source, RowOrder::stacked);
    input_ = PrefillMatrix(panels_, whole);
}

void OutLinear::launch(const LinearCall& call, const Io& io) const {
    EpilogueArgs epilogue;
    epilogue.kind = Epilogue::out;
    // In place: each thread reads the residual of its pair before it writes the sum there. LinearSequence sets other
    // pointers where layers pass flagged words.
    epilogue.out = io.x;
    epilogue.residual = io.x;
    epilogue.raw = io.raw;
    epilogue.scale = scale_;
    epilogue.out_stride = panels_.rows();
    epilogue.first_output = io.first;
    GemvOp op;
    op.x = io.input;
    const GemvStep step{.bias = bias_.data()};
    if (input_.takes(call)) return input_.run(panels_, call, op, step, epilogue);
    decode_rows(panels_, call, op, step, epilogue, [&](GemvOp& pass, std::int32_t t) {
        pass.x += t * panels_.inputs();
        EpilogueArgs& f = pass.epilogue;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.residual != nullptr) f.residual += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
    });
}

std::int64_t OutLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

// ----------------------------------------------------------------------------------------------------------- mlp_in

// Gate and up of a unit become a pair of packed rows: one thread has both sums, and ff is written once. Without a gate
// a pair of packed rows is two units.
MlpInLinear::MlpInLinear(const MlpInSpec& spec, WholeStack whole)
    : norm_(fused_norm(spec.norm)), activation_(spec.activation), limit_(spec.limit), gated_(!spec.gate.empty()) {
    if (gated_) {
        const PackSource sources[] = {{spec.gate, {}}, {spec.up, {}}};
        panels_ = Panels(sources, RowOrder::interleaved);
        bias_ = interleaved_bias(spec.gate_bias, spec.up_bias, spec.up.rows);
    } else {
        const PackSource source[] = {{spec.up, {}}};
        panels_ = Panels(source, RowOrder::stacked);
        bias_ = device_vector(spec.up_bias);
    }
    // Packed rows of gate and up alternate.
    if (gated_) whole = {2 * whole.rows, 2 * whole.first};
    input_ = PrefillMatrix(panels_, whole);
}

void MlpInLinear::launch(const LinearCall& call, const Io& io) const {
    EpilogueArgs epilogue;
    // Two packed rows, gate and up, become one output: activation(gate) * up. Without a gate each becomes one.
    epilogue.kind = gated_ ? Epilogue::mlp_in : Epilogue::mlp_up;
    epilogue.activation = activation_;
    epilogue.limit = limit_;
    epilogue.out = io.ff;
    epilogue.out_stride = gated_ ? panels_.rows() / 2 : panels_.rows();
    epilogue.first_output = io.first;
    GemvOp op;
    op.x = io.x;
    op.eps = norm_.eps;
    const GemvStep step{.norm = norm_.weight.data(), .bias = bias_.data()};
    if (input_.takes(call)) {
        return input_.run(panels_, call, op, step, epilogue, io.reader != nullptr ? &io.reader->input() : nullptr);
    }
    decode_rows(panels_, call, op, step, epilogue, [&](GemvOp& pass, std::int32_t t) {
        pass.x += t * panels_.inputs();
        pass.epilogue.out += t * pass.epilogue.out_stride;
    });
}

std::int64_t MlpInLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

// ---------------------------------------------------------------------------------------------------------- LM head

// No PrefillMatrix: even a prefill forward has few logit rows, and they belong to the decode kernel.
LmHeadLinear::LmHeadLinear(const LmHeadSpec& spec)
    : norm_(fused_norm(spec.norm)), scale_(spec.scale), soft_cap_(spec.soft_cap) {
    const PackSource source[] = {{spec.weight, {}}};
    panels_ = Panels(source, RowOrder::stacked);
}

void LmHeadLinear::launch(const LinearCall& call, const Io& io) const {
    EpilogueArgs epilogue;
    // Logits times `scale`, then capped softly if soft_cap > 0.
    epilogue.kind = Epilogue::head;
    epilogue.out = io.logits;
    epilogue.out_stride = io.logit_stride;
    epilogue.scale = scale_;
    epilogue.soft_cap = soft_cap_;
    GemvOp op;
    op.x = io.x;
    op.row = io.row;
    op.eps = norm_.eps;
    decode_rows(panels_, call, op, {.norm = norm_.weight.data()}, epilogue, [&](GemvOp& pass, std::int32_t t) {
        // With chosen rows (op.row) it is the list of them that moves, and x stays.
        if (pass.row != nullptr) {
            pass.row += t;
        } else {
            pass.x += t * panels_.inputs();
        }
        pass.epilogue.out += t * pass.epilogue.out_stride;
    });
}

std::int64_t LmHeadLinear::bytes() const { return panels_.bytes(); }

}  // namespace foresay::kernels::cuda
