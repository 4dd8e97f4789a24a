// One function per op: takes its arguments from the workspace and launches it.
//
// Activations, by op (all in CudaWorkspace, one row per row of the batch):
//
//   embed          tokens -> x; cells of the rows (k_cell, v_cell); rope angles of every table in use
//   per_layer_embed x -> raw -> per_layer
//   attention_in   x -> q; K and V into the cache. With head norms or a temperature, or prefill rows and a cache of
//                  codes: x -> raw, and launch_heads() does the rest. Decode rows leave it to the attention to complete
//                  heads in `raw` (AttendCall::raw), and to write codes of K and V that are there (new_kv).
//   attend         q, cache -> attended
//   attention_out  attended -> x += ...; with a post norm: attended -> raw, and launch_add_rows() adds it
//   mlp_in         x -> ff
//   mlp_out        ff -> x += ..., as attention_out; the branch of the experts may join before the post norm
//   moe            x -> x += ..., or -> branch (experts/experts.h)
//   per_layer      x -> raw, that and per_layer -> ff, that -> raw, and launch_add_rows() adds it
//   head           x of the logit rows -> logits
//
// LayerNorm is applied to whole rows before a matrix: x -> normed, which the matrix reads in place of x.
//
// Order:    the LinearSequence holds back decode ops, so it must be flushed before anything else is enqueued that reads
//           what they write or writes what they read. A function that launches a kernel of its own does that first.

#include "kernels/cuda/forward/forward_runner.h"

#include <utility>

#include "base/error.h"
#include "kernels/cuda/attention/attention_choice.h"
#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/attention/flash_prefill.h"
#include "kernels/cuda/decode/linear_sequence.h"
#include "kernels/cuda/forward/per_layer.h"
#include "kernels/cuda/forward/prepared_ops.h"
#include "kernels/cuda/memory/kv_expand.h"
#include "kernels/cuda/rowwise/rows.h"

namespace foresay::kernels::cuda {
namespace {

// What prepare() made for the op of a call. The kind of the call says which type that is.
template <class Op>
const Op& prepared(const OpCall& call) {
    return static_cast<const Op&>(*call.prepared);
}

}  // namespace

void ForwardRunner::enqueue(std::span<const OpCall> calls) {
    const RopeTables ropes = ropes_of(calls);
    // Cells and rope angles are computed once per forward, by embed where there is one.
    if (calls.front().op != ForwardOp::embed) launch_places(stream_, places(ropes));
    if (w_.forward.link != nullptr) return enqueue_linked(calls, ropes);
    enqueue_ops(calls, ropes);
    w_.sequence.flush();
}

void ForwardRunner::capture(Graph& graph, std::span<const OpCall> calls) {
    graph.capture(stream_, [&] { enqueue(calls); });
    // Two branches, which wait for other ranks: what its first launch loads must not have to wait for those.
    if (w_.forward.link != nullptr && w_.forward.link->through_host()) graph.upload(stream_);
}

// The layers between what makes them one forward of several ranks, and what comes before and after them.
void ForwardRunner::enqueue_linked(std::span<const OpCall> calls, const RopeTables& ropes) {
    const bool embeds = calls.front().op == ForwardOp::embed, heads = calls.back().op == ForwardOp::lm_head;
    const std::size_t before = embeds ? 1 : 0, after = heads ? 1 : 0;
    const RankLink& link = *w_.forward.link;
    if (embeds) enqueue_ops(calls.first(before), ropes);
    LinearSequence::State& sequence = *w_.sequence.state();
    sequence.begin_link(link, w_.x.data(), false);
    enqueue_ops(calls.subspan(before, calls.size() - before - after), ropes);
    LinearSequence::State::LinkPlan plan = sequence.plan_link();
    check(plan.words > 0, "whole layers wait");
    plan.route.embeds = embeds;
    if (link.through_host()) link.start_forwarders(stream_, plan.route, w_.device.info().processors);
    begin_linked(stream_, link, plan.stream, embeds);
    sequence.flush();
    if (link.through_host()) link.await_forwarders(stream_);
    finish_linked(stream_, link, plan.stream, plan.words);
    if (heads) enqueue_ops(calls.last(after), ropes);
    sequence.flush();
}

bool ForwardRunner::can_link(std::span<const OpCall> calls) {
    const std::size_t before = calls.front().op == ForwardOp::embed ? 1 : 0;
    const std::size_t after = calls.back().op == ForwardOp::lm_head ? 1 : 0;
    LinearSequence::State& sequence = *w_.sequence.state();
    if (before == 0) launch_places(stream_, places(ropes_of(calls)));
    sequence.begin_link(*w_.forward.link, w_.x.data(), true);
    try {
        enqueue_ops(calls.subspan(before, calls.size() - before - after), ropes_of(calls));
        sequence.flush();
    } catch (...) {
        abandon();
        throw;
    }
    return sequence.end_link();
}

void ForwardRunner::enqueue_ops(std::span<const OpCall> calls, const RopeTables& ropes) {
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const OpCall& call = calls[i];
        switch (call.op) {
            case ForwardOp::embed:
                embed(call, ropes);
                break;
            case ForwardOp::per_layer_embed:
                per_layer_embed(call);
                break;
            case ForwardOp::attention_in:
                attention_in(call);
                break;
            case ForwardOp::attend:
                attend(call);
                break;
            case ForwardOp::attention_out:
                out(call, w_.attended);
                break;
            case ForwardOp::mlp_in:
                mlp_in(call, i + 1 < calls.size() ? &calls[i + 1] : nullptr);
                break;
            case ForwardOp::mlp_out:
                out(call, w_.ff);
                break;
            case ForwardOp::moe:
                moe(call);
                break;
            case ForwardOp::per_layer:
                per_layer(call);
                break;
            case ForwardOp::lm_head:
                lm_head(call);
                break;
        }
    }
    // The forward may end after attention_in, without an attention that writes K and V.
    settle_new_kv();
}

