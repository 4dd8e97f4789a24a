// Gathers decode ops into launches of the decode kernel, and makes whole layers pass their activations on in flagged
// words.
//
//   add(), attend()  append a step. A step that cannot join those that wait (a quantisation type that cannot share a
//   launch, other
//                    rows, no room) launches them first; attend() instead says no, and the caller launches attention by
//                    itself.
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

// Where the steps of a layer are, in the order in which they are launched.
struct LayerForm {
    int32_t begin = 0;
    int32_t ins = 1;    // steps of the projections: the parts of their stack, whose types may differ
    bool adds = false;  // branches have post norms (or factors of the stream): sums with the stream are steps
    int32_t attend() const { return begin + ins; }
    int32_t out() const { return attend() + 1; }
    int32_t add_out() const { return out() + (adds ? 1 : 0); }  // what adds to the stream: the matrix, or a step
    int32_t mlp_in() const { return add_out() + 1; }
    int32_t mlp_out() const { return mlp_in() + 1; }
    int32_t add_mlp() const { return mlp_out() + (adds ? 1 : 0); }
    int32_t end() const { return add_mlp() + 1; }
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

// The layer that begins at step `begin`, if one does.
LayerForm form_of(const Args& args, int32_t begin) {
    constexpr int32_t kMostParts = 3;
    LayerForm form{.begin = begin};
    while (form.ins < std::min(args.steps - begin, kMostParts) && args.op(begin + form.ins).kind == OpKind::matrix) {
        ++form.ins;
    }
    form.adds = args.steps > form.out() + 1 && args.op(form.out() + 1).kind == OpKind::add_rows;
    return form;
}

// Whether the steps from form.begin on are a whole layer.
bool is_layer(const Args& args, const LayerForm& form) {
    if (form.end() > args.steps) return false;
    for (int32_t at = form.begin; at < form.attend(); ++at) {
        if (!is_projection(args.op(at))) return false;
    }
    const GemvOp& mlp_in = args.op(form.mlp_in());
    return args.op(form.attend()).kind == OpKind::attend && is_branch(args, form.out(), form) &&
           is_branch(args, form.mlp_out(), form) &&
           (is_matrix(mlp_in, Epilogue::mlp_in) || is_matrix(mlp_in, Epilogue::mlp_up));
}

// Whether each step of a layer reads what the step before it writes, all within one workspace. Only then may the values
// go through the buffers instead: nothing else reads them in the workspace.
bool is_chained(const Args& args, const LayerForm& form) {
    const GemvOp &in = args.op(form.begin), &mlp_in = args.op(form.mlp_in()), &mlp_out = args.op(form.mlp_out());
    const AttendCall& attend = args.attends[args.op(form.attend()).attend];
    for (int32_t at = form.begin + 1; at < form.attend(); ++at) {
        const GemvOp& part = args.op(at);
        if (part.x != in.x || part.epilogue.raw != in.epilogue.raw || part.epilogue.out != in.epilogue.out)
            return false;
    }
    const auto joins = [&](int32_t out, int32_t add) {  // the residual stream
        const GemvOp &matrix = args.op(out), &last = args.op(add);
        return last.epilogue.out == in.x && last.epilogue.residual == in.x &&
               (!form.adds || last.x == matrix.epilogue.raw);
    };
    return args.op(form.out()).x == attend.out && mlp_in.x == in.x && joins(form.out(), form.add_out()) &&
           joins(form.mlp_out(), form.add_mlp()) && mlp_out.x == mlp_in.epilogue.out && in.epilogue.raw == attend.raw &&
           (attend.raw != nullptr || in.epilogue.out == attend.q);
}

// Whether the values that two layers pass on have the same places.
bool alike(const Args& args, const LayerForm& a, const LayerForm& b) {
    const auto inputs = [&](int32_t step) { return args.op(step).inputs; };
    return a.adds == b.adds && args.op(a.begin).x == args.op(b.begin).x && inputs(a.begin) == inputs(b.begin) &&
           inputs(a.out()) == inputs(b.out()) && inputs(a.mlp_out()) == inputs(b.mlp_out());
}

// A layer has at least five steps: projections, attention, its output, and the two of the MLP.
using LayerForms = std::array<LayerForm, kManySteps / 5>;

// The layers, if the steps are two or more whole ones that pass on rows of the same widths; else none. Their matrices
// may have other types, and so other ops. One layer alone has nothing to pass on. Writes to `forms`: a forward that is
// recorded again allocates nothing.
std::span<const LayerForm> layers_of(const Args& args, LayerForms& forms) {
    std::size_t count = 0;
    for (int32_t at = 0; at < args.steps; at = forms[count++].end()) {
        const LayerForm form = form_of(args, at);
        if (!is_layer(args, form) || !is_chained(args, form) || (at > 0 && !alike(args, form, forms[0]))) return {};
        forms[count] = form;
    }
    return std::span(forms).first(count > 1 ? count : 0);
}

// One of the kFlaggedBuffers buffers: the residual stream after mlp_out, outputs of the attention, the stream after
// attention_out, outputs of mlp_in, and where sums with the stream are steps, the branches. In floats.
struct BufferPlaces {
    int32_t x_after_mlp = 0, attended, x_after_attention, ff, attention_branch, mlp_branch, floats;

