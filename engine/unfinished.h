// engine/unfinished.h: whether an answer that was cut off ends before a grammar of its chain does.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "engine/engine.h"

namespace foresay::engine {

// The first stage `grammar` of `spec`, by its name in the chain, under which a text of the tokens `answer` is not
// complete; empty: none. The grammar reads the answer again, which takes a microsecond a byte.
// Threads: any.
std::string unfinished_stage(const Engine& engine, const samplers::ChainSpec& spec,
                             std::span<const std::int32_t> answer);

}  // namespace foresay::engine