// What waits must not run with the next forward: neither steps, nor rows that mlp_in has left, nor K and V in `raw`.
void ForwardRunner::abandon() noexcept {
    w_.sequence.discard();
    w_.sequence.state()->end_link();
    w_.prefill.discard();
    w_.new_kv = nullptr;
}

// The rope tables that the calls use, each once; models have several where layers differ in their rope.
RopeTables ForwardRunner::ropes_of(std::span<const OpCall> calls) const {
    RopeTables tables;
    bool taken[kMaxRopes] = {};
    for (const OpCall& call : calls) {
        if (call.op != ForwardOp::attention_in) continue;
        const Rope* rope = prepared<PreparedAttentionIn>(call).rope.get();
        if (rope == nullptr || std::exchange(taken[rope->index], true)) continue;
        tables.table[tables.count++] = {rope->on_device.data(),
                                        static_cast<std::int32_t>(rope->inverse_frequency.size()),
                                        rope->attention_factor, w_.angles[rope->index].data()};
    }
    return tables;
}

// Also resolves token slots, finds the cells of the rows, and computes the angles of all tables: one kernel.
void ForwardRunner::embed(const OpCall& call, const RopeTables& ropes) {
    w_.sequence.flush();
    const auto& op = prepared<PreparedEmbed>(call);
    EmbedCall embed = places(ropes);
    embed.table = op.table.data();
    embed.quant_type = op.quant_type;
    embed.vocab = op.vocab;
    embed.d_model = w_.shape.d_model;
    embed.scale = op.scale;
    embed.slots = w_.forward.slots;
    embed.x = w_.x.data();
    launch_embed(stream_, embed);
}

// What the ops need of each row besides x.
EmbedCall ForwardRunner::places(const RopeTables& ropes) const {
    EmbedCall call;
    call.batch = w_.view();
    call.rows = w_.rows();
    call.kv = KvLayout(w_.shape, 1);
    call.k_cell = w_.k_cell.data();
    call.v_cell = w_.v_cell.data();
    call.ropes = ropes;
    return call;
}

