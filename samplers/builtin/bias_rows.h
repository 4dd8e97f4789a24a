// samplers/builtin/bias_rows.h: lists of token values for stages whose bias differs from row to row. Rows in flight
// borrow their lists, so a list stays as it is while kTokenSlots others are made from the same state.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <vector>

#include "kernels/sampled_token.h"
#include "kernels/sampling_plan.h"

namespace foresay::samplers {

class BiasRows {
public:
    // An empty list to fill in, in any order, each token once.
    std::vector<kernels::TokenValue>& next() const {
        last_ = (last_ + 1) % rows_.size();
        rows_[last_].clear();
        return rows_[last_];
    }
    // Of several values of one token the lowest stays.
    static void keep_lowest(std::vector<kernels::TokenValue>& values) {
        std::ranges::sort(values, [](const auto& a, const auto& b) {
            return a.token != b.token ? a.token < b.token : a.value < b.value;
        });
        const auto same = [](const auto& a, const auto& b) { return a.token == b.token; };
        values.erase(std::unique(values.begin(), values.end(), same), values.end());
    }
    static kernels::SamplingStep step(std::vector<kernels::TokenValue>& values) {
        std::ranges::sort(values, {}, &kernels::TokenValue::token);
        return {.kind = kernels::SamplingStepKind::bias, .values = values};
    }

private:
    mutable std::array<std::vector<kernels::TokenValue>, kernels::kTokenSlots + 8> rows_;
    mutable std::size_t last_ = 0;
};

}  // namespace foresay::samplers
