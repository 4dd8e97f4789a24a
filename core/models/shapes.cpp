#include "core/models/shapes.h"

#include "base/error.h"
#include "core/models/architecture.h"

namespace foresay::core {

ModelConfig published_shape(std::string_view name) {
    std::string known;
    for (const Architecture* family : architectures()) {
        for (const PublishedShape& entry : family->shapes) {
            if (entry.name == name) {
                ModelConfig config = entry.config();
                config.architecture = family->name;
                config.name = entry.name;
                return config;
            }
            known += (known.empty() ? "" : ", ") + std::string(entry.name);
        }
    }
    throw Error("the shape '" + std::string(name) + "' is not known (known: " + known + ")");
}

std::vector<std::string> published_shape_names() {
    std::vector<std::string> names;
    for (const Architecture* family : architectures()) {
        for (const PublishedShape& entry : family->shapes) names.emplace_back(entry.name);
    }
    return names;
}

kernels::QuantType quant_type_by_name(std::string_view name) {
    std::string known;
    for (int i = 0; i < kernels::kQuantTypes; ++i) {
        const auto quant_type = static_cast<kernels::QuantType>(i);
        if (kernels::info(quant_type).name == name) return quant_type;
        known += (known.empty() ? "" : ", ") + std::string(kernels::info(quant_type).name);
    }
    throw Error("the quantisation type '" + std::string(name) + "' is not known (known: " + known + ")");
}

kernels::QuantType head_quant_type(kernels::QuantType quant_type) {
    using kernels::QuantType;
    const bool small = quant_type == QuantType::q4_0 || quant_type == QuantType::q4_k || quant_type == QuantType::q5_k;
    return small ? QuantType::q6_k : quant_type;
}

kernels::QuantType head_quant_type(kernels::QuantType quant_type, std::int64_t inputs) {
    const kernels::QuantType head = head_quant_type(quant_type);
    return inputs % kernels::info(head).block_elements == 0 ? head : kernels::QuantType::q8_0;
}

}  // namespace foresay::core
