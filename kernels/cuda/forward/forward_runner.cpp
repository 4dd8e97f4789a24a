// One function per op: takes its arguments from the workspace and launches it.
//
// Activations, by op (all in CudaWorkspace, one row per row of the batch):
//
//   embed          tokens -> x; cells of the rows (k_cell, v_cell); rope angles of every table in use
//   attention_in   x -> q; K and V into the cache. With head norms, or prefill rows and a cache of codes: x -> raw, and
//                  launch_heads() does the rest. Decode rows and a cache of codes: x -> q, K and V -> raw (new_kv).
//   attend         q, cache -> attended
//   attention_out  attended -> x += ...; with a post norm: attended -> raw, and launch_add_normed() adds it
//   mlp_in         x -> ff
//   mlp_out        ff -> x += ..., as attention_out
//   moe            x -> x += ..., or -> branch (experts/experts.h)
//   head           x of the logit rows -> logits
//
// Order:    the LinearSequence holds back decode ops, so it must be flushed before anything else is enqueued that reads
//           what they write or writes what they read. A function that launches a kernel of its own does that first.

#include "kernels/cuda/forward/forward_runner.h"

#include <utility>

#include "kernels/cuda/attention/attention_choice.h"
#include "kernels/cuda/attention/flash_decode.h"
#include "kernels/cuda/attention/flash_prefill.h"
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
    // Rope angles are computed once per forward, by embed where there is one.
    if (calls.front().op != ForwardOp::embed) launch_angles(stream_, w_.view(), w_.rows(), ropes);
    for (std::size_t i = 0; i < calls.size(); ++i) {
        const OpCall& call = calls[i];
        switch (call.op) {
            case ForwardOp::embed:
                embed(call, ropes);
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
            case ForwardOp::head:
                lm_head(call);
                break;
        }
    }
    // The forward may end after attention_in, without an attention that writes K and V.
    settle_new_kv();
    w_.sequence.flush();
}

// What waits must not run with the next forward: neither steps, nor rows that mlp_in has left, nor K and V in `raw`.
void ForwardRunner::abandon() noexcept {
    w_.sequence.discard();
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
    EmbedCall embed;
    embed.batch = w_.view();
    embed.rows = w_.rows();
    embed.table = op.table.data();
    embed.quant_type = op.quant_type;
    embed.vocab = op.vocab;
    embed.d_model = w_.shape.d_model;
    embed.scale = op.scale;
    embed.slots = w_.forward.slots;
    embed.x = w_.x.data();
    embed.kv = KvLayout(w_.shape, 1);
    embed.k_cell = w_.k_cell.data();
    embed.v_cell = w_.v_cell.data();
    embed.ropes = ropes;
    launch_embed(stream_, embed);
}

void ForwardRunner::attention_in(const OpCall& call) {
    const auto& op = prepared<PreparedAttentionIn>(call);
    settle_new_kv();
    AttentionInLinear::Io io;
    io.x = w_.x.data();
    // An epilogue has two values of a head at a time, and a code needs the largest of all. So with a cache of codes K
    // and V of decode rows go to `raw`, and the attention writes the codes, or settle_new_kv() right before it.
    const bool coded = call.kv->format == KvFormat::q8;
    // The epilogue can do all of it: bias, rope, and q, K and V to where they belong.
    if (!op.linear.has_head_norms() && (!coded || w_.decodes())) {
        io.q = w_.q.data();
        if (coded) {
            w_.new_kv = &call;
            io.new_kv = w_.raw.data();
        }
        io.kv = call.kv->layer(call.layer);
        io.cell = w_.k_cell.data();
        io.v_cell = w_.v_cell.data();
        io.head_stride = call.kv->layout.head_stride;
        if (op.rope) io.rope = w_.angles[op.rope->index].data();
        op.linear.launch(w_.linear_call(w_.rows()), io);
        return;
    }
    // Else it leaves raw projections, and a warp per head does the rest.
    io.raw = w_.raw.data();
    op.linear.launch(w_.linear_call(w_.rows()), io);
    w_.sequence.flush();
    HeadsCall heads = heads_call(call, op.shape);
    heads.heads = op.shape.heads;
    heads.q_norm = op.q_norm.weight.data();
    heads.k_norm = op.k_norm.weight.data();
    heads.q_eps = op.q_norm.eps;
    heads.k_eps = op.k_norm.eps;
    if (op.rope) {
        heads.pairs = op.rope->pairs;
        heads.rope_pairs = static_cast<std::int32_t>(op.rope->inverse_frequency.size());
        heads.angles = w_.angles[op.rope->index].data();
    }
    heads.q = w_.q.data();
    launch_heads(stream_, heads);
}

