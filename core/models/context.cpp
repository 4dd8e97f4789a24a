#include "core/models/context.h"

#include <algorithm>

#include "base/error.h"
#include "core/models/forward.h"

namespace foresay::core {
namespace {

ContextOptions checked(ContextOptions options, const Model& model) {
    if (options.length < 1 || options.length > 1 << 24) {
        throw Error("a context of " + std::to_string(options.length) +
                    " tokens is not possible; choose between 1 and 16777216");
    }
    if (options.length > model.longest_context() && model.longest_context() < model.config().context_length) {
        throw Error("the model was loaded for contexts of at most " + std::to_string(model.longest_context()) +
                    " tokens, and " + std::to_string(options.length) + " are wanted; load it again for that many");
    }
    options.prefill_rows = std::clamp(options.prefill_rows, 1, 4096);
    options.decode_rows = std::clamp(options.decode_rows, 1, 4096);
    options.sequences = std::clamp(options.sequences, 1, 1024);
    options.branches = std::clamp(options.branches, 0, 1024);
    return options;
}

}  // namespace

Context::Context(std::shared_ptr<const Model> model, const ContextOptions& options)
    : model_(std::move(model)),
      options_(checked(options, *model_)),
      cache_(model_->ops(), model_->kv_shape(), options_.length, options_.sequences, options_.branches,
             options_.kv_format, widest_window(model_->config())),
      workspace_(model_->ops().allocate_workspace(
          model_->config().shape, std::max(options_.prefill_rows, options_.decode_rows), options_.decode_rows)) {
    const std::size_t rows = static_cast<std::size_t>(workspace_->max_rows);
    rows_.reserve(rows);
    refs_.reserve(rows);
    logit_rows_.reserve(rows);
    batch_logit_rows_.reserve(rows);
    views_.reserve(rows);
}

// Makes room for every segment. When one has none, gives back what the others took and returns false.
bool Context::reserve(std::span<const Segment> segments) {
    for (std::size_t i = 0; i < segments.size(); ++i) {
        const Segment& segment = segments[i];
        if (cache_.reserve(segment.sequence, static_cast<std::int32_t>(segment.tokens.size())) == Reserve::ok) continue;
        for (const Segment& before : segments.first(i)) cache_.release_spare(before.sequence);
        return false;
    }
    return true;
}

bool Context::evaluate(kernels::RowClass row_class, std::span<const Segment> segments,
                       const std::atomic<bool>* cancel) {
    std::size_t rows = 0;
    for (const Segment& segment : segments) rows += segment.tokens.size();
    if (rows == 0) return true;
    check(rows <= static_cast<std::size_t>(workspace_->max_rows), "more rows than the context was made for");
    if (!reserve(segments)) return false;
    rows_.clear();
    batch_logit_rows_.clear();
    views_.clear();
    for (const Segment& segment : segments) {
        if (segment.tokens.empty()) continue;
        const auto first = static_cast<std::int32_t>(rows_.size());
        const auto index = static_cast<std::int32_t>(views_.size());
        const std::int32_t start = cache_.length(segment.sequence);
        for (const kernels::TokenRef token : segment.tokens) {
            const auto position = start + static_cast<std::int32_t>(rows_.size()) - first;
            rows_.push_back({.token = token, .position = position, .sequence = index});
        }
        for (const std::int32_t row : segment.logit_rows) {
            check(row >= 0 && row < static_cast<std::int32_t>(segment.tokens.size()), "logit row outside its segment");
            batch_logit_rows_.push_back(first + row);
        }
        views_.push_back(cache_.view(segment.sequence));
    }
    const kernels::Batch batch{.row_class = row_class,
                               .tree = false,
                               .rows = rows_,
                               .sequences = views_,
                               .logit_rows = batch_logit_rows_,
                               .token_source = token_source_};
    if (!forward(*model_, *workspace_, cache_.pages(), batch, cancel)) {
        for (const Segment& segment : segments) cache_.release_spare(segment.sequence);
        return false;
    }
    std::size_t index = 0;
    for (const Segment& segment : segments) {
        if (segment.tokens.empty()) continue;
        // A second segment of a sequence has overwritten what the first one wrote.
        check(cache_.length(segment.sequence) == views_[index++].length, "a sequence comes twice in one forward");
        cache_.commit(segment.sequence, static_cast<std::int32_t>(segment.tokens.size()));
    }
    return true;
}

bool Context::evaluate(kernels::RowClass row_class, std::span<const kernels::TokenRef> tokens,
                       std::span<const std::int32_t> logit_rows, SequenceId sequence, const std::atomic<bool>* cancel) {
    const Segment segment{.sequence = sequence, .tokens = tokens, .logit_rows = logit_rows};
    return evaluate(row_class, std::span(&segment, 1), cancel);
}

bool Context::prefill(std::span<const std::int32_t> tokens, SequenceId sequence, const std::atomic<bool>* cancel) {
    if (static_cast<std::int64_t>(tokens.size()) > options_.length - length(sequence)) return false;
    while (!tokens.empty()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(options_.prefill_rows));
        refs_.clear();
        for (const std::int32_t token : tokens.first(count)) refs_.push_back(kernels::TokenRef::id(token));
        logit_rows_.clear();
        if (count == tokens.size()) logit_rows_.push_back(static_cast<std::int32_t>(count) - 1);
        if (!evaluate(kernels::RowClass::prefill, refs_, logit_rows_, sequence, cancel)) return false;
        tokens = tokens.subspan(count);
    }
    return true;
}

bool Context::decode(std::span<const std::int32_t> tokens, std::int32_t logit_rows, SequenceId sequence) {
    refs_.clear();
    for (const std::int32_t token : tokens) refs_.push_back(kernels::TokenRef::id(token));
    return decode(std::span<const kernels::TokenRef>(refs_), logit_rows, sequence);
}

bool Context::decode(std::span<const kernels::TokenRef> tokens, std::int32_t logit_rows, SequenceId sequence) {
    const std::int32_t count = static_cast<std::int32_t>(tokens.size());
    logit_rows_.clear();
    for (std::int32_t i = logit_rows < 0 ? 0 : std::max(0, count - logit_rows); i < count; ++i)
        logit_rows_.push_back(i);
    return evaluate(kernels::RowClass::decode, tokens, logit_rows_, sequence);
}

}  // namespace foresay::core
