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

// Where the steps of a layer come within it, in the order in which they are launched.
struct LayerForm {
    static constexpr int32_t kIn = 0;
    int32_t ins = 1;    // steps of the projections: the parts of their stack, whose packings may differ
    bool adds = false;  // branches have post norms (or factors of the stream): sums with the stream are steps
    int32_t attend() const { return ins; }
    int32_t out() const { return ins + 1; }
    int32_t add_out() const { return out() + 1; }
    int32_t mlp_in() const { return out() + (adds ? 2 : 1); }
    int32_t mlp_out() const { return mlp_in() + 1; }
    int32_t add_mlp() const { return mlp_out() + 1; }
    int32_t steps() const { return mlp_out() + (adds ? 2 : 1); }
    // Ops that flagged layers have, besides those of attention.
    int32_t ops() const { return 2 * ins + (adds ? 7 : 5); }
};

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
bool is_projection(GemvOp op) {
    op.epilogue.first_row = 0;
    if (is_matrix(op, Epilogue::attention_in_new_kv)) return true;
    op.epilogue.raw = nullptr;
    return is_matrix(op, Epilogue::attention_in);
}

// A branch of a layer: by `form` its sums join the residual stream in its epilogue, or in a step of their own after it.
bool is_branch(const Args& args, int32_t at, const LayerForm& form) {
    GemvOp out = args.op(at);
    if ((out.epilogue.raw != nullptr) != form.adds) return false;
    out.epilogue.raw = nullptr;
    return is_matrix(out, Epilogue::out) && (!form.adds || args.op(at + 1).kind == OpKind::add_rows);
}

LayerForm form_of(const Args& args) {
    constexpr int32_t kMostParts = 3;
    LayerForm form;
    while (form.ins < std::min(args.steps, kMostParts) && args.op(form.ins).kind == OpKind::matrix) ++form.ins;
    form.adds = args.steps > form.add_out() && args.op(form.add_out()).kind == OpKind::add_rows;
    return form;
}

// Whether the steps are those of two or more whole layers with the same ops. (Attention may be of another kind in each
// layer.) One layer alone has nothing to pass on.
bool are_whole_layers(const Args& args, const LayerForm& form) {
    if (args.steps < 2 * form.steps() || args.steps % form.steps() != 0) return false;
    for (int32_t at = 0; at < args.steps; at += form.steps()) {
        for (int32_t i = 0; i < form.ins; ++i) {
            if (!is_projection(args.op(at + i))) return false;
        }
        if (args.op(at + form.attend()).kind != OpKind::attend || !is_branch(args, at + form.out(), form) ||
            !is_branch(args, at + form.mlp_out(), form))
            return false;
        const GemvOp& mlp_in = args.op(at + form.mlp_in());
        if (!is_matrix(mlp_in, Epilogue::mlp_in) && !is_matrix(mlp_in, Epilogue::mlp_up)) return false;
        for (int32_t i = 0; i < form.steps(); ++i) {
            if (i != form.attend() && args.step[at + i].op != args.step[i].op) return false;
        }
    }
    return true;
}

// Whether each step reads what the step before it writes, all within one workspace. Only then may the values go through
// the buffers instead: nothing else reads them in the workspace.
bool are_chained(const Args& args, const LayerForm& form) {
    const GemvOp &in = args.op(form.kIn), &mlp_in = args.op(form.mlp_in()), &mlp_out = args.op(form.mlp_out());
    const AttendCall& attend = args.attends[args.op(form.attend()).attend];
    for (int32_t i = 1; i < form.ins; ++i) {
        const GemvOp& part = args.op(i);
        if (part.x != in.x || part.epilogue.raw != in.epilogue.raw || part.epilogue.out != in.epilogue.out)
            return false;
    }
    const auto joins = [&](int32_t out) {  // the residual stream
        const GemvOp &matrix = args.op(out), &last = args.op(form.adds ? out + 1 : out);
        return last.epilogue.out == in.x && last.epilogue.residual == in.x &&
               (!form.adds || last.x == matrix.epilogue.raw);
    };
    return args.op(form.out()).x == attend.out && mlp_in.x == in.x && joins(form.out()) && joins(form.mlp_out()) &&
           mlp_out.x == mlp_in.epilogue.out && in.epilogue.raw == attend.raw &&
           (attend.raw != nullptr || in.epilogue.out == attend.q);
}

