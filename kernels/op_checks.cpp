#include "kernels/op_checks.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "kernels/routing.h"

namespace foresay::kernels {
namespace {

using std::int32_t;
using std::int64_t;

std::string dims(int64_t rows, int64_t cols) { return std::to_string(rows) + " x " + std::to_string(cols); }

void expect(const char* what, const TensorView& tensor, int64_t rows, int64_t cols) {
    if (tensor.empty()) throw Error(std::string("the weights lack ") + what);
    if (tensor.rows != rows || tensor.cols != cols) {
        throw Error(std::string(what) + " has the shape " + dims(tensor.rows, tensor.cols) + ", the model needs " +
                    dims(rows, cols));
    }
    if (tensor.cols % info(tensor.quant_type).block_elements != 0) {
        throw Error(std::string(what) + " has rows of " + std::to_string(tensor.cols) +
                    " values, which is not a whole number of " + std::string(info(tensor.quant_type).name) + " blocks");
    }
}

void optional(const char* what, const TensorView& tensor, int64_t rows, int64_t cols) {
    if (!tensor.empty()) expect(what, tensor, rows, cols);
}

// A norm over `n` values; absent is allowed.
void norm(const char* what, const NormSpec& spec, int64_t n) {
    optional(what, spec.weight, 1, n);
    if (!spec.bias.empty()) {
        if (spec.kind != NormKind::layer)
            throw Error(std::string(what) + " has a bias, which only a LayerNorm can have");
        expect(what, spec.bias, 1, n);
    }
    if (!std::isfinite(spec.eps) || spec.eps < 0.0f)
        throw Error(std::string(what) + " has an epsilon that is no number");
}

void finite(const char* what, float value) {
    if (!std::isfinite(value)) throw Error(std::string(what) + " is not a finite number");
}

void clamp(Activation activation, float limit) {
    if (activation == Activation::clamped_swiglu && !(limit > 0.0f && std::isfinite(limit))) {
        throw Error("the limit of the clamped activation is not a positive number");
    }
}

void count(PreparedOp& op, std::initializer_list<const TensorView*> tensors) {
    for (const TensorView* tensor : tensors) {
        if (tensor->empty()) continue;
        op.weight_bytes += tensor->bytes();
        op.macs_per_row += tensor->elements();
    }
}

}  // namespace

void check_op(const EmbedSpec& spec) { expect("the token embedding", spec.table, spec.table.rows, spec.table.cols); }

void check_op(const AttentionInSpec& spec) {
    const ModelShape& s = spec.shape;
    const int64_t q = static_cast<int64_t>(s.heads) * s.head_dim, kv = static_cast<int64_t>(s.kv_heads) * s.head_dim;
    norm("the attention norm", spec.norm, s.d_model);
    expect("the query projection", spec.q, q, s.d_model);
    if (!spec.k.empty() || !spec.v.empty()) {
        expect("the key projection", spec.k, kv, s.d_model);
        expect("the value projection", spec.v, kv, s.d_model);
    }
    optional("the query bias", spec.q_bias, 1, q);
    optional("the key bias", spec.k_bias, 1, kv);
    optional("the value bias", spec.v_bias, 1, kv);
    const auto head_norm = [&](const char* what, const NormSpec& own, int64_t width) {
        norm(what, own, spec.whole_norms || own.weight.cols == width ? width : s.head_dim);
    };
    head_norm("the query norm", spec.q_norm, q);
    head_norm("the key norm", spec.k_norm, kv);
    norm("the value norm", spec.v_norm, s.head_dim);
    finite("the rope factor", spec.rope.attention_factor);
    for (const float frequency : spec.rope.inverse_frequency) finite("a rope frequency", frequency);
    finite("the temperature of queries", spec.temperature.beta);
    if (spec.temperature.length < 1) throw Error("the temperature of queries needs a length of one position or more");
    if (static_cast<int64_t>(spec.rope.inverse_frequency.size()) * 2 > s.head_dim) {
        throw Error("rope rotates " + std::to_string(spec.rope.inverse_frequency.size() * 2) +
                    " values of a head that has " + std::to_string(s.head_dim));
    }
}

void check_op(const AttendSpec& spec) {
    if (spec.shape.kv_heads <= 0 || spec.shape.heads % spec.shape.kv_heads != 0) {
        throw Error(std::to_string(spec.shape.heads) + " query heads cannot share " +
                    std::to_string(spec.shape.kv_heads) + " key-value heads evenly");
    }
    if (spec.window < 0) throw Error("a window of " + std::to_string(spec.window) + " positions is not possible");
    optional("the attention sinks", spec.sinks, 1, spec.shape.heads);
    finite("the scale of attention", spec.scale);
    finite("the soft cap of attention", spec.soft_cap);
}

void check_op(const AttentionOutSpec& spec) {
    const ModelShape& s = spec.shape;
    expect("the attention output projection", spec.o, s.d_model, static_cast<int64_t>(s.heads) * s.head_dim);
    optional("the attention output bias", spec.bias, 1, s.d_model);
    norm("the norm after attention", spec.post_norm, s.d_model);
    finite("the residual scale", spec.scale);
}

void check_op(const MlpInSpec& spec) {
    const ModelShape& s = spec.shape;
    norm("the feed-forward norm", spec.norm, s.d_model);
    optional("the gate projection", spec.gate, s.d_ff, s.d_model);
    expect("the up projection", spec.up, s.d_ff, s.d_model);
    optional("the gate bias", spec.gate_bias, 1, s.d_ff);
    optional("the up bias", spec.up_bias, 1, s.d_ff);
    if (spec.gate.empty() && !spec.gate_bias.empty()) throw Error("the weights have a gate bias and no gate");
    clamp(spec.activation, spec.limit);
    if (spec.activation == Activation::clamped_swiglu && spec.gate.empty()) {
        throw Error("the clamped activation needs a gate, and the weights have none");
    }
}

void check_op(const MlpOutSpec& spec) {
    const ModelShape& s = spec.shape;
    expect("the down projection", spec.down, s.d_model, s.d_ff);
    optional("the down bias", spec.bias, 1, s.d_model);
    norm("the norm after the feed-forward", spec.post_norm, s.d_model);
    norm("the inner norm after the feed-forward", spec.inner_norm, s.d_model);
    finite("the residual scale", spec.scale);
    finite("the scale of the layer", spec.stream_scale);
}

void check_op(const MoeSpec& spec) {
    const ModelShape& s = spec.shape;
    const RouterSpec& router = spec.router;
    if (s.experts < 2) throw Error("a mixture of " + std::to_string(s.experts) + " experts is not possible");
    if (s.experts_used < 1 || s.experts_used > s.experts) {
        throw Error("a row cannot use " + std::to_string(s.experts_used) + " of " + std::to_string(s.experts) +
                    " experts");
    }
    if (router.groups < 1 || s.experts % router.groups != 0 || router.groups_used < 1 ||
        router.groups_used > router.groups || s.experts / router.groups * router.groups_used < s.experts_used) {
        throw Error(std::to_string(router.groups_used) + " of " + std::to_string(router.groups) + " groups of " +
                    std::to_string(s.experts) + " experts cannot provide " + std::to_string(s.experts_used));
    }
    norm("the norm of the experts", spec.norm, s.d_model);
    norm("the norm of the router", router.norm, s.d_model);
    norm("the norm after the experts", spec.post_norm, s.d_model);
    expect("the router", router.weight, s.experts, s.d_model);
    optional("the bias of the router", router.bias, 1, s.experts);
    optional("the correction bias of the router", router.choice_bias, 1, s.experts);
    optional("the factors of the experts", router.factor, 1, s.experts);
    finite("the scale of the router", router.scale);
    finite("the residual scale", spec.scale);
    finite("the scale of the layer", spec.stream_scale);
    clamp(spec.activation, spec.limit);
    const auto each = [&](const char* what, const std::vector<TensorView>& experts, int64_t rows, int64_t cols) {
        if (static_cast<int32_t>(experts.size()) != s.experts) {
            throw Error(std::string("there are ") + std::to_string(experts.size()) + " of " + what + " for " +
                        std::to_string(s.experts) + " experts");
        }
        for (const TensorView& expert : experts) expect(what, expert, rows, cols);
    };
    each("the experts' gate projections", spec.gate, s.expert_ff, s.d_model);
    each("the experts' up projections", spec.up, s.expert_ff, s.d_model);
    each("the experts' down projections", spec.down, s.d_model, s.expert_ff);
    optional("the experts' gate biases", spec.gate_bias, s.experts, s.expert_ff);
    optional("the experts' up biases", spec.up_bias, s.experts, s.expert_ff);
    optional("the experts' down biases", spec.down_bias, s.experts, s.d_model);
}

void check_op(const PerLayerEmbedSpec& spec) {
    const ModelShape& s = spec.shape;
    const int64_t width = static_cast<int64_t>(s.layers) * s.per_layer;
    expect("the per-layer embedding", spec.table, spec.table.rows, width);
    expect("the per-layer projection", spec.projection, width, s.d_model);
    expect("the per-layer norm", spec.norm.weight, 1, s.per_layer);
    norm("the per-layer norm", spec.norm, s.per_layer);
}

void check_op(const PerLayerSpec& spec) {
    const ModelShape& s = spec.shape;
    check(spec.layer >= 0 && spec.layer < s.layers, "per-layer embeddings of a layer that the model does not have");
    expect("the per-layer gate", spec.gate, s.per_layer, s.d_model);
    expect("the projection of a layer's embedding", spec.projection, s.d_model, s.per_layer);
    expect("the norm after a layer's embedding", spec.post_norm.weight, 1, s.d_model);
    norm("the norm after a layer's embedding", spec.post_norm, s.d_model);
    finite("the scale of the layer", spec.stream_scale);
}

void check_op(const LmHeadSpec& spec) {
    expect("the final norm", spec.norm.weight, 1, spec.shape.d_model);
    norm("the final norm", spec.norm, spec.shape.d_model);
    finite("the scale of the logits", spec.scale);
    expect("the LM head", spec.weight, spec.shape.vocab, spec.shape.d_model);
}

void count_work(const AttentionInSpec& spec, PreparedOp& op) { count(op, {&spec.q, &spec.k, &spec.v}); }
void count_work(const AttentionOutSpec& spec, PreparedOp& op) { count(op, {&spec.o}); }
void count_work(const MlpInSpec& spec, PreparedOp& op) { count(op, {&spec.gate, &spec.up}); }
void count_work(const MlpOutSpec& spec, PreparedOp& op) { count(op, {&spec.down}); }
void count_work(const MoeSpec& spec, PreparedOp& op) {
    count(op, {&spec.router.weight});
    op.experts = spec.shape.experts;
    op.experts_used = spec.shape.experts_used;
    for (const std::vector<TensorView>* matrices : {&spec.gate, &spec.up, &spec.down}) {
        op.expert_bytes += matrices->front().bytes();
        op.macs_per_row += spec.shape.experts_used * matrices->front().elements();
    }
}
void count_work(const PerLayerEmbedSpec& spec, PreparedOp& op) { count(op, {&spec.projection}); }
void count_work(const PerLayerSpec& spec, PreparedOp& op) { count(op, {&spec.gate, &spec.projection}); }
void count_work(const LmHeadSpec& spec, PreparedOp& op) { count(op, {&spec.weight}); }

double PreparedOp::bytes_read(int64_t rows) const {
    if (experts == 0) return static_cast<double>(weight_bytes);
    return static_cast<double>(weight_bytes) +
           static_cast<double>(expert_bytes) * distinct_experts(experts, experts_used, rows);
}

std::unique_ptr<HostMemory> Ops::allocate_host(std::size_t bytes) {
    struct Plain final : HostMemory {
        explicit Plain(std::size_t count) : memory(new std::byte[count]) { bytes = {memory.get(), count}; }
        std::unique_ptr<std::byte[]> memory;
    };
    return std::make_unique<Plain>(bytes);
}

// An estimate: residual stream, projections, attention output and feed-forward values of both row classes, and the
// logits, all in float32.
int64_t Ops::workspace_bytes(const ModelShape& s, int32_t max_rows, int32_t max_logit_rows) const {
    const int64_t heads = int64_t{s.heads} * s.head_dim * 2 + int64_t{s.kv_heads} * s.head_dim * 2;
    const int64_t experts = int64_t{s.experts_used} * (int64_t{s.d_model} * 3 + int64_t{s.expert_ff} * 4) + s.experts;
    const int64_t per_row = int64_t{s.d_model} * 4 + heads + int64_t{s.d_ff} * 2 + experts + s.per_layer * s.layers;
    return 4 * (max_rows * per_row + int64_t{max_logit_rows} * s.vocab);
}

float query_factor(const QueryTemperature& temperature, int32_t position) {
    if (temperature.beta == 0.0f) return 1.0f;
    const double lengths = static_cast<double>(position / temperature.length);
    return static_cast<float>(1.0 + static_cast<double>(temperature.beta) * std::log(1.0 + lengths));
}

void check_batch(const Workspace& workspace, const Batch& batch) {
    const auto rows = static_cast<int32_t>(batch.rows.size());
    check(rows > 0 && rows <= workspace.max_rows, "a batch must have between one and max_rows rows");
    check(static_cast<int32_t>(batch.logit_rows.size()) <= workspace.max_logit_rows, "too many logit rows in a batch");
    for (int32_t t = 0; t < rows; ++t) {
        const Row& row = batch.rows[t];
        check(row.sequence >= 0 && row.sequence < static_cast<int32_t>(batch.sequences.size()),
              "row of an unknown sequence");
        const int32_t cell = row.cell < 0 ? row.position : row.cell;
        const auto cells = static_cast<int64_t>(batch.sequences[row.sequence].pages.size()) * kPagePositions;
        check(row.position >= 0 && cell < cells, "a row has no cell in the KV cache");
        check(row.parent < t, "a tree row must follow its parent");
        check(!row.token.is_slot() || row.token.slot_index() < kTokenSlots, "no such token slot");
    }
    for (int32_t t : batch.logit_rows) check(t >= 0 && t < rows, "logit row outside the batch");
}

void attended_cells(const Batch& batch, int32_t t, int32_t window, std::vector<int32_t>& cells) {
    const Row& row = batch.rows[t];
    const int32_t first = window > 0 ? std::max(0, row.position - window + 1) : 0;
    cells.resize(static_cast<std::size_t>(row.position - first + 1));
    int32_t position = row.position;
    if (batch.tree) {
        for (int32_t r = t; r >= 0 && position >= first; r = batch.rows[r].parent, --position) {
            const Row& ancestor = batch.rows[r];
            cells[position - first] = ancestor.cell < 0 ? ancestor.position : ancestor.cell;
        }
    }
    for (; position >= first; --position) cells[position - first] = position;
}

}  // namespace foresay::kernels
