// Gathers decode ops into launches of the decode kernel, and makes whole layers pass their activations on in flagged
// words.
//
//   add(), attend()  append a step. A step that cannot join those that wait (another quantisation type, other rows, no
//                    room) launches them first; attend() instead says no, and the caller launches attention by itself.
//   flush()          plan_gemv(): CTAs and shared memory. flag_layers(): if all steps are whole layers, their ops are
//                    replaced by ones that read and write the buffers of gemv.h, so that no step waits for the grid.
//                    Then one launch.
//
// Ops are shared: equal ones (all layers of a model, say) are stored once, and a step names its op by index. That is
// why a whole forward fits into the parameters of a kernel. Two ops are equal if all their fields are, pointers to
// activations included; what differs between layers must be in GemvStep.

#include "kernels/cuda/decode/linear_sequence.h"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/device/device_context.h"

namespace foresay::kernels::cuda {
namespace {

using std::int32_t;

using Args = GemvArgs<kManySteps>;

// The steps of a layer, in the order in which they are launched.
enum LayerStep : int32_t { kIn, kAttend, kOut, kMlpIn, kMlpOut, kLayerSteps };

std::size_t size(int32_t n) { return static_cast<std::size_t>(n); }

// Whether two layers can share a call of attention. They differ in their KV cache and their sinks, which the step has,
// and, in some models, in scale, window and heads; all else is the forward's.
bool same_kind(const AttendCall& a, const AttendCall& b) {
    return a.scale == b.scale && a.window == b.window && a.heads == b.heads && a.kv_heads == b.kv_heads &&
           a.head_dim == b.head_dim && a.layout.page_stride == b.layout.page_stride && a.new_kv == b.new_kv &&
           a.raw == b.raw && a.angles == b.angles && a.rope_pairs == b.rope_pairs && a.pairs == b.pairs &&
           a.q_eps == b.q_eps && a.k_eps == b.k_eps;
}

bool is_matrix(const GemvOp& op, Epilogue kind) {
    return op.kind == OpKind::matrix && op.epilogue.kind == kind && op.epilogue.raw == nullptr && op.row == nullptr &&
           op.epilogue.first_row == 0;
}

// Projections may leave it to the attention to finish them.
bool is_projection(const GemvOp& op) {
    GemvOp plain = op;
    plain.epilogue.raw = nullptr;
    return is_matrix(plain, Epilogue::attention_in) || is_matrix(op, Epilogue::attention_in_new_kv);
}

// Whether the steps are those of two or more whole layers with the same ops. (Attention may be of another kind in each
// layer.) One layer alone has nothing to pass on.
bool are_whole_layers(const Args& args) {
    if (args.steps < 2 * kLayerSteps || args.steps % kLayerSteps != 0) return false;
    for (int32_t at = 0; at < args.steps; at += kLayerSteps) {
        if (!is_projection(args.op(at + kIn))) return false;
        if (args.op(at + kAttend).kind != OpKind::attend || !is_matrix(args.op(at + kOut), Epilogue::out) ||
            !is_matrix(args.op(at + kMlpOut), Epilogue::out))
            return false;
        const GemvOp& mlp_in = args.op(at + kMlpIn);
        if (!is_matrix(mlp_in, Epilogue::mlp_in) && !is_matrix(mlp_in, Epilogue::mlp_up)) return false;
        for (const int32_t i : {kIn, kOut, kMlpIn, kMlpOut}) {
            if (args.step[at + i].op != args.step[i].op) return false;
        }
    }
    return true;
}

// Whether each step reads what the step before it writes, all within one workspace. Only then may the values go through
// the buffers instead: nothing else reads them in the workspace.
bool are_chained(const Args& args) {
    const GemvOp &in = args.op(kIn), &out = args.op(kOut), &mlp_in = args.op(kMlpIn), &mlp_out = args.op(kMlpOut);
    const AttendCall& attend = args.attends[args.op(kAttend).attend];
    return out.x == attend.out && mlp_in.x == in.x && out.epilogue.out == in.x && mlp_out.epilogue.out == in.x &&
           mlp_out.x == mlp_in.epilogue.out && in.epilogue.raw == attend.raw &&
           (attend.raw != nullptr || in.epilogue.out == attend.q);
}

// One of the kFlaggedBuffers buffers: outputs of mlp_out, of the attention, of attention_out and of mlp_in, in floats.
struct BufferPlaces {
    int32_t x_after_mlp = 0, attended, x_after_attention, ff, floats;