// One of the kFlaggedBuffers buffers: the residual stream after mlp_out, outputs of the attention, the stream after
// attention_out, outputs of mlp_in, and where sums with the stream are steps, the branches. In floats.
struct BufferPlaces {
    int32_t x_after_mlp = 0, attended, x_after_attention, ff, attention_branch, mlp_branch, floats;

    BufferPlaces(const Args& args, const LayerForm& form) {
        const int32_t rows = args.rows, width = rows * args.op(form.kIn).inputs, branch = form.adds ? width : 0;
        attended = width;
        x_after_attention = attended + rows * args.op(form.out()).inputs;
        ff = x_after_attention + width;
        attention_branch = ff + rows * args.op(form.mlp_out()).inputs;
        mlp_branch = attention_branch + branch;
        floats = mlp_branch + branch;
    }
};

// The ops of layers that pass flagged words on. The first layer reads x from the workspace, and the last one writes it
// there; all between stays in the buffers.
class FlaggedOps {
public:
    FlaggedOps(Args& args, const LayerForm& form, const BufferPlaces& at) : args_(args), form_(form) {
        GemvOp out = args.op(form.out()), mlp_in = args.op(form.mlp_in()), mlp_out = args.op(form.mlp_out());
        // What adds to the stream: the matrix, or the step after it.
        GemvOp add_out = form.adds ? args.op(form.add_out()) : out;
        GemvOp add_mlp = form.adds ? args.op(form.add_mlp()) : mlp_out;
        float* const buffer = args.plan.flagged;
        std::array<GemvOp, 3> ins;
        for (int32_t i = 0; i < form.ins; ++i) ins[size(i)] = args.op(i);
        args.op_count = 0;
        // attention_in of layer 0 reads x from the workspace, the others from the buffer of the layer before.
        for (int32_t i = 0; i < form.ins; ++i) {
            GemvOp& in = ins[size(i)];
            first_in_[i] = put(in);
            in.x_flagged = true;
            in.x = buffer + at.x_after_mlp;
            other_in_[i] = put(in);
        }
        if (form.adds) {
            out_ = put(branch(out, buffer + at.attended, buffer + at.attention_branch));
            add_out.x = buffer + at.attention_branch;
        } else {
            add_out.x = buffer + at.attended;
        }
        if (form.adds) args.ops[out_].resets_buffers = true;
        // The attention's branch joins the x that attention_in has read: that of the workspace in layer 0, else what
        // the layer before has left.
        add_out.x_flagged = add_out.out_flagged = true;
        add_out.resets_buffers = !form.adds;
        add_out.epilogue.out = buffer + at.x_after_attention;
        first_add_out_ = put(add_out);
        add_out.residual_flagged = true;
        add_out.epilogue.residual = buffer + at.x_after_mlp;
        other_add_out_ = put(add_out);
        mlp_in.x_flagged = mlp_in.out_flagged = true;
        mlp_in.x = buffer + at.x_after_attention;
        mlp_in.epilogue.out = buffer + at.ff;
        mlp_in_ = put(mlp_in);
        if (form.adds) {
            mlp_out_ = put(branch(mlp_out, buffer + at.ff, buffer + at.mlp_branch));
            add_mlp.x = buffer + at.mlp_branch;
        } else {
            add_mlp.x = buffer + at.ff;
        }
        add_mlp.x_flagged = add_mlp.residual_flagged = true;
        add_mlp.epilogue.residual = buffer + at.x_after_attention;
        // The last layer writes x back to the workspace.
        last_add_mlp_ = put(add_mlp);
        add_mlp.out_flagged = true;
        add_mlp.epilogue.out = buffer + at.x_after_mlp;
        other_add_mlp_ = put(add_mlp);
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
        GemvStep* const step = args_.step + layer * form_.steps();
        const auto here = static_cast<std::uint8_t>(layer % kFlaggedBuffers);
        const auto before = static_cast<std::uint8_t>((layer + kFlaggedBuffers - 1) % kFlaggedBuffers);
        for (int32_t i = 0; i < form_.steps(); ++i)
            step[i].x_buffer = step[i].residual_buffer = step[i].out_buffer = here;
        GemvStep& add_out = step[form_.adds ? form_.add_out() : form_.out()];
        // What attention_in reads, and what the attention's branch is added to, is the layer before's.
        add_out.residual_buffer = before;
        for (int32_t i = 0; i < form_.ins; ++i) {
            step[i].x_buffer = before;
            step[i].op = layer == 0 ? first_in_[i] : other_in_[i];
        }
        step[form_.attend()].op = attend_[kind];
        step[form_.mlp_in()].op = mlp_in_;
        if (form_.adds) {
            step[form_.out()].op = out_;
            step[form_.mlp_out()].op = mlp_out_;
        }
        add_out.op = layer == 0 ? first_add_out_ : other_add_out_;
        step[form_.steps() - 1].op = layer == layers - 1 ? last_add_mlp_ : other_add_mlp_;
    }

private:
    // A matrix that leaves its sums as they are.
    static GemvOp branch(GemvOp op, const float* from, float* to) {
        op.x_flagged = op.out_flagged = true;
        op.x = from;
        op.epilogue.raw = to;
        return op;
    }
    std::uint8_t put(const GemvOp& op) {
        args_.ops[args_.op_count] = op;
        return static_cast<std::uint8_t>(args_.op_count++);
    }

