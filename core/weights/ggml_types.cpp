#include "core/weights/ggml_types.h"

namespace foresay::core {
namespace {

using kernels::QuantType;

// Types that foresay computes with; their block sizes are in kernels/quant_type.h.
struct Supported {
    std::uint32_t id;
    const char* name;
    QuantType quant_type;
};
constexpr Supported kSupported[] = {
    {0, "F32", QuantType::f32},    {1, "F16", QuantType::f16},    {2, "Q4_0", QuantType::q4_0},
    {8, "Q8_0", QuantType::q8_0},  {12, "Q4_K", QuantType::q4_k}, {13, "Q5_K", QuantType::q5_k},
    {14, "Q6_K", QuantType::q6_k}, {30, "BF16", QuantType::bf16}, {39, "MXFP4", QuantType::mxfp4},
};

// Types whose tensors can only be listed.
struct Known {
    std::uint32_t id;
    const char* name;
    std::int32_t block_elements;
    std::int32_t block_bytes;
};
constexpr Known kKnown[] = {
    {9, "Q8_1", 32, 36}, {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},  {25, "I16", 1, 2},
    {26, "I32", 1, 4},   {27, "I64", 1, 8},      {28, "F64", 1, 8},
};

// Types that are no longer written, or that only other programs write.
std::string foreign_name(std::uint32_t id) {
    const std::string name = "type " + std::to_string(id);
    if ((id >= 31 && id <= 33) || id == 37 || id == 38) return name + " (repacked by an old llama.cpp)";
    if (id == 36) return name + " (I2_S of bitnet.cpp)";
    constexpr std::uint32_t kFirst = 133, kLast = 399;  // ik_llama.cpp counts from here
    if (id >= kFirst && id <= kLast) return name + " (of ik_llama.cpp)";
    return name;
}

}  // namespace

GgmlType ggml_type(std::uint32_t id) {
    for (const Supported& type : kSupported) {
        const kernels::QuantTypeInfo info = kernels::info(type.quant_type);
        if (type.id == id) return {type.name, info.block_elements, info.block_bytes, type.quant_type};
    }
    if (const kernels::StoredType* type = kernels::stored_type(id)) {
        return {std::string(type->name), type->block_elements, type->block_bytes, std::nullopt, type};
    }
    for (const Known& type : kKnown) {
        if (type.id == id) return {type.name, type.block_elements, type.block_bytes, std::nullopt};
    }
    return {foreign_name(id), 0, 0, std::nullopt};
}

std::string usable_ggml_types() {
    constexpr std::uint32_t kPastLast = 64;
    std::string all;
    for (std::uint32_t id = 0; id < kPastLast; ++id) {
        const GgmlType type = ggml_type(id);
        if (type.quant_type || type.stored != nullptr) all += (all.empty() ? "" : ", ") + type.name;
    }
    return all;
}

}  // namespace foresay::core
