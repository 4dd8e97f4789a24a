// engine/unfinished.h: whether an answer that was cut off ends before a grammar of its chain does.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/engine.h"

namespace foresay::engine {

// The grammars of a chain, compiled once. The engine outlives it.
// Threads: one caller at a time.
class Unfinished {
public:
    Unfinished(const Engine& engine, const samplers::ChainSpec& spec);

    // The first stage `grammar`, by its name in the chain, under which a text of the tokens `answer` is not complete;
    // empty: none. The grammar reads the answer again, which takes a microsecond a byte.
    std::string stage(std::span<const std::int32_t> answer) const;

private:
    const Engine& engine_;
    std::vector<std::pair<std::string, std::unique_ptr<samplers::Chain>>> alone_;  // each with one of the stages
};

// The same for one answer. Threads: any.
std::string unfinished_stage(const Engine& engine, const samplers::ChainSpec& spec,
                             std::span<const std::int32_t> answer);

// Why an answer of `tokens` tokens ends before the grammar of stage `unfinished` does: a sentence without its end,
// which says how to raise the limit of `max_tokens` (0: none). Empty where `unfinished` is.
std::string unfinished_text(const std::string& unfinished, std::size_t tokens, std::int64_t max_tokens,
                            std::string_view raised_by);
// The same where it has taken all its time, which `raised_by` limits.
std::string unfinished_by_time(const std::string& unfinished, std::string_view raised_by);

}  // namespace foresay::engine
