#include "core/text/splitter.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxSteps = 64;

std::size_t previous_character(std::string_view text, std::size_t at) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    return at;
}

}  // namespace

struct Splitter::Step : SplitStep {
    Step(const SplitStep& step, const std::string& source) : SplitStep(step) {
        if (match == Match::metaspace || match == Match::space) return;
        expression.emplace(regex, source, trust_of(regex), anchors);
    }
    std::optional<Regex> expression;
};

// The state of one call of split(): where pieces go, and the scratch of the expressions.
struct Splitter::Run {
    const std::vector<Step>& steps;
    Emit emit;
    void* context;
    RegexScratch* scratch;
    const char* origin;  // where the text begins: a space may go before a piece that starts here
    TextPlace place;

    void piece(std::size_t step, std::string_view text) {
        if (text.empty()) return;
        if (step == steps.size()) return emit(context, text);
        switch (steps[step].match) {
            case SplitStep::Match::metaspace:
                return metaspace(step, text);
            case SplitStep::Match::space:
                return space(step, text);
            case SplitStep::Match::thousands:
            case SplitStep::Match::cuts_only:
                return thousands(step, text);
            case SplitStep::Match::piece:
                break;
        }
        steps[step].behavior == SplitBehavior::isolated ? cut(step, text) : cut_and_merge(step, text);
    }

    bool adds_space(const Step& step, std::string_view text) const {
        // Only the piece that starts the stretch can be a continuation; the others follow a cut.
        const TextPlace here = text.data() == origin ? place : TextPlace::inside;
        return wants_space(step.space, here);
    }

    // A step that changes the text leaves pieces whose addresses say nothing about their place.
    void changed(std::size_t step, std::string_view text) {
        const char* const before = std::exchange(origin, nullptr);
        piece(step, text);
        origin = before;
    }

    void space(std::size_t index, std::string_view text) {
        if (text.starts_with(' ') || !adds_space(steps[index], text)) return piece(index + 1, text);
        changed(index + 1, std::string(" ").append(text));
    }

    void metaspace(std::size_t index, std::string_view text) {
        const Step& step = steps[index];
        std::string marked;
        marked.reserve(text.size() + text.size() / 2 + step.mark.size());
        const bool has = text.starts_with(' ') || text.starts_with(step.mark);
        if (!has && adds_space(step, text)) marked = step.mark;
        for (const char c : text) c == ' ' ? marked.append(step.mark) : marked.append(1, c);
        if (!step.cut_at_mark) return changed(index + 1, marked);
        const std::string_view all = marked;
        for (std::size_t begin = 0; begin < all.size();) {
            const std::size_t end = std::min(all.find(step.mark, begin + 1), all.size());
            changed(index + 1, all.substr(begin, end - begin));
            begin = end;
        }
    }

    // Emits the number [begin, end) in groups of three digits, counted from its end. `isolate`: the text from `pending`
    // to the number, and the digits before the first whole group, are pieces too; otherwise they stay one piece with
    // what precedes them, and the last group stays pending. Returns the end of the emitted text.
    std::size_t groups(std::size_t step, std::string_view text, std::size_t pending, RegexMatch number, bool isolate) {
        std::vector<std::size_t> cuts;  // from the right
        std::size_t at = number.end;
        for (;;) {
            std::size_t digits = 0;
            for (; digits < 3 && at > number.begin; ++digits) at = previous_character(text, at);
            if (digits == 3) cuts.push_back(at);
            if (digits < 3 || at == number.begin) break;
        }
        if (isolate) {
            piece(step + 1, text.substr(pending, number.begin - pending));
            pending = number.begin;
        }
        for (; !cuts.empty(); cuts.pop_back()) {
            piece(step + 1, text.substr(pending, cuts.back() - pending));
            pending = cuts.back();
        }
        if (!isolate) return pending;
        piece(step + 1, text.substr(pending, number.end - pending));
        return number.end;
    }