    BufferPlaces(const Args& args, const LayerForm& form) {
        const int32_t rows = args.rows, width = rows * args.op(form.begin).inputs, branch = form.adds ? width : 0;
        attended = width;
        x_after_attention = attended + rows * args.op(form.out()).inputs;
        ff = x_after_attention + width;
        attention_branch = ff + rows * args.op(form.mlp_out()).inputs;
        mlp_branch = attention_branch + branch;
        floats = mlp_branch + branch;
    }
};

// What a rank's layers hand over through host memory. False: it has no part of something, or layers differ, or host
// memory has no room.
bool route_of(const Args& args, std::span<const LayerForm> layers, const BufferPlaces& places, MailRoute& route) {
    static_assert(kLinkBuffers == kFlaggedBuffers);
    route.rows = args.rows;
    route.layers = static_cast<int32_t>(layers.size());
    route.buffer_floats = places.floats;
    route.x = {.at = (kFlaggedBuffers - 1) * places.floats + places.x_after_mlp,
               .width = args.op(layers[0].begin).inputs};
    for (std::size_t layer = 0; layer < layers.size(); ++layer) {
        const LayerForm& form = layers[layer];
        const AttendCall& attend = args.attends[args.op(form.attend()).attend];
        const EpilogueArgs &out = args.op(form.out()).epilogue, &in = args.op(form.mlp_in()).epilogue,
                           &mlp_out = args.op(form.mlp_out()).epilogue;
        const int32_t width = route.x.width, inner = args.op(form.mlp_out()).inputs;
        const HandOver overs[kHandOversOfLayer] = {
            {places.attended, args.op(form.out()).inputs, attend.first_value, attend.heads * attend.head_dim},
            {form.adds ? places.attention_branch : places.x_after_attention, width, out.first_output, out.rows},
            {places.ff, inner, in.first_output, in.kind == Epilogue::mlp_in ? in.rows / 2 : in.rows},
            {form.adds ? places.mlp_branch : places.x_after_mlp, width, mlp_out.first_output, mlp_out.rows}};
        if (layer == 0) std::ranges::copy(overs, route.layer);
        if (!std::ranges::equal(overs, route.layer)) return false;
    }
    return route.fits();
}

// The ops of layers that pass flagged words on. The first layer reads x from the workspace, and the last one writes it
// there; all between stays in the buffers.
class FlaggedOps {
public:
    // `linked`: x is in the buffers before the first layer as well, and stays there after the last one.
    FlaggedOps(const Args& args, std::span<const LayerForm> layers, const BufferPlaces& places, bool linked)
        : args_(args),
          layers_(layers),
          at_(places),
          buffer_(args.plan.flagged),
          width_(args.op(layers[0].begin).inputs),
          inner_(args.op(layers[0].mlp_out()).inputs) {
        for (std::size_t layer = 0; layer < layers.size(); ++layer) {
            put_layer(layers[layer], layer == 0 && !linked, layer + 1 == layers.size() && !linked);
        }
    }
    // Whether a launch has room for so many different ones.
    bool fit() const { return fit_; }
    // Makes the steps use them.
    void use(Args& args) const {
        std::copy_n(ops_.begin(), op_count_, args.ops);
        args.op_count = op_count_;
        for (int32_t kind = 0; kind < args.attend_count; ++kind) {
            args.attends[kind].out = buffer_ + at_.attended + args.attends[kind].first_value;
        }
        for (std::size_t layer = 0; layer < layers_.size(); ++layer) {
            const LayerForm& form = layers_[layer];
            const auto here = static_cast<std::uint8_t>(layer % kFlaggedBuffers);
            const auto before = static_cast<std::uint8_t>((layer + kFlaggedBuffers - 1) % kFlaggedBuffers);
            for (int32_t at = form.begin; at < form.end(); ++at) {
                GemvStep& step = args.step[at];
                step.op = op_of_step_[size(at)];
                step.x_buffer = step.residual_buffer = step.out_buffer = here;
            }
            // What attention_in reads, and what the attention's branch is added to, is the layer before's.
            for (int32_t at = form.begin; at < form.attend(); ++at) args.step[at].x_buffer = before;
            args.step[form.add_out()].residual_buffer = before;
        }
    }

private:
    void put_layer(const LayerForm& form, bool first, bool last) {
        for (int32_t at = form.begin; at < form.attend(); ++at) {
            GemvOp in = args_.op(at);
            if (!first) {
                in.x_flagged = true;
                in.x = buffer_ + at_.x_after_mlp;
            }
            put(in);
        }
        GemvOp attend;
        attend.kind = OpKind::attend;
        attend.attend = args_.op(form.attend()).attend;
        attend.out_flagged = true;
        put(attend);
        // The attention's branch joins the x that attention_in has read: that of the workspace in layer 0, else what
        // the layer before has left.
        GemvOp add_out = args_.op(form.add_out());
        if (form.adds) {
            GemvOp out = branch(args_.op(form.out()), buffer_ + at_.attended, buffer_ + at_.attention_branch);
            out.resets_buffers = true;
            put(out);
        }
        add_out.x = buffer_ + (form.adds ? at_.attention_branch : at_.attended);
        add_out.x_flagged = add_out.out_flagged = true;
        add_out.resets_buffers = !form.adds;
        const int32_t own = form.adds ? 0 : add_out.epilogue.first_output;  // of the row that a step adds up: all
        add_out.epilogue.out = buffer_ + at_.x_after_attention + own;
        if (!form.adds) add_out.epilogue.out_stride = width_;
        if (!first) {
            add_out.residual_flagged = true;
            add_out.epilogue.residual = buffer_ + at_.x_after_mlp + own;
        }
        put(add_out);
        GemvOp mlp_in = args_.op(form.mlp_in());
        mlp_in.x_flagged = mlp_in.out_flagged = true;
        mlp_in.x = buffer_ + at_.x_after_attention;
        mlp_in.epilogue.out = buffer_ + at_.ff + mlp_in.epilogue.first_output;
        mlp_in.epilogue.out_stride = inner_;
        put(mlp_in);
        if (form.adds) put(branch(args_.op(form.mlp_out()), buffer_ + at_.ff, buffer_ + at_.mlp_branch));
        GemvOp add_mlp = args_.op(form.add_mlp());
        add_mlp.x = buffer_ + (form.adds ? at_.mlp_branch : at_.ff);
        add_mlp.x_flagged = add_mlp.residual_flagged = true;
        const int32_t part = form.adds ? 0 : add_mlp.epilogue.first_output;
        add_mlp.epilogue.residual = buffer_ + at_.x_after_attention + part;
        if (!form.adds) add_mlp.epilogue.out_stride = width_;
        if (!last) {
            add_mlp.out_flagged = true;
            add_mlp.epilogue.out = buffer_ + at_.x_after_mlp + part;
        }
        put(add_mlp);
    }
    // A matrix that leaves its sums as they are.
    GemvOp branch(GemvOp op, const float* from, float* to) const {
        op.x_flagged = op.out_flagged = true;
        op.x = from;
        op.epilogue.raw = to + op.epilogue.first_output;
        op.epilogue.out_stride = width_;
        return op;
    }
    // The op of the next step.
    void put(const GemvOp& op) {
        const auto end = ops_.begin() + op_count_, found = std::find(ops_.begin(), end, op);
        fit_ = fit_ && found != ops_.end();
        if (!fit_) return;
        op_of_step_[size(steps_++)] = static_cast<std::uint8_t>(found - ops_.begin());
        if (found == end) ops_[size(op_count_++)] = op;
    }

