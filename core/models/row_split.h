// core/models/row_split.h: what each device has of a model whose layers are divided by outputs (kernels/divided_ops.h):
// bytes, and in words. Which parts those are is kernels/row_division.h. Pure functions.
//
// Errors:   row_bytes() throws Error when the model cannot be divided so, and as ModelSource::tensor().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/models/model_config.h"
#include "kernels/layer_share.h"

namespace foresay::core {

class ModelSource;

// Bytes of weights, by device. The first one also has the embedding and embeddings of layers.
struct RowBytes {
    std::vector<std::int64_t> weights;  // in memory, without tables
    std::vector<std::int64_t> read;     // by a row: of E experts K, and no tables
    std::int64_t tables = 0;            // of the first device, unless they stay in the mapped file
};
// Tensor by tensor, as they are in memory; reads none of them. A device's panels of packed rows may take more: that is
// counted, in proportion, where `expanded` says how many bytes that is for the whole model.
RowBytes row_bytes(ModelSource& source, std::span<const std::int32_t> shares, std::int64_t expanded = 0);

// Whether its forwards can be linked is decided by these. Reads no tensor.
kernels::LinkFacts link_facts(ModelSource& source);

// Equal shares where each device has room for one of `needed` bytes in all, else in proportion to their memory.
std::vector<std::int32_t> choose_shares(std::span<const std::int64_t> memory, std::int64_t needed);

// "4 of 8 KV heads, 2048 of 4096 rows of O and down, 7168 of 14336 of gate and up, 64128 of 128256 of the LM head".
// Where layers differ: of the first one.
std::string row_share_text(const ModelConfig& config, std::span<const std::int32_t> shares, std::size_t device);

}  // namespace foresay::core
