// core/models/forward.h: one forward of a decoder, the same for every backend, architecture and width.
//
// Cost:     reads every weight once, whatever the number of rows; of experts, those that some row has chosen.
//           Allocates nothing.
// Errors:   none.
#pragma once

#include <atomic>

#include "core/models/model.h"
#include "kernels/ops.h"

namespace foresay::core {

// Calls one op.
void run_op(kernels::Ops& ops, const Model::Op& op, kernels::Workspace& workspace, kernels::KvPages& kv);

// Runs `batch` through `model`: writes K and V of its rows to `kv` and the logits of its logit rows to `workspace`.
// Without logit rows the LM head is not read. `batch` and what it points to must stay valid until the logits have been
// fetched.
// `cancel` is looked at between two ops: the rows of one are what a slow backend of a list takes a second for.
// False: it had become true, and nothing of the forward counts.
bool forward(const Model& model, kernels::Workspace& workspace, kernels::KvPages& kv, const kernels::Batch& batch,
             const std::atomic<bool>* cancel = nullptr);

}  // namespace foresay::core