    explicit BufferPlaces(const Args& args) {
        const int32_t rows = args.rows, width = rows * args.op(kIn).inputs;
        attended = width;
        x_after_attention = attended + rows * args.op(kOut).inputs;
        ff = x_after_attention + width;
        floats = ff + rows * args.op(kMlpOut).inputs;
    }
};

// The ops of layers that pass flagged words on. The first layer reads x from the workspace, and the last one writes it
// there; all between stays in the buffers.
class FlaggedOps {
public:
    FlaggedOps(Args& args, const BufferPlaces& at) : args_(args) {
        GemvOp in = args.op(kIn), out = args.op(kOut), mlp_in = args.op(kMlpIn), mlp_out = args.op(kMlpOut);
        float* const buffer = args.plan.flagged;
        static_assert(7 + kMaxAttendKinds <= kMaxGemvOps);
        args.op_count = 0;
        // attention_in of layer 0 reads x from the workspace, the others from the buffer of the layer before.
        first_in_ = put(in);
        in.x_flagged = true;
        in.x = buffer + at.x_after_mlp;
        other_in_ = put(in);
        out.x_flagged = out.out_flagged = out.resets_buffers = true;
        out.x = buffer + at.attended;
        out.epilogue.residual = out.epilogue.out;
        out.epilogue.out = buffer + at.x_after_attention;
        // attention_out adds to the x that attention_in has read: that of the workspace in layer 0, else the output of
        // mlp_out of the layer before.
        first_out_ = put(out);
        out.residual_flagged = true;
        out.epilogue.residual = buffer + at.x_after_mlp;
        other_out_ = put(out);
        mlp_in.x_flagged = mlp_in.out_flagged = true;
        mlp_in.x = buffer + at.x_after_attention;
        mlp_in.epilogue.out = buffer + at.ff;
        mlp_in_ = put(mlp_in);
        mlp_out.x_flagged = mlp_out.residual_flagged = true;
        mlp_out.x = buffer + at.ff;
        mlp_out.epilogue.residual = buffer + at.x_after_attention;
        // mlp_out of the last layer writes x back to the workspace.
        last_mlp_out_ = put(mlp_out);
        mlp_out.out_flagged = true;
        mlp_out.epilogue.out = buffer + at.x_after_mlp;
        other_mlp_out_ = put(mlp_out);
        for (int32_t kind = 0; kind < args.attend_count; ++kind) {
            GemvOp op;
            op.kind = OpKind::attend;
            op.attend = kind;
            op.out_flagged = true;
            args.attends[kind].out = buffer + at.attended;
            attend_[kind] = put(op);
        }
    }
    // Makes the steps of a layer use these ops. `kind`: of its attention.
    void use(int32_t layer, int32_t layers, int32_t kind) const {
        GemvStep* const step = args_.step + layer * kLayerSteps;
        const auto here = static_cast<std::uint8_t>(layer % kFlaggedBuffers);
        const auto before = static_cast<std::uint8_t>((layer + kFlaggedBuffers - 1) % kFlaggedBuffers);
        for (int32_t i = 0; i < kLayerSteps; ++i)
            step[i].x_buffer = step[i].residual_buffer = step[i].out_buffer = here;
        // What attention_in reads, and attention_out adds to, is the layer before's.
        step[kIn].x_buffer = step[kOut].residual_buffer = before;
        step[kIn].op = layer == 0 ? first_in_ : other_in_;
        step[kAttend].op = attend_[kind];
        step[kOut].op = layer == 0 ? first_out_ : other_out_;
        step[kMlpIn].op = mlp_in_;
        step[kMlpOut].op = layer == layers - 1 ? last_mlp_out_ : other_mlp_out_;
    }

private:
    std::uint8_t put(const GemvOp& op) {
        args_.ops[args_.op_count] = op;
        return static_cast<std::uint8_t>(args_.op_count++);
    }

