// core/models/op_maker.h: the ops of a model, one after the other, as specs of kernels/ops.h. A family says which ops
// a layer has; most of them are the ones made here from the configuration, with the tensors' usual GGUF names.
//
// Life:     views in a spec are valid until add() returns, so make a spec within the call of add(). Everything that
//           add() is given must be prepared by then.
// Threads:  one caller at a time.
// Errors:   as ModelSource::tensor(), and Error when a weight is NaN or infinite.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <string_view>
#include <variant>
#include <vector>

#include "core/models/model_source.h"
#include "kernels/forward_op.h"
#include "kernels/quant/packing.h"

namespace foresay::core {

// In the order of kernels::ForwardOp.
using OpSpec = std::variant<kernels::EmbedSpec, kernels::PerLayerEmbedSpec, kernels::AttentionInSpec,
                            kernels::AttendSpec, kernels::AttentionOutSpec, kernels::MlpInSpec, kernels::MlpOutSpec,
                            kernels::MoeSpec, kernels::PerLayerSpec, kernels::LmHeadSpec>;

struct PlacedOp {
    OpSpec spec;
    std::int32_t layer = 0;  // of the model
    std::int32_t kv = 0;     // of the KV cache, for attention_in and attend
};

class OpMaker {
public:
    struct Options {
        std::int32_t context = 0;             // positions that the model will be used with; decides long or short rope
        bool check_weights = true;            // look for NaN and infinities
        std::uint32_t check_devices = 0;      // only in what is on these backends of a list, bit by bit; 0: in all
        std::int64_t* bytes_taken = nullptr;  // counts the bytes of the tensors
    };
    using Sink = std::function<void(const PlacedOp&)>;

    OpMaker(ModelSource& source, const Options& options, const Sink& sink)
        : source_(source), options_(options), sink_(sink) {}

    // Every op of the model, from embed to lm_head, as its family says.
    void run();

    // ---- for families
    const ModelConfig& config() const { return source_.config(); }
    LayerConfig layer(std::int32_t i) const { return layer_config(config(), i); }
    kernels::ModelShape shape(std::int32_t i) const { return layer_shape(config(), i); }
    std::int64_t width() const { return config().shape.d_model; }

    void add(OpSpec spec);

    // A norm, attention, a norm, and the feed-forward network or the experts.
    void add_plain_layer(std::int32_t i, std::string_view mlp_norm = "ffn_norm");

    // The usual ops. A norm's name may be empty: there is none. scale and post norms follow the configuration.
    void add_attention(std::int32_t i, std::string_view norm = "attn_norm", std::string_view post_norm = {});
    void add_mlp(std::int32_t i, std::string_view norm = "ffn_norm", std::string_view post_norm = {});
    // `head_norms` false: without norms of Q and K, which the family adds.
    kernels::AttentionInSpec attention_in(std::int32_t i, std::string_view norm = "attn_norm", bool head_norms = true);
    kernels::AttendSpec attend(std::int32_t i);
    kernels::AttentionOutSpec attention_out(std::int32_t i, std::string_view post_norm = {});
    kernels::MlpInSpec mlp_in(std::int32_t i, std::string_view norm = "ffn_norm", bool gated = true);
    // The same with gate and up in one matrix, ffn_up, gate first.
    kernels::MlpInSpec fused_mlp_in(std::int32_t i, std::string_view norm = "ffn_norm");
    kernels::MlpOutSpec mlp_out(std::int32_t i, std::string_view post_norm = {});
    // The experts of the layer, without the shared ones.
    kernels::MoeSpec moe(std::int32_t i, std::string_view norm = "ffn_norm");
    // The experts and, if the model has shared ones, these as a feed-forward network that adds the experts' sum.
    void add_experts(std::int32_t i, std::string_view norm = "ffn_norm");

    kernels::TensorView matrix(std::int32_t i, std::string_view part, std::int64_t rows, std::int64_t cols);
    kernels::TensorView vector(std::int32_t i, std::string_view part, std::int64_t size,
                               std::string_view kind = "weight");
    kernels::NormSpec norm(std::int32_t i, std::string_view part, std::int64_t size);  // empty for an empty name
    std::vector<kernels::TensorView> experts(std::int32_t i, std::string_view part, std::int64_t rows,
                                             std::int64_t cols);
    bool has(std::int32_t i, std::string_view part, std::string_view kind = "weight") const {
        return source_.has({.layer = i, .part = part, .kind = kind});
    }
    // `outputs` (a matrix's rows, or a bias) in the order that the rows of the matrix `reader` have their inputs in,
    // and that matrix without the order: what one op writes, the next one reads as it lies, and no sum changes. Both
    // or none. Routed experts keep their orders.
    kernels::TensorView outputs_for(const TensorName& reader, kernels::TensorView outputs);
    kernels::TensorView with_inputs_in_place(const TensorName& reader, kernels::TensorView matrix);
    // A vector of our own, and the values of one from the file (zeros while there is no data).
    kernels::TensorView own(std::vector<float> values);
    std::vector<float> values(const kernels::TensorView& view) const;
    kernels::RopeSpec rope(const RopeConfig& rope, std::int32_t head_dim);

private:
    kernels::TensorView take(const TensorName& name, TensorShape shape);
    bool is_checked(const TensorName& name) const;

    ModelSource& source_;
    Options options_;
    const Sink& sink_;
    std::int32_t layer_ = 0;
    std::deque<std::vector<float>> own_;
    std::deque<RopeTable> ropes_;
    std::deque<kernels::Packing> packings_;  // without orders
};

// Rows [first, first + count) of a matrix.
kernels::TensorView rows_of(const kernels::TensorView& matrix, std::int64_t first, std::int64_t count);

// The tensors of a model of this configuration, in the order in which they are asked for, each once or more often.
std::vector<TensorUse> tensors_of(const ModelConfig& config);

}  // namespace foresay::core
