#include "kernels/quant/stored_type.h"

#include <algorithm>

#include "kernels/quant/iq1_m.h"
#include "kernels/quant/iq1_s.h"
#include "kernels/quant/iq2_s.h"
#include "kernels/quant/iq2_xs.h"
#include "kernels/quant/iq2_xxs.h"
#include "kernels/quant/iq3_s.h"
#include "kernels/quant/iq3_xxs.h"
#include "kernels/quant/iq4_nl.h"
#include "kernels/quant/iq4_xs.h"
#include "kernels/quant/nvfp4.h"
#include "kernels/quant/q1_0.h"
#include "kernels/quant/q2_0.h"
#include "kernels/quant/q2_k.h"
#include "kernels/quant/q3_k.h"
#include "kernels/quant/q4_1.h"
#include "kernels/quant/q5_0.h"
#include "kernels/quant/q5_1.h"
#include "kernels/quant/tq1_0.h"
#include "kernels/quant/tq2_0.h"

namespace foresay::kernels {
namespace {

template <class T>
StoredType entry() {
    StoredType type{.name = T::kName,
                    .ggml_type = T::kGgmlType,
                    .block_elements = T::kElements,
                    .block_bytes = sizeof(typename T::Block),
                    .packed = QuantType::packed,
                    .packing = nullptr,
                    .dequantize_block = nullptr,
                    .pack = nullptr};
    type.dequantize_block = [](const std::byte* block, float* out) {
        const auto& from = *reinterpret_cast<const typename T::Block*>(block);
        for (int i = 0; i < T::kElements; ++i) out[i] = T::dequantize(from, i);
    };
    if constexpr (requires { typename T::Packed; }) {
        using Packed = typename T::Packed;
        static_assert(T::kElements % Packed::kElements == 0);
        type.packed = Packed::kQuantType;
        type.pack = [](const std::byte* blocks, std::int64_t count, std::byte* out) {
            const auto* from = reinterpret_cast<const typename T::Block*>(blocks);
            auto* to = reinterpret_cast<typename Packed::Block*>(out);
            for (std::int64_t b = 0; b < count; ++b, to += T::kElements / Packed::kElements) T::pack(from[b], to);
        };
    } else {
        // A row repeats what a block becomes.
        type.packing = &T::packing();
        type.pack = [](const std::byte* blocks, std::int64_t count, std::byte* out) {
            const auto* from = reinterpret_cast<const typename T::Block*>(blocks);
            const std::int64_t bytes = row_bytes(T::packing(), T::kElements);
            for (std::int64_t b = 0; b < count; ++b, out += bytes) T::pack(from[b], out);
        };
    }
    return type;
}

}  // namespace

std::span<const StoredType> stored_types() {
    static const StoredType all[] = {
        entry<Q4_1>(),    entry<Q5_0>(),   entry<Q5_1>(),    entry<Q2_K>(),  entry<Q3_K>(),
        entry<IQ2_XXS>(), entry<IQ2_XS>(), entry<IQ3_XXS>(), entry<IQ1_S>(), entry<IQ4_NL>(),
        entry<IQ3_S>(),   entry<IQ2_S>(),  entry<IQ4_XS>(),  entry<IQ1_M>(), entry<TQ1_0>(),
        entry<TQ2_0>(),   entry<NVFP4>(),  entry<Q1_0>(),    entry<Q2_0>(),
    };
    return all;
}

const StoredType* stored_type(std::uint32_t ggml_type) {
    const auto all = stored_types();
    const auto found = std::ranges::find(all, ggml_type, &StoredType::ggml_type);
    return found != all.end() ? &*found : nullptr;
}

}  // namespace foresay::kernels
