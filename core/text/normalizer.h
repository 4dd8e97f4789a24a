// core/text/normalizer.h: changes a text before it is cut into pieces.
//
// Threads:  immutable; any thread may normalize.
// Cost:     linear in the text. No step makes a text more than kMaxExpansion times as long, plus a little: a file that
//           asks for more is refused when that happens.
// Errors:   the constructor throws Error for an expression or a character map that is not understood.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/splitter.h"
#include "core/text/unicode.h"

namespace foresay::core {

inline constexpr std::size_t kMaxExpansion = 64;

struct NormalizeStep {
    enum class Kind : std::uint8_t {
        form,           // a normalisation form of Unicode
        strip,          // removes white space at the start, at the end, or both
        prepend,        // puts `content` before a text that is not empty, where `space` says so
        replace,        // `pattern` by `content`
        replace_regex,  // matches of the expression `pattern` by `content`
        charsmap,       // the character map `pattern`, as the Hugging Face library applies it: grapheme by grapheme
        sentencepiece,  // the character map `pattern`, spaces and the mark of a space, as SentencePiece does it
    };
    Kind kind = Kind::form;
    NormalForm form = NormalForm::nfc;
    std::string pattern;
    std::string content;
    SpaceBefore space = SpaceBefore::always;
    bool left = true, right = true;  // strip: which ends
    bool join_spaces = false;        // sentencepiece: spaces at both ends go, others become one
};

class Normalizer {
public:
    // `source` is the file, for errors.
    Normalizer(const std::vector<NormalizeStep>& steps, std::string source);
    Normalizer(Normalizer&&) noexcept;
    ~Normalizer();

    bool empty() const { return steps_.empty(); }
    std::string apply(std::string_view text, TextPlace place) const;
    // No text is more than this many times as long as what apply() makes of it; 0: there is no limit.
    std::size_t most_shrinking() const;

private:
    struct Step;
    std::string source_;
    std::vector<Step> steps_;
};

}  // namespace foresay::core