    const Args& args_;
    std::span<const LayerForm> layers_;
    BufferPlaces at_;
    float* buffer_;
    int32_t width_, inner_;
    bool fit_ = true;
    int32_t op_count_ = 0, steps_ = 0;
    std::array<GemvOp, kMaxGemvOps> ops_;
    std::array<std::uint8_t, kManySteps> op_of_step_;
};

}  // namespace

void LinearSequence::State::add(QuantType type, const LinearCall& call, int32_t rows, const GemvOp& new_op,
                                GemvStep step) {
    GemvOp op = new_op;
    if (op.kind == OpKind::matrix) op.quant_type = type;
    // One launch has types that can share it, one number of rows, and few different ops. The LM head has a launch of
    // its own: after it the steps would not be whole layers, and every one of them would wait for the grid.
    const bool joins = args_.steps > 0 && args_.steps < kManySteps && share_launch(quant_type_, type) &&
                       args_.rows == rows && call_.stream == call.stream && quant_type_ != QuantType::f32 &&
                       op.epilogue.kind != Epilogue::head &&
                       (find(op) < args_.op_count || args_.op_count < kMaxGemvOps);
    if (!joins) flush();
    if (args_.steps == 0) quant_type_ = type;
    mixes_ = mixes_ || quant_type_ != type;
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
    // Linked K-quants have the kernels of a mix, whether or not they are one.
    const bool as_mix = mixes_ || (link_ != nullptr && share_launch(quant_type_, kLargestOfMix));
    const int processors =
        info.processors - (link_ != nullptr ? link_->processors_kept(info.processors, args_.rows) : 0);
    check(plan_gemv(as_mix ? kLargestOfMix : quant_type_, scratch, info.shared_bytes, processors, 1,
                    std::span(args_.ops, size(args_.op_count)), args_.rows, args_.plan),
          "ops that fit alone fit together");
    const bool has_way = link_ == nullptr || !link_->through_host() || plan_link().fits;
    flag_layers(scratch);
    // The steps are gone after this, also if the launch throws: a failed forward must not run later.
    struct Discard {
        State& state;
        ~Discard() { state.discard(); }
    } const discard{*this};
    if (link_ != nullptr) {
        ++link_launches_;
        links_ = has_way && args_.plan.flagged != nullptr && can_link(quant_type_);
        if (probes_) return;
        check(links_, "a forward that was probed can be linked");
        args_.link = std::exchange(link_, nullptr)->table();
        launch_gemv_linked(quant_type_, args_, processors, call_.overlap, call_.stream);
        return;
    }
    if (mixes_) {
        launch_gemv_mix(args_, info.processors, call_.overlap, call_.stream);
    } else {
        launch_gemv(quant_type_, args_, info.processors, call_.overlap, call_.stream);
    }
}

