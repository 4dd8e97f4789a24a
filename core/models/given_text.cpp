#include "core/models/given_text.h"

#include <algorithm>

namespace foresay::core {

bool classes_agree(const kernels::Ops& ops) { return ops.free_memory() < 0; }

std::int32_t short_given_tokens(const kernels::Ops& ops) {
    // Up to so many tokens decode rows are faster than prefill rows (docs/experiments/mixed-gemm.md). Part of the bits
    // of every text on such a device, and so no option.
    constexpr std::int32_t kOneReading = 128;  // devices that multiply many rows with one reading of the weights
    constexpr std::int32_t kFourPasses = 64;   // all others: a reading for each 16 rows
    if (classes_agree(ops)) return 0;
    return ops.reads_weights_once() ? kOneReading : kFourPasses;
}

std::vector<kernels::RowClass> classes_of(std::span<const std::uint8_t> generated, std::int32_t short_given) {
    std::vector<kernels::RowClass> classes(generated.size(), kernels::RowClass::decode);
    for (std::size_t begin = 0; begin < generated.size();) {
        const auto from = generated.begin() + static_cast<std::ptrdiff_t>(begin);
        const auto end = static_cast<std::size_t>(
            std::find_if(from, generated.end(), [](std::uint8_t one) { return one != 0; }) - generated.begin());
        const auto length = static_cast<std::int32_t>(end - begin);
        std::fill(classes.begin() + static_cast<std::ptrdiff_t>(begin),
                  classes.begin() + static_cast<std::ptrdiff_t>(end), class_of_given(length, short_given));
        begin = std::max(end, begin + 1);
    }
    return classes;
}

bool evaluate_given(Context& context, std::span<const std::int32_t> tokens, SequenceId sequence,
                    const std::atomic<bool>* cancel) {
    const auto length = static_cast<std::int32_t>(std::min<std::size_t>(tokens.size(), 1 << 30));
    if (class_of_given(length, short_given_tokens(context.ops())) == kernels::RowClass::prefill)
        return context.prefill(tokens, sequence, cancel);
    if (length > context.capacity() - context.length(sequence)) return false;
    while (!tokens.empty()) {
        if (cancel != nullptr && cancel->load(std::memory_order_relaxed)) return false;
        const std::size_t count = std::min(tokens.size(), static_cast<std::size_t>(context.max_rows()));
        if (!context.decode(tokens.first(count), count == tokens.size() ? 1 : 0, sequence)) return false;
        tokens = tokens.subspan(count);
    }
    return true;
}

}  // namespace foresay::core
