// kernels/cpu/isa_select.h: which instruction sets this processor and system can run.
#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/isa_kernels.h"

namespace foresay::kernels::cpu {

// Names of the sets that can run here, best first: of "avx512", "avx2", "portable".
std::vector<std::string> usable_isas();

// The kernels of the set `name`, or of the best one when it is empty. Throws Error for a set that is unknown or that
// this processor lacks.
const IsaKernels& select_isa(const std::string& name);

}  // namespace foresay::kernels::cpu
