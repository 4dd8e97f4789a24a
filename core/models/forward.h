// core/models/forward.h: one forward of a decoder, the same for every backend, architecture and width.
//
// Cost:     reads every weight once, whatever the number of rows.
// Errors:   none; allocates nothing.
#pragma once

#include "core/models/model.h"
#include "kernels/ops.h"

namespace foresay::core {

// Runs `batch` through `model`: K and V of its rows land in `kv`, logits of its logit rows in `act`. Without logit rows
// the head is not read. `batch` and what it points to must stay valid until the logits have been fetched.
void forward(const Model& model, kernels::Workspace& workspace, kernels::KvPages& kv, const kernels::Batch& batch);

}  // namespace foresay::core
