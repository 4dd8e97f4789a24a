// samplers/chain_trace.h: what each stage of a chain did to a row.
//
// Threads:  plain data.
// Cost:     a copy of the row for each stage.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace foresay::samplers {

struct ChainTrace {
    struct Column {
        std::string stage;          // empty: the model's row
        std::vector<float> logits;  // by token; -inf: it is no candidate after the stage
        std::string failure;        // why the stage was left out; empty: it was not
        bool best_only = false;     // the candidates that were left for the stages that see only the best ones
    };
    std::vector<Column> columns;  // the model's row, then every stage that acts, in the chain's order
    std::vector<float> noise;     // by token: what is added to its last logit; empty: nothing, the chain is greedy
    std::int32_t token = -1;      // the best sum; -1: a stage failed, and the last column says which one
    float margin = 0.0f;          // best minus second-best sum
};

}  // namespace foresay::samplers
