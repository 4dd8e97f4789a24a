#include "core/weights/ggml_types.h"

#include "kernels/quant/visit.h"

namespace foresay::core {
namespace {

using kernels::QuantType;

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

std::string upper(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return out;
}

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
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<QuantType>(i);
        const std::uint32_t own = kernels::visit_quant_type(quant_type, [](auto q) { return decltype(q)::kGgmlType; });
        const kernels::QuantTypeInfo info = kernels::info(quant_type);
        if (own == id) return {upper(info.name), info.block_elements, info.block_bytes, quant_type};
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
