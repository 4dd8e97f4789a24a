#include "core/models/random_blocks.h"

#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "kernels/quant/f16.h"
#include "kernels/quant/visit.h"

namespace foresay::core {
namespace {

using kernels::Encoding;

void put_f16(std::byte* at, float value) {
    const std::uint16_t half = kernels::f32_to_f16(value);
    std::memcpy(at, &half, 2);
}

void fill_bytes(std::span<std::byte> bytes, Random& random) {
    std::size_t at = 0;
    for (; at + 8 <= bytes.size(); at += 8) {
        const std::uint64_t bits = random.next();
        std::memcpy(bytes.data() + at, &bits, 8);
    }
    for (; at < bytes.size(); ++at) bytes[at] = static_cast<std::byte>(random.next() >> 56);
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

bool is_zero(kernels::StoredF16 value) { return (value.bits() & 0x7fffu) == 0; }

// The bytes of one block that no value depends on become random.
void scramble(kernels::Q4_0::Block& block, Random& random) {
    if (is_zero(block.d)) fill_bytes(std::as_writable_bytes(std::span(block.codes)), random);
}

void scramble(kernels::Q8_0::Block& block, Random& random) {
    if (is_zero(block.d)) fill_bytes(std::as_writable_bytes(std::span(block.codes)), random);
}

// The four lower bits of the codes of a group, which shares its bytes with another one.
void scramble_nibbles(std::uint8_t* bytes, bool upper, Random& random) {
    for (int j = 0; j < 32; ++j) {
        const unsigned code = static_cast<unsigned>(random.next() >> 60);
        bytes[j] = static_cast<std::uint8_t>(upper ? (bytes[j] & 0x0fu) | code << 4 : (bytes[j] & 0xf0u) | code);
    }
}

void scramble(kernels::Q4_K::Block& block, Random& random) {
    if (is_zero(block.d) && is_zero(block.dmin))
        fill_bytes(std::as_writable_bytes(std::span(block.scales.bytes)), random);
    for (int group = 0; group < kernels::KScales::kGroups; ++group) {
        if (!is_zero(block.d) && block.scales.scale(group) != 0) continue;
        scramble_nibbles(block.codes + group / 2 * 32, group % 2 == 1, random);
    }
}

void scramble(kernels::Q5_K::Block& block, Random& random) {
    if (is_zero(block.d) && is_zero(block.dmin))
        fill_bytes(std::as_writable_bytes(std::span(block.scales.bytes)), random);
    for (int group = 0; group < kernels::KScales::kGroups; ++group) {
        if (!is_zero(block.d) && block.scales.scale(group) != 0) continue;
        scramble_nibbles(block.low + group / 2 * 32, group % 2 == 1, random);
        const std::uint64_t bits = random.next();
        for (int j = 0; j < 32; ++j) {
            const unsigned bit = static_cast<unsigned>(bits >> (j + 32)) & 1u;
            block.high[j] = static_cast<std::uint8_t>((block.high[j] & ~(1u << group)) | bit << group);
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

}  // namespace

void put_value(Encoding encoding, float value, std::byte* out) {
    const std::size_t size = static_cast<std::size_t>(kernels::info(encoding).block_bytes);
    kernels::encode_row(encoding, std::span<const float>(&value, 1), std::span(out, size));
}

void fill_random(Encoding encoding, std::span<std::byte> blocks, float deviation, Random& random) {
    const std::size_t block = static_cast<std::size_t>(kernels::info(encoding).block_bytes);
    if (kernels::info(encoding).block_elements == 1) {
        constexpr float kSpread = 1.7f;  // half the width of a uniform distribution of deviation 1
        for (std::size_t at = 0; at < blocks.size(); at += block) {
            put_value(encoding, kSpread * deviation * random.uniform(), blocks.data() + at);
        }
        return;
    }
    fill_bytes(blocks, random);
    for (std::size_t at = 0; at < blocks.size(); at += block) set_scales(encoding, blocks.data() + at, deviation);
}

void fill_zero_scaled(Encoding encoding, std::span<std::byte> blocks, Random& random) {
    check(kernels::info(encoding).block_elements > 1, "values without a scale cannot be scaled to zero");
    fill_bytes(blocks, random);
    const std::size_t block = static_cast<std::size_t>(kernels::info(encoding).block_bytes);
    const std::size_t d = encoding == Encoding::q6_k ? 208 : 0;
    const bool has_minima = encoding == Encoding::q4_k || encoding == Encoding::q5_k;
    for (std::size_t at = 0; at < blocks.size(); at += block) {
        put_f16(blocks.data() + at + d, 0.0f);
        if (has_minima) put_f16(blocks.data() + at + 2, 0.0f);
    }
}

void scramble_zero_scaled(Encoding encoding, std::span<std::byte> blocks, Random& random) {
    kernels::visit_encoding(encoding, [&](auto q) {
        using Q = decltype(q);
        if constexpr (Q::kElements > 1) {
            auto* block = reinterpret_cast<typename Q::Block*>(blocks.data());
            for (std::size_t i = 0; i < blocks.size() / sizeof(typename Q::Block); ++i) scramble(block[i], random);
        }
    });
}

}  // namespace foresay::core
