#include "kernels/op_checks.h"

#include <algorithm>
#include <string>

#include "base/error.h"

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
    expect("the attention norm", spec.norm.weight, 1, s.d_model);
    expect("the query projection", spec.q, q, s.d_model);
    expect("the key projection", spec.k, kv, s.d_model);
    expect("the value projection", spec.v, kv, s.d_model);
    optional("the query bias", spec.q_bias, 1, q);
    optional("the key bias", spec.k_bias, 1, kv);
    optional("the value bias", spec.v_bias, 1, kv);
    optional("the query norm", spec.q_norm.weight, 1, s.head_dim);
    optional("the key norm", spec.k_norm.weight, 1, s.head_dim);
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
}

void check_op(const AttentionOutSpec& spec) {
    const ModelShape& s = spec.shape;
    expect("the attention output projection", spec.o, s.d_model, static_cast<int64_t>(s.heads) * s.head_dim);
    optional("the attention output bias", spec.bias, 1, s.d_model);
    optional("the norm after attention", spec.post_norm.weight, 1, s.d_model);
}

void check_op(const MlpInSpec& spec) {
    const ModelShape& s = spec.shape;
    expect("the feed-forward norm", spec.norm.weight, 1, s.d_model);
    expect("the gate projection", spec.gate, s.d_ff, s.d_model);
    expect("the up projection", spec.up, s.d_ff, s.d_model);
}

void check_op(const MlpOutSpec& spec) {
    const ModelShape& s = spec.shape;
    expect("the down projection", spec.down, s.d_model, s.d_ff);
    optional("the norm after the feed-forward", spec.post_norm.weight, 1, s.d_model);
}

void check_op(const LmHeadSpec& spec) {
    expect("the final norm", spec.norm.weight, 1, spec.shape.d_model);
    expect("the LM head", spec.weight, spec.shape.vocab, spec.shape.d_model);
}

void count_work(const AttentionInSpec& spec, PreparedOp& op) { count(op, {&spec.q, &spec.k, &spec.v}); }
void count_work(const AttentionOutSpec& spec, PreparedOp& op) { count(op, {&spec.o}); }
void count_work(const MlpInSpec& spec, PreparedOp& op) { count(op, {&spec.gate, &spec.up}); }
void count_work(const MlpOutSpec& spec, PreparedOp& op) { count(op, {&spec.down}); }
void count_work(const LmHeadSpec& spec, PreparedOp& op) { count(op, {&spec.weight}); }

// An estimate: residual stream, projections, attention output and feed-forward values of both row classes, and the
// logits, all in float32.
int64_t Ops::workspace_bytes(const ModelShape& s, int32_t max_rows, int32_t max_logit_rows) const {
    const int64_t heads = int64_t{s.heads} * s.head_dim * 2 + int64_t{s.kv_heads} * s.head_dim * 2;
    const int64_t per_row = int64_t{s.d_model} * 4 + heads + int64_t{s.d_ff} * 2;
    return 4 * (max_rows * per_row + int64_t{max_logit_rows} * s.vocab);
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
