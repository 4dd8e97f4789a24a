// speculative/logprobs.h: log-probabilities of a row of logits: of the sampled token and of the likeliest ones.
//
// They are those of the model's own distribution, the softmax of the logits before any stage of a chain. A function of
// the row alone: sums are in double precision and in the order of the ids, so law 1 gives the same bits in every batch.
//
// Threads:  one caller at a time.
// Cost:     one pass over the vocabulary and a copy of it; allocates when it is made.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "speculative/generator.h"

namespace foresay::speculative {

class Logprobs {
public:
    // Ids from `vocab` on (padding of the LM head) take no part. `most`: how many of the likeliest are listed.
    Logprobs(std::int32_t vocab, std::int32_t most);

    // Keeps what is needed of `logits`, which the chain may change afterwards.
    void read(std::span<const float> logits);
    // The entry of `token`, then the likeliest, best first and ties by lowest id. Valid until the next call.
    std::span<const TokenLogprob> of(std::int32_t token);

private:
    std::size_t most_;
    std::vector<float> row_;
    std::vector<std::int32_t> ids_;
    std::vector<TokenLogprob> entries_;
};

}  // namespace foresay::speculative
