// core/text/splitter.h: cuts text into pieces by the steps of a pre-tokenizer.
//
// Expressions never see invalid UTF-8: each run of invalid bytes is a piece of its own.
// Threads:  immutable; any thread may split.
// Errors:   as regex.h.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/pretokenizers.h"

namespace foresay::core {

// Where a stretch of text lies, for the rules that put a space before it.
enum class TextPlace : std::uint8_t {
    start,         // it starts the text
    inside,        // it follows an added token
    continuation,  // it continues a text that was encoded before: nothing is put before it
};

// Whether a space goes before a stretch at `place`.
inline bool wants_space(SpaceBefore rule, TextPlace place) {
    return (rule == SpaceBefore::always && place != TextPlace::continuation) ||
           (rule == SpaceBefore::first && place == TextPlace::start);
}

class Splitter {
public:
    Splitter(const Pretokenizer& pretokenizer, std::string source);
    Splitter(Splitter&&) noexcept;
    ~Splitter();

    // Calls emit(context, piece) for each piece in order, until it returns false. Pieces are never empty and valid only
    // during the call. Together they are the text, unless the steps add spaces or remove matches.
    using Emit = bool (*)(void* context, std::string_view piece);
    void split(std::string_view text, TextPlace place, Emit emit, void* context) const;
    // Whether each byte of any text is in some piece, a space perhaps as its mark.
    bool keeps_every_byte() const;

private:
    struct Step;
    struct Run;
    std::vector<Step> steps_;
};

}  // namespace foresay::core
