// Random weights in a given shape, written directly as encoded blocks: random codes under fixed scales, so that a
// model of billions of weights takes seconds and its activations stay finite.

#include <cmath>
#include <cstring>
#include <map>
#include <random>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/shapes.h"
#include "kernels/quant/f16.h"

namespace foresay::core {
namespace {

using kernels::Encoding;

// xorshift64*: fast, and good enough for weights that mean nothing.
class Random {
public:
    explicit Random(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15u + 0x632be59bd9b4e019u) {}
    std::uint64_t next() {
        state_ ^= state_ >> 12;
        state_ ^= state_ << 25;
        state_ ^= state_ >> 27;
        return state_ * 0x2545f4914f6cdd1du;
    }
    float uniform() { return static_cast<float>(next() >> 40) * 0x1p-23f - 1.0f; }  // [-1, 1)

private:
    std::uint64_t state_;
};

void put_f16(std::byte* at, float value) {
    const std::uint16_t half = kernels::f32_to_f16(value);
    std::memcpy(at, &half, 2);
}

// Sets the scales of the block at `block`, whose codes are random, so that its values have the deviation `deviation`.
void set_scales(Encoding encoding, std::byte* block, float deviation) {
    // Six-bit scales and minima of the 4- and 5-bit K encodings, every one of them 32.
    constexpr unsigned char kAll32[12] = {0xa0, 0xa0, 0xa0, 0xa0, 0xa0, 0xa0, 0xa0, 0xa0, 0, 0, 0, 0};
    switch (encoding) {
        case Encoding::q4_0:
            put_f16(block, deviation / 4.6f);
            break;
        case Encoding::q8_0:
            put_f16(block, deviation / 74.0f);
            break;
        case Encoding::q4_k:
            put_f16(block, deviation / (4.6f * 32.0f));
            put_f16(block + 2, 7.5f * deviation / (4.6f * 32.0f));
            std::memcpy(block + 4, kAll32, sizeof kAll32);
            break;
        case Encoding::q5_k:
            put_f16(block, deviation / (9.2f * 32.0f));
            put_f16(block + 2, 15.5f * deviation / (9.2f * 32.0f));
            std::memcpy(block + 4, kAll32, sizeof kAll32);
            break;
        case Encoding::q6_k:
            std::memset(block + 192, 32, 16);
            put_f16(block + 208, deviation / (18.5f * 32.0f));
            break;
        case Encoding::f32:
        case Encoding::f16:
        case Encoding::bf16:
            break;
    }
}

class RandomSource final : public ModelSource {
public:
    RandomSource(const ModelConfig& config, Encoding encoding, Encoding head, std::uint64_t seed, bool by_backend)
        : encoding_(encoding), head_(head), seed_(seed), by_backend_(by_backend) {
        config_ = config;
        config_.file_type = kernels::info(encoding).name;
        path_ = "random " + (config.name.empty() ? config.architecture : config.name);
        check_config(config_, path_);
        for (const TensorRole role :
             {TensorRole::embedding, TensorRole::q, TensorRole::attention_out, TensorRole::down}) {
            check_blocks(encoding_of(role), tensor_shape(config_, role).cols);
        }
    }

    kernels::TensorView tensor(TensorRole role, std::int32_t layer) override {
        if (role == TensorRole::head && config_.tied_head) role = TensorRole::embedding;
        if (by_backend_ && !is_vector(role)) {
            const TensorShape shape = tensor_shape(config_, role);
            return {encoding_of(role), shape.rows, shape.cols, nullptr};
        }
        const bool is_embedding = role == TensorRole::embedding;
        if (is_embedding && !embedding_.empty()) return view(role, embedding_);
        std::vector<std::byte>& data = is_embedding ? embedding_ : scratch_.emplace_back();
        fill(role, layer, data);
        return view(role, data);
    }

    void release() override { scratch_.clear(); }

    std::int64_t weight_bytes() override {
        std::int64_t bytes = 0;
        for (int i = 0; i < kTensorRoles; ++i) {
            const auto role = static_cast<TensorRole>(i);
            if (!present(role)) continue;
            const TensorShape shape = tensor_shape(config_, role);
            const bool once = role <= TensorRole::head;
            bytes += shape.rows * kernels::row_bytes(encoding_of(role), shape.cols) * (once ? 1 : config_.shape.layers);
        }
        return bytes;
    }

private:
    static bool is_vector(TensorRole role) {
        switch (role) {
            case TensorRole::output_norm:
            case TensorRole::attention_norm:
            case TensorRole::mlp_norm:
            case TensorRole::q_bias:
            case TensorRole::k_bias:
            case TensorRole::v_bias:
            case TensorRole::attention_out_bias:
                return true;
            default:
                return false;
        }
    }