    Args& args_;
    LayerForm form_;
    std::uint8_t first_in_[3], other_in_[3], out_ = 0, first_add_out_, other_add_out_, mlp_in_, mlp_out_ = 0,
                                             last_add_mlp_, other_add_mlp_;
    std::uint8_t attend_[kMaxAttendKinds];
};

}  // namespace

void LinearSequence::State::add(QuantType quant_type, const LinearCall& call, int32_t rows, const GemvOp& op,
                                GemvStep step) {
    // One launch has one quantisation type, one number of rows, and few different ops. The LM head has a launch of its
    // own: after it the steps would not be whole layers, and every one of them would wait for the grid.
    const bool joins = args_.steps > 0 && args_.steps < kManySteps && quant_type_ == quant_type && args_.rows == rows &&
                       call_.stream == call.stream && quant_type_ != QuantType::f32 &&
                       op.epilogue.kind != Epilogue::head &&
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
    if (args_.steps == 0 || args_.steps == kManySteps || quant_type_ == QuantType::f32 ||
        !can_fuse_attention(call, gemv_warps(quant_type_)))
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
    op.epilogue.residual = op.epilogue.out = call.x;
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
    const LayerForm form = form_of(args_);
    // Without a barrier nothing keeps the split sums of one matrix from those of the next, so each needs its own place.
    if (!are_whole_layers(args_, form) || !args_.plan.apart || !are_chained(args_, form)) return;
    if (form.ops() + args_.attend_count > kMaxGemvOps) return;
    const BufferPlaces places(args_, form);
    // Rows are read in fours.
    for (const int32_t i : {form.kIn, form.out(), form.mlp_out()}) {
        if (args_.op(i).inputs % 4 != 0) return;
    }
    if (size(places.floats) * kFlaggedBuffers > scratch.flagged_floats) return;
    args_.plan.flagged = scratch.flagged;
    args_.plan.buffer_floats = places.floats;
    args_.plan.mlp_out_floats = places.attended;

    const int32_t layers = args_.steps / form.steps();
    std::array<int32_t, kManySteps> kinds;  // of the layers' attentions; their ops change now
    for (int32_t layer = 0; layer < layers; ++layer) {
        kinds[size(layer)] = args_.op(layer * form.steps() + form.attend()).attend;
    }
    const FlaggedOps ops(args_, form, places);
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
