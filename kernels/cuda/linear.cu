#include "kernels/cuda/linear.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <vector>

#include "base/error.h"
#include "kernels/cuda/decode/gemv.h"

namespace foresay::kernels::cuda {

namespace {

// What a device is, asked for once.
const DeviceInfo& known_device(int device) {
    static std::mutex mutex;
    static std::map<int, DeviceInfo> known;
    const std::lock_guard lock(mutex);
    const auto found = known.find(device);
    return found != known.end() ? found->second : known.emplace(device, device_info(device)).first->second;
}

const DeviceInfo& current_device() {
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    return known_device(device);
}

}  // namespace

struct LinearSequence::State {
    GemvArgs<kManySteps> args;  // those that wait
    Encoding encoding = Encoding::f32;
    LinearCall call;

    void flush() {
        if (args.steps == 0) return;
        const DeviceInfo& info = current_device();
        check(plan_gemv(encoding, gemv_scratch(), info.shared_bytes, info.processors, 1,
                        std::span(args.ops, count(args.op_count)), args.rows, args.plan),
              "ops that fit alone fit together");
        hand_over();
        launch_gemv(encoding, args, info.processors, call.overlap, call.stream);
        clear();
    }
    void clear() { args.steps = args.op_count = args.attend_count = 0; }
    // Puts a step behind those that wait, unless it cannot run in their launch.
    void add(Encoding op_encoding, const LinearCall& op_call, std::int32_t rows, const GemvOp& op, GemvStep step) {
        const bool joins = args.steps > 0 && args.steps < kManySteps && encoding == op_encoding && args.rows == rows &&
                           call.stream == op_call.stream && encoding != Encoding::f32 &&
                           (find(op) < args.op_count || args.op_count < kMaxGemvOps);
        if (!joins) flush();
        encoding = op_encoding;
        call = op_call;
        args.rows = rows;
        step.op = static_cast<std::uint8_t>(find(op));
        if (step.op == args.op_count) args.ops[args.op_count++] = op;
        args.step[args.steps++] = step;
    }

