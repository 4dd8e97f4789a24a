#include "core/models/model.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "core/models/requantize.h"
#include "core/weights/finite.h"

namespace foresay::core {
namespace {

// The order of TensorRole.
constexpr const char* kRoleNames[] = {"the embedding table",
                                      "the last norm",
                                      "the LM head",
                                      "the norm before attention",
                                      "Q",
                                      "K",
                                      "V",
                                      "the bias of Q",
                                      "the bias of K",
                                      "the bias of V",
                                      "the output of attention",
                                      "the bias of the output of attention",
                                      "the norm before the feed-forward",
                                      "the gate",
                                      "the up projection",
                                      "the down projection"};

// The tensor; throws Error if it holds NaN or infinities.
kernels::TensorView checked_tensor(ModelSource& source, TensorRole role, std::int32_t layer) {
    const kernels::TensorView view = source.tensor(role, layer);
    const std::int64_t row = view.data == nullptr ? -1 : first_row_not_finite(view);  // no data: made by the backend
    if (row < 0) return view;
    const bool once = role == TensorRole::embedding || role == TensorRole::output_norm || role == TensorRole::head;
    throw Error(source.path() + ": the weights of " + kRoleNames[static_cast<std::size_t>(role)] +
                (once ? "" : " in layer " + std::to_string(layer)) + " hold NaN or infinities (row " +
                std::to_string(row) + "), so the file is damaged or was converted badly; get it again");
}

kernels::NormSpec norm(ModelSource& source, TensorRole role, std::int32_t layer) {
    return {.weight = checked_tensor(source, role, layer), .eps = source.config().norm_eps, .plus_one = false};
}

// Prepares the ops of a model from the tensors of `source`, layer by layer, and reports progress.
class OpMaker {
public:
    OpMaker(ModelSource& source, kernels::Ops& ops, const LoadOptions& options)
        : source_(source),
          ops_(ops),
          options_(options),
          frequencies_(
              inverse_frequencies(source.config().rope, source.config().shape.head_dim, source.rope_factors())),
          total_(source.weight_bytes()) {}

    std::unique_ptr<kernels::PreparedOp> embed() {
        return finish(ops_.prepare(kernels::EmbedSpec{.table = tensor(TensorRole::embedding, 0), .scale = 1.0f}));
    }

    Model::Layer layer(std::int32_t i) {
        Model::Layer layer;
        layer.attention_in = attention_in(i);
        layer.attend = ops_.prepare(
            kernels::AttendSpec{.shape = shape(), .scale = 1.0f / std::sqrt(static_cast<float>(shape().head_dim))});
        kernels::AttentionOutSpec out{.shape = shape(), .o = tensor(TensorRole::attention_out, i)};
        if (source_.config().attention_out_bias) out.bias = tensor(TensorRole::attention_out_bias, i);
        layer.attention_out = finish(ops_.prepare(out));
        layer.mlp_in = finish(ops_.prepare(kernels::MlpInSpec{.shape = shape(),
                                                              .norm = norm(source_, TensorRole::mlp_norm, i),
                                                              .gate = tensor(TensorRole::gate, i),
                                                              .up = tensor(TensorRole::up, i)}));
        layer.mlp_out =
            finish(ops_.prepare(kernels::MlpOutSpec{.shape = shape(), .down = tensor(TensorRole::down, i)}));
        return layer;
    }

    std::unique_ptr<kernels::PreparedOp> head() {
        kernels::TensorView weight = tensor(TensorRole::head, 0);
        std::vector<std::byte> bytes;
        if (options_.head && shrinks(weight, *options_.head)) weight = requantize(weight, *options_.head, bytes);
        return finish(ops_.prepare(kernels::LmHeadSpec{
            .shape = shape(), .norm = norm(source_, TensorRole::output_norm, 0), .weight = weight}));
    }

private:
    const kernels::ModelShape& shape() const { return source_.config().shape; }

    kernels::TensorView tensor(TensorRole role, std::int32_t layer) {
        if (role == TensorRole::head && source_.config().tied_head) return source_.tensor(role, layer);
        const kernels::TensorView view = checked_tensor(source_, role, layer);
        pending_ += view.bytes();
        return view;
    }

    std::unique_ptr<kernels::PreparedOp> attention_in(std::int32_t i) {
        kernels::AttentionInSpec spec{.shape = shape(),
                                      .norm = norm(source_, TensorRole::attention_norm, i),
                                      .q = tensor(TensorRole::q, i),
                                      .k = tensor(TensorRole::k, i),
                                      .v = tensor(TensorRole::v, i)};
        if (source_.config().qkv_bias) {
            spec.q_bias = tensor(TensorRole::q_bias, i);
            spec.k_bias = tensor(TensorRole::k_bias, i);
            spec.v_bias = tensor(TensorRole::v_bias, i);
        }
        spec.rope = {.pairs = source_.config().rope.pairs, .inverse_frequency = frequencies_, .attention_factor = 1.0f};
        return finish(ops_.prepare(spec));
    }

    std::unique_ptr<kernels::PreparedOp> finish(std::unique_ptr<kernels::PreparedOp> op) {
        source_.release();
        done_ += pending_;
        pending_ = 0;
        if (options_.progress) options_.progress(std::min(done_, total_), total_);
        return op;
    }

    ModelSource& source_;
    kernels::Ops& ops_;
    const LoadOptions& options_;
    std::vector<float> frequencies_;
    std::int64_t total_;
    std::int64_t done_ = 0;
    std::int64_t pending_ = 0;
};

}  // namespace

std::shared_ptr<const Model> Model::load(std::shared_ptr<ModelSource> source, kernels::Ops& ops,
                                         const LoadOptions& options) {
    std::shared_ptr<Model> model(new Model());
    model->source_ = std::move(source);
    model->ops_ = &ops;
    OpMaker maker(*model->source_, ops, options);
    model->embed_ = maker.embed();
    const std::int32_t layers = model->config().shape.layers;
    model->layers_.reserve(static_cast<std::size_t>(layers));
    for (std::int32_t i = 0; i < layers; ++i) model->layers_.push_back(maker.layer(i));
    model->head_ = maker.head();
    const auto count = [&](const kernels::PreparedOp& op) {
        model->bytes_per_forward_ += op.weight_bytes;
        model->macs_per_row_ += op.macs_per_row;
    };
    for (const Layer& layer : model->layers_) {
        count(*layer.attention_in);
        count(*layer.attention_out);
        count(*layer.mlp_in);
        count(*layer.mlp_out);
    }
    count(*model->head_);
    return model;
}

}  // namespace foresay::core