void ForwardRunner::attention_in(const OpCall& call) {
    const auto& op = prepared<PreparedAttentionIn>(call);
    settle_new_kv();
    // What an earlier layer has written must be in the cache for all CTAs before this layer's attention reads it.
    if (!op.has_kv()) w_.sequence.flush();
    const KvLayout& layout = call.kv->layout(call.layer);
    AttentionInLinear::Io io;
    io.x = normed_x(op.norm);
    // An epilogue has two values of a head at a time, and a code needs the largest of all. So with a cache of codes K
    // and V of decode rows go to `raw`, and the attention writes the codes, or settle_new_kv() right before it.
    const bool coded = call.kv->format != KvFormat::f16;
    // With low bits queries are rotated as well, so all heads are finished by a kernel of its own, before the
    // attention.
    const bool low = has_low_bits(call.kv->format);
    // The epilogue can do all of it: bias, rope, and q, K and V to where they belong. Cells are those of one layout.
    const bool here = !op.has_kv() || w_.has_cells_of(layout);
    if (!low && !op.finishes_heads() && here && (!coded || w_.decodes() || !op.has_kv())) {
        io.q = w_.q.data();
        if (coded && op.has_kv()) {
            w_.new_kv = &call;
            io.new_kv = w_.raw.data();
        }
        io.kv = call.kv->layer(call.layer);
        io.cell = w_.k_cell.data();
        io.v_cell = w_.v_cell.data();
        io.head_stride = layout.head_stride;
        if (op.rope) io.rope = w_.angles[op.rope->index].data();
        op.linear.launch(w_.linear_call(w_.rows()), io);
        return;
    }
    // Else it leaves raw projections, and a warp per head does the rest: in the attention of decode rows, which also
    // has all CTAs wait for the projections, or else in a kernel of its own.
    io.raw = w_.raw.data();
    op.linear.launch(w_.linear_call(w_.rows()), io);
    if (!low && w_.decodes() && op.attention_finishes()) {
        w_.new_kv = &call;
        return;
    }
    w_.sequence.flush();
    finish_heads(call);
}

// Norms, rope and temperature of all heads in `raw`, by a kernel of its own.
void ForwardRunner::finish_heads(const OpCall& call) {
    const auto& op = prepared<PreparedAttentionIn>(call);
    HeadsCall heads = heads_call(call, op.shape);
    heads.heads = op.shape.heads;
    heads.q_norm = op.q_norm.row_norm();
    heads.k_norm = op.k_norm.row_norm();
    heads.v_norm = op.v_norm.row_norm();
    const auto width = static_cast<std::size_t>(op.shape.head_dim);
    heads.q_own_weights = op.q_norm.weight.size() > width;
    heads.k_own_weights = op.k_norm.weight.size() > width;
    heads.whole_norms = op.whole_norms;
    heads.temperature = op.temperature;
    if (!op.has_kv()) heads.kv_heads = 0;
    if (op.rope) {
        heads.pairs = op.rope->pairs;
        heads.rope_pairs = op.rope_pairs();
        heads.angles = w_.angles[op.rope->index].data();
    }
    heads.q = w_.q.data();
    launch_heads(stream_, heads);
}

// The call for K and V alone, which are rotated already and have no norms. finish_heads() adds q, norms and rope.
HeadsCall ForwardRunner::heads_call(const OpCall& call, const ModelShape& shape) const {
    HeadsCall heads;
    heads.batch = w_.view();
    heads.rows = w_.rows();
    heads.kv_heads = shape.kv_heads;
    heads.head_dim = shape.head_dim;
    heads.raw = w_.raw.data();
    heads.kv = call.kv->layer(call.layer);
    heads.layout = call.kv->layout(call.layer);
    return heads;
}

// Completes the last attention_in, if no attention has done so since: K and V into a cache of codes, or all heads.
// Attention outside the decode kernel needs that before it runs, because it reads q and the cache.
void ForwardRunner::settle_new_kv() {
    const OpCall* const call = std::exchange(w_.new_kv, nullptr);
    if (call == nullptr) return;
    w_.sequence.flush();
    const auto& op = prepared<PreparedAttentionIn>(*call);
    if (op.finishes_heads()) {
        finish_heads(*call);
    } else {
        launch_heads(stream_, heads_call(*call, op.shape));
    }
}

