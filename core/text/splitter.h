// core/text/splitter.h: cuts text into pieces by a pre-tokenizer's expressions, with PCRE2.
//
// Expressions never see invalid UTF-8: each run of invalid bytes is a piece of its own.
// Threads:  immutable; any thread may split.
// Errors:   the constructor throws Error for an expression that PCRE2 rejects or would interpret differently from the
//           engines for which tokenizers are written; split() for one that exceeds the match limit on the text.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pretokenizers.h"

namespace foresay::core {

class Splitter {
public:
    Splitter(const Pretokenizer& pretokenizer, std::string source);
    Splitter(Splitter&&) noexcept;
    ~Splitter();

    // Calls emit(context, piece) for each piece in order, until it returns false. Pieces are never empty, and together
    // they are the text.
    using Emit = bool (*)(void* context, std::string_view piece);
    void split(std::string_view text, Emit emit, void* context) const;
    // Whether the first step's expression matches somewhere in the valid UTF-8 of `text`.
    bool matches_first(std::string_view text) const;

private:
    struct Compiled;
    struct Run;
    std::string source_;
    std::unique_ptr<Compiled> compiled_;
};

// The expression with \s and \S spelled out as Unicode White_Space, because PCRE2's \s also has U+180E. Throws
// Error for class operations and escapes that mean something else in PCRE2.
std::string portable_regex(std::string_view regex, const std::string& source);

}  // namespace foresay::core