// If the steps are whole layers: makes them pass their activations on in flagged words (gemv.h), without barriers of
// the grid. Otherwise changes nothing, and steps meet at the counters. The results have the same bits either way.
void LinearSequence::State::flag_layers(const GemvScratch& scratch) {
    args_.plan.flagged = nullptr;
    // Without a barrier nothing keeps the split sums of one matrix from those of the next, so each needs its own place.
    if (!args_.plan.apart) return;
    LayerForms forms;
    const std::span<const LayerForm> layers = layers_of(args_, forms);
    if (layers.empty()) return;
    const BufferPlaces places(args_, layers[0]);
    // Rows are read in fours.
    for (const int32_t i : {layers[0].begin, layers[0].out(), layers[0].mlp_out()}) {
        if (args_.op(i).inputs % 4 != 0) return;
    }
    if (size(places.floats) * kFlaggedBuffers > (link_ != nullptr ? kLinkFloats : scratch.flagged_floats)) return;
    args_.plan.flagged = link_ != nullptr ? link_->words() : scratch.flagged;
    const FlaggedOps ops(args_, layers, places, link_ != nullptr);
    if (!ops.fit()) {
        args_.plan.flagged = nullptr;
        return;
    }
    args_.plan.buffer_floats = places.floats;
    args_.plan.mlp_out_floats = places.attended;
    ops.use(args_);
}

void LinearSequence::State::begin_link(const RankLink& link, float* x, bool probes) {
    check(args_.steps == 0, "nothing waits when a linked forward begins");
    link_ = &link;
    x_ = x;
    probes_ = probes;
    link_launches_ = 0;
    links_ = false;
}

LinearSequence::State::LinkPlan LinearSequence::State::plan_link() {
    LayerForms forms;
    const std::span<const LayerForm> layers = layers_of(args_, forms);
    if (layers.empty()) return {};
    const BufferPlaces places(args_, layers[0]);
    // Layer l leaves x in buffer l % kFlaggedBuffers, and the first one reads it where layer -1 would leave it.
    const auto after = [&](std::size_t layer) {
        return static_cast<int32_t>(layer % kFlaggedBuffers) * places.floats + places.x_after_mlp;
    };
    LinkPlan plan = {.stream = {x_, places.attended, after(kFlaggedBuffers - 1), after(layers.size() - 1)},
                     .words = places.floats * kFlaggedBuffers};
    plan.fits = route_of(args_, layers, places, plan.route);
    return plan;
}

bool LinearSequence::State::end_link() noexcept {
    const bool one = link_launches_ == 1 && links_;
    link_ = nullptr;
    return one;
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
