// bench/prefill_bench.h: where the time of prefill rows goes, op by op, and which products cuBLASLt proposes for them.
#pragma once

#include <vector>

#include "kernels/ops.h"

namespace foresay {

// Prints, for every op of a layer: dequantising the weights, converting rows, each proposed product with its rate at
// every number of rows and whether it keeps law 1, and the op as a whole. `rows`: the numbers of rows to try.
void bench_input(const kernels::ModelShape& shape, kernels::QuantType quant_type, const std::vector<int>& rows);

}  // namespace foresay
