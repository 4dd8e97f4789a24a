// tests/laws/rows.h: rows of logits that a context computes of given tokens, for tests that compare them bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "core/models/context.h"

namespace foresay::test {

using Rows = std::vector<std::vector<float>>;

inline std::vector<std::int32_t> random_tokens(std::size_t count, std::int32_t vocab, unsigned seed) {
    std::mt19937 random(seed);
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
    return tokens;
}

// Evaluates `tokens` in forwards of the given widths (the last one repeats) and appends the logits of every row.
inline void feed(core::Context& context, kernels::RowClass row_class, std::span<const std::int32_t> tokens,
                 const std::vector<std::size_t>& widths, Rows& out, core::SequenceId sequence = 0) {
    for (std::size_t call = 0; !tokens.empty(); ++call) {
        const std::size_t width = std::min(widths[std::min(call, widths.size() - 1)], tokens.size());
        std::vector<kernels::TokenRef> refs;
        std::vector<std::int32_t> rows;
        for (std::size_t i = 0; i < width; ++i) {
            refs.push_back(kernels::TokenRef::id(tokens[i]));
            rows.push_back(static_cast<std::int32_t>(i));
        }
        ASSERT_TRUE(context.evaluate(row_class, refs, rows, sequence));
        for (std::size_t i = 0; i < width; ++i) {
            const std::span<const float> logits = context.logits(static_cast<std::int32_t>(i));
            out.emplace_back(logits.begin(), logits.end());
        }
        tokens = tokens.subspan(width);
    }
}

}  // namespace foresay::test
