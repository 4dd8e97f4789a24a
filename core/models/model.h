// core/models/model.h: a model loaded for one backend: its configuration and the prepared ops of its forward.
//
// Threads:  immutable after load(); one thread at a time per Ops may run the ops.
// Cost:     load() reads every weight once and packs it into the backend's layout.
// Errors:   load() throws Error (see ModelSource; weights that are NaN or infinite); nothing else throws.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/models/model_source.h"
#include "kernels/ops.h"

namespace foresay::core {

struct LoadOptions {
    // Called with (bytes done, total bytes) after each prepared op.
    std::function<void(std::int64_t, std::int64_t)> progress;
    // Requantises the LM head to this type if that makes it smaller. Only for a draft model: its logits decide no text,
    // and its LM head is most of what a step reads.
    std::optional<kernels::QuantType> head;
};

class Model {
public:
    // `ops` must outlive the model. The model keeps the source, which owns the embedding table.
    static std::shared_ptr<const Model> load(std::shared_ptr<ModelSource> source, kernels::Ops& ops,
                                             const LoadOptions& options = {});

    struct Layer {
        std::unique_ptr<kernels::PreparedOp> attention_in, attend, attention_out, mlp_in, mlp_out;
    };

    const ModelConfig& config() const { return source_->config(); }
    const ModelSource& source() const { return *source_; }
    kernels::Ops& ops() const { return *ops_; }
    const kernels::PreparedOp& embed() const { return *embed_; }
    const std::vector<Layer>& layers() const { return layers_; }
    const kernels::PreparedOp& head() const { return *head_; }

    std::int64_t bytes_per_forward() const { return bytes_per_forward_; }  // weights read by one forward with logits
    std::int64_t macs_per_row() const { return macs_per_row_; }

private:
    Model() = default;
    std::shared_ptr<ModelSource> source_;
    kernels::Ops* ops_ = nullptr;
    std::unique_ptr<kernels::PreparedOp> embed_, head_;
    std::vector<Layer> layers_;
    std::int64_t bytes_per_forward_ = 0;
    std::int64_t macs_per_row_ = 0;
};

}  // namespace foresay::core
