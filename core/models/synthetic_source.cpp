#include "core/models/synthetic_source.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/op_maker.h"

namespace foresay::core {

using kernels::QuantType;

bool is_vector(const TensorName& name, TensorShape shape) {
    return shape.rows == 1 || name.kind == "bias" || name.part == "ffn_gate_inp";
}

bool is_norm(const TensorName& name) {
    return name.kind == "weight" && name.part.find("norm") != std::string_view::npos;
}

std::uint64_t seed_of(const TensorName& name) {
    std::uint64_t seed = 0xcbf29ce484222325u;  // FNV-1a
    for (const std::string_view text : {name.part, name.kind}) {
        for (const char c : text) seed = (seed ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
    }
    return (seed ^ static_cast<std::uint64_t>(name.layer + 1)) * 0x100000001b3u ^
           static_cast<std::uint64_t>(name.expert + 1) << 40;
}

SyntheticSource::SyntheticSource(const ModelConfig& config, QuantType quant_type, QuantType head, std::string path)
    : quant_type_(quant_type), head_(head) {
    config_ = config;
    config_.file_type = kernels::info(quant_type).name;
    path_ = std::move(path);
    check_config(config_, path_);
    for (const TensorUse& use : tensors_of(config_)) {
        if (is_vector(use.name, use.shape)) continue;
        const bool tied = use.name.is_table() && config_.tied_head;
        const QuantType stored = use.name.is_head() || tied ? head : quant_type;
        if (use.shape.cols % kernels::info(stored).block_elements == 0) continue;
        throw Error(path_ + ": rows of " + std::to_string(use.shape.cols) + " weights cannot be stored as " +
                    std::string(kernels::info(stored).name) + "; use q4_0 or q8_0");
    }
}

QuantType SyntheticSource::quant_type_of(const TensorName& name, TensorShape shape) const {
    if (is_vector(name, shape)) return QuantType::f32;
    if (name.is_head() || (name.is_table() && config_.tied_head)) return head_;
    return quant_type_;
}

kernels::TensorView SyntheticSource::kept_view(const TensorName& name, TensorShape shape) const {
    return {quant_type_of(name, shape), shape.rows, shape.cols, nullptr};
}

std::int64_t SyntheticSource::weight_bytes() {
    std::int64_t sum = 0;
    for (const TensorUse& use : tensors_of(config_)) {
        if (!use.name.is_head() || !config_.tied_head) sum += kept_view(use.name, use.shape).bytes();
    }
    return sum;
}

std::int64_t SyntheticSource::embedding_bytes() {
    return kept_view({.part = "token_embd"}, {config_.shape.vocab, config_.shape.d_model}).bytes();
}

std::int64_t SyntheticSource::per_layer_table_bytes() {
    const std::int64_t width = std::int64_t{config_.shape.per_layer} * config_.shape.layers;
    return width > 0 ? kept_view({.part = "per_layer_token_embd"}, {config_.shape.vocab, width}).bytes() : 0;
}

void SyntheticSource::release() {
    if (more_layers_) std::ranges::move(scratch_, std::back_inserter(spare_));
    scratch_.clear();
    if (!more_layers_) spare_.clear();
}

kernels::TensorView SyntheticSource::tensor(const TensorName& asked, TensorShape shape) {
    const TensorName name = asked.is_head() && config_.tied_head ? TensorName{.part = "token_embd"} : asked;
    const QuantType quant_type = quant_type_of(name, shape);
    if (by_backend() && !is_vector(name, shape)) return {quant_type, shape.rows, shape.cols, nullptr};
    std::vector<std::byte>* const table = name.is_table()                       ? &embedding_
                                          : name.part == "per_layer_token_embd" ? &per_layer_table_
                                                                                : nullptr;
    if (table == nullptr || table->empty()) {
        const std::size_t size = static_cast<std::size_t>(kept_view(name, shape).bytes());
        more_layers_ = name.layer >= 0 && name.layer + 1 < config_.shape.layers;
        std::vector<std::byte>& data = table != nullptr ? *table : scratch_.emplace_back();
        const auto spare = std::ranges::find(spare_, size, &std::vector<std::byte>::size);
        if (spare != spare_.end()) {
            data = std::move(*spare);
            spare_.erase(spare);
        }
        data.resize(size);
        fill(name, shape, data);
    }
    return {quant_type, shape.rows, shape.cols, (table != nullptr ? *table : scratch_.back()).data()};
}

}  // namespace foresay::core
