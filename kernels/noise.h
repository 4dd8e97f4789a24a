// kernels/noise.h: the random numbers of law 2. Each is a pure function of its purpose and its key; no generator keeps
// state.
//
// Generator: Philox4x32-10. Key: the seed (low word, high word). Counter words:
//             0  the purpose (below)   1  index   2, 3  branch (low, high)
//           Word 0, noise of a token:            coarse  id / 16         bytes 0..15 belong to ids 16i..16i+15
//                                                fine    2^30 + id / 2   words 0, 1: the even id; 2, 3: the odd one
//           Word 0, numbers of a sampler stage:  key     2^31 + 2^30     counter word 1 is the stage; output words
//                                                                        0, 1 are the key for the stage's numbers
//                                                number  the counter     under that key; the number is output word 0
// Noise:    V, uniform in (0, 1), is the coarse byte followed by 56 bits of the fine words, rounded down to 24
//           significant bits. Near 0 it has the full resolution of a float, so ties do not occur over a vocabulary of
//           128k ids. G = -log(-log(1 - V)) is Gumbel; a small V gives a large G.
// Cost:     the coarse byte bounds G, so only ids that can still win need the fine counter block and the logarithms.
// Source:   J. Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011.
#pragma once

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/math.h"

namespace foresay::kernels {

// What the noise at one position depends on, besides the candidate's id.
struct NoiseKey {
    std::uint64_t seed = 0;
    std::uint64_t branch = 0;
    std::uint32_t index = 0;  // absolute index of the token being sampled; BOS is 0
};

struct PhiloxBlock {
    std::uint32_t word[4];
};

FORESAY_HOST_DEVICE inline PhiloxBlock philox(std::uint32_t c0, std::uint32_t c1, std::uint32_t c2, std::uint32_t c3,
                                              std::uint64_t key) {
    std::uint32_t k0 = static_cast<std::uint32_t>(key);
    std::uint32_t k1 = static_cast<std::uint32_t>(key >> 32);
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t a = std::uint64_t{0xD2511F53u} * c0;
        const std::uint64_t b = std::uint64_t{0xCD9E8D57u} * c2;
        const std::uint32_t n0 = static_cast<std::uint32_t>(b >> 32) ^ c1 ^ k0;
        const std::uint32_t n2 = static_cast<std::uint32_t>(a >> 32) ^ c3 ^ k1;
        c1 = static_cast<std::uint32_t>(b);
        c3 = static_cast<std::uint32_t>(a);
        c0 = n0;
        c2 = n2;
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return {{c0, c1, c2, c3}};
}

FORESAY_HOST_DEVICE inline PhiloxBlock noise_block(std::uint32_t purpose, const NoiseKey& key) {
    return philox(purpose, key.index, static_cast<std::uint32_t>(key.branch),
                  static_cast<std::uint32_t>(key.branch >> 32), key.seed);
}

inline constexpr std::uint32_t kFineNoise = 1u << 30;
inline constexpr std::uint32_t kStageKey = (1u << 31) | (1u << 30);

// The first 8 bits of V of token `id`.
FORESAY_HOST_DEVICE inline std::uint32_t coarse_noise(const NoiseKey& key, std::int32_t id) {
    const PhiloxBlock block = noise_block(static_cast<std::uint32_t>(id) >> 4, key);
    const std::uint32_t byte = static_cast<std::uint32_t>(id) & 15u;
    return (block.word[byte >> 2] >> (8u * (byte & 3u))) & 255u;
}

// V of token `id`, given its coarse byte: at least 2^-64, below 1.
FORESAY_HOST_DEVICE inline float fine_noise(const NoiseKey& key, std::int32_t id, std::uint32_t coarse) {
    const PhiloxBlock block = noise_block(kFineNoise + (static_cast<std::uint32_t>(id) >> 1), key);
    const std::uint32_t odd = (static_cast<std::uint32_t>(id) & 1u) * 2u;
    const std::uint64_t fine = (std::uint64_t{block.word[odd]} << 32) | block.word[odd + 1u];
    const std::uint64_t bits = (std::uint64_t{coarse} << 56) | (fine >> 8) | 1u;
    const int zeros = math::leading_zeros(bits);
    const float mantissa = static_cast<float>(static_cast<std::uint32_t>((bits << zeros) >> 40));  // 24 bits: exact
    return mantissa * math::of_bits(static_cast<std::uint32_t>(127 - 24 - zeros) << 23);
}

FORESAY_HOST_DEVICE inline float gumbel_of(float v) { return -math::log(math::exponential(v)); }

// The Gumbel noise of token `id`.
FORESAY_HOST_DEVICE inline float gumbel(const NoiseKey& key, std::int32_t id) {
    return gumbel_of(fine_noise(key, id, coarse_noise(key, id)));
}

// No G exceeds kGumbelMax; if the coarse byte is not 0, no G exceeds kGumbelUsual.
inline constexpr float kGumbelMax = 44.5f;
inline constexpr float kGumbelUsual = 5.56f;

// An upper bound of G, given the coarse byte: V >= coarse / 256, and -log(1 - V) >= V.
FORESAY_HOST_DEVICE inline float gumbel_bound(std::uint32_t coarse) {
    if (coarse == 0) return kGumbelMax;
    return 1e-3f - math::log(math::exponential(static_cast<float>(coarse) * (1.0f / 256.0f)));
}

// 32 random bits for the sampler stage `stage`: number `counter` under this key.
FORESAY_HOST_DEVICE inline std::uint32_t stage_random(const NoiseKey& key, std::uint32_t stage, std::uint32_t counter) {
    const PhiloxBlock own = philox(kStageKey, stage, 0, 0, key.seed);
    const std::uint64_t stage_key = (std::uint64_t{own.word[1]} << 32) | own.word[0];
    return philox(counter, key.index, static_cast<std::uint32_t>(key.branch),
                  static_cast<std::uint32_t>(key.branch >> 32), stage_key)
        .word[0];
}

// Uniform in [0, 1), 24 bits.
FORESAY_HOST_DEVICE inline float stage_uniform(const NoiseKey& key, std::uint32_t stage, std::uint32_t counter) {
    return static_cast<float>(stage_random(key, stage, counter) >> 8) * (1.0f / 16777216.0f);
}

}  // namespace foresay::kernels
