// core/text/splitter.h: cuts text into pieces by a pre-tokenizer's expressions, with PCRE2.
//
// Invalid UTF-8 is never shown to an expression: each stretch of invalid bytes is a piece of its own.
// Threads:  immutable; any thread may split.
// Errors:   the constructor throws Error for an expression that PCRE2 does not take or would understand differently
//           from the engines tokenizers are made with; split() for one that needs unbounded effort on the text.
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

    // Calls emit(context, piece) for each piece in order; the pieces, which are never empty, make up the text.
    using Emit = void (*)(void* context, std::string_view piece);
    void split(std::string_view text, Emit emit, void* context) const;
    // Does the first step's expression match somewhere in `text`? Never in invalid UTF-8.
    bool matches_first(std::string_view text) const;

private:
    struct Compiled;
    struct Run;
    std::string source_;
    std::unique_ptr<Compiled> compiled_;
};

// The expression with \s and \S spelled out as Unicode White_Space, which PCRE2's own \s exceeds by U+180E. Throws
// Error for class operations and escapes that mean something else in PCRE2.
std::string portable_regex(std::string_view regex, const std::string& source);

}  // namespace foresay::core
