// kernels/cpu/isa/table.cpp: the table of this instruction set.

#include "kernels/cpu/isa/table.h"

#define FORESAY_STRING(x) #x
#define FORESAY_NAME(x) FORESAY_STRING(x)
#define FORESAY_JOIN(a, b) a##b
#define FORESAY_TABLE(isa) FORESAY_JOIN(isa, _kernels)

namespace foresay::kernels::cpu {

const IsaKernels& FORESAY_TABLE(FORESAY_ISA)() {
    static constexpr IsaKernels table = {
        FORESAY_NAME(FORESAY_ISA), FORESAY_ISA::kMaxTile,        FORESAY_ISA::tile_stride,      FORESAY_ISA::linear,
        FORESAY_ISA::gated,        FORESAY_ISA::fill_tile,       FORESAY_ISA::rms_norm,         FORESAY_ISA::layer_norm,
        FORESAY_ISA::activate,     FORESAY_ISA::attend,          FORESAY_ISA::rotate,           FORESAY_ISA::to_half,
        FORESAY_ISA::to_kv_codes,  FORESAY_ISA::to_low_kv_codes, FORESAY_ISA::rotate_for_cache, FORESAY_ISA::read,
    };
    return table;
}

}  // namespace foresay::kernels::cpu
