#include "core/models/model.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "core/models/requantize.h"

namespace foresay::core {
namespace {

// Whether a rope of the model was chosen for the context.
bool context_matters(const ModelConfig& config) {
    return depends_on_context(config.rope) ||
           std::ranges::any_of(config.layers, [](const LayerConfig& layer) { return depends_on_context(layer.rope); });
}

}  // namespace

std::shared_ptr<const Model> Model::load(std::shared_ptr<ModelSource> source, kernels::Ops& ops,
                                         const LoadOptions& options) {
    std::shared_ptr<Model> model(new Model());
    model->source_ = std::move(source);
    model->ops_ = &ops;
    const ModelConfig& config = model->config();
    const std::int32_t context = options.context > 0 ? options.context : config.context_length;
    const bool fixed = context_matters(config) && context <= config.rope.original_context;
    model->longest_context_ = fixed ? config.rope.original_context : config.context_length;

    std::int64_t done = 0;
    const std::int64_t total = model->source_->weight_bytes();
    const OpMaker::Sink prepare = [&](const PlacedOp& placed) {
        Op op{static_cast<kernels::ForwardOp>(placed.spec.index()), placed.layer, placed.kv, nullptr};
        if (const auto* head = std::get_if<kernels::LmHeadSpec>(&placed.spec); head != nullptr && options.head) {
            kernels::LmHeadSpec smaller = *head;
            std::vector<std::byte> bytes;
            if (shrinks(head->weight, *options.head)) smaller.weight = requantize(head->weight, *options.head, bytes);
            op.prepared = ops.prepare(smaller);
        } else {
            op.prepared = std::visit([&](const auto& spec) { return ops.prepare(spec); }, placed.spec);
        }
        if (op.kind != kernels::ForwardOp::embed) model->macs_per_row_ += op.prepared->macs_per_row;
        model->forward_ops_.push_back(std::move(op));
        if (options.progress) options.progress(std::min(done, total), total);
    };
    OpMaker(*model->source_,
            {.context = context, .check_weights = true, .check_devices = options.devices, .bytes_taken = &done},
            prepare)
        .run();
    model->source_->finish();
    return model;
}

bool Model::serves(std::int32_t context) const {
    if (!context_matters(config())) return true;
    const bool fixed = longest_context_ < config().context_length;
    return fixed == (context <= config().rope.original_context);
}

double Model::bytes_per_forward(std::int64_t rows) const {
    double bytes = 0.0;
    for (const Op& op : forward_ops_) {
        if (op.kind != kernels::ForwardOp::embed) bytes += op.prepared->bytes_read(rows);
    }
    return bytes;
}

}  // namespace foresay::core