void ForwardRunner::attend(const OpCall& call) {
    const auto& op = prepared<PreparedAttend>(call);
    const AttendSpec& spec = op.spec;
    AttendCall attend = w_.attend_call(spec.shape, call.kv->layout(call.layer));
    attend.scale = spec.scale;
    attend.window = spec.window;
    attend.soft_cap = spec.soft_cap;
    attend.sinks = op.sinks.data();
    attend.kv = call.kv->layer(call.layer);
    attend.whole_heads = static_cast<std::uint16_t>(call.heads);
    attend.first_value = call.first;
    check(attend_partial_floats(attend) <= static_cast<std::int64_t>(w_.partial.size()) || !w_.decodes(),
          "attention has room for its partials");
    // Prefill rows: K and V are in the cache already.
    if (!w_.decodes()) {
        if (call.kv->format != KvFormat::f16) expand_kv(call, attend);
        if (takes_flash_prefill(attend, w_.device.info(), w_.forward.flash)) {
            launch_flash_prefill(stream_, attend, w_.device.info().processors);
        } else {
            launch_attend_prefill(stream_, attend);
        }
        if (is_rotated(value_type(call.kv->format))) launch_rotate_back(stream_, attend);
        return;
    }
    // Decode rows after long contexts: as a kernel of its own, after the projections are launched and what it does not
    // do itself: norms of heads.
    if (takes_flash_decode(attend, w_.device.info(), w_.forward.flash) &&
        attend_partial_floats(attend) <= static_cast<std::int64_t>(w_.flash_partial.size())) {
        if (w_.new_kv != nullptr && !prepared<PreparedAttentionIn>(*w_.new_kv).finishes_heads()) {
            leave_to(attend, *std::exchange(w_.new_kv, nullptr));
        }
        settle_new_kv();
        w_.sequence.flush();
        attend.partial = w_.flash_partial.data();
        launch_flash_decode(stream_, attend, w_.forward.together);
        return;
    }
    // Others: as a step of the decode kernel if possible, which then also completes attention_in.
    AttendCall fused = attend;
    if (w_.new_kv != nullptr) leave_to(fused, *w_.new_kv);
    if (w_.sequence.attend(fused)) {
        w_.new_kv = nullptr;
        return;
    }
    // Else as a kernel of its own, after the projections, and after a kernel for what it does not do itself.
    if (can_finish_heads(fused)) {
        w_.new_kv = nullptr;
        attend = fused;
    }
    settle_new_kv();
    w_.sequence.flush();
    launch_attend_decode(stream_, attend);
    if (is_rotated(value_type(call.kv->format))) launch_rotate_back(stream_, attend);
}

// Describes what attention_in has left to the attention.
void ForwardRunner::leave_to(AttendCall& attend, const OpCall& call) const {
    const auto& op = prepared<PreparedAttentionIn>(call);
    if (!op.finishes_heads()) {
        attend.new_kv = w_.raw.data();
        return;
    }
    attend.raw = w_.raw.data();
    attend.q_norm = op.q_norm.weight.data();
    attend.k_norm = op.k_norm.weight.data();
    attend.q_eps = op.q_norm.eps;
    attend.k_eps = op.k_norm.eps;
    if (!op.rope) return;
    attend.pairs = op.rope->pairs;
    attend.rope_pairs = op.rope_pairs();
    attend.angles = w_.angles[op.rope->index].data();
}

// Prefill attention reads float16 only. Its rows are many, so expanding the codes of a layer once, for all of them, is
// cheap. Points `attend` to the expanded layer, which the next layer overwrites: stream order keeps them apart.
void ForwardRunner::expand_kv(const OpCall& call, AttendCall& attend) {
    KvExpandCall expansion;
    expansion.from = attend.kv;
    expansion.from_layout = attend.layout;
    expansion.to_layout = KvLayout(KvLayer{attend.kv_heads, attend.head_dim}, call.kv->pages);
    // A layer of the whole cache, so that page numbers stay the same.
    const auto halves = static_cast<std::size_t>(expansion.to_layout.layer_stride);
    if (halves > w_.expanded_kv.size()) {
        stream_.wait();
        w_.expanded_kv = DeviceBuffer<__half>(halves);
    }
    expansion.to = w_.expanded_kv.data();
    expansion.kv_heads = attend.kv_heads;
    expansion.head_dim = attend.head_dim;
    // Only the pages of the batch's sequences, if they are listed in one piece; else (trees) all there are.
    expansion.pages = w_.listed_pages < 0 ? call.kv->pages : w_.listed_pages;
    expansion.list = w_.listed_pages < 0 ? nullptr : attend.batch.lists;
    launch_kv_expand(stream_, expansion);
    attend.kv = expansion.to;
    attend.layout = expansion.to_layout;
}

