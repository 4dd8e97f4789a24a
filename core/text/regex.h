// core/text/regex.h: regular expressions of tokenizers, with PCRE2.
//
// Trusted expressions are those of this project's own tables: they are known to be fast on every text. All others are
// bounded: each try starts at one place, sees a window of the text that grows only as far as the expression looks, and
// takes its effort from a budget that is proportional to the text. An expression that exceeds it is an Error, so a file
// cannot make encoding take more than linear time.
//
// Threads:  immutable; any thread may search, each with a RegexScratch of its own.
// Errors:   the constructor throws Error for an expression that PCRE2 rejects or would interpret differently from the
//           engines for which tokenizers are written; find() for one that exceeds its limit on the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace foresay::core {

enum class RegexTrust : std::uint8_t { trusted, bounded };

// Where ^ and $ match: at the ends of lines (Oniguruma, for tokenizer.json) or of the text (tiktoken).
enum class RegexAnchors : std::uint8_t { lines, text };

struct RegexMatch {
    std::size_t begin = 0, end = 0;
};

class RegexScratch {
public:
    // `text_bytes`: of the text that is searched with it, in all.
    explicit RegexScratch(std::size_t text_bytes);
    RegexScratch(RegexScratch&&) noexcept;
    ~RegexScratch();

private:
    friend class Regex;
    struct Data;
    std::unique_ptr<Data> data_;
};

class Regex {
public:
    // `source` is the file that the expression comes from, for errors.
    Regex(std::string_view expression, std::string source, RegexTrust trust = RegexTrust::bounded,
          RegexAnchors anchors = RegexAnchors::lines);
    Regex(Regex&&) noexcept;
    ~Regex();

    // Finds the first match in `text`, which must be valid UTF-8, that starts at `from` or later; false when there is
    // none.
    bool find(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const;

private:
    bool find_trusted(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const;
    bool find_bounded(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const;
    struct Compiled;
    std::string source_;
    std::unique_ptr<Compiled> compiled_;
};

// The expression in PCRE2's words: \s, \w and \b mean what they mean in Unicode, and the intersection of two character
// classes becomes a lookahead. Throws Error for escapes and class operations that mean something else in PCRE2.
std::string portable_regex(std::string_view regex, const std::string& source);

// An expression that matches `text` and nothing else.
std::string regex_of_text(std::string_view text);

}  // namespace foresay::core
