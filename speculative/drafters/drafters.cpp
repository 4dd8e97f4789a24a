#include "speculative/drafters/drafters.h"

#include <algorithm>
#include <array>

namespace foresay::speculative {

// One line per drafter. Each function is defined in the drafter's own file.
// clang-format off
#define FORESAY_DRAFTERS(drafter) \
    drafter(model_drafter_kind) \
    drafter(ngram_drafter_kind)
// clang-format on

#define FORESAY_DECLARE(function) DrafterKind function();
FORESAY_DRAFTERS(FORESAY_DECLARE)
#undef FORESAY_DECLARE

std::span<const DrafterKind> drafter_kinds() {
#define FORESAY_CALL(function) function(),
    static const std::array kinds = {FORESAY_DRAFTERS(FORESAY_CALL)};
#undef FORESAY_CALL
    return kinds;
}

const DrafterKind* find_drafter_kind(std::string_view name) {
    const auto kinds = drafter_kinds();
    const auto found = std::ranges::find_if(kinds, [&](const DrafterKind& kind) {
        return kind.name == name || std::ranges::find(kind.aliases, name) != kind.aliases.end();
    });
    return found == kinds.end() ? nullptr : &*found;
}

}  // namespace foresay::speculative