    // Calls use(match) for each match of the step in order.
    template <typename Use>
    void each_match(const Step& step, std::string_view text, Use use) {
        RegexMatch match;
        std::size_t from = 0;
        while (from <= text.size() && step.expression->find(*scratch, text, from, match)) {
            use(match);
            from = match.end;
            if (match.begin == match.end) from += from < text.size() ? next_utf8(text.substr(from)).length_bytes : 1;
        }
    }

    void thousands(std::size_t index, std::string_view text) {
        const Step& step = steps[index];
        std::size_t pending = 0;
        each_match(step, text, [&](RegexMatch match) {
            pending = groups(index, text, pending, match, step.match == SplitStep::Match::thousands);
        });
        piece(index + 1, text.substr(pending));
    }

    void cut(std::size_t index, std::string_view text) {
        std::size_t pending = 0;
        each_match(steps[index], text, [&](RegexMatch match) {
            piece(index + 1, text.substr(pending, match.begin - pending));
            piece(index + 1, text.substr(match.begin, match.end - match.begin));
            pending = match.end;
        });
        piece(index + 1, text.substr(pending));
    }

    // All behaviours but the usual one: matches and gaps in turn, some of which join.
    void cut_and_merge(std::size_t index, std::string_view text) {
        const Step& step = steps[index];
        struct Part {
            std::size_t begin, end;
            bool match;
        };
        std::vector<Part> parts;
        std::size_t done = 0;
        each_match(step, text, [&](RegexMatch match) {
            if (match.begin > done) parts.push_back({done, match.begin, step.invert});
            parts.push_back({match.begin, match.end, !step.invert});
            done = match.end;
        });
        if (text.size() > done) parts.push_back({done, text.size(), step.invert});
        std::size_t begin = 0;
        for (std::size_t i = 0; i < parts.size(); ++i) {
            const bool here = parts[i].match, last = i + 1 == parts.size();
            const bool next = !last && parts[i + 1].match;
            if (step.behavior == SplitBehavior::removed) {
                if (!here) piece(index + 1, text.substr(parts[i].begin, parts[i].end - parts[i].begin));
                continue;
            }
            const bool joins = (step.behavior == SplitBehavior::contiguous && here == next) ||
                               (step.behavior == SplitBehavior::merged_with_previous && !here && next) ||
                               (step.behavior == SplitBehavior::merged_with_next && here && !next);
            if (!last && joins) continue;
            piece(index + 1, text.substr(begin, parts[i].end - begin));
            begin = parts[i].end;
        }
    }
};

Splitter::Splitter(const Pretokenizer& pretokenizer, std::string source) {
    if (pretokenizer.steps.size() > kMaxSteps)
        throw Error(source + ": the pre-tokenizer has more than " + std::to_string(kMaxSteps) +
                    " steps; use a model whose tokenizer is of a known kind");
    for (const SplitStep& step : pretokenizer.steps) steps_.emplace_back(step, source);
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, TextPlace place, Emit emit, void* context) const {
    std::optional<RegexScratch> scratch;
    if (!steps_.empty()) scratch.emplace(text.size());
    Run run{steps_, emit, context, scratch ? &*scratch : nullptr, text.data(), place};
    while (!text.empty()) {
        const std::size_t valid = valid_utf8_prefix(text);
        run.piece(0, text.substr(0, valid));
        text.remove_prefix(valid);
        std::size_t invalid = 0;
        while (invalid < text.size()) {
            const Utf8Step step = next_utf8(text.substr(invalid));
            if (step.status == Utf8Status::valid) break;
            invalid += step.length_bytes;
        }
        if (invalid > 0) emit(context, text.substr(0, invalid));
        text.remove_prefix(invalid);
        run.origin = text.data();  // no space goes after bytes that are no text
        run.place = TextPlace::continuation;
    }
}

}  // namespace foresay::core
