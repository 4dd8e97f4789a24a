// kernels/quant/visit.h: from a QuantType known at run time to its struct (F32, ..., MXFP4) as a template argument.
#pragma once

#include <utility>

#include "base/error.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/f32.h"
#include "kernels/quant/mxfp4.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {

// visit_quant_type(t, [&](auto q) { using Q = decltype(q); ... }) calls the body with Q = F32, F16, ..., or MXFP4.
template <class Body>
decltype(auto) visit_quant_type(QuantType quant_type, Body&& body) {
    switch (quant_type) {
        case QuantType::f32:
            return body(F32{});
        case QuantType::f16:
            return body(F16{});
        case QuantType::bf16:
            return body(BF16{});
        case QuantType::q4_0:
            return body(Q4_0{});
        case QuantType::q8_0:
            return body(Q8_0{});
        case QuantType::q4_k:
            return body(Q4_K{});
        case QuantType::q5_k:
            return body(Q5_K{});
        case QuantType::q6_k:
            return body(Q6_K{});
        case QuantType::mxfp4:
            return body(MXFP4{});
    }
    bug("unknown quantisation type");
}

}  // namespace foresay::kernels