// attention_out and mlp_out.
void ForwardRunner::out(const OpCall& call, const DeviceBuffer<float>& input) {
    const auto& op = prepared<PreparedOut>(call);
    check(!op.has_sums || op.finishes_rows(), "sums that are there need the whole row");
    OutLinear::Io io;
    io.input = input.data();
    io.x = w_.x.data();
    io.first = call.first;
    // A post norm needs the whole row, so the sums go to `raw` and a kernel of its own norms and adds them.
    if (op.finishes_rows() || call.sums) io.raw = w_.raw.data();
    if (!op.has_sums) op.linear.launch(w_.linear_call(w_.rows()), io);
    if (!op.finishes_rows()) return;
    AddRowsCall add;
    add.rows = w_.rows();
    add.width = w_.shape.d_model;
    add.y = w_.raw.data();
    if (op.add_branch) add.branch = w_.experts.branch();
    add.inner = op.inner_norm.row_norm();
    add.post = op.post_norm.row_norm();
    add.scale = op.scale;
    add.stream_scale = op.stream_scale;
    add.x = w_.x.data();
    add_rows(add);
}

// As a step of the decode kernel if possible.
void ForwardRunner::add_rows(const AddRowsCall& call) {
    if (w_.sequence.add_rows(call)) return;
    w_.sequence.flush();
    launch_add_rows(stream_, call);
}

const float* ForwardRunner::normed_x(const DeviceNorm& norm) {
    if (norm.empty()) return w_.x.data();
    w_.sequence.flush();
    launch_norm(stream_, w_.rows(), w_.shape.d_model, w_.x.data(), norm.row_norm(), w_.normed.data());
    return w_.normed.data();
}

void ForwardRunner::multiply(const OutLinear& matrix, const float* input, float* out) {
    OutLinear::Io io;
    io.input = input;
    io.raw = out;
    matrix.launch(w_.linear_call(w_.rows()), io);
    w_.sequence.flush();
}

void ForwardRunner::per_layer_embed(const OpCall& call) {
    const auto& op = prepared<PreparedPerLayerEmbed>(call);
    multiply(op.projection, w_.x.data(), w_.per_layer.data());
    PerLayerEmbedCall embed = op.call;
    embed.batch = w_.view();
    embed.rows = w_.rows();
    embed.table = op.table.data();
    embed.slots = w_.forward.slots;
    embed.norm = op.norm.row_norm();
    embed.values = w_.per_layer.data();
    launch_per_layer_embed(stream_, embed);
}

void ForwardRunner::per_layer(const OpCall& call) {
    const auto& op = prepared<PreparedPerLayer>(call);
    multiply(op.gate, w_.x.data(), w_.raw.data());
    PerLayerGateCall gate = op.call;
    gate.rows = w_.rows();
    gate.gate = w_.raw.data();
    gate.embeddings = w_.per_layer.data();
    gate.out = w_.ff.data();
    launch_per_layer_gate(stream_, gate);
    multiply(op.projection, w_.ff.data(), w_.raw.data());
    AddRowsCall add;
    add.rows = w_.rows();
    add.width = w_.shape.d_model;
    add.y = w_.raw.data();
    add.post = op.post_norm.row_norm();
    add.stream_scale = op.stream_scale;
    add.x = w_.x.data();
    add_rows(add);
}

void ForwardRunner::mlp_in(const OpCall& call, const OpCall* next) {
    // If mlp_out follows, it alone reads ff: prefill may then leave the rows in the form that mlp_out multiplies.
    const auto& op = prepared<PreparedMlpIn>(call);
    MlpInLinear::Io io{normed_x(op.norm), w_.ff.data(), nullptr};
    if (next != nullptr && next->op == ForwardOp::mlp_out) io.reader = &prepared<PreparedOut>(*next).linear;
    io.first = call.first;
    op.linear.launch(w_.linear_call(w_.rows()), io);
}

void ForwardRunner::moe(const OpCall& call) {
    w_.sequence.flush();
    const Mixture& mixture = prepared<PreparedMoe>(call).mixture;
    mixture.launch(stream_, w_.forward.row_class, w_.rows(), w_.x.data(), w_.experts);
    if (mixture.work() == MixtureWork::experts) w_.own_experts = mixture.own();
}

void ForwardRunner::lm_head(const OpCall& call) {
    const auto& op = prepared<PreparedLmHead>(call);
    LmHeadLinear::Io io;
    io.x = normed_x(op.norm);
    io.row = w_.view().logit_rows;
    io.logits = w_.logits.data();
    io.logit_stride = w_.logits.stride();
    op.linear.launch(w_.linear_call(w_.forward.layout.logit_rows), io);
}

}  // namespace foresay::kernels::cuda
