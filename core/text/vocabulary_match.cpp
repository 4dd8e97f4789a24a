#include "core/text/vocabulary_match.h"

#include <algorithm>

#include "core/text/utf8.h"

namespace foresay::core {
namespace {

bool is_padding(const Tokenizer& tokenizer, std::int32_t id) {
    return tokenizer.text(id).empty() || tokenizer.type(id) == TokenType::unused;
}

std::string quoted(const Tokenizer& tokenizer, std::int32_t id) {
    if (is_padding(tokenizer, id)) return "nothing";
    const std::string_view text = tokenizer.text(id);
    return "'" + to_valid_utf8(text.substr(0, 48)) + (text.size() > 48 ? "...'" : "'");
}

// The first id from `from` on that plain text can become, or -1.
std::int32_t first_real(const Tokenizer& longer, std::int32_t from) {
    for (std::int32_t id = from; id < longer.vocab_size(); ++id)
        if (!is_padding(longer, id) && !longer.is_control(id)) return id;
    return -1;
}

VocabularyMatch refuse(VocabularyMatch match, std::string explanation) {
    match.compatible = false;
    match.explanation = std::move(explanation) + "; a draft must use the target's tokenizer";
    return match;
}

}  // namespace

VocabularyMatch compare_vocabularies(const Tokenizer& target, const Tokenizer& draft) {
    VocabularyMatch match;
    const std::int32_t both = std::min(target.vocab_size(), draft.vocab_size());
    for (std::int32_t id = 0; id < both; ++id) {
        const bool padding = is_padding(target, id) && is_padding(draft, id);
        if (padding || target.text(id) == draft.text(id)) {
            ++match.shared;
        } else {
            ++match.differing;
            if (match.first_difference < 0) match.first_difference = id;
        }
    }
    const std::string counts = "(" + std::to_string(target.vocab_size()) + " and " +
                               std::to_string(draft.vocab_size()) + " tokens, " + std::to_string(match.shared) +
                               " equal)";
    if (match.differing > 0) {
        const std::int32_t id = match.first_difference;
        return refuse(match, "the vocabularies differ in " + std::to_string(match.differing) + " tokens, first at id " +
                                 std::to_string(id) + ": " + quoted(target, id) + " in the target, " +
                                 quoted(draft, id) + " in the draft " + counts);
    }
    const bool target_longer = target.vocab_size() > draft.vocab_size();
    const Tokenizer& longer = target_longer ? target : draft;
    if (const std::int32_t id = first_real(longer, both); id >= 0) {
        match.first_difference = id;
        return refuse(match, std::string("the ") + (target_longer ? "draft" : "target") + " lacks token " +
                                 std::to_string(id) + ", " + quoted(longer, id) + ", of the " +
                                 (target_longer ? "target " : "draft ") + counts);
    }
    const SpecialTokens &ours = target.special(), &theirs = draft.special();
    if (ours.bos >= 0 && theirs.bos >= 0 && ours.bos != theirs.bos)
        return refuse(match, "texts begin with " + quoted(target, ours.bos) + " in the target but with " +
                                 quoted(draft, theirs.bos) + " in the draft");
    // A tuned model may use its end of a turn as EOS where its base model uses the end of a text. It is enough that one
    // model ends a text at the other's EOS.
    if (ours.eos >= 0 && theirs.eos >= 0 && !draft.is_end_of_text(ours.eos) && !target.is_end_of_text(theirs.eos))
        return refuse(match, "texts end with " + quoted(target, ours.eos) + " in the target but with " +
                                 quoted(draft, theirs.eos) + " in the draft");
    match.compatible = true;
    match.explanation = "the vocabularies agree " + counts;
    return match;
}

}  // namespace foresay::core
