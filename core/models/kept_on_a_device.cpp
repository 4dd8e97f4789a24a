#include "core/models/kept_on_a_device.h"

#include <algorithm>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "kernels/quant/packed_panels.h"

namespace foresay::core {
namespace {

using Matrices = std::vector<KeptMatrix>;

// `second` interleaves with `first`, matrix by matrix, or is empty.
Unlike shared(const Matrices& first, const Matrices& second, const char* reason) {
    Unlike type{.type = first[0].kept.plain, .reason = reason};
    std::vector<const kernels::Packing*> packings[2];
    for (const Matrices* of : {&first, &second}) {
        for (const KeptMatrix& one : *of) {
            packings[of == &second ? 1 : 0].push_back(one.kept.packing);
            if (one.kept.plain != type.type) type.type = kernels::QuantType::f32;
        }
    }
    type.pair = kernels::packing_of_experts(packings[0], packings[1], first[0].cols);
    if (type.pair) {
        type.reason = kTooManyWidths;
        type.pair->order.clear();
    }
    return type;
}

}  // namespace

UnlikeOnADevice unlike_on_a_device(const ModelConfig& config,
                                   const std::function<std::optional<KeptMatrix>(const TensorName&)>& find) {
    UnlikeOnADevice unlike;
    const auto add = [&](const Matrices& matrices, const Unlike& type) {
        for (const KeptMatrix& one : matrices) unlike[one.name] = type;
    };
    const auto find_all = [&](std::int32_t layer, std::initializer_list<std::string_view> parts) {
        Matrices all;
        for (const std::string_view part : parts) {
            if (auto one = find({.layer = layer, .part = part})) all.push_back(*std::move(one));
        }
        return all;
    };
    const auto experts = [&](std::int32_t layer, std::string_view part) {
        Matrices all;
        for (std::int32_t e = 0; e < config.experts.count; ++e) {
            if (auto one = find({.layer = layer, .part = part, .expert = e})) all.push_back(*std::move(one));
        }
        return all;
    };
    for (std::int32_t layer = 0; layer < config.shape.layers; ++layer) {
        for (const auto& pair : {find_all(layer, {"ffn_gate", "ffn_up"}), find_all(layer, {"ffn_gate", "ffn_up_alone"}),
                                 find_all(layer, {"ffn_gate_shexp", "ffn_up_shexp"})}) {
            if (pair.size() != 2 || pair[0].name == pair[1].name) continue;
            add(pair, shared({pair[0]}, {pair[1]}, "gate and up interleave there, and differ"));
        }
        constexpr const char* kDiffer = "the experts of a layer share a layout there, and differ";
        const Matrices gate = experts(layer, "ffn_gate_exps"), up = experts(layer, "ffn_up_exps"),
                       down = experts(layer, "ffn_down_exps");
        if (!gate.empty() && up.size() == gate.size()) {
            const Unlike both = shared(gate, up, kDiffer);
            add(gate, both);
            add(up, both);
        }
        if (!down.empty()) add(down, shared(down, {}, kDiffer));
        const Matrices reading = find_all(layer, {"attn_q", "attn_k", "attn_v"});
        const auto order = [](const KeptMatrix& one) {
            return one.kept.packing != nullptr ? one.kept.packing->order : std::vector<std::int32_t>();
        };
        const bool alike =
            std::ranges::all_of(reading, [&](const KeptMatrix& one) { return order(one) == order(reading.front()); });
        for (const KeptMatrix& one : reading) {
            if (alike || order(one).empty()) continue;
            unlike[one.name] = {one.kept.plain, "matrices of the same input have another order of it"};
        }
    }
    return unlike;
}

}  // namespace foresay::core
