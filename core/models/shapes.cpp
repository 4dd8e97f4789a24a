#include "core/models/shapes.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"
#include "core/models/read_config.h"

namespace foresay::core {
namespace {

// The file of a shape: it has a configuration and no tensors.
class NoTensors final : public ModelSource {
public:
    kernels::TensorView tensor(const TensorName& name, TensorShape) override {
        throw Error(name.text() + " is missing");
    }
    bool has(const TensorName&) const override { return false; }
    std::int64_t weight_bytes() override { return 0; }
};

ModelConfig read_shape(const Architecture& family, const PublishedShape& shape) {
    const std::string separator = family.shape_keys.empty() ? "" : ", ";
    const std::string text = "{" + std::string(family.shape_keys) + separator + std::string(shape.keys) + "}";
    const JsonConfig json = JsonConfig::parse(text, "the shape " + std::string(shape.name));
    const NoTensors source;
    Keys keys(json, source);
    ModelConfig config = read_config(keys, family);
    config.shape.vocab = static_cast<std::int32_t>(json.get_int("vocab_size"));
    config.name = shape.name;
    return config;
}

// Calls body(use) for each tensor of the model, once.
template <class Body>
void for_each_tensor(const ModelConfig& config, const Body& body) {
    std::set<std::string> seen;
    for (const TensorUse& use : tensors_of(config)) {
        if (use.name.is_head() && config.tied_head) continue;
        if (seen.insert(use.name.text() + "#" + std::to_string(use.name.expert)).second) body(use);
    }
}

}  // namespace

ModelConfig published_shape(std::string_view name) {
    std::string known;
    for (const Architecture* family : architectures()) {
        for (const PublishedShape& shape : family->shapes) {
            if (shape.name == name) return read_shape(*family, shape);
            known += (known.empty() ? "" : ", ") + std::string(shape.name);
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

bool is_inflatable(const ModelConfig& shape) {
    if (shape.architecture.empty()) return true;  // of a test
    const bool plain = shape.layers.empty() && shape.window == 0 && shape.experts.count == 0 && !shape.head_norms &&
                       shape.norm_kind == kernels::NormKind::rms && shape.temperature.beta == 0.0f;
    const bool unscaled = shape.embedding_scale == 1.0f && shape.residual_scale == 1.0f && shape.logit_scale == 1.0f;
    if (!plain || !unscaled) return false;
    const std::vector<TensorUse> uses = tensors_of(shape);
    const bool post_norms =
        std::ranges::any_of(uses, [](const TensorUse& use) { return use.name.part.starts_with("post_"); });
    const bool gated = std::ranges::any_of(uses, [](const TensorUse& use) { return use.name.part == "ffn_gate"; });
    return !post_norms && gated;
}

std::vector<std::string> inflatable_shape_names() {
    std::vector<std::string> names;
    for (const Architecture* family : architectures()) {
        if (family->shapes.empty() || !is_inflatable(read_shape(*family, family->shapes.front()))) continue;
        for (const PublishedShape& entry : family->shapes) names.emplace_back(entry.name);
    }
    return names;
}

std::string_view published_name(const ModelConfig& config) {
    struct Entry {
        std::string_view name;
        ModelConfig config;
    };
    static const std::vector<Entry> entries = [] {
        std::vector<Entry> all;
        for (const Architecture* family : architectures()) {
            for (const PublishedShape& shape : family->shapes) all.push_back({shape.name, read_shape(*family, shape)});
        }
        return all;
    }();
    const kernels::ModelShape& s = config.shape;
    const Entry* best = nullptr;
    const auto distance = [&](const Entry& entry) { return std::abs(entry.config.shape.vocab - s.vocab); };
    for (const Entry& entry : entries) {
        const kernels::ModelShape& other = entry.config.shape;
        const bool same =
            other.layers == s.layers && other.d_model == s.d_model && other.heads == s.heads &&
            other.kv_heads == s.kv_heads && entry.config.experts.count == config.experts.count &&
            (config.experts.count > 0 ? entry.config.experts.d_ff == config.experts.d_ff : other.d_ff == s.d_ff);
        if (same && (best == nullptr || distance(entry) < distance(*best))) best = &entry;
    }
    return best != nullptr ? best->name : std::string_view();
}

std::int64_t parameter_count(const ModelConfig& config) {
    std::int64_t sum = 0;
    for_each_tensor(config, [&](const TensorUse& use) { sum += use.shape.rows * use.shape.cols; });
    return sum;
}

std::int64_t active_parameter_count(const ModelConfig& config) {
    std::int64_t sum = 0;
    for_each_tensor(config, [&](const TensorUse& use) {
        const bool table = use.name.part == "per_layer_token_embd" || (use.name.is_table() && !config.tied_head);
        const bool chosen = use.name.expert < config.experts.used;
        if (!table && chosen) sum += use.shape.rows * use.shape.cols;
    });
    return sum;
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
    // Below six bits: but models in MXFP4 keep their heads as they are.
    const kernels::QuantTypeInfo stored = kernels::info(quant_type);
    const bool small = 8 * stored.block_bytes < 6 * stored.block_elements && quant_type != QuantType::mxfp4;
    return small ? QuantType::q6_k : quant_type;
}

kernels::QuantType head_quant_type(kernels::QuantType quant_type, std::int64_t inputs) {
    const kernels::QuantType head = head_quant_type(quant_type);
    return inputs % kernels::info(head).block_elements == 0 ? head : kernels::QuantType::q8_0;
}

}  // namespace foresay::core
