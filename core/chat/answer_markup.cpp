#include "core/chat/answer_markup.h"

#include <algorithm>
#include <array>
#include <utility>

namespace foresay::core {

namespace {

struct Tags {
    std::string_view open, close;
};

// The first whose closing mark a template has is the one of its model. Those that are part of no other come last.
constexpr std::array kTags = {
    Tags{"<|START_THINKING|>", "<|END_THINKING|>"},
    Tags{"<|inner_prefix|>", "<|inner_suffix|>"},
    Tags{"<|channel>thought\n", "<channel|>"},
    Tags{"[THINK]", "[/THINK]"},
    Tags{"<seed:think>", "</seed:think>"},
    Tags{"<mm:think>", "</mm:think>"},
    Tags{"<thought>", "</thought>"},
    Tags{"<thinking>", "</thinking>"},
    Tags{"<reasoning>", "</reasoning>"},
    Tags{"<think>", "</think>"},
};

// An answer that looks like a header of harmony is no header from this length on.
constexpr std::size_t kMostHeader = 256;
constexpr std::string_view kRole = "assistant";
// Tokens of a prompt in which the beginning of the answer is looked for.
constexpr std::size_t kPromptTail = 64;

bool is_space(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool is_added(const Tokenizer& tokenizer, std::string_view text) {
    const auto id = tokenizer.find(text);
    return id && (tokenizer.type(*id) == TokenType::control || tokenizer.type(*id) == TokenType::user_defined);
}

// The part of a mark that may be a token: all of it, or up to its first '>' or ']'.
std::string_view token_of(const Tokenizer& tokenizer, std::string_view mark) {
    if (is_added(tokenizer, mark)) return mark;
    const std::size_t end = mark.find_first_of(">]");
    return end == mark.npos ? mark : mark.substr(0, end + 1);
}

}  // namespace

std::string AnswerMarkup::describe() const {
    if (kind == Kind::harmony) return "channels";
    std::string text = open;
    while (!text.empty() && is_space(text.back())) text.pop_back();
    return text;
}

AnswerMarkup detect_answer_markup(std::string_view chat_template, const Tokenizer& tokenizer) {
    const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
    if (has("<|channel|>") && has("<|message|>") && has("analysis")) {
        const bool tokens = is_added(tokenizer, "<|start|>") && is_added(tokenizer, "<|channel|>") &&
                            is_added(tokenizer, "<|message|>");
        if (tokens) return {AnswerMarkup::Kind::harmony, {}, {}};
    }
    for (const Tags& tags : kTags) {
        if (has(tags.close)) return {AnswerMarkup::Kind::tags, std::string(tags.open), std::string(tags.close)};
    }
    return {};
}

AnswerParser::AnswerParser(const AnswerMarkup& markup, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                           bool raw)
    : markup_(markup), tokenizer_(tokenizer), decoder_(tokenizer, true), raw_(raw) {
    prompt = prompt.last(std::min(prompt.size(), kPromptTail));
    if (markup.none()) {
        state_ = State::content;
    } else if (markup.kind == AnswerMarkup::Kind::tags) {
        const std::string_view open = token_of(tokenizer, markup.open), close = token_of(tokenizer, markup.close);
        open_special_ = is_added(tokenizer, open);
        close_special_ = is_added(tokenizer, close);
        open_anywhere_ = open_special_ && tokenizer.is_control(*tokenizer.find(open));
        std::string text = tokenizer.decode(prompt, true);
        const auto trim = [](std::string& of) {
            while (!of.empty() && is_space(of.back())) of.pop_back();
        };
        std::string mark = markup.open;
        trim(text);
        trim(mark);
        if (text.ends_with(mark)) state_ = State::reasoning;
    } else {
        const auto id = [&](std::string_view text) { return tokenizer.find(text).value_or(-1); };
        channels_ = {id("<|start|>"), id("<|channel|>"), id("<|constrain|>"), id("<|message|>"),
                     id("<|end|>"),   id("<|return|>"),  id("<|call|>")};
        const auto begin = std::find(prompt.rbegin(), prompt.rend(), channels_.start);
        state_ = begin == prompt.rend() ? State::between : State::header;
        std::vector<AnswerPart> ignored;
        for (auto at = begin.base(); begin != prompt.rend() && at != prompt.end(); ++at) push_harmony(*at, ignored);
        decoder_.reset();
        // The role is not part of the answer.
        if (state_ == State::header && held_.starts_with(kRole)) take(kRole.size());
        content_begun_ = reasoning_begun_ = content_break_ = reasoning_break_ = false;
    }
}

void AnswerParser::push(std::int32_t token, std::vector<AnswerPart>& out) {
    if (markup_.kind == AnswerMarkup::Kind::harmony) return push_harmony(token, out);
    const TokenType type = tokenizer_.type(token);
    if (type == TokenType::control || type == TokenType::user_defined) {
        push_text(decoder_.flush(), false);
        const std::string_view text = tokenizer_.bytes(token);
        held_ += text;
        special_.append(text.size(), type == TokenType::control ? '\1' : '\2');
    } else {
        push_text(decoded(token), false);
    }
    advance(false, out);
}

void AnswerParser::finish(std::vector<AnswerPart>& out) {
    push_text(decoder_.flush(), false);
    if (markup_.kind == AnswerMarkup::Kind::harmony) {
        if (state_ == State::header && !header_names_channel()) {
            give(false, take(held_.size()), out);
        } else if (state_ != State::header && !held_.empty()) {
            give(body_reasoning_ && state_ == State::content, take(held_.size()), out);
        }
        return;
    }
    advance(true, out);
}

void AnswerParser::push_text(std::string_view text, bool special) {
    held_ += text;
    special_.append(text.size(), special ? '\1' : '\0');
}

// Takes bytes from the front of what is held; the texts of control tokens among them are not shown.
std::string AnswerParser::take(std::size_t bytes) {
    std::string out;
    for (std::size_t i = 0; i < bytes; ++i) {
        if (special_[i] != '\1') out += held_[i];
    }
    held_.erase(0, bytes);
    special_.erase(0, bytes);
    return out;
}

void AnswerParser::give(bool reasoning, std::string text, std::vector<AnswerPart>& out) {
    if (text.empty()) return;
    (reasoning ? reasoning_begun_ : content_begun_) = true;
    if (!out.empty() && out.back().reasoning == reasoning) {
        out.back().text += text;
    } else {
        out.push_back({reasoning, std::move(text)});
    }
}

// The place of `mark` in what is held; npos: it is not there. `special`: its first byte must be that of a token.
std::size_t AnswerParser::find_mark(const std::string& mark, bool special, std::size_t from) const {
    for (std::size_t at = held_.find(mark, from); at != held_.npos; at = held_.find(mark, at + 1)) {
        if (!special || special_[at] != '\0') return at;
    }
    return held_.npos;
}

// How many bytes at the end may be the beginning of `mark`.
std::size_t AnswerParser::held_back(const std::string& mark) const {
    for (std::size_t size = std::min(mark.size() - 1, held_.size()); size > 0; --size) {
        if (held_.compare(held_.size() - size, size, mark, 0, size) == 0) return size;
    }
    return 0;
}

void AnswerParser::advance(bool end, std::vector<AnswerPart>& out) {
    for (bool more = true; more;) {
        switch (state_) {
            case State::start:
                more = advance_start(end);
                break;
            case State::reasoning:
                more = advance_reasoning(end, out);
                break;
            case State::after: {
                std::size_t blank = 0;
                while (blank < held_.size() && (held_[blank] == '\n' || held_[blank] == '\r')) ++blank;
                take(blank);
                more = !held_.empty();
                if (more) state_ = State::content;
                break;
            }
            default:
                more = advance_content(end, out);
                break;
        }
    }
}

bool AnswerParser::advance_start(bool end) {
    std::size_t blank = 0;
    while (blank < held_.size() && is_space(held_[blank])) ++blank;
    if (blank < held_.size() && find_mark(markup_.open, open_special_, blank) == blank) {
        held_.erase(0, blank + markup_.open.size());
        special_.erase(0, blank + markup_.open.size());
        state_ = State::reasoning;
        return true;
    }
    const std::string_view rest = std::string_view(held_).substr(blank);
    const bool may_be = rest.size() < markup_.open.size() && markup_.open.starts_with(rest);
    if (may_be && !end) return false;
    state_ = State::content;
    return true;
}

bool AnswerParser::advance_reasoning(bool end, std::vector<AnswerPart>& out) {
    if (!reasoning_begun_) {
        std::size_t blank = 0;
        while (blank < held_.size() && (held_[blank] == '\n' || held_[blank] == '\r')) ++blank;
        take(blank);
    }
    const std::size_t close = find_mark(markup_.close, close_special_, 0);
    std::size_t size = close != held_.npos ? close : held_.size() - (end ? 0 : held_back(markup_.close));
    // Line breaks before the mark are not part of the reasoning, so they wait for what follows.
    std::size_t text = size;
    while ((close != held_.npos || !end) && text > 0 && is_space(held_[text - 1])) --text;
    give(true, take(text), out);
    size -= text;
    if (close == std::string::npos) return false;
    take(size);
    held_.erase(0, markup_.close.size());
    special_.erase(0, markup_.close.size());
    state_ = State::after;
    return true;
}

bool AnswerParser::advance_content(bool end, std::vector<AnswerPart>& out) {
    std::size_t open = held_.npos;
    if (open_anywhere_) open = find_mark(markup_.open, true, 0);
    std::size_t size = open != held_.npos ? open : held_.size();
    if (open == held_.npos && open_anywhere_ && !end) size -= held_back(markup_.open);
    give(false, take(size), out);
    if (open == std::string::npos) return false;
    held_.erase(0, markup_.open.size());
    special_.erase(0, markup_.open.size());
    if (reasoning_begun_) give(true, "\n\n", out);
    state_ = State::reasoning;
    return true;
}

// ----------------------------------------------------------------------------------------------------------- harmony

// A header is held back until <|message|> ends it: it says whose message follows.
void AnswerParser::push_harmony(std::int32_t token, std::vector<AnswerPart>& out) {
    const auto pending = [&] {
        const std::string text(decoder_.flush());
        if (state_ == State::header) {
            push_text(text, false);
        } else {
            give(state_ == State::content && body_reasoning_, text, out);
        }
    };
    if (token == channels_.start) {
        pending();
        if (state_ == State::header) give(false, take(held_.size()), out);
        state_ = State::header;
    } else if (token == channels_.message) {
        pending();
        if (state_ == State::header) end_header(out);
    } else if (token == channels_.end || token == channels_.ret || token == channels_.call) {
        pending();
        if (state_ == State::content) (body_reasoning_ ? reasoning_break_ : content_break_) = true;
        if (state_ == State::header) give(false, take(held_.size()), out);
        state_ = State::between;
    } else if (token == channels_.channel || token == channels_.constrain) {
        pending();
        if (state_ == State::between) state_ = State::header;
        if (state_ == State::header) push_text(tokenizer_.bytes(token), true);
    } else if (!tokenizer_.is_control(token)) {
        const std::string text(decoded(token));
        if (state_ == State::header) {
            push_text(text, false);
            if (held_.size() > kMostHeader || (held_.find('\n') != held_.npos && !header_names_channel())) {
                give(false, take(held_.size()), out);
                body_reasoning_ = false;
                state_ = State::content;
            }
        } else {
            give(state_ == State::content && body_reasoning_, text, out);
        }
    }
}

bool AnswerParser::header_names_channel() const { return special_.find('\1') != special_.npos; }

void AnswerParser::end_header(std::vector<AnswerPart>& out) {
    std::string header = std::exchange(held_, {});
    special_.clear();
    if (header.starts_with(kRole)) header.erase(0, kRole.size());
    const std::size_t at = header.find("<|channel|>");
    std::string channel = at == header.npos ? "" : header.substr(at + 11);
    channel.resize(std::min(channel.find_first_of(" <"), channel.size()));
    const bool to_tool = header.find("to=") != header.npos;
    body_reasoning_ = channel == "analysis" && !to_tool;
    state_ = State::content;
    if (std::exchange(body_reasoning_ ? reasoning_break_ : content_break_, false)) {
        give(body_reasoning_, "\n\n", out);
    }
    if (to_tool) give(false, header + "<|message|>", out);
}

AnswerParts split_answer(const AnswerMarkup& markup, const Tokenizer& tokenizer, std::span<const std::int32_t> prompt,
                         std::span<const std::int32_t> answer) {
    AnswerParts whole;
    if (markup.none()) {
        whole.content = tokenizer.decode(answer);
        return whole;
    }
    AnswerParser parser(markup, tokenizer, prompt, true);
    std::vector<AnswerPart> parts;
    for (const std::int32_t token : answer) parser.push(token, parts);
    parser.finish(parts);
    for (const AnswerPart& part : parts) (part.reasoning ? whole.reasoning : whole.content) += part.text;
    return whole;
}

}  // namespace foresay::core
