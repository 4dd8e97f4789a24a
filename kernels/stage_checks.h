// kernels/stage_checks.h: checks of specs and batches that every backend runs once, so that no kernel has to.
//
// Errors:   check_stage throws Error when the shapes of a spec contradict each other. check_batch aborts: a bad batch
//           is a bug of the caller.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace foresay::kernels {

void check_stage(const EmbedSpec& spec);
void check_stage(const AttentionInSpec& spec);
void check_stage(const AttendSpec& spec);
void check_stage(const AttentionOutSpec& spec);
void check_stage(const MlpInSpec& spec);
void check_stage(const MlpOutSpec& spec);
void check_stage(const HeadSpec& spec);

// Sets weight_bytes and macs_per_row of an op from its tensors as they are in the file.
void count_work(const AttentionInSpec& spec, Prepared& stage);
void count_work(const AttentionOutSpec& spec, Prepared& stage);
void count_work(const MlpInSpec& spec, Prepared& stage);
void count_work(const MlpOutSpec& spec, Prepared& stage);
void count_work(const HeadSpec& spec, Prepared& stage);

void check_batch(const Activations& act, const Batch& batch);

// The cells that row t of the batch attends to, in increasing position: the committed prefix, then (tree) its ancestors
// in depth order or (no tree) the positions up to its own. Only the last `window` of them when window > 0.
void attended_cells(const Batch& batch, std::int32_t t, std::int32_t window, std::vector<std::int32_t>& cells);

}  // namespace foresay::kernels
