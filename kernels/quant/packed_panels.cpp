#include "kernels/quant/packed_panels.h"

#include <algorithm>
#include <array>

namespace foresay::kernels {
namespace {

// Bytes of the scales of a row for a group, or, `of_block`, for 64 inputs.
struct ScaleBytes {
    std::int64_t bytes = 0;
    bool of_block = false;
};
ScaleBytes scale_bytes(ScaleForm form) {
    switch (form) {
        case ScaleForm::f16_minimum:
        case ScaleForm::f16_zero:
        case ScaleForm::e4m3:
            return {4, false};
        case ScaleForm::f32_minimum:
        case ScaleForm::f32_zero:
            return {8, false};
        case ScaleForm::k_minimum:
        case ScaleForm::k_table:
            return {8, true};
        case ScaleForm::f32_table:
            return {16, true};
    }
    return {};
}

bool alike_but_order(const Packing& a, const Packing& b) {
    return a.form == b.form && a.kinds == b.kinds && a.table == b.table;
}

}  // namespace

bool devices_keep_packed(const Packing& packing) {
    constexpr int kWidestKept = 4;
    if (packing.plain != QuantType::q8_0) return packing.plain != QuantType::q6_k;
    return std::ranges::all_of(packing.kinds, [](std::uint8_t kind) { return (kind & ~kHead) <= kWidestKept; });
}

bool share_panels(const Packing& a, const Packing& b) { return alike_but_order(a, b) && a.order == b.order; }

std::optional<Packing> packing_of_pair(const Packing& a, const Packing& b, std::int64_t cols) {
    if (!devices_keep_packed(a) && !devices_keep_packed(b)) return std::nullopt;
    if (share_panels(a, b)) return devices_keep_packed(a) ? a : b;
    // Scales of these forms belong to their own group; heads of the others hold what several groups need.
    constexpr std::array kForms = {ScaleForm::f16_minimum, ScaleForm::f32_minimum, ScaleForm::f16_zero,
                                   ScaleForm::f32_zero, ScaleForm::e4m3};
    if (a.form != b.form || std::ranges::find(kForms, a.form) == kForms.end() || a.order != b.order) {
        return std::nullopt;
    }
    Packing pair = devices_keep_packed(a) ? a : b;
    pair.kinds.resize(static_cast<std::size_t>(cols / kPackedGroup));
    for (std::size_t g = 0; g < pair.kinds.size(); ++g) {
        const std::uint8_t first = a.kind(static_cast<std::int64_t>(g)), second = b.kind(static_cast<std::int64_t>(g));
        const int bits = std::max(first & ~kHead, second & ~kHead);
        pair.kinds[g] = static_cast<std::uint8_t>(bits | ((first | second) & kHead));
    }
    return pair;
}

std::optional<Packing> packing_of_experts(std::span<const Packing* const> first, std::span<const Packing* const> second,
                                          std::int64_t cols) {
    std::size_t kept = first.size();  // an expert that is kept packed
    for (std::size_t e = 0; e < first.size(); ++e) {
        for (const std::span<const Packing* const> of : {first, second}) {
            if (of.empty()) continue;
            if (of[e] == nullptr || !alike_but_order(*of[e], *of[0])) return std::nullopt;
            if (devices_keep_packed(*of[e])) kept = e;
        }
        if (first[e]->order.empty() != first[0]->order.empty()) return std::nullopt;
        if (!second.empty() && first[e]->order != second[e]->order) return std::nullopt;
    }
    if (kept == first.size()) return std::nullopt;
    return second.empty() ? *first[kept] : packing_of_pair(*first[kept], *second[kept], cols);
}

std::int64_t packed_panel_row_bytes(const Packing& packing, std::int64_t cols) {
    constexpr std::int64_t kMostInputs = 65536;
    constexpr int kMostRuns = 10;  // of neighbouring blocks that are alike
    if (cols > kMostInputs || !devices_keep_packed(packing)) return 0;
    const ScaleBytes scales = scale_bytes(packing.form);
    const std::int64_t groups = cols / kPackedGroup;
    std::int64_t bytes = 0, last = -1;
    int runs = 0;
    for (std::int64_t g = 0; g < groups; g += 2) {
        // Two groups are a block, with the codes of the wider one.
        const bool two = g + 1 < groups;
        const int first = packing.kind(g) & ~kHead, second = two ? packing.kind(g + 1) & ~kHead : first;
        const bool apart = two && (packing.kind(g + 1) & kHead) != 0;
        const std::int64_t of_block =
            2 * std::max(first, second) * (kPackedGroup / 8) + scales.bytes * (apart && !scales.of_block ? 2 : 1);
        if (of_block != last && ++runs > kMostRuns) return 0;
        last = of_block;
        bytes += of_block;
    }
    return bytes;
}

}  // namespace foresay::kernels