    bool attend(const AttendCall& call) {
        if (args.steps == 0 || args.steps == kManySteps || encoding == Encoding::f32 || !attends_within(call))
            return false;
        std::int32_t kind = 0;
        while (kind < args.attend_count && !same_kind(args.attends[kind], call)) ++kind;
        if (kind == kMaxAttendKinds) return false;
        GemvOp op;
        op.kind = OpKind::attend;
        op.attend = kind;
        if (find(op) == kMaxGemvOps) return false;
        if (kind == args.attend_count) args.attends[args.attend_count++] = call;
        add(encoding, this->call, args.rows, op, {.kv = const_cast<__half*>(call.kv)});
        return true;
    }

private:
    // If the steps are all those of two layers or more, each as the other, they hand over their numbers (gemv.h).
    void hand_over() {
        args.plan.handed = nullptr;
        constexpr std::int32_t kLayer = 5;
        enum : std::int32_t { kIn, kAttend, kOut, kMlpIn, kMlpOut };
        const std::int32_t layers = args.steps / kLayer;
        // No barrier keeps the sums of one matrix from those of the next.
        if (layers < 2 || args.steps % kLayer != 0 || !args.plan.apart) return;
        const auto is = [&](std::int32_t at, Finish kind) {
            const GemvOp& op = args.op(at);
            return op.kind == OpKind::matrix && op.finish.kind == kind && op.finish.raw == nullptr &&
                   op.row == nullptr && op.finish.first_row == 0;
        };
        for (std::int32_t at = 0; at < args.steps; at += kLayer) {
            if (!(is(at + kIn, Finish::attention_in) || is(at + kIn, Finish::attention_in_fresh)) ||
                args.op(at + kAttend).kind != OpKind::attend || !is(at + kOut, Finish::out) ||
                !is(at + kMlpIn, Finish::mlp_in) || !is(at + kMlpOut, Finish::out))
                return;
            for (const std::int32_t i : {kIn, kOut, kMlpIn, kMlpOut}) {
                if (args.step[at + i].op != args.step[i].op) return;
            }
        }
        GemvOp in = args.op(kIn), out = args.op(kOut), mlp_in = args.op(kMlpIn), mlp_out = args.op(kMlpOut);
        const float* const x = in.x;
        const float* const attended = args.attends[args.op(kAttend).attend].out;
        if (out.x != attended || mlp_in.x != x || out.finish.out != x || mlp_out.finish.out != x ||
            mlp_out.x != mlp_in.finish.out || in.finish.out != args.attends[args.op(kAttend).attend].q)
            return;
        // A turn: outputs of mlp_out, of the attention, of attention_out and of mlp_in.
        const std::int32_t rows = args.rows, width = rows * in.inputs;
        const std::int32_t at_attended = width, at_x = at_attended + rows * out.inputs, at_ff = at_x + width;
        const std::int32_t floats = at_ff + rows * mlp_out.inputs;
        const GemvScratch& scratch = gemv_scratch();
        // Rows are read in fours.
        if (in.inputs % 4 != 0 || out.inputs % 4 != 0 || mlp_out.inputs % 4 != 0 ||
            count(floats) * kTurns > scratch.handed_floats)
            return;
        GemvPlan& plan = args.plan;
        plan.handed = scratch.handed;
        plan.turn_floats = floats;
        plan.front_floats = width;

        float* const turn = plan.handed;
        std::array<std::int32_t, kManySteps / kLayer> kinds;  // of the layers' attentions
        for (std::int32_t layer = 0; layer < layers; ++layer) {
            kinds[count(layer)] = args.op(layer * kLayer + kAttend).attend;
        }
        static_assert(7 + kMaxAttendKinds <= kMaxGemvOps);
        args.op_count = 0;
        const auto put = [&](const GemvOp& op) {
            args.ops[args.op_count] = op;
            return static_cast<std::uint8_t>(args.op_count++);
        };
        const std::uint8_t first_in = put(in);
        in.x_handed = true;
        in.x = turn;
        const std::uint8_t other_in = put(in);
        out.x_handed = out.out_handed = out.clears = true;
        out.x = turn + at_attended;
        out.finish.from = out.finish.out;
        out.finish.out = turn + at_x;
        const std::uint8_t first_out = put(out);
        out.from_handed = true;
        out.finish.from = turn;
        const std::uint8_t other_out = put(out);
        mlp_in.x_handed = mlp_in.out_handed = true;
        mlp_in.x = turn + at_x;
        mlp_in.finish.out = turn + at_ff;
        const std::uint8_t only_mlp_in = put(mlp_in);
        mlp_out.x_handed = mlp_out.from_handed = true;
        mlp_out.x = turn + at_ff;
        mlp_out.finish.from = turn + at_x;
        const std::uint8_t last_mlp_out = put(mlp_out);
        mlp_out.out_handed = true;
        mlp_out.finish.out = turn;
        const std::uint8_t other_mlp_out = put(mlp_out);
        std::uint8_t attend_ops[kMaxAttendKinds];
        for (std::int32_t kind = 0; kind < args.attend_count; ++kind) {
            GemvOp op;
            op.kind = OpKind::attend;
            op.attend = kind;
            op.out_handed = true;
            args.attends[kind].out = turn + at_attended;
            attend_ops[kind] = put(op);
        }
        for (std::int32_t layer = 0; layer < layers; ++layer) {
            GemvStep* const step = args.step + layer * kLayer;
            const auto here = static_cast<std::uint8_t>(layer % kTurns);
            const auto before = static_cast<std::uint8_t>((layer + kTurns - 1) % kTurns);
            for (std::int32_t i = 0; i < kLayer; ++i) step[i].x_turn = step[i].from_turn = step[i].out_turn = here;
            step[kIn].x_turn = step[kOut].from_turn = before;
            step[kIn].op = layer == 0 ? first_in : other_in;
            step[kAttend].op = attend_ops[kinds[count(layer)]];
            step[kOut].op = layer == 0 ? first_out : other_out;
            step[kMlpIn].op = only_mlp_in;
            step[kMlpOut].op = layer == layers - 1 ? last_mlp_out : other_mlp_out;
        }
    }
    // Layers differ in where their keys are and in how they look at them.
    static bool same_kind(const AttendCall& a, const AttendCall& b) {
        return a.scale == b.scale && a.window == b.window;
    }
    static std::size_t count(std::int32_t n) { return static_cast<std::size_t>(n); }
    std::int32_t find(const GemvOp& op) const {
        return static_cast<std::int32_t>(std::find(args.ops, args.ops + args.op_count, op) - args.ops);
    }
};

namespace {

// Rows of one pass: all of them, or as many as leave room for weights.
std::int32_t rows_that_fit(Encoding encoding, const GemvOp& op, std::int32_t rows) {
    const DeviceInfo& device = current_device();
    GemvOp planned = op;
    GemvPlan plan;
    while (!plan_gemv(encoding, gemv_scratch(), device.shared_bytes, device.processors, 2, {&planned, 1}, rows, plan)) {
        check(rows > 1, "a row of inputs fits into shared memory");
        rows = (rows + 1) / 2;
    }
    return rows;
}

// For calls that have no sequence. Kept, because it is large and may be wanted in mid-text.
LinearSequence& sequence_alone() {
    thread_local LinearSequence sequence;
    sequence.state()->clear();
    return sequence;
}

// All parts of a stack times the rows of a call, in as few readings of the weights as shared memory allows.
// `shift` moves what belongs to a row of the batch by `t` rows.
template <class Shift>
void decode_rows(const Panels& panels, const LinearCall& call, GemvOp op, GemvStep step, FinishArgs finish,
                 Shift shift) {
    LinearSequence& sequence = call.sequence != nullptr ? *call.sequence : sequence_alone();
    op.inputs = static_cast<std::int32_t>(panels.inputs());
    op.inputs_inverse = 1.0f / static_cast<float>(op.inputs);
    for (const Panels::Part& part : panels.parts()) {
        step.panels = part.data.data();
        op.panel_count = part.panels;
        op.blocks = part.blocks;
        finish.first_row = static_cast<std::int32_t>(part.first_row);
        finish.rows = static_cast<std::int32_t>(part.rows);
        for (std::int32_t t = 0; t < call.rows;) {
            const std::int32_t rows = rows_that_fit(part.encoding, op, std::min(call.rows - t, kDecodeTile));
            GemvOp pass = op;
            pass.finish = finish;
            shift(pass, t);
            sequence.state()->add(part.encoding, call, rows, pass, step);
            t += rows;
        }
    }
    if (call.sequence == nullptr) sequence.flush();
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

LinearSequence::LinearSequence() : state_(std::make_unique<State>()) {}
LinearSequence::~LinearSequence() = default;
LinearSequence::LinearSequence(LinearSequence&&) noexcept = default;
LinearSequence& LinearSequence::operator=(LinearSequence&&) noexcept = default;
void LinearSequence::flush() { state_->flush(); }
bool LinearSequence::attend(const AttendCall& call) { return state_->attend(call); }

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
    input_ = InputMatrix(panels_);
    const TensorView biases[] = {spec.q_bias, spec.k_bias, spec.v_bias};
    const std::int64_t rows[] = {q, kv, kv};
    bias_ = stacked_bias(biases, rows);
}

void AttentionInLinear::launch(const LinearCall& call, const Io& io) const {
    check(!head_norms_ || io.raw != nullptr, "heads with norms of their own are finished elsewhere");
    const std::int32_t q = shape_.heads * shape_.head_dim, kv = shape_.kv_heads * shape_.head_dim;
    FinishArgs finish;
    finish.kind = io.fresh != nullptr ? Finish::attention_in_fresh : Finish::attention_in;
    finish.out = io.q;
    finish.raw = io.raw;
    finish.out_stride = io.raw != nullptr ? q + 2 * kv : q;
    finish.query_rows = q;
    finish.kv_rows = kv;
    finish.head_dim = shape_.head_dim;
    finish.head_inverse = inverse_of(shape_.head_dim);
    finish.half_split = pairs_ == RopePairs::half_split;
    finish.rotated = io.rope != nullptr || finish.half_split ? rotated_ : 0;
    finish.rope = io.rope;
    finish.cell = io.cell;
    finish.head_stride = io.head_stride;
    finish.v_cell = io.v_cell;
    finish.fresh = io.fresh;
    GemvOp op;
    op.x = io.x;
    op.eps = norm_.eps;
    const GemvStep step{.norm = norm_.weight.data(), .bias = bias_.data(), .kv = io.kv};
    if (input_.takes(call)) return input_.run(panels_, call, op, step, finish);
    decode_rows(panels_, call, op, step, finish, [&](GemvOp& pass, std::int32_t t) {
        pass.x += static_cast<std::int64_t>(t) * shape_.d_model;
        FinishArgs& f = pass.finish;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
        if (f.rope != nullptr) f.rope += static_cast<std::int64_t>(t) * (f.rotated / 2);
        if (f.cell != nullptr) f.cell += t;
        if (f.v_cell != nullptr) f.v_cell += t;
        if (f.fresh != nullptr) f.fresh += static_cast<std::int64_t>(t) * 2 * f.kv_rows;
    });
}

std::int64_t AttentionInLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

OutLinear::OutLinear(const AttentionOutSpec& spec) : bias_(device_vector(spec.bias)) {
    const PackSource source[] = {{spec.o, {}}};
    panels_ = Panels(source, RowOrder::stacked);
    input_ = InputMatrix(panels_);
}
OutLinear::OutLinear(const MlpOutSpec& spec) {
    const PackSource source[] = {{spec.down, {}}};
    panels_ = Panels(source, RowOrder::stacked);
    input_ = InputMatrix(panels_);
}

void OutLinear::launch(const LinearCall& call, const Io& io) const {
    FinishArgs finish;
    finish.kind = Finish::out;
    finish.out = io.x;
    finish.from = io.x;
    finish.raw = io.raw;
    finish.out_stride = panels_.rows();
    GemvOp op;
    op.x = io.input;
    const GemvStep step{.bias = bias_.data()};
    if (input_.takes(call)) return input_.run(panels_, call, op, step, finish);
    decode_rows(panels_, call, op, step, finish, [&](GemvOp& pass, std::int32_t t) {
        pass.x += t * panels_.inputs();
        FinishArgs& f = pass.finish;
        if (f.out != nullptr) f.out += t * f.out_stride;
        if (f.from != nullptr) f.from += t * f.out_stride;
        if (f.raw != nullptr) f.raw += t * f.out_stride;
    });
}

std::int64_t OutLinear::bytes() const { return panels_.bytes() + static_cast<std::int64_t>(bias_.bytes()); }

MlpInLinear::MlpInLinear(const MlpInSpec& spec) : norm_(spec.norm), activation_(spec.activation) {
    const PackSource sources[] = {{spec.gate, {}}, {spec.up, {}}};
    panels_ = Panels(sources, RowOrder::interleaved);
    input_ = InputMatrix(panels_);
}

void MlpInLinear::launch(const LinearCall& call, const Io& io) const {
    FinishArgs finish;
    finish.kind = Finish::mlp_in;
    finish.activation = activation_;
    finish.out = io.ff;
    finish.out_stride = panels_.rows() / 2;
    GemvOp op;
    op.x = io.x;
    op.eps = norm_.eps;
    const GemvStep step{.norm = norm_.weight.data()};
    if (input_.takes(call)) {
        return input_.run(panels_, call, op, step, finish, io.reader != nullptr ? &io.reader->input() : nullptr);
    }
    decode_rows(panels_, call, op, step, finish, [&](GemvOp& pass, std::int32_t t) {
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
    GemvOp op;
    op.x = io.x;
    op.row = io.row;
    op.eps = norm_.eps;
    decode_rows(panels_, call, op, {.norm = norm_.weight.data()}, finish, [&](GemvOp& pass, std::int32_t t) {
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
