#include "kernels/cuda/linear.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/gemv.h"

namespace foresay::kernels::cuda {
namespace {

// The current device, asked for once.
const DeviceInfo& current_device() {
    thread_local std::vector<DeviceInfo> known;
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    for (const DeviceInfo& info : known) {
        if (info.index == device) return info;
    }
    return known.emplace_back(device_info(device));
}

// All parts of a stack times the rows of a call, in as few readings of the weights as shared memory allows.
// `shift` moves what belongs to a row of the batch by `t` rows.
template <class Shift>
void decode_rows(const Panels& panels, const LinearCall& call, GemvArgs args, FinishArgs finish, Shift shift) {
    const DeviceInfo& device = current_device();
    args.inputs = static_cast<std::int32_t>(panels.inputs());
    for (const Panels::Part& part : panels.parts()) {
        args.panels = part.data.data();
        args.panel_count = part.panels;
        args.blocks = part.blocks;
        args.split =
            device.capability >= 90 ? gemv_split(part.encoding, part.rows, panels.inputs(), device.processors) : 1;
        finish.first_row = part.first_row;
        finish.rows = part.rows;
        for (std::int32_t t = 0; t < call.rows;) {
            GemvArgs pass = args;
            pass.rows = std::min(call.rows - t, kDecodeTile);
            while (!plan_gemv(part.encoding, device.shared_bytes, pass)) {
                check(pass.rows > 1, "a row of inputs fits into shared memory");
                pass.rows = (pass.rows + 1) / 2;
            }
            pass.finish = finish;
            shift(pass, t);
            launch_gemv(part.encoding, pass, device.processors, call.overlap, call.stream);
            t += pass.rows;
        }
    }
}

TensorView with_shape(const TensorView& view, std::int64_t rows, std::int64_t cols) {
    check(view.rows == rows && view.cols == cols, "a matrix has the shape of its stage");
    return view;
}

// The biases of q, k and v behind one another; zeros where one is absent.
DeviceBuffer<float> stacked_bias(std::span<const TensorView> biases, std::span<const std::int64_t> rows) {
    std::vector<float> values;
    bool any = false;
    for (std::size_t i = 0; i < biases.size(); ++i) {
        const std::size_t begin = values.size();
        values.resize(begin + static_cast<std::size_t>(rows[i]));
        if (biases[i].empty()) continue;
        any = true;
        decode_row(biases[i], 0, std::span(values).subspan(begin));
    }
    return any ? to_device(std::span<const float>(values)) : DeviceBuffer<float>();
}

}  // namespace

struct InputWorkspace::State {};

InputWorkspace::InputWorkspace() = default;
InputWorkspace::InputWorkspace(const ModelShape&, std::int32_t) {}
InputWorkspace::~InputWorkspace() = default;
InputWorkspace::InputWorkspace(InputWorkspace&&) noexcept = default;
InputWorkspace& InputWorkspace::operator=(InputWorkspace&&) noexcept = default;
std::int64_t InputWorkspace::bytes(const ModelShape&, std::int32_t) { return 0; }

DeviceBuffer<float> device_vector(const TensorView& view) {
    if (view.empty()) return {};
    std::vector<float> values(static_cast<std::size_t>(view.cols));
    decode_row(view, 0, values);
    return to_device(std::span<const float>(values));
}

DeviceNorm::DeviceNorm(const NormSpec& spec) : eps(spec.eps) {
    std::vector<float> values(static_cast<std::size_t>(spec.weight.cols), 1.0f);  // no data: a made-up model
    if (spec.weight.data != nullptr) decode_row(spec.weight, 0, values);
    if (spec.plus_one && spec.weight.data != nullptr) {
        for (float& value : values) value += 1.0f;
    }
    weight = to_device(std::span<const float>(values));
}

AttentionInLinear::AttentionInLinear(const AttentionInSpec& spec)
    : shape_(spec.shape),
      norm_(spec.norm),
      head_norms_(!spec.q_norm.empty() || !spec.k_norm.empty()),
      pairs_(spec.rope.pairs),
      rotated_(spec.rope.pairs == RopePairs::none ? 0
                                                  : static_cast<std::int32_t>(2 * spec.rope.inverse_frequency.size())) {
    const std::int64_t q = static_cast<std::int64_t>(shape_.heads) * shape_.head_dim;
    const std::int64_t kv = static_cast<std::int64_t>(shape_.kv_heads) * shape_.head_dim;
    const HeadOrder order{shape_.head_dim, pairs_ == RopePairs::half_split ? rotated_ : 0};
    const PackSource sources[] = {{with_shape(spec.q, q, shape_.d_model), order},
                                  {with_shape(spec.k, kv, shape_.d_model), order},
                                  {with_shape(spec.v, kv, shape_.d_model), HeadOrder{}}};
    panels_ = Panels(sources, RowOrder::stacked);
    const TensorView biases[] = {spec.q_bias, spec.k_bias, spec.v_bias};
    const std::int64_t rows[] = {q, kv, kv};
    bias_ = stacked_bias(biases, rows);
}

void AttentionInLinear::launch(const LinearCall& call, const Io& io) const {
    check(!head_norms_ || io.raw != nullptr, "heads with norms of their own are finished elsewhere");
    const std::int32_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    FinishArgs finish;
    finish.kind = Finish::attention_in;
    finish.bias = bias_.data();
    finish.out = io.q;
    finish.raw = io.raw;
    finish.out_stride = io.raw != nullptr ? q + 2 * kv : q;
    finish.query_rows = q;
    finish.kv_rows = kv;
    finish.head_dim = shape_.head_dim;
    finish.half_split = pairs_ == RopePairs::half_split;
    finish.rotated = io.rope != nullptr || finish.half_split ? rotated_ : 0;
    finish.rope = io.rope;
    finish.kv = io.kv;
    finish.cell = io.cell;
    finish.head_stride = io.head_stride;
    finish.v_cell = io.v_cell;
    finish.v_stride = io.v_stride;
    GemvArgs args;
    args.x = io.x;
    args.norm = norm_.weight.data();
    args.eps = norm_.eps;
    decode_rows(panels_, call, args, finish, [&](GemvArgs& pass, std::int32_t t) {
        pass.x += static_cast<std::int64_t>(t) * shape_.d_model;
        FinishArgs& f = pass.finish;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
        if (f.rope != nullptr) f.rope += static_cast<std::int64_t>(t) * (f.rotated / 2);
        if (f.cell != nullptr) f.cell += t;
        if (f.v_cell != nullptr) f.v_cell += t;
    });
}

std::int64_t AttentionInLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

OutLinear::OutLinear(const AttentionOutSpec& spec) : bias_(device_vector(spec.bias)) {
    const PackSource source[] = {{spec.o, {}}};
    panels_ = Panels(source, RowOrder::stacked);
}
OutLinear::OutLinear(const MlpOutSpec& spec) {
    const PackSource source[] = {{spec.down, {}}};
    panels_ = Panels(source, RowOrder::stacked);
}

void OutLinear::launch(const LinearCall& call, const Io& io) const {
    FinishArgs finish;
    finish.kind = Finish::out;
    finish.bias = bias_.data();
    finish.out = io.x;
    finish.raw = io.raw;
    finish.out_stride = panels_.rows();
    GemvArgs args;
    args.x = io.input;
    decode_rows(panels_, call, args, finish, [&](GemvArgs& pass, std::int32_t t) {
        pass.x += t * panels_.inputs();
        FinishArgs& f = pass.finish;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
    });
}

std::int64_t OutLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

MlpInLinear::MlpInLinear(const MlpInSpec& spec) : norm_(spec.norm), activation_(spec.activation) {
    const PackSource sources[] = {{spec.gate, {}}, {spec.up, {}}};
    panels_ = Panels(sources, RowOrder::interleaved);
}

void MlpInLinear::launch(const LinearCall& call, const Io& io) const {
    FinishArgs finish;
    finish.kind = Finish::mlp_in;
    finish.activation = activation_;
    finish.out = io.ff;
    finish.out_stride = panels_.rows() / 2;
    GemvArgs args;
    args.x = io.x;
    args.norm = norm_.weight.data();
    args.eps = norm_.eps;
    decode_rows(panels_, call, args, finish, [&](GemvArgs& pass, std::int32_t t) {
        pass.x += t * panels_.inputs();
        pass.finish.out += t * pass.finish.out_stride;
    });
}

std::int64_t MlpInLinear::bytes() const { return panels_.bytes(); }

HeadLinear::HeadLinear(const HeadSpec& spec) : norm_(spec.norm), scale_(spec.scale), soft_cap_(spec.soft_cap) {
    const PackSource source[] = {{spec.weight, {}}};
    panels_ = Panels(source, RowOrder::stacked);
}

void HeadLinear::launch(const LinearCall& call, const Io& io) const {
    FinishArgs finish;
    finish.kind = Finish::head;
    finish.out = io.logits;
    finish.out_stride = io.logit_stride;
    finish.scale = scale_;
    finish.soft_cap = soft_cap_;
    GemvArgs args;
    args.x = io.x;
    args.row = io.row;
    args.norm = norm_.weight.data();
    args.eps = norm_.eps;
    decode_rows(panels_, call, args, finish, [&](GemvArgs& pass, std::int32_t t) {
        if (pass.row != nullptr) {
            pass.row += t;
        } else {
            pass.x += t * panels_.inputs();
        }
        pass.finish.out += t * pass.finish.out_stride;
    });
}

std::int64_t HeadLinear::bytes() const { return panels_.bytes(); }

}  // namespace foresay::kernels::cuda