// The call for K and V alone, which are rotated already and have no norms. attention_in() adds q, norms and rope.
HeadsCall ForwardRunner::heads_call(const OpCall& call, const ModelShape& shape) const {
    HeadsCall heads;
    heads.batch = w_.view();
    heads.rows = w_.rows();
    heads.kv_heads = shape.kv_heads;
    heads.head_dim = shape.head_dim;
    heads.raw = w_.raw.data();
    heads.kv = call.kv->layer(call.layer);
    heads.k_cell = w_.k_cell.data();
    heads.v_cell = w_.v_cell.data();
    heads.layout = call.kv->layout;
    return heads;
}

// Writes K and V of the last attention_in into a cache of codes, if no attention has done so since. Attention outside
// the decode kernel needs that before it runs, because it reads them from the cache.
void ForwardRunner::settle_new_kv() {
    const OpCall* const call = std::exchange(w_.new_kv, nullptr);
    if (call == nullptr) return;
    w_.sequence.flush();
    launch_heads(stream_, heads_call(*call, prepared<PreparedAttentionIn>(*call).shape));
}

void ForwardRunner::attend(const OpCall& call) {
    const AttendSpec& spec = prepared<PreparedAttend>(call).spec;
    AttendCall attend = w_.attend_call(spec.shape, call.kv->layout);
    attend.scale = spec.scale;
    attend.window = spec.window;
    attend.soft_cap = spec.soft_cap;
    attend.kv = call.kv->layer(call.layer);
    // Prefill rows: K and V are in the cache already.
    if (!w_.decodes()) {
        if (call.kv->format == KvFormat::q8) expand_kv(call, attend);
        if (takes_flash_prefill(attend, w_.device.info(), w_.forward.flash)) {
            launch_flash_prefill(stream_, attend, w_.device.info().processors);
        } else {
            launch_attend_prefill(stream_, attend);
        }
        return;
    }
    if (w_.new_kv != nullptr) {
        attend.new_kv = w_.raw.data();
        attend.rows = w_.rows();
    }
    // Decode rows after long contexts: as a kernel of its own, after the projections are launched.
    if (takes_flash_decode(attend, w_.device.info(), w_.forward.flash)) {
        w_.new_kv = nullptr;
        w_.sequence.flush();
        attend.partial = w_.flash_partial.data();
        launch_flash_decode(stream_, attend, w_.forward.together);
        return;
    }
    // Others: as a step of the decode kernel if possible, which then also writes the codes.
    if (w_.sequence.attend(attend)) {
        w_.new_kv = nullptr;
        return;
    }
    // Else as a kernel of its own, after the codes are written and the projections launched.
    settle_new_kv();
    w_.sequence.flush();
    attend.new_kv = nullptr;
    launch_attend_decode(stream_, attend);
}

// Prefill attention reads float16 only. Its rows are many, so expanding the codes of a layer once, for all of them, is
// cheap. Points `attend` to the expanded layer, which the next layer overwrites: stream order keeps them apart.
void ForwardRunner::expand_kv(const OpCall& call, AttendCall& attend) {
    ModelShape layer = call.kv->model;
    layer.layers = 1;
    KvExpandCall expansion;
    expansion.from = attend.kv;
    expansion.from_layout = attend.layout;
    expansion.to_layout = KvLayout(layer, call.kv->pages);
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
    OutLinear::Io io;
    io.input = input.data();
    io.x = w_.x.data();
    // A post norm needs the whole row, so the sums go to `raw` and a kernel of its own norms and adds them.
    const bool normed = !op.post_norm.weight.empty();
    if (normed) io.raw = w_.raw.data();
    op.linear.launch(w_.linear_call(w_.rows()), io);
    if (!normed) return;
    w_.sequence.flush();
    launch_add_normed(stream_, w_.rows(), w_.shape.d_model, w_.raw.data(), op.post_norm.weight.data(), op.post_norm.eps,
                      w_.x.data());
}

void ForwardRunner::mlp_in(const OpCall& call, const OpCall* next) {
    // If mlp_out follows, it alone reads ff: prefill may then leave the rows in the form that mlp_out multiplies.
    MlpInLinear::Io io{w_.x.data(), w_.ff.data(), nullptr};
    if (next != nullptr && next->op == ForwardOp::mlp_out) io.reader = &prepared<PreparedOut>(*next).linear;
    prepared<PreparedMlpIn>(call).linear.launch(w_.linear_call(w_.rows()), io);
}

void ForwardRunner::moe(const OpCall& call) {
    w_.sequence.flush();
    prepared<PreparedMoe>(call).mixture.launch(stream_, w_.rows(), w_.x.data(), w_.experts);
}

void ForwardRunner::lm_head(const OpCall& call) {
    LmHeadLinear::Io io;
    io.x = w_.x.data();
    io.row = w_.view().logit_rows;
    io.logits = w_.logits.data();
    io.logit_stride = w_.logits.stride();
    prepared<PreparedLmHead>(call).linear.launch(w_.linear_call(w_.forward.layout.logit_rows), io);
}

}  // namespace foresay::kernels::cuda
