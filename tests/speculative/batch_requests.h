// tests/speculative/batch_requests.h: requests of one prompt, and what runs them, for tests of batches.
#pragma once

#include "kernels/ops_decorator.h"
#include "tests/speculative/batch_support.h"

namespace foresay::test {

// Counts forwards, and the rows of each.
class CountedOps final : public kernels::OpsDecorator {
public:
    explicit CountedOps(kernels::Ops& inner) : OpsDecorator(inner) {}
    void begin(kernels::Workspace& workspace, const kernels::Batch& batch) override {
        rows.push_back(static_cast<std::int32_t>(batch.rows.size()));
        most_logits = std::max(most_logits, static_cast<std::int32_t>(batch.logit_rows.size()));
        OpsDecorator::begin(workspace, batch);
    }
    std::vector<std::int32_t> rows;
    std::int32_t most_logits = 0;
};

inline speculative::BatchRequest request(std::int32_t max_tokens, std::uint64_t seed = 0) {
    return {.input = prompt(),
            .chain = temperature_chain(0.8),
            .max_tokens = max_tokens,
            .seed = seed,
            .stop = {},
            .ignore_eos = true};
}

// The tokens of request(max_tokens, seed) when it is alone.
inline std::vector<std::int32_t> alone(std::int32_t max_tokens, std::uint64_t seed = 0) {
    speculative::BatchGenerator batch = make_batch(for_sequences(1));
    Recorder sink;
    batch.add(request(max_tokens, seed), sink);
    while (batch.step()) {
    }
    return sink.tokens;
}

inline void run(speculative::BatchGenerator& batch) {
    while (batch.step()) {
    }
}

}  // namespace foresay::test
