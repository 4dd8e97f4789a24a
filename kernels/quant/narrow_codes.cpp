#include "kernels/quant/narrow_codes.h"

#include "kernels/quant_type.h"

namespace foresay::kernels {

std::int64_t narrow_bytes(QuantType type, const CodeRange& range, std::int64_t elements) {
    const int bits = narrow_bits(type, range);
    if (bits == 0) return row_bytes(type, elements);
    return elements / info(type).block_elements * narrow_block_bytes(type, bits);
}

CodeRange codes_of(const StoredType& type) {
    const std::string_view name = type.name;
    if (name == "Q5_0") return {-16, 15};
    if (name == "Q3_K") return {-4, 3};
    if (name == "IQ4_NL") return {-127, 113, true};
    // A fourth code of TQ2_0 stands for nothing that its quantisers write.
    if (name == "TQ1_0" || name == "TQ2_0" || name == "Q1_0") return {-1, 1};
    if (name == "Q2_0") return {-1, 2};
    return {};
}

}  // namespace foresay::kernels