    bool present(TensorRole role) const {
        if (role == TensorRole::head) return !config_.tied_head;
        if (role == TensorRole::q_bias || role == TensorRole::k_bias || role == TensorRole::v_bias)
            return config_.qkv_bias;
        if (role == TensorRole::attention_out_bias) return config_.attention_out_bias;
        return true;
    }

    // The head, and a table that is the head too, in the head's encoding; the rest in the main one.
    Encoding encoding_of(TensorRole role) const {
        if (is_vector(role)) return Encoding::f32;
        if (role == TensorRole::head || (role == TensorRole::embedding && config_.tied_head)) return head_;
        return encoding_;
    }

    void check_blocks(Encoding encoding, std::int64_t cols) const {
        if (cols % kernels::info(encoding).block_elements == 0) return;
        throw Error(path_ + ": rows of " + std::to_string(cols) + " weights cannot be stored as " +
                    std::string(kernels::info(encoding).name) + "; use q4_0 or q8_0");
    }

    kernels::TensorView view(TensorRole role, const std::vector<std::byte>& data) const {
        const TensorShape shape = tensor_shape(config_, role);
        return {encoding_of(role), shape.rows, shape.cols, data.data()};
    }

    void fill(TensorRole role, std::int32_t layer, std::vector<std::byte>& data) const {
        const TensorShape shape = tensor_shape(config_, role);
        const Encoding encoding = encoding_of(role);
        Random random(seed_ + static_cast<std::uint64_t>(role) * 100003u + static_cast<std::uint64_t>(layer) * 7919u);
        data.resize(static_cast<std::size_t>(shape.rows * kernels::row_bytes(encoding, shape.cols)));
        const float deviation = 1.0f / std::sqrt(static_cast<float>(shape.cols));
        if (is_vector(role)) {
            const bool norm =
                role == TensorRole::output_norm || role == TensorRole::attention_norm || role == TensorRole::mlp_norm;
            fill_floats(encoding, data, random, norm ? 1.0f : 0.0f, norm ? 0.0f : 0.1f);
        } else if (kernels::info(encoding).block_elements == 1) {
            fill_floats(encoding, data, random, 0.0f, deviation * 1.7f);
        } else {
            fill_blocks(encoding, data, random, deviation);
        }
    }

    static void fill_floats(Encoding encoding, std::vector<std::byte>& data, Random& random, float mean, float spread) {
        const std::size_t size = static_cast<std::size_t>(kernels::info(encoding).block_bytes);
        for (std::size_t at = 0; at < data.size(); at += size) {
            const float value = mean + spread * random.uniform();
            kernels::encode_row(encoding, std::span<const float>(&value, 1), std::span(data).subspan(at, size));
        }
    }

    static void fill_blocks(Encoding encoding, std::vector<std::byte>& data, Random& random, float deviation) {
        std::size_t at = 0;
        for (; at + 8 <= data.size(); at += 8) {
            const std::uint64_t bits = random.next();
            std::memcpy(data.data() + at, &bits, 8);
        }
        for (; at < data.size(); ++at) data[at] = static_cast<std::byte>(random.next() >> 56);
        const std::size_t block = static_cast<std::size_t>(kernels::info(encoding).block_bytes);
        for (std::size_t b = 0; b < data.size(); b += block) set_scales(encoding, data.data() + b, deviation);
    }

    Encoding encoding_;
    Encoding head_;
    std::uint64_t seed_;
    bool by_backend_;
    std::vector<std::byte> embedding_;
    std::vector<std::vector<std::byte>> scratch_;
};

}  // namespace

std::unique_ptr<ModelSource> ModelSource::random(const ModelConfig& config, Encoding encoding, Encoding head,
                                                 std::uint64_t seed, bool by_backend) {
    return std::make_unique<RandomSource>(config, encoding, head, seed, by_backend);
}

std::unique_ptr<ModelSource> ModelSource::random(std::string_view shape, Encoding encoding, bool by_backend) {
    const ModelConfig config = published_shape(shape);
    Encoding head = head_encoding(encoding);
    // Published files fall back to q8_0 where a row is no whole number of K blocks.
    if (config.shape.d_model % kernels::info(head).block_elements != 0) head = Encoding::q8_0;
    return random(config, encoding, head, 1, by_backend);
}

}  // namespace foresay::core
