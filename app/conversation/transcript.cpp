#include "app/conversation/transcript.h"

#include <optional>

#include "app/conversation/filled_hole.h"
#include "core/chat/answer_markup.h"

namespace foresay::app {

namespace {

constexpr std::string_view kContinues = "\u2026";
constexpr std::string_view kHole = "<FILL>";

// The turns so far, and whether the document ends within a line.
class Transcript {
public:
    explicit Transcript(const core::Tokenizer& tokenizer)
        : tokenizer_(tokenizer), markup_(core::detect_answer_markup(tokenizer.chat_template(), tokenizer)) {}

    void add(const Turn& turn) {
        std::string text = turn.said;
        const std::optional<Surroundings> hole = filled_hole(tokenizer_, turn);
        // Without markup, the tokens are the text.
        const bool document = !hole && tokenizer_.decode(turn.input, true).ends_with(turn.said);
        if (hole) text = hole->prefix + std::string(kHole) + hole->suffix;
        if (!document) open_ = false;
        add_entry(text);
        if (!document) open_ = false;
        if (!hole && !document && !markup_.none()) {
            std::vector<std::int32_t> tokens = turn.given;
            tokens.insert(tokens.end(), turn.answer.begin(), turn.answer.end());
            return add_answer(core::split_answer(markup_, tokenizer_, turn.input, tokens).content);
        }
        std::string answer = tokenizer_.decode(turn.given) + tokenizer_.decode(turn.answer);
        if (hole && hole->blank_left_out && answer.starts_with(' ')) answer.erase(0, 1);
        add_answer(answer);
    }

    std::string text() && {
        end_line();
        return std::move(out_);
    }

private:
    void end_line() {
        if (!out_.empty() && !out_.ends_with('\n')) out_ += '\n';
    }

    void add_entry(std::string_view text) {
        end_line();
        if (open_ && text.starts_with('\n')) {
            text.remove_prefix(1);  // the line break between the answer and this entry
            open_ = false;
        }
        out_ += "> ";
        if (open_) out_ += kContinues;
        open_ = !text.ends_with('\n');
        if (!open_) text.remove_suffix(1);
        for (const char c : text) {
            out_ += c;
            if (c == '\n') out_ += ". ";
        }
        out_ += '\n';
    }

    void add_answer(std::string_view text) {
        if (text.empty()) return;
        if (open_ && text.starts_with('\n')) {
            text.remove_prefix(1);
        } else if (open_) {
            out_ += kContinues;
        }
        out_ += text;
        open_ = !text.empty() && !text.ends_with('\n');
    }

    const core::Tokenizer& tokenizer_;
    core::AnswerMarkup markup_;
    std::string out_;
    bool open_ = false;
};

}  // namespace

std::string transcript(const core::Tokenizer& tokenizer, std::span<const Turn* const> turns) {
    Transcript transcript(tokenizer);
    for (const Turn* turn : turns) transcript.add(*turn);
    return std::move(transcript).text();
}

std::string_view last_lines(std::string_view text, std::size_t count) {
    std::size_t begin = text.size();
    for (; count > 0 && begin > 0; --count) {
        const std::size_t line_break = begin < 2 ? text.npos : text.rfind('\n', begin - 2);
        begin = line_break == text.npos ? 0 : line_break + 1;
    }
    return text.substr(begin);
}

}  // namespace foresay::app
