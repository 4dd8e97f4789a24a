// tests/models/by_hand.h: parts of decoders in float64, written from what the models' authors published, for tests that
// compute a tiny model's logits without any code of the program; and the folder that has the model's weights.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "tests/weights/folder_image.h"

namespace foresay::test::by_hand {

using Row = std::vector<double>;

// Of every model.
inline constexpr std::size_t kWidth = 64, kHeads = 4, kKvHeads = 2, kHead = 16, kFf = 48, kVocab = 96;

struct Tensor {
    std::vector<std::int64_t> shape;
    std::vector<double> values;
};

// The weights of a family's folder. Every name has numbers of its own.
class Weights {
public:
    void matrix(const std::string& name, std::vector<std::int64_t> shape) { add(name, std::move(shape), 0.0); }
    void norm(const std::string& name, std::vector<std::int64_t> shape) { add(name, std::move(shape), 1.0); }
    const Row& values(const std::string& name) const { return tensors_.at(name).values; }
    // Rows [first, first + count) of a matrix, times x.
    Row times(const std::string& name, const Row& x, std::size_t first, std::size_t count) const {
        const Row& m = values(name);
        Row y(count);
        for (std::size_t i = 0; i < count; ++i) {
            for (std::size_t j = 0; j < x.size(); ++j) y[i] += m[(first + i) * x.size() + j] * x[j];
        }
        return y;
    }
    Row times(const std::string& name, const Row& x) const { return times(name, x, 0, values(name).size() / x.size()); }
    void write(const std::filesystem::path& folder, const nlohmann::json& config) const {
        std::filesystem::create_directories(folder);
        std::ofstream(folder / "config.json") << config.dump();
        core::testing::FolderImage image;
        for (const auto& [name, tensor] : tensors_) {
            std::vector<std::uint16_t> halves;
            for (const double value : tensor.values) {
                const float number = static_cast<float>(value);
                std::uint32_t bits = 0;
                std::memcpy(&bits, &number, sizeof bits);
                check(number == value && (bits & 0xffffu) == 0, "a weight that bfloat16 does not hold");
                halves.push_back(static_cast<std::uint16_t>(bits >> 16));
            }
            image.tensors[name] = core::testing::image_tensor("BF16", tensor.shape, halves);
        }
        std::ofstream(folder / "model.safetensors", std::ios::binary) << image.file();
    }

private:
    // Numbers in steps of 1/256 around `middle`: up to 0.34 from 0, or up to 0.25 from 1, in steps of 1/128.
    void add(const std::string& name, std::vector<std::int64_t> shape, double middle) {
        std::uint64_t state = 1469598103934665603u;
        for (const char c : name) state = (state ^ static_cast<unsigned char>(c)) * 1099511628211u;
        std::size_t count = 1;
        for (const std::int64_t size : shape) count *= static_cast<std::size_t>(size);
        Row values(count);
        for (double& value : values) {
            state = state * 6364136223846793005u + 1442695040888963407u;
            const auto random = static_cast<int>(state >> 33);
            value = middle == 0.0 ? (random % 175 - 87) / 256.0 : 1.0 + (random % 65 - 32) / 128.0;
        }
        tensors_[name] = {std::move(shape), std::move(values)};
    }

    std::map<std::string, Tensor> tensors_;
};

inline Row plus(Row a, const Row& b, double scale = 1.0) {
    for (std::size_t i = 0; i < a.size(); ++i) a[i] += scale * b[i];
    return a;
}

inline double silu(double x) { return x / (1.0 + std::exp(-x)); }

inline double gelu_tanh(double x) {
    return 0.5 * x * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (x + 0.044715 * x * x * x)));
}

// Values [first, first + n) of x, with the mean taken away.
inline void layer_norm(Row& x, std::size_t first, std::size_t n, const Row& weight, const Row* bias = nullptr) {
    double mean = 0.0, variance = 0.0;
    for (std::size_t i = 0; i < n; ++i) mean += x[first + i] / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) variance += std::pow(x[first + i] - mean, 2) / static_cast<double>(n);
    for (std::size_t i = 0; i < n; ++i) {
        // A norm by head has a weight for each value of each head.
        const std::size_t w = weight.size() > n ? first + i : i;
        x[first + i] = weight[w] * (x[first + i] - mean) / std::sqrt(variance + 1e-5);
        if (bias != nullptr) x[first + i] += (*bias)[i];
    }
}

inline Row layer_normed(Row x, const Row& weight, const Row* bias = nullptr) {
    layer_norm(x, 0, x.size(), weight, bias);
    return x;
}

