// core/text/stream_decoder.h: turns tokens into text one by one, and never returns half a character.
//
// Layout:   returned views point into the object and are valid until its next call.
// Threads:  one caller at a time.
// Cost:     allocates nothing once its buffer has grown to the longest token.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/text/tokenizer.h"

namespace foresay::core {

class StreamDecoder {
public:
    // Control tokens show nothing unless `show_special`. `whole_text`: the tokens start a text, as for
    // Tokenizer::whole_text(); otherwise they continue one.
    explicit StreamDecoder(Tokenizer tokenizer, bool show_special = false, bool whole_text = false);

    // The text that this token completes: whole characters, with U+FFFD for bytes that can no longer become one.
    std::string_view push(std::int32_t token);
    // The same for raw bytes.
    std::string_view push_bytes(std::string_view bytes);
    // Ends the text and returns what was held back: U+FFFD for an unfinished character. The next push starts a new
    // text.
    std::string_view flush();

    // Raw bytes held back: the start of a character, at most 3 bytes.
    std::string_view pending() const { return pending_; }
    void reset();

private:
    Tokenizer tokenizer_;
    bool show_special_;
    bool whole_text_;
    Tokenizer::TextStart start_;
    std::string pending_;
    std::string text_;
};

}  // namespace foresay::core
