// kernels/cpu/isa_select.h: which instruction sets this processor and system can run.
#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/isa_kernels.h"

namespace foresay::kernels::cpu {

// Those of "avx512", "avx2" and "portable" that can run here, best first.
std::vector<std::string> usable_isas();

// The kernels of the instruction set `name`; empty: of the best one. Throws Error for a set that is unknown or that
// this processor lacks.
const IsaKernels& select_isa(const std::string& name);

}  // namespace foresay::kernels::cpu
