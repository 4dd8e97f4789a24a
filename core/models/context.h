// core/models/context.h: a model with a KV cache, a workspace and sequences. Turns tokens into logits.
//
// Law 1:    the caller chooses the row class: prefill() evaluates prefill rows (given text), decode() decode rows
//           (generated or drafted text). Within a class a row's bits depend on its prefix only.
// Threads:  one caller at a time.
// Cost:     one forward per call, or per chunk in prefill(). Only the constructor allocates.
// Errors:   the constructor throws Error (no memory). Other calls return false when the positions do not fit.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/cache/kv_cache.h"
#include "core/models/model.h"
#include "kernels/ops.h"

namespace foresay::core {

struct ContextOptions {
    std::int32_t length = 2048;       // positions that one sequence can hold
    std::int32_t prefill_rows = 256;  // rows of one prefill chunk
    std::int32_t decode_rows = 33;    // most rows of one decode: a verification of 32 drafted tokens
    std::int32_t sequences = 1;       // full-length sequences for which there are pages
    std::int32_t branches = 0;        // further sequences, on shared pages and on pages that the others leave free
    kernels::KvFormat kv_format = kernels::KvFormat::f16;
};

// The rows of one sequence in a forward: tokens that are appended to it.
struct Segment {
    SequenceId sequence = 0;
    std::span<const kernels::TokenRef> tokens;
    std::span<const std::int32_t> logit_rows;  // the tokens whose logits are wanted: indices into `tokens`, increasing
};

class Context {
public:
    Context(std::shared_ptr<const Model> model, const ContextOptions& options);

    const Model& model() const { return *model_; }
    const std::shared_ptr<const Model>& shared_model() const { return model_; }
    kernels::Ops& ops() const { return model_->ops(); }
    kernels::Workspace& workspace() { return *workspace_; }
    KvCache& cache() { return cache_; }
    const ContextOptions& options() const { return options_; }

    std::int32_t capacity() const { return options_.length; }
    std::int32_t length(SequenceId sequence = 0) const { return cache_.length(sequence); }

    // Appends tokens as prefill rows, in chunks. logits(0) then belongs to the last row. Returns false when the tokens
    // do not fit, or when `cancel` became true before the last op of the last chunk; length() then counts the rows
    // of whole chunks that are done, and logits are unspecified.
    bool prefill(std::span<const std::int32_t> tokens, SequenceId sequence = 0,
                 const std::atomic<bool>* cancel = nullptr);

    // Appends tokens as decode rows in one forward; logits(i) belongs to the i-th of the last `logit_rows` rows
    // (-1: all of them). At most options().decode_rows tokens.
    bool decode(std::span<const std::int32_t> tokens, std::int32_t logit_rows = -1, SequenceId sequence = 0);
    // The same with tokens that may be token slots: of this context, or of the one given to take_slots_of().
    bool decode(std::span<const kernels::TokenRef> tokens, std::int32_t logit_rows = -1, SequenceId sequence = 0);

    // The general form of the above: one forward with rows of several sequences, all of one class, each sequence once.
    // logits(i) belongs to the i-th logit row, counted through the segments in order. At most max_rows() tokens and
    // options().decode_rows logit rows. Returns false, with every sequence as it was, when the tokens of one do not
    // fit, or when `cancel` became true before the last op of the model.
    bool evaluate(kernels::RowClass row_class, std::span<const Segment> segments,
                  const std::atomic<bool>* cancel = nullptr);
    // The same for one sequence.
    bool evaluate(kernels::RowClass row_class, std::span<const kernels::TokenRef> tokens,
                  std::span<const std::int32_t> logit_rows, SequenceId sequence = 0,
                  const std::atomic<bool>* cancel = nullptr);
    std::int32_t max_rows() const { return workspace_->max_rows; }

    // From now on, token slots are those of `token_source`, a context of the same backend; null: of this one. It must
    // outlive the forwards of this context.
    void take_slots_of(Context* token_source) {
        token_source_ = token_source != nullptr ? token_source->workspace_.get() : nullptr;
    }

    // Waits until the last forward has run. Returns at once on a host backend.
    void wait() { ops().wait(*workspace_); }
    // V logits of the i-th logit row of the last forward, on the host, writable.
    std::span<float> logits(std::int32_t i) { return ops().logits(*workspace_, i); }

    // Forgets everything from position `length` on. Costs nothing.
    void truncate(std::int32_t length, SequenceId sequence = 0) { cache_.truncate(sequence, length); }
    // A new sequence with the same prefix, which shares pages until one of the two writes. -1: no sequence is free.
    SequenceId fork(SequenceId sequence) { return cache_.fork(sequence); }

private:
    bool reserve(std::span<const Segment> segments);

    std::shared_ptr<const Model> model_;
    ContextOptions options_;
    KvCache cache_;
    std::unique_ptr<kernels::Workspace> workspace_;
    kernels::Workspace* token_source_ = nullptr;
    std::vector<kernels::Row> rows_;
    std::vector<kernels::TokenRef> refs_;
    std::vector<std::int32_t> logit_rows_;        // of a segment
    std::vector<std::int32_t> batch_logit_rows_;  // of the forward
    std::vector<kernels::SequenceView> views_;
};

}  // namespace foresay::core
