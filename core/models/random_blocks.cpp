#include "core/models/random_blocks.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/visit.h"

namespace foresay::core {
namespace {

using kernels::QuantType;

kernels::StoredF16 f16(float value) { return kernels::StoredF16::from_bits(kernels::f32_to_f16(value)); }

void fill_bytes(std::span<std::byte> bytes, Random& random) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t bits = random.next();
        std::memcpy(bytes.data() + at, &bits, 8);
    }
    for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random.next() >> 56);
}

constexpr int kUniformScale = 32;  // the scale of every group of a K type

void set_uniform(kernels::KScales& scales) {
    scales = {};
    for (int group = 0; group < kernels::KScales::kGroups; ++group) scales.set(group, kUniformScale, kUniformScale);
}

// set_scales() sets the scales of a block with random codes so that its values have standard deviation `deviation`. The
// divisors are the standard deviations of the codes.
void set_scales(kernels::Q4_0::Block& block, float deviation) { block.d = f16(deviation / 4.6f); }

void set_scales(kernels::Q8_0::Block& block, float deviation) { block.d = f16(deviation / 74.0f); }

// The power of two nearest by ratio.
void set_scales(kernels::MXFP4::Block& block, float deviation) {
    block.exponent = static_cast<std::uint8_t>(std::clamp(std::lround(std::log2(deviation / 2.9f)) + 127L, 0L, 253L));
}

// K types with minima, which are the middle code.
template <class Block>
requires requires(Block& block) { block.dmin; }
void set_scales(Block& block, float deviation) {
    constexpr float kCodes = 1 << Block::kCodeBits;
    const float unit = 0.2875f * kCodes * kUniformScale;
    block.d = f16(deviation / unit);
    block.dmin = f16((kCodes - 1) / 2 * deviation / unit);
    set_uniform(block.scales);
}

void set_scales(kernels::Q6_K::Block& block, float deviation) {
    std::ranges::fill(block.scales, static_cast<std::int8_t>(kUniformScale));
    block.d = f16(deviation / (18.5f * kUniformScale));
}

bool is_zero(kernels::StoredF16 value) { return (value.bits() & 0x7fffu) == 0; }

// scramble() randomises those bytes of a block on which no value depends.
void scramble(kernels::Q4_0::Block& block, Random& random) {
    if (is_zero(block.d)) fill_bytes(std::as_writable_bytes(std::span(block.codes)), random);
}

// A scale of zero does not exist, so zeros are codes; only then is the exponent of no consequence.
bool all_zeros(const kernels::MXFP4::Block& block) {
    return std::ranges::none_of(block.codes, [](std::uint8_t byte) { return (byte & 0x77u) != 0; });
}
void scramble(kernels::MXFP4::Block& block, Random& random) {
    if (!all_zeros(block)) return;
    block.exponent = static_cast<std::uint8_t>(96u + (random.next() >> 60));
    for (std::uint8_t& byte : block.codes) byte = static_cast<std::uint8_t>((random.next() >> 56) & 0x88u);
}

void scramble(kernels::Q8_0::Block& block, Random& random) {
    if (is_zero(block.d)) fill_bytes(std::as_writable_bytes(std::span(block.codes)), random);
}

template <class Block>
requires requires(Block& block) { block.dmin; }
void scramble(Block& block, Random& random) {
    if (is_zero(block.d) && is_zero(block.dmin))
        fill_bytes(std::as_writable_bytes(std::span(block.scales.bytes)), random);
    for (int group = 0; group < kernels::KScales::kGroups; ++group) {
        if (!is_zero(block.d) && block.scales.scale(group) != 0) continue;
        for (int j = 0; j < 32; ++j) {
            block.set_code(32 * group + j, static_cast<int>(random.next() >> (64 - Block::kCodeBits)));
        }
    }
}

void scramble(kernels::Q6_K::Block& block, Random& random) {
    if (is_zero(block.d)) fill_bytes(std::as_writable_bytes(std::span(block.scales)), random);
    for (int group = 0; group < kernels::Q6_K::kElements / kernels::Q6_K::kGroup; ++group) {
        if (!is_zero(block.d) && block.scales[group] != 0) continue;
        const int half = group / 8, quarter = group % 8 / 2, first = group % 2 * kernels::Q6_K::kGroup;
        const int low_shift = quarter / 2 * 4, high_shift = quarter * 2;
        for (int j = 0; j < kernels::Q6_K::kGroup; ++j) {
            const std::uint64_t bits = random.next();
            std::uint8_t& low = block.low[half * 64 + quarter % 2 * 32 + first + j];
            std::uint8_t& high = block.high[half * 32 + first + j];
            low =
                static_cast<std::uint8_t>((low & ~(15u << low_shift)) | static_cast<unsigned>(bits >> 60) << low_shift);
            high = static_cast<std::uint8_t>((high & ~(3u << high_shift)) | (static_cast<unsigned>(bits >> 50) & 3u)
                                                                                << high_shift);
        }
    }
}

// Calls body(block) for each quantisation block in `bytes`; not at all for float types.
template <class Body>
void for_each_block(QuantType quant_type, std::span<std::byte> bytes, const Body& body) {
    kernels::visit_quant_type(quant_type, [&](auto type) {
        if constexpr (decltype(type)::kElements > 1) {
            using Block = typename decltype(type)::Block;
            auto* blocks = reinterpret_cast<Block*>(bytes.data());
            for (std::size_t i = 0; i < bytes.size() / sizeof(Block); ++i) body(blocks[i]);
        }
    });
}

}  // namespace

void put_value(QuantType quant_type, float value, std::byte* out) {
    const std::size_t size = static_cast<std::size_t>(kernels::info(quant_type).block_bytes);
    kernels::quantize_row(quant_type, std::span<const float>(&value, 1), std::span(out, size));
}

void fill_random(QuantType quant_type, std::span<std::byte> blocks, float deviation, Random& random) {
    if (kernels::info(quant_type).block_elements == 1) {
        constexpr float kSpread = 1.7f;  // half the width of a uniform distribution of standard deviation 1
        const std::size_t size = static_cast<std::size_t>(kernels::info(quant_type).block_bytes);
        for (std::size_t at = 0; at < blocks.size(); at += size) {
            put_value(quant_type, kSpread * deviation * random.uniform(), blocks.data() + at);
        }
        return;
    }
    fill_bytes(blocks, random);
    for_each_block(quant_type, blocks, [&](auto& block) { set_scales(block, deviation); });
}

void fill_zero_scaled(QuantType quant_type, std::span<std::byte> blocks, Random& random) {
    check(kernels::info(quant_type).block_elements > 1, "values without a scale cannot be scaled to zero");
    fill_bytes(blocks, random);
    for_each_block(quant_type, blocks, [](auto& block) {
        if constexpr (requires { block.exponent; }) {
            block.exponent = 96;
            for (std::uint8_t& byte : block.codes) byte &= 0x88u;
        } else {
            block.d = {};
            if constexpr (requires { block.dmin; }) block.dmin = {};
        }
    });
}

void scramble_zero_scaled(QuantType quant_type, std::span<std::byte> blocks, Random& random) {
    for_each_block(quant_type, blocks, [&](auto& block) { scramble(block, random); });
}

}  // namespace foresay::core