inline Row rms_normed(Row x, const Row& weight) {
    double squares = 0.0;
    for (const double value : x) squares += value * value;
    const double size = std::sqrt(squares / static_cast<double>(x.size()) + 1e-5);
    for (std::size_t i = 0; i < x.size(); ++i) x[i] *= weight[i] / size;
    return x;
}

// 1 / theta^(2 i / width of a head).
inline Row frequencies(double theta) {
    Row all;
    for (std::size_t i = 0; i < kHead / 2; ++i)
        all.push_back(std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(kHead)));
    return all;
}

// Rotates each head of x: pairs of neighbours, or of the two halves.
inline void rotate(Row& x, int position, const Row& frequency, bool neighbours, double factor = 1.0) {
    for (std::size_t head = 0; head < x.size(); head += kHead) {
        for (std::size_t i = 0; i < kHead / 2; ++i) {
            double& a = x[head + (neighbours ? 2 * i : i)];
            double& b = x[head + (neighbours ? 2 * i + 1 : i + kHead / 2)];
            const double cosine = factor * std::cos(position * frequency[i]);
            const double sine = factor * std::sin(position * frequency[i]);
            const double before = a;
            a = before * cosine - b * sine;
            b = b * cosine + before * sine;
        }
    }
}

// Softmax attention of a token over the last `window` ones, itself included; 0: over all.
struct Memory {
    std::vector<Row> keys, values;
    Row attend(const Row& q, double scale, int window) const {
        const std::size_t count = keys.size();
        const std::size_t first =
            window > 0 && count > static_cast<std::size_t>(window) ? count - static_cast<std::size_t>(window) : 0;
        Row out(kHeads * kHead);
        for (std::size_t h = 0; h < kHeads; ++h) {
            const std::size_t shared = h / (kHeads / kKvHeads) * kHead;
            Row weights(count);
            double total = 0.0;
            for (std::size_t t = first; t < count; ++t) {
                double score = 0.0;
                for (std::size_t d = 0; d < kHead; ++d) score += q[h * kHead + d] * keys[t][shared + d];
                total += weights[t] = std::exp(score * scale);
            }
            for (std::size_t t = first; t < count; ++t) {
                for (std::size_t d = 0; d < kHead; ++d)
                    out[h * kHead + d] += weights[t] / total * values[t][shared + d];
            }
        }
        return out;
    }
};

// down(silu(gate x) * up x)
inline Row gated_mlp(const Weights& w, const std::string& layer, const Row& x) {
    Row gate = w.times(layer + "mlp.gate_proj.weight", x);
    const Row up = w.times(layer + "mlp.up_proj.weight", x);
    for (std::size_t i = 0; i < gate.size(); ++i) gate[i] = silu(gate[i]) * up[i];
    return w.times(layer + "mlp.down_proj.weight", gate);
}

inline const double kUsualScale = 1.0 / std::sqrt(static_cast<double>(kHead));

inline std::string layer_name(std::size_t i) { return "model.layers." + std::to_string(i) + "."; }

inline Row embedded(const Weights& w, int token) {
    const Row& table = w.values("model.embed_tokens.weight");
    const auto from = table.begin() + static_cast<std::ptrdiff_t>(token) * static_cast<std::ptrdiff_t>(kWidth);
    return {from, from + static_cast<std::ptrdiff_t>(kWidth)};
}

inline void add_attention(Weights& w, const std::string& layer) {
    w.matrix(layer + "self_attn.q_proj.weight", {kHeads * kHead, kWidth});
    w.matrix(layer + "self_attn.k_proj.weight", {kKvHeads * kHead, kWidth});
    w.matrix(layer + "self_attn.v_proj.weight", {kKvHeads * kHead, kWidth});
    w.matrix(layer + "self_attn.o_proj.weight", {kWidth, kHeads * kHead});
}

inline void add_gated_mlp(Weights& w, const std::string& layer) {
    w.matrix(layer + "mlp.gate_proj.weight", {kFf, kWidth});
    w.matrix(layer + "mlp.up_proj.weight", {kFf, kWidth});
    w.matrix(layer + "mlp.down_proj.weight", {kWidth, kFf});
}

inline nlohmann::json config_of(const char* architecture, std::size_t layers, const nlohmann::json& more) {
    nlohmann::json config = {{"architectures", {architecture}},
                             {"hidden_size", kWidth},
                             {"num_hidden_layers", layers},
                             {"num_attention_heads", kHeads},
                             {"num_key_value_heads", kKvHeads},
                             {"intermediate_size", kFf},
                             {"vocab_size", kVocab},
                             {"max_position_embeddings", 512},
                             {"hidden_act", "silu"}};
    config.update(more);
    return config;
}

}  // namespace foresay::test::by_hand
