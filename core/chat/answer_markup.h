// core/chat/answer_markup.h: tells the reasoning of an answer from its content, while it is generated.
//
// Models write what they think before they answer, between marks: <think> and </think>, [THINK] and [/THINK], or
// channels (harmony: <|channel|>analysis<|message|>...<|end|>). A parser takes the tokens of an answer and gives
// reasoning and content as they become known. Half a mark is never given. What cannot be told apart is content.
//
// Rules:    an opening mark counts where an answer begins and, if it is a control token, anywhere. A mark that the
//           vocabulary has as a token counts as that token only, not spelled in others. Line breaks around the
//           reasoning belong to neither part. A message of harmony to a tool is content, with its header.
// Threads:  one caller for each parser.
// Cost:     amortised O(1) per byte.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/stream_decoder.h"
#include "core/text/tokenizer.h"

namespace foresay::core {

struct AnswerMarkup {
    enum class Kind : std::uint8_t { none, tags, harmony };
    Kind kind = Kind::none;
    std::string open, close;  // of tags

    bool none() const { return kind == Kind::none; }
    // "<think>", "channels": for people. Empty: none.
    std::string describe() const;
};

// What answers have, by the text of the model's chat template. Harmony only where the vocabulary has its tokens.
AnswerMarkup detect_answer_markup(std::string_view chat_template, const Tokenizer& tokenizer);

struct AnswerPart {
    bool reasoning = false;
    std::string text;
};

class AnswerParser {
public:
    // `prompt`: what the answer follows, its last tokens at least; it may have opened the reasoning. `raw`: bytes that
    // are no UTF-8 stay; otherwise they become U+FFFD, and characters are whole.
    AnswerParser(const AnswerMarkup& markup, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                 bool raw = false);

    // What this token completes, appended to `out`.
    void push(std::int32_t token, std::vector<AnswerPart>& out);
    // Ends the answer: what was held back.
    void finish(std::vector<AnswerPart>& out);

    // Whether content was given.
    bool content_begun() const { return content_begun_; }
    // Whether the next token belongs to reasoning, as far as is known.
    bool in_reasoning() const { return state_ == State::reasoning || (state_ == State::content && body_reasoning_); }

private:
    enum class State : std::uint8_t { start, reasoning, after, content, header, between };

    std::string_view decoded(std::int32_t token) { return raw_ ? tokenizer_.bytes(token) : decoder_.push(token); }
    void push_text(std::string_view text, bool special);
    void advance(bool end, std::vector<AnswerPart>& out);
    bool advance_start(bool end);
    bool advance_reasoning(bool end, std::vector<AnswerPart>& out);
    bool advance_content(bool end, std::vector<AnswerPart>& out);
    void push_harmony(std::int32_t token, std::vector<AnswerPart>& out);
    void end_header(std::vector<AnswerPart>& out);
    bool header_names_channel() const;
    std::size_t find_mark(const std::string& mark, bool special, std::size_t from) const;
    std::size_t held_back(const std::string& mark) const;
    void give(bool reasoning, std::string text, std::vector<AnswerPart>& out);
    std::string take(std::size_t bytes);

    AnswerMarkup markup_;
    Tokenizer tokenizer_;
    StreamDecoder decoder_;
    bool raw_;
    State state_ = State::start;
    bool open_special_ = false, close_special_ = false;  // the mark is, or begins with, a token of its own
    bool open_anywhere_ = false;
    std::string held_;     // text that is not given yet
    std::string special_;  // per byte of it: 1 if it is the text of a control token, 2 of another added token, 0 else
    bool content_begun_ = false, reasoning_begun_ = false;

    struct Channels {
        std::int32_t start = -1, channel = -1, constrain = -1, message = -1, end = -1, ret = -1, call = -1;
    } channels_;
    bool body_reasoning_ = false;
    bool reasoning_break_ = false, content_break_ = false;  // another message of that kind has ended
};

// A whole answer in two parts, of raw bytes. `prompt`: as above.
struct AnswerParts {
    std::string reasoning, content;
};
AnswerParts split_answer(const AnswerMarkup& markup, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                         std::span<const std::int32_t> answer);

}  // namespace foresay::core
