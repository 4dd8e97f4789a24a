// kernels/cuda/device/peer_pattern.h: words that a device gives to another one to see whether they arrive as they were.
// Boards whose IOMMU is set up wrongly report peer access, and lose or change what crosses.
//
// Layout:   plain C++ without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace foresay::kernels::cuda {

inline constexpr std::size_t kPatternWords = std::size_t{64} << 10;  // several pages of 64 KiB

// Word i of way `way`: no two are alike, so words that arrive elsewhere, or those of an earlier way, are seen.
constexpr std::uint32_t pattern_word(std::uint32_t way, std::size_t i) {
    return (way * static_cast<std::uint32_t>(kPatternWords) + static_cast<std::uint32_t>(i)) * 0x9e3779b1u;
}

// give(words, to): sends the words one way, and puts into `to`, which has other ones, what has arrived; false when that
// fails. Whether all have arrived.
template <class Give>
bool pattern_arrives(std::uint32_t way, const Give& give) {
    std::vector<std::uint32_t> words(kPatternWords), arrived(kPatternWords);
    for (std::size_t i = 0; i < words.size(); ++i) arrived[i] = ~(words[i] = pattern_word(way, i));
    return give(words, arrived) && arrived == words;
}

}  // namespace foresay::kernels::cuda
