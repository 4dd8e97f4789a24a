#include "core/models/given_text.h"

#include <algorithm>

namespace foresay::core {

std::int32_t given_decode_rows(const Context& context) {
    // What one reading of the weights multiplies with at the price of few rows, by name: it is part of the bits that a
    // backend gives a text, and so no option.
    constexpr std::int32_t kDeviceRows = 32;
    if (context.model().ops().describe().name != "cuda") return 0;
    const ContextOptions& options = context.options();
    return std::min(kDeviceRows, std::max(options.prefill_rows, options.decode_rows));
}

bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence,
                    const std::atomic<bool>* cancel) {
    const std::size_t first = std::min(tokens.size(), static_cast<std::size_t>(given_decode_rows(context)));
    const bool whole = first == tokens.size();
    if (first > 0 && !context.decode(tokens.first(first), whole ? 1 : 0, sequence)) return false;
    return whole || context.prefill(tokens.subspan(first), sequence, cancel);
}

}  // namespace foresay::core
