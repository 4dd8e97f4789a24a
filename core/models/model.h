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
#include "core/models/op_maker.h"
#include "kernels/ops.h"

namespace foresay::core {

struct LoadOptions {
    // Called with (bytes done, total bytes) after each prepared op.
    std::function<void(std::int64_t, std::int64_t)> progress;
    // Requantises the LM head to this type if that makes it smaller. Only for a draft model: its logits decide no text,
    // and its LM head is most of what a step reads.
    std::optional<kernels::QuantType> head;
    // Positions that the model will be used with; 0: all that it supports. Some ropes have factors for short contexts
    // and others for long ones; the choice is made once, here.
    std::int32_t context = 0;
    // Bit d: weights of what is on backend d of a list are looked at for NaN and infinities; 0: of all. The others are
    // on another host, which looks at them.
    std::uint32_t devices = 0;
};

class Model {
public:
    // `ops` must outlive the model. The model keeps the source, which owns the embedding table.
    static std::shared_ptr<const Model> load(std::shared_ptr<ModelSource> source, kernels::Ops& ops,
                                             const LoadOptions& options = {});

    struct Op {
        kernels::ForwardOp kind = kernels::ForwardOp::embed;
        std::int32_t layer = 0;  // of the model
        std::int32_t kv = 0;     // of the KV cache
        std::unique_ptr<kernels::PreparedOp> prepared;
    };

    const ModelConfig& config() const { return source_->config(); }
    const ModelSource& source() const { return *source_; }
    kernels::Ops& ops() const { return *ops_; }
    // In the order in which a forward runs them. The last one is lm_head.
    const std::vector<Op>& forward_ops() const { return forward_ops_; }
    kernels::KvShape kv_shape() const { return core::kv_shape(config()); }
    // Positions that the model can be used with: those of LoadOptions where the rope depends on them.
    std::int32_t longest_context() const { return longest_context_; }
    // Whether a model loaded for a context of this length would be the same.
    bool serves(std::int32_t context) const;

    // Weights read by one forward with logits, of one row and of several: rows may choose different experts.
    std::int64_t bytes_per_forward() const { return static_cast<std::int64_t>(bytes_per_forward(1)); }
    double bytes_per_forward(std::int64_t rows) const;
    std::int64_t macs_per_row() const { return macs_per_row_; }

private:
    Model() = default;
    std::shared_ptr<ModelSource> source_;
    kernels::Ops* ops_ = nullptr;
    std::vector<Op> forward_ops_;
    std::int64_t macs_per_row_ = 0;
    std::int32_t longest_context_ = 0;
};

}  // namespace foresay::core
