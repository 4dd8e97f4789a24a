// kernels/op_checks.h: checks of specs and batches. Every backend calls them, so kernels need not check.
//
// Errors:   check_op throws Error when the shapes of a spec contradict each other. check_batch aborts: a bad batch
//           is a bug in the caller.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels {

void check_op(const EmbedSpec& spec);
void check_op(const AttentionInSpec& spec);
void check_op(const AttendSpec& spec);
void check_op(const AttentionOutSpec& spec);
void check_op(const MlpInSpec& spec);
void check_op(const MlpOutSpec& spec);
void check_op(const MoeSpec& spec);
void check_op(const PerLayerEmbedSpec& spec);
void check_op(const PerLayerSpec& spec);
void check_op(const LmHeadSpec& spec);

// Sets weight_bytes and macs_per_row of an op from its tensors as stored in the file.
void count_work(const AttentionInSpec& spec, PreparedOp& op);
void count_work(const AttentionOutSpec& spec, PreparedOp& op);
void count_work(const MlpInSpec& spec, PreparedOp& op);
void count_work(const MlpOutSpec& spec, PreparedOp& op);
void count_work(const MoeSpec& spec, PreparedOp& op);
void count_work(const PerLayerEmbedSpec& spec, PreparedOp& op);
void count_work(const PerLayerSpec& spec, PreparedOp& op);
void count_work(const LmHeadSpec& spec, PreparedOp& op);

// What QueryTemperature multiplies the queries of a position by.
float query_factor(const QueryTemperature& temperature, std::int32_t position);

void check_batch(const Workspace& workspace, const Batch& batch);

// The cells that row t of the batch attends to, by increasing position: the committed prefix, then its ancestors in a
// tree batch, else the positions up to its own. Only the last `window` of them if window > 0.
void attended_cells(const Batch& batch, std::int32_t t, std::int32_t window, std::vector<std::int32_t>& cells);

}  // namespace foresay::kernels
