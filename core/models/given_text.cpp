#include "core/models/given_text.h"

#include <algorithm>

namespace foresay::core {

std::int32_t given_decode_rows(const kernels::Ops& ops) {
    // What a device multiplies without unpacking the weights first. Part of the bits of every text, and so no option.
    constexpr std::int32_t kDeviceRows = 128;
    return ops.free_memory() < 0 ? 0 : kDeviceRows;
}

bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence,
                    const std::atomic<bool>* cancel) {
    if (static_cast<std::int64_t>(tokens.size()) > context.capacity() - context.length(sequence)) return false;
    std::size_t first = std::min(tokens.size(), static_cast<std::size_t>(given_decode_rows(context.ops())));
    while (first > 0) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        const std::size_t count = std::min(first, static_cast<std::size_t>(context.max_rows()));
        if (!context.decode(tokens.first(count), count == tokens.size() ? 1 : 0, sequence)) return false;
        tokens = tokens.subspan(count);
        first -= count;
    }
    return tokens.empty() || context.prefill(tokens, sequence, cancel);
}

}  // namespace foresay::core
