// core/models/kept_on_a_device.h: which matrices of a model a device keeps otherwise than by themselves, because of
// others (kernels/cuda/weights): what memory estimates and `inspect` say.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/models/model_source.h"
#include "kernels/quant/packing.h"
#include "kernels/quant_type.h"

namespace foresay::core {

// A matrix as kernels get it: how its rows are packed, or null, and the type of blocks that a device has for it where
// it does not keep them packed.
struct Kept {
    const kernels::Packing* packing = nullptr;
    kernels::QuantType plain = kernels::QuantType::f32;
};
struct KeptMatrix {
    std::string name;  // of the tensor that it is found by
    Kept kept;
    std::int64_t cols = 0;
};

struct Unlike {
    kernels::QuantType type = kernels::QuantType::f32;
    const char* reason = nullptr;               // where it becomes float32
    std::optional<kernels::Packing> pair = {};  // of the panels that it shares with others; without an order
};
// By KeptMatrix::name.
using UnlikeOnADevice = std::map<std::string, Unlike, std::less<>>;

inline constexpr const char* kTooManyWidths = "the widths of its codes change too often, or it is too wide";

// Gate and up interleave, and share panels or one type; of the matrices of one input all have the same order of it, or
// none; and the experts of a layer have one layout. `find`: none where the model has no such matrix.
UnlikeOnADevice unlike_on_a_device(const ModelConfig& config,
                                   const std::function<std::optional<KeptMatrix>(const TensorName&)>& find);

}  // namespace foresay::core
