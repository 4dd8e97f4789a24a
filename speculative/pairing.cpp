#include "speculative/pairing.h"

#include <cstdlib>
#include <utility>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "core/text/vocabulary_match.h"

namespace foresay::speculative {
namespace {

// Padding rows after a vocabulary, at most: published model families pad to different multiples.
constexpr std::int32_t kMaxPadding = 1024;

}  // namespace

Pairing check_pairing(const PairingModel& target, const PairingModel& draft) {
    const std::string pair = draft.path + " cannot draft for " + target.path + ": ";
    if (target.tokenizer != nullptr && draft.tokenizer != nullptr) {
        core::VocabularyMatch match = core::compare_vocabularies(*target.tokenizer, *draft.tokenizer);
        if (!match.compatible) throw Error(pair + match.explanation);
        return {std::move(match.explanation), std::move(match.never_proposed)};
    }
    const std::int32_t rows = target.config.shape.vocab;
    const std::int32_t draft_rows = draft.config.shape.vocab;
    if (std::abs(rows - draft_rows) > kMaxPadding) {
        throw Error(pair + "the target has " + std::to_string(rows) + " tokens, the draft " +
                    std::to_string(draft_rows) + "; use a draft of the target's family");
    }
    return {};
}

}  // namespace foresay::speculative
