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
    std::int32_t row_bytes = 0;
};
constexpr Known kKnown[] = {
    {9, "Q8_1", 32, 36}, {15, "Q8_K", 256, 292}, {24, "I8", 1, 1},  {25, "I16", 1, 2},
    {26, "I32", 1, 4},   {27, "I64", 1, 8},      {28, "F64", 1, 8},
};

// Types that only ik_llama.cpp writes. Some have a scale before each row.
constexpr Known kOfIk[] = {
    {133, "Q6_0", 32, 26},        {134, "IQ1_BN", 0, 0},         {135, "IQ2_BN", 0, 0},
    {137, "IQ2_K", 256, 76},      {138, "IQ3_K", 256, 110},      {139, "IQ4_K", 256, 144},
    {140, "IQ5_K", 256, 176},     {141, "IQ6_K", 256, 212},      {144, "IQ4_KS", 256, 136, 4},
    {145, "IQ2_KS", 256, 70, 2},  {146, "IQ4_KSS", 256, 128, 4}, {152, "IQ5_KS", 256, 168, 4},
    {153, "IQ2_KT", 256, 68, 4},  {154, "IQ3_KT", 256, 100, 4},  {155, "IQ4_KT", 256, 128, 4},
    {156, "IQ3_KS", 256, 102, 2}, {157, "IQ2_KL", 256, 86, 2},   {158, "IQ1_KT", 256, 56, 4},
};
constexpr std::uint32_t kFirstOfIk = 133, kLastOfIk = 399;
// It numbers a type whose rows are interleaved as the type plus this.
constexpr std::uint32_t kInterleaved = 200;

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
    if (id >= kFirstOfIk && id <= kLastOfIk) return name + " (of ik_llama.cpp)";
    return name;
}

GgmlType named(const Known& type, const std::string& note = "") {
    return {type.name + note, type.block_elements, type.block_bytes, type.row_bytes, std::nullopt};
}

// A type of ik_llama.cpp; empty: another's, or one that has no name here.
std::optional<GgmlType> type_of_ik(std::uint32_t id) {
    if (id < kFirstOfIk || id > kLastOfIk) return std::nullopt;
    for (const Known& type : kOfIk) {
        if (type.id == id) return named(type, " (type " + std::to_string(id) + ", of ik_llama.cpp)");
    }
    if (id < kInterleaved) return std::nullopt;
    const std::uint32_t base = id == 233 ? 133 : id - kInterleaved;  // Q6_0 breaks the rule
    GgmlType type = ggml_type(base);
    if (type.block_elements == 0) return std::nullopt;
    const std::string own = type.name.substr(0, type.name.find(' '));
    type.name = own + " with interleaved rows (type " + std::to_string(id) + ", of ik_llama.cpp)";
    type.quant_type.reset();
    type.stored = nullptr;
    return type;
}

}  // namespace

GgmlType ggml_type(std::uint32_t id) {
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<QuantType>(i);
        const std::uint32_t own = kernels::visit_quant_type(quant_type, [](auto q) { return decltype(q)::kGgmlType; });
        const kernels::QuantTypeInfo info = kernels::info(quant_type);
        if (own == id) return {upper(info.name), info.block_elements, info.block_bytes, 0, quant_type};
    }
    if (const kernels::StoredType* type = kernels::stored_type(id)) {
        return {std::string(type->name), type->block_elements, type->block_bytes, 0, std::nullopt, type};
    }
    for (const Known& type : kKnown) {
        if (type.id == id) return named(type);
    }
    if (auto type = type_of_ik(id)) return *type;
    return {foreign_name(id), 0, 0, 0, std::nullopt};
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
