// budget: a model thinks for so many tokens at most.
//
// Thinking is what stands between `begin` and `end`, which are names of control tokens or plain text. The prompt may
// have begun it. When an answer has spent its tokens, `message` and `end` are written, and the model goes on from
// there.
//
//     [[plugin]]
//     name = "budget"
//     [plugin.options]
//     tokens = 512
//     message = "\n\nI have thought long enough.\n"
//
// Counted:  tokens of the answer within thinking, of all its stretches together, without `message` and `end`.
// Forced:   what is left of `message` and `end`, so a draft has it at once.
// Cost:     a comparison per candidate; per token a search of its text for `begin` or `end`.

#include <algorithm>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "samplers/sdk/sampler.hpp"

namespace {

constexpr std::size_t kMostBytes = 1000;  // of each text

// A control token, or a text however it is split into tokens.
struct Marker {
    std::int32_t control = -1;
    std::string text;  // empty: the control token
};

struct Budget {
    static constexpr foresay::Info info{"budget", "1.0.0", "Ends thinking after so many tokens.", "Apache-2.0"};

    struct Parameters {
        std::int64_t tokens = 1024;
        std::string begin = "<think>";
        std::string end = "</think>";
        std::string message;
    };
    static auto parameters() {
        return foresay::parameters(
            foresay::integer("tokens", &Parameters::tokens, 0, 1e9, "The most tokens of thinking in an answer."),
            foresay::text("begin", &Parameters::begin, "What thinking begins with: a control token or a text."),
            foresay::text("end", &Parameters::end, "What it ends with."),
            foresay::text("message", &Parameters::message, "Written before the end where the tokens are spent."));
    }

    struct State {
        bool thinks = false;
        std::int64_t spent = 0;
        std::uint32_t closing = 0;  // tokens of the close that the text ends with
        bool answer = false;
        std::string tail;  // the end of the text, shorter than the marker that is looked for
    };

    Budget(const Parameters& p, foresay::Host host)
        : host_(host), tokens_(p.tokens), begin_(marker("begin", p.begin)), end_(marker("end", p.end)) {
        if (p.message.size() > kMostBytes) throw std::runtime_error("'message' holds more than 1000 bytes");
        spell("message", p.message);
        message_ = close_.size();
        if (end_.control >= 0) {
            close_.push_back(end_.control);
        } else {
            spell("end", end_.text);
        }
    }

    void begin(State& state, const foresay::Text& text) const {
        for (std::uint64_t i = 0; i < text.count; ++i) {
            state.answer = i >= text.answer;
            accept(state, text.tokens[i]);
        }
        state.answer = true;  // whatever follows
    }

    void accept(State& state, std::int32_t token) const {
        const bool closes = must_close(state);
        if (state.thinks && state.answer && !closes) ++state.spent;
        state.closing = closes && token == close_[state.closing] ? state.closing + 1 : 0;
        const std::string_view text = host_.token_text(token);
        if (text.empty()) {
            state.tail.clear();
            const Marker& next = state.thinks ? end_ : begin_;
            if (token == next.control) turn(state);
        } else {
            read(state, text);
        }
        if (state.closing == close_.size()) state.closing = 0;
    }

    bool test(const State& state, const foresay::Context&, std::int32_t id) const {
        return !must_close(state) || id == close_[state.closing];
    }

    // The rest of `message`, or of `end`, each as it was cut into tokens. A control token has no bytes.
    std::string forced(const State& state, const foresay::Context&) const {
        std::string text;
        if (!must_close(state)) return text;
        const std::size_t end = state.closing < message_ ? message_ : close_.size();
        for (std::size_t i = state.closing; i < end; ++i) text += host_.token_text(close_[i]);
        return text;
    }

private:
    bool must_close(const State& state) const { return state.thinks && state.answer && state.spent >= tokens_; }
    static void turn(State& state) {
        state.thinks = !state.thinks;
        state.closing = 0;
        state.tail.clear();
    }

    // Looks for texts that begin or end thinking.
    void read(State& state, std::string_view text) const {
        state.tail.append(text);
        for (;;) {
            const std::string& wanted = (state.thinks ? end_ : begin_).text;
            if (wanted.empty()) {
                state.tail.clear();
                return;
            }
            const std::size_t at = state.tail.find(wanted);
            if (at == std::string::npos) {
                const std::size_t keep = std::min(state.tail.size(), wanted.size() - 1);
                state.tail.erase(0, state.tail.size() - keep);
                return;
            }
            const std::string rest = state.tail.substr(at + wanted.size());
            turn(state);
            state.tail = rest;
        }
    }

    Marker marker(const char* what, const std::string& text) const {
        if (text.empty()) throw std::runtime_error(std::string("'") + what + "' is empty");
        if (text.size() > kMostBytes)
            throw std::runtime_error(std::string("'") + what + "' holds more than 1000 bytes");
        const std::int32_t control = host_.find_control(text);
        return control >= 0 ? Marker{control, {}} : Marker{-1, text};
    }

    // Adds the tokens of a text to the close: the tokenizer's, or the longest that there are.
    void spell(const char* what, const std::string& text) {
        if (text.empty()) return;
        std::vector<std::int32_t> ids = host_.tokenize(text);
        std::string spelt;
        for (const std::int32_t id : ids) spelt += host_.token_text(id);
        if (spelt != text) {
            ids.clear();
            for (std::size_t at = 0; at < text.size();) {
                std::size_t size = text.size() - at;
                std::int32_t id = -1;
                while (size > 0 && (id = host_.find_token(std::string_view(text).substr(at, size))) < 0) --size;
                if (size == 0) throw std::runtime_error(std::string("the model has no tokens for '") + what + "'");
                ids.push_back(id);
                at += size;
            }
        }
        close_.insert(close_.end(), ids.begin(), ids.end());
    }

    foresay::Host host_;
    std::int64_t tokens_;
    Marker begin_, end_;
    std::vector<std::int32_t> close_;  // message and end
    std::size_t message_ = 0;          // tokens of the message
};

}  // namespace

FORESAY_EXPORT_SAMPLERS(Budget)
