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
    {3, "Q4_1", 32, 20},     {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},   {11, "Q3_K", 256, 110},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74}, {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},
    {21, "IQ3_S", 256, 110}, {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},
    {25, "I16", 1, 2},       {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},  {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {40, "NVFP4", 64, 36},
};

}  // namespace

GgmlType ggml_type(std::uint32_t id) {
    for (const Supported& type : kSupported) {
        const kernels::QuantTypeInfo info = kernels::info(type.quant_type);
        if (type.id == id) return {type.name, info.block_elements, info.block_bytes, type.quant_type};
    }
    for (const Known& type : kKnown) {
        if (type.id == id) return {type.name, type.block_elements, type.block_bytes, std::nullopt};
    }
    return {"type " + std::to_string(id), 0, 0, std::nullopt};
}

}  // namespace foresay::core
