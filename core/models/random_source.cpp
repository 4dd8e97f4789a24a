// Random weights in a given shape, written directly as quantisation blocks: random codes under fixed scales. Billions
// of weights take seconds, and activations stay finite.

#include <cmath>

#include "core/models/architecture.h"
#include "core/models/random_blocks.h"
#include "core/models/shapes.h"
#include "core/models/synthetic_source.h"

namespace foresay::core {
namespace {

using kernels::QuantType;

// Whether a vector multiplies values, which it should leave as large as they are.
bool multiplies(const TensorName& name) {
    return is_norm(name) || name.kind == "scale" || name.part == "layer_output_scale";
}

class RandomSource final : public SyntheticSource {
public:
    RandomSource(const ModelConfig& config, QuantType quant_type, QuantType head, std::uint64_t seed, bool by_backend)
        : SyntheticSource(config, quant_type, head,
                          "random " + (config.name.empty() ? config.architecture : config.name)),
          seed_(seed),
          by_backend_(by_backend) {}

private:
    bool by_backend() const override { return by_backend_; }

    void fill(const TensorName& name, TensorShape shape, std::vector<std::byte>& data) override {
        Random random(seed_ + seed_of(name));
        if (is_vector(name, shape) && name.part != "ffn_gate_inp") {
            for (std::size_t at = 0; at < data.size(); at += sizeof(float)) {
                const float one = is_norm(name) && config_.norm_plus_one ? 0.0f : 1.0f;
                put_value(QuantType::f32, multiplies(name) ? one : 0.1f * random.uniform(), data.data() + at);
            }
            return;
        }
        fill_random(quant_type_of(name, shape), data, 1.0f / std::sqrt(static_cast<float>(shape.cols)), random);
    }

    std::uint64_t seed_;
    bool by_backend_;
};

}  // namespace

std::unique_ptr<ModelSource> ModelSource::random(const ModelConfig& config, QuantType quant_type, QuantType head,
                                                 std::uint64_t seed, bool by_backend) {
    return std::make_unique<RandomSource>(config, quant_type, head, seed, by_backend);
}

std::unique_ptr<ModelSource> ModelSource::random(std::string_view shape, QuantType quant_type, bool by_backend,
                                                 std::optional<QuantType> head) {
    const ModelConfig config = published_shape(shape);
    const QuantType stored = head.value_or(head_quant_type(quant_type, config.shape.d_model));
    return random(config, quant_type, stored, 1, by_backend);
}

}  // namespace foresay::core
