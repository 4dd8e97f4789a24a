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

// The list of the types that have a layout of their own, in the order of QuantType.
template <class... Types>
struct QuantTypeList {};
using AllQuantTypes = QuantTypeList<F32, F16, BF16, Q4_0, Q8_0, Q4_K, Q5_K, Q6_K, MXFP4>;

template <class Body, class First, class... Rest>
decltype(auto) visit_list(QuantType quant_type, Body&& body, QuantTypeList<First, Rest...>) {
    if (quant_type == First::kQuantType) return body(First{});
    if constexpr (sizeof...(Rest) > 0) {
        return visit_list(quant_type, body, QuantTypeList<Rest...>{});
    } else {
        bug("a quantisation type without a layout of its own");
    }
}

// visit_quant_type(t, [&](auto q) { using Q = decltype(q); ... }) calls the body with Q = F32, F16, ..., or MXFP4.
template <class Body>
decltype(auto) visit_quant_type(QuantType quant_type, Body&& body) {
    return visit_list(quant_type, body, AllQuantTypes{});
}

}  // namespace foresay::kernels
