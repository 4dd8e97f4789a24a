#include "core/models/synthetic_source.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "core/models/architecture.h"

namespace foresay::core {

using kernels::QuantType;

bool is_vector(TensorRole role) {
    switch (role) {
        case TensorRole::output_norm:
        case TensorRole::attention_norm:
        case TensorRole::mlp_norm:
        case TensorRole::q_bias:
        case TensorRole::k_bias:
        case TensorRole::v_bias:
        case TensorRole::attention_out_bias:
            return true;
        default:
            return false;
    }
}

SyntheticSource::SyntheticSource(const ModelConfig& config, QuantType quant_type, QuantType head, std::string path)
    : quant_type_(quant_type), head_(head) {
    config_ = config;
    config_.file_type = kernels::info(quant_type).name;
    path_ = std::move(path);
    check_config(config_, path_);
    for (const TensorRole role :
         {TensorRole::embedding, TensorRole::q, TensorRole::attention_out, TensorRole::down, TensorRole::head}) {
        const std::int64_t cols = tensor_shape(config_, role).cols;
        const bool tied = role == TensorRole::embedding && config_.tied_head;
        const QuantType stored = role == TensorRole::head || tied ? head : quant_type;
        if (!present(role) || cols % kernels::info(stored).block_elements == 0) continue;
        throw Error(path_ + ": rows of " + std::to_string(cols) + " weights cannot be stored as " +
                    std::string(kernels::info(stored).name) + "; use q4_0 or q8_0");
    }
}

bool SyntheticSource::present(TensorRole role) const {
    if (role == TensorRole::head) return !config_.tied_head;
    if (role == TensorRole::q_bias || role == TensorRole::k_bias || role == TensorRole::v_bias) return config_.qkv_bias;
    if (role == TensorRole::attention_out_bias) return config_.attention_out_bias;
    return true;
}

QuantType SyntheticSource::quant_type_of(TensorRole role) const {
    if (is_vector(role)) return QuantType::f32;
    if (role == TensorRole::head || (role == TensorRole::embedding && config_.tied_head)) return head_;
    return quant_type_;
}

std::int64_t SyntheticSource::bytes(TensorRole role) const {
    const TensorShape shape = tensor_shape(config_, role);
    return shape.rows * kernels::row_bytes(quant_type_of(role), shape.cols);
}

std::int64_t SyntheticSource::weight_bytes() {
    std::int64_t sum = 0;
    for (int i = 0; i < kTensorRoles; ++i) {
        const auto role = static_cast<TensorRole>(i);
        const bool once = role <= TensorRole::head;
        if (present(role)) sum += bytes(role) * (once ? 1 : config_.shape.layers);
    }
    return sum;
}

void SyntheticSource::release() {
    if (more_layers_) std::ranges::move(scratch_, std::back_inserter(spare_));
    scratch_.clear();
    if (!more_layers_) spare_.clear();
}

kernels::TensorView SyntheticSource::tensor(TensorRole role, std::int32_t layer) {
    if (role == TensorRole::head && config_.tied_head) role = TensorRole::embedding;
    const TensorShape shape = tensor_shape(config_, role);
    const QuantType quant_type = quant_type_of(role);
    if (by_backend() && !is_vector(role)) return {quant_type, shape.rows, shape.cols, nullptr};
    const bool is_embedding = role == TensorRole::embedding;
    if (!is_embedding || embedding_.empty()) {
        const std::size_t size = static_cast<std::size_t>(bytes(role));
        more_layers_ = role > TensorRole::head && layer + 1 < config_.shape.layers;
        std::vector<std::byte>& data = is_embedding ? embedding_ : scratch_.emplace_back();
        const auto spare = std::ranges::find(spare_, size, &std::vector<std::byte>::size);
        if (spare != spare_.end()) {
            data = std::move(*spare);
            spare_.erase(spare);
        }
        data.resize(size);
        fill(role, layer, data);
    }
    return {quant_type, shape.rows, shape.cols, (is_embedding ? embedding_ : scratch_.back()).data()};
}

}  // namespace foresay::core
