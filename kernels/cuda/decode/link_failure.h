// kernels/cuda/decode/link_failure.h: what LinkTable::failed (rank_link.h) says of a rank that has gone on without what
// it waited for.
//
// Layout:   plain C++ without CUDA. kGaveUp, and bit p + 1 for peer p that begin_linked() has waited for in vain. Peers
//           in the order of the ranks, without the own one. The decode kernel, which polls words, knows no names.
#pragma once

#include <cstdint>

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kGaveUp = 1;

// The ranks known to have been late, bit by bit.
constexpr std::uint32_t late_ranks(std::uint32_t failed, std::int32_t own) {
    const std::uint32_t peers = failed >> 1, before = (1u << own) - 1;
    return (peers & before) | (peers & ~before) << 1;
}

}  // namespace foresay::kernels::cuda
