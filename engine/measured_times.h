// engine/measured_times.h: how long the processor takes for each layer of a model, measured with the kernels and the
// threads that will run it. Reading memory is a part of that: unpacking takes as long for some encodings, threads wait
// for each other after every op, and two threads of a core share what it can do.
#pragma once

#include "core/models/layer_split.h"
#include "kernels/ops.h"

namespace foresay::engine {

// One decode row after few positions. `ops`: a backend of the host, which no other caller uses meanwhile. Prepares one
// or more layers of each kind that the model has much of, and part of its LM head, until they are far larger than
// caches are, and runs them a few times. Empty: there is too little memory for that, or a weight cannot be read, which
// loading says; no Error is thrown. Takes 0.2 to 0.5 s, or as long as loading one layer of each kind, of which it
// begins none after 2 s. Once in a process for a model and backends that describe themselves alike, so that a split
// does not change by chance when an engine opens again.
core::RowTimes measured_times(kernels::Ops& ops, core::ModelSource& source, const core::ModelBytes& bytes);

}  // namespace foresay::engine
