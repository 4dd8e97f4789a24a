// core/models/limits.h: the most that a configuration may say.
#pragma once

#include <cstdint>

namespace foresay::core {

inline constexpr std::int32_t kMostLayers = 1024, kMostWidth = 1 << 17, kMostHeads = 1024, kMostHeadWidth = 1024,
                              kMostFeedForward = 1 << 20, kMostExperts = 1 << 14;

}  // namespace foresay::core
