// bench/prefill_bench.h: where the time of prefill rows goes, op by op, and which products cuBLASLt proposes for them.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace foresay {

// Prints, for every stage of a layer: unpacking the weights, converting rows, each proposed product with its rate at
// every number of rows and whether it keeps law 1, finishing the rows, and the stage as a whole.
void bench_input(const kernels::ModelShape& shape, kernels::QuantType quant_type, const std::vector<int>& rows);

}  // namespace foresay
