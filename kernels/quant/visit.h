// kernels/quant/visit.h: from an Encoding known at run time to its struct (F32, ..., Q6_K) as a template argument.
#pragma once

#include <utility>

#include "base/error.h"
#include "kernels/quant/bf16.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/f32.h"
#include "kernels/quant/q4_0.h"
#include "kernels/quant/q4_k.h"
#include "kernels/quant/q5_k.h"
#include "kernels/quant/q6_k.h"
#include "kernels/quant/q8_0.h"

namespace foresay::kernels {

// visit_encoding(e, [&](auto q) { using Q = decltype(q); ... }) runs the body with Q = F32, F16, ..., Q6_K.
template <class Body>
decltype(auto) visit_encoding(Encoding encoding, Body&& body) {
    switch (encoding) {
        case Encoding::f32:
            return body(F32{});
        case Encoding::f16:
            return body(F16{});
        case Encoding::bf16:
            return body(BF16{});
        case Encoding::q4_0:
            return body(Q4_0{});
        case Encoding::q8_0:
            return body(Q8_0{});
        case Encoding::q4_k:
            return body(Q4_K{});
        case Encoding::q5_k:
            return body(Q5_K{});
        case Encoding::q6_k:
            return body(Q6_K{});
    }
    bug("unknown weight encoding");
}

}  // namespace foresay::kernels
