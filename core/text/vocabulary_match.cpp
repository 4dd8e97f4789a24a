#include "core/text/vocabulary_match.h"

#include <algorithm>

#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::int64_t kHopelessPart = 10;  // refused when more than one token in so many differs

bool is_padding(const Tokenizer& tokenizer, std::int32_t id) {
    return tokenizer.text(id).empty() || tokenizer.type(id) == TokenType::unused;
}

std::string quoted(const Tokenizer& tokenizer, std::int32_t id) {
    if (is_padding(tokenizer, id)) return "nothing";
    const std::string_view text = tokenizer.text(id);
    return "'" + to_valid_utf8(text.substr(0, 48)) + (text.size() > 48 ? "...'" : "'");
}

bool is_equal(const Tokenizer& target, const Tokenizer& draft, std::int32_t id) {
    if (is_padding(target, id) || is_padding(draft, id)) return is_padding(target, id) && is_padding(draft, id);
    if (target.text(id) == draft.text(id)) return true;
    // The same token may be spelled as bytes in one file and literally in the other.
    const bool control = target.is_control(id) || draft.is_control(id);
    return !control && !target.bytes(id).empty() && target.bytes(id) == draft.bytes(id);
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
        if (is_equal(target, draft, id)) {
            ++match.shared;
            continue;
        }
        ++match.differing;
        if (match.first_difference < 0) match.first_difference = id;
        if (!is_padding(target, id)) match.never_proposed.push_back(id);
    }
    // The tail of the longer vocabulary, without what no plain text becomes.
    const Tokenizer& longer = target.vocab_size() > draft.vocab_size() ? target : draft;
    std::int32_t tail = 0;
    for (std::int32_t id = both; id < longer.vocab_size(); ++id) {
        if (is_padding(longer, id) || longer.is_control(id)) continue;
        ++tail;
        if (match.first_difference < 0) match.first_difference = id;
        if (&longer == &target) match.never_proposed.push_back(id);
    }
    const std::string counts = "(" + std::to_string(target.vocab_size()) + " and " +
                               std::to_string(draft.vocab_size()) + " tokens, " + std::to_string(match.shared) +
                               " equal)";
    if (match.differing + tail == 0) {
        match.compatible = true;
        match.explanation = "the vocabularies agree " + counts;
        return match;
    }
    const std::int32_t id = match.first_difference;
    const std::string differences = "the vocabularies differ in " + std::to_string(match.differing + tail) +
                                    " tokens, first at id " + std::to_string(id) + ": " + quoted(target, id) +
                                    " in the target, " + quoted(draft, id) + " in the draft " + counts;
    if (std::int64_t{match.differing + tail} * kHopelessPart > longer.vocab_size()) return refuse(match, differences);
    match.compatible = true;
    const auto never = static_cast<std::int32_t>(match.never_proposed.size());
    match.explanation =
        differences + "; " + std::to_string(never) + (never == 1 ? " id" : " ids") + " will never be proposed";
    return match;
}

}  // namespace foresay::core
