#include "core/models/model_config.h"

#include <algorithm>
#include <cmath>

namespace foresay::core {
namespace {

constexpr double kPi = 3.141592653589793;

double at(const std::vector<float>& values, std::size_t i) { return static_cast<double>(values[i]); }

// Frequencies above a wavelength are divided by the factor, those below another one stay, with a ramp between them.
double llama3_frequency(const RopeConfig& rope, double f) {
    const double wavelength = 2.0 * kPi / f;
    const double original = rope.original_context;
    const double low = static_cast<double>(rope.low_freq_factor), high = static_cast<double>(rope.high_freq_factor);
    const double factor = static_cast<double>(rope.factor);
    if (wavelength > original / low) return f / factor;
    if (wavelength <= original / high) return f;
    const double smooth = (original / wavelength - low) / (high - low);
    return (1.0 - smooth) * f / factor + smooth * f;
}

// Pairs that turn often within the original context keep their frequency, slow ones are divided by the factor, and a
// linear ramp lies between the pairs that make beta_fast and beta_slow turns.
double yarn_frequency(const RopeConfig& rope, double f, std::size_t pair, std::int32_t dims) {
    const auto pair_of = [&](float turns) {
        const double wavelengths = rope.original_context / (2.0 * kPi * static_cast<double>(turns));
        return dims * std::log(wavelengths) / (2.0 * std::log(static_cast<double>(rope.theta)));
    };
    double low = pair_of(rope.beta_fast), high = pair_of(rope.beta_slow);
    if (rope.truncate) low = std::floor(low), high = std::ceil(high);
    low = std::max(low, 0.0);
    high = std::min(high, static_cast<double>(dims - 1));
    if (low == high) high += 0.001;
    const double ramp = std::clamp((static_cast<double>(pair) - low) / (high - low), 0.0, 1.0);
    return f / static_cast<double>(rope.factor) * ramp + f * (1.0 - ramp);
}

double yarn_magnitude(double factor, double mscale) {
    return factor <= 1.0 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

float attention_factor(const RopeConfig& rope) {
    if (rope.attention_factor > 0.0f) return rope.attention_factor;
    const double factor = static_cast<double>(rope.factor);
    if (rope.scaling == RopeScaling::yarn) {
        if (rope.mscale > 0.0f && rope.mscale_all_dim > 0.0f) {
            return static_cast<float>(yarn_magnitude(factor, static_cast<double>(rope.mscale)) /
                                      yarn_magnitude(factor, static_cast<double>(rope.mscale_all_dim)));
        }
        return static_cast<float>(yarn_magnitude(factor, 1.0));
    }
    if (rope.scaling == RopeScaling::longrope && factor > 1.0) {
        return static_cast<float>(std::sqrt(1.0 + std::log(factor) / std::log(rope.original_context)));
    }
    return 1.0f;
}

}  // namespace

LayerConfig layer_config(const ModelConfig& config, std::int32_t layer) {
    if (!config.layers.empty()) return config.layers[static_cast<std::size_t>(layer)];
    const kernels::ModelShape& s = config.shape;
    return {.heads = s.heads,
            .kv_heads = s.kv_heads,
            .head_dim = s.head_dim,
            .d_ff = s.d_ff,
            .window = config.window,
            .rope = config.rope,
            .experts = config.experts.count > 0,
            .kv = layer,
            .own_kv = true};
}

kernels::ModelShape layer_shape(const ModelConfig& config, std::int32_t layer) {
    const LayerConfig own = layer_config(config, layer);
    kernels::ModelShape shape = config.shape;
    shape.heads = own.heads;
    shape.kv_heads = own.kv_heads;
    shape.head_dim = own.head_dim;
    shape.d_ff = own.d_ff;
    if (!config.devices.empty()) {
        const std::int32_t device = config.devices[static_cast<std::size_t>(layer)];
        shape.devices = device < 0 ? (1u << -device) - 1 : 1u << device;
    }
    return shape;
}

kernels::KvShape kv_shape(const ModelConfig& config) {
    kernels::KvShape shape;
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        const LayerConfig layer = layer_config(config, i);
        const std::int32_t device = config.devices.empty() ? 0 : config.devices[static_cast<std::size_t>(i)];
        if (layer.own_kv) shape.layers.push_back({layer.kv_heads, layer.head_dim, device});
    }
    return shape;
}

std::int32_t widest_window(const ModelConfig& config) {
    std::int32_t widest = 0;
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        const std::int32_t window = layer_config(config, i).window;
        if (window == 0) return 0;
        widest = std::max(widest, window);
    }
    return widest;
}

void spell_out_layers(ModelConfig& config) {
    std::vector<LayerConfig> layers;
    for (std::int32_t i = 0; i < config.shape.layers; ++i) layers.push_back(layer_config(config, i));
    config.layers = std::move(layers);
}

void widen_shape(ModelConfig& config) {
    kernels::ModelShape& s = config.shape;
    for (const LayerConfig& layer : config.layers) {
        s.heads = std::max(s.heads, layer.heads);
        s.kv_heads = std::max(s.kv_heads, layer.kv_heads);
        s.head_dim = std::max(s.head_dim, layer.head_dim);
        s.d_ff = std::max(s.d_ff, layer.d_ff);
    }
    s.d_ff = std::max(s.d_ff, config.experts.shared_ff);
}

RopeTable rope_table(const RopeConfig& rope, std::int32_t head_dim, std::int32_t context) {
    RopeTable table;
    if (rope.pairs == kernels::RopePairs::none) return table;
    const std::int32_t dims = rope.dims > 0 ? rope.dims : head_dim;
    const std::vector<float>& longrope = context > rope.original_context ? rope.long_factors : rope.short_factors;
    table.inverse_frequency.resize(static_cast<std::size_t>(dims / 2));
    for (std::size_t i = 0; i < table.inverse_frequency.size(); ++i) {
        double f = 1.0 / std::pow(static_cast<double>(rope.theta), 2.0 * static_cast<double>(i) / dims);
        if (!rope.factors.empty()) f /= at(rope.factors, i);
        if (rope.scaling == RopeScaling::linear) f /= static_cast<double>(rope.factor);
        if (rope.scaling == RopeScaling::llama3) f = llama3_frequency(rope, f);
        if (rope.scaling == RopeScaling::yarn) f = yarn_frequency(rope, f, i, dims);
        if (rope.scaling == RopeScaling::longrope) f /= at(longrope, i);
        if (rope.spread_dims > 0 && 2 * static_cast<std::int32_t>(i) >= rope.spread_dims) f = 0.0;
        table.inverse_frequency[i] = static_cast<float>(f);
    }
    table.attention_factor = attention_factor(rope);
    return table;
}

}  // namespace foresay::core
