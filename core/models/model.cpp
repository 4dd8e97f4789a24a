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
    const StageMaker::Sink prepare = [&](const PlacedStage& stage) {
        Stage prepared{static_cast<StageKind>(stage.spec.index()), stage.layer, stage.kv, nullptr};
        if (const auto* head = std::get_if<kernels::LmHeadSpec>(&stage.spec); head != nullptr && options.head) {
            kernels::LmHeadSpec smaller = *head;
            std::vector<std::byte> bytes;
            if (shrinks(head->weight, *options.head)) smaller.weight = requantize(head->weight, *options.head, bytes);
            prepared.op = ops.prepare(smaller);
        } else {
            prepared.op = std::visit([&](const auto& spec) { return ops.prepare(spec); }, stage.spec);
        }
        if (prepared.kind != StageKind::embed) model->macs_per_row_ += prepared.op->macs_per_row;
        model->stages_.push_back(std::move(prepared));
        if (options.progress) options.progress(std::min(done, total), total);
    };
    StageMaker(*model->source_,
               {.context = context, .check_weights = true, .check_devices = options.devices, .bytes_taken = &done},
               prepare)
        .run();
    return model;
}

bool Model::serves(std::int32_t context) const {
    if (!context_matters(config())) return true;
    const bool fixed = longest_context_ < config().context_length;
    return fixed == (context <= config().rope.original_context);
}

double Model::bytes_per_forward(std::int64_t rows) const {
    double bytes = 0.0;
    for (const Stage& stage : stages_) {
        if (stage.kind != StageKind::embed) bytes += stage.op->bytes_read(rows);
    }
    return bytes;
}

}  // namespace foresay::core
