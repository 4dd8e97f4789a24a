#include "core/weights/ggml_types.h"

namespace foresay::core {
namespace {

using kernels::Encoding;

struct Known {
    std::uint32_t id;
    const char* name;
    std::int32_t block_elements;
    std::int32_t block_bytes;
};

constexpr Known kKnown[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},      {3, "Q4_1", 32, 20},
    {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},      {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},
    {10, "Q2_K", 256, 84},    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66}, {17, "IQ2_XS", 256, 74},
    {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},   {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},
    {22, "IQ2_S", 256, 82},   {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},        {29, "IQ1_M", 256, 56},
    {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},   {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},
    {40, "NVFP4", 64, 36},
};

std::optional<Encoding> encoding_of(std::uint32_t id) {
    switch (id) {
        case 0:
            return Encoding::f32;
        case 1:
            return Encoding::f16;
        case 2:
            return Encoding::q4_0;
        case 8:
            return Encoding::q8_0;
        case 12:
            return Encoding::q4_k;
        case 13:
            return Encoding::q5_k;
        case 14:
            return Encoding::q6_k;
        case 30:
            return Encoding::bf16;
        default:
            return std::nullopt;
    }
}

}  // namespace

GgmlType ggml_type(std::uint32_t id) {
    for (const Known& known : kKnown) {
        if (known.id == id) return {known.name, known.block_elements, known.block_bytes, encoding_of(id)};
    }
    return {"type " + std::to_string(id), 0, 0, std::nullopt};
}

}  // namespace foresay::core