    Args& args_;
    std::uint8_t first_in_, other_in_, first_out_, other_out_, mlp_in_, last_mlp_out_, other_mlp_out_;
    std::uint8_t attend_[kMaxAttendKinds];
};

}  // namespace

void LinearSequence::State::add(QuantType quant_type, const LinearCall& call, int32_t rows, const GemvOp& op,
                                GemvStep step) {
    // One launch has one quantisation type, one number of rows, and few different ops.
    const bool joins = args_.steps > 0 && args_.steps < kManySteps && quant_type_ == quant_type && args_.rows == rows &&
                       call_.stream == call.stream && quant_type_ != QuantType::f32 &&
                       (find(op) < args_.op_count || args_.op_count < kMaxGemvOps);
    if (!joins) flush();
    quant_type_ = quant_type;
    call_ = call;
    args_.rows = rows;
    step.op = static_cast<std::uint8_t>(find(op));
    if (step.op == args_.op_count) args_.ops[args_.op_count++] = op;
    args_.step[args_.steps++] = step;
}

bool LinearSequence::State::attend(const AttendCall& call) {
    if (args_.steps == 0 || args_.steps == kManySteps || quant_type_ == QuantType::f32 || !can_fuse_attention(call))
        return false;
    int32_t kind = 0;
    while (kind < args_.attend_count && !same_kind(args_.attends[kind], call)) ++kind;
    if (kind == kMaxAttendKinds) return false;
    GemvOp op;
    op.kind = OpKind::attend;
    op.attend = kind;
    if (find(op) == kMaxGemvOps) return false;
    if (kind == args_.attend_count) args_.attends[args_.attend_count++] = call;
    add(quant_type_, call_, args_.rows, op, GemvStep::attend(call));
    return true;
}

bool LinearSequence::State::add_rows(const AddRowsCall& call) {
    if (args_.steps == 0 || args_.steps == kManySteps || quant_type_ == QuantType::f32 || args_.rows != call.rows ||
        call.inner.weight != nullptr || call.branch != nullptr || call.post.centered)
        return false;
    GemvOp op;
    op.kind = OpKind::add_rows;
    op.inputs = call.width;
    op.x = call.y;
    op.eps = call.post.eps;
    op.epilogue.out = call.x;
    op.epilogue.scale = call.scale;
    op.epilogue.stream_scale = call.stream_scale;
    if (find(op) == kMaxGemvOps) return false;
    add(quant_type_, call_, args_.rows, op, {.norm = call.post.weight});
    return true;
}

void LinearSequence::State::flush() {
    if (args_.steps == 0) return;
    const DeviceInfo& info = DeviceContext::current().info();
    const GemvScratch& scratch = gemv_scratch();
    check(plan_gemv(quant_type_, scratch, info.shared_bytes, info.processors, 1,
                    std::span(args_.ops, size(args_.op_count)), args_.rows, args_.plan),
          "ops that fit alone fit together");
    flag_layers(scratch);
    // The steps are gone after this, also if the launch throws: a failed forward must not run later.
    struct Discard {
        State& state;
        ~Discard() { state.discard(); }
    } const discard{*this};
    launch_gemv(quant_type_, args_, info.processors, call_.overlap, call_.stream);
}

// If the steps are whole layers: makes them pass their activations on in flagged words (gemv.h), without barriers of
// the grid. Otherwise changes nothing, and steps meet at the counters. The results have the same bits either way.
void LinearSequence::State::flag_layers(const GemvScratch& scratch) {
    args_.plan.flagged = nullptr;
    // Without a barrier nothing keeps the split sums of one matrix from those of the next, so each needs its own place.
    if (!are_whole_layers(args_) || !args_.plan.apart || !are_chained(args_)) return;
    const BufferPlaces places(args_);
    // Rows are read in fours.
    for (const int32_t i : {kIn, kOut, kMlpOut}) {
        if (args_.op(i).inputs % 4 != 0) return;
    }
    if (size(places.floats) * kFlaggedBuffers > scratch.flagged_floats) return;
    args_.plan.flagged = scratch.flagged;
    args_.plan.buffer_floats = places.floats;
    args_.plan.mlp_out_floats = places.attended;

    const int32_t layers = args_.steps / kLayerSteps;
    std::array<int32_t, kManySteps / kLayerSteps> kinds;  // of the layers' attentions; their ops change now
    for (int32_t layer = 0; layer < layers; ++layer) {
        kinds[size(layer)] = args_.op(layer * kLayerSteps + kAttend).attend;
    }
    const FlaggedOps ops(args_, places);
    for (int32_t layer = 0; layer < layers; ++layer) ops.use(layer, layers, kinds[size(layer)]);
}

// The index of an equal op; op_count if there is none.
int32_t LinearSequence::State::find(const GemvOp& op) const {
    return static_cast<int32_t>(std::find(args_.ops, args_.ops + args_.op_count, op) - args_.ops);
}

LinearSequence::LinearSequence() : state_(std::make_unique<State>()) {}
LinearSequence::~LinearSequence() = default;
LinearSequence::LinearSequence(LinearSequence&&) noexcept = default;
LinearSequence& LinearSequence::operator=(LinearSequence&&) noexcept = default;
void LinearSequence::flush() { state_->flush(); }
void LinearSequence::discard() noexcept { state_->discard(); }
bool LinearSequence::attend(const AttendCall& call) { return state_->attend(call); }
bool LinearSequence::add_rows(const AddRowsCall& call) { return state_->add_rows(call); }

}  // namespace foresay::kernels::cuda
