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

    // False when the caller wants no more; so do all that call it.
    bool piece(std::size_t step, std::string_view text) {
        if (text.empty()) return true;
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
        return steps[step].behavior == SplitBehavior::isolated ? cut(step, text) : cut_and_merge(step, text);
    }

    bool adds_space(const Step& step, std::string_view text) const {
        // Only the piece that starts the stretch can be a continuation; the others follow a cut.
        const TextPlace here = text.data() == origin ? place : TextPlace::inside;
        return wants_space(step.space, here);
    }

    // A step that changes the text leaves pieces whose addresses say nothing about their place.
    bool changed(std::size_t step, std::string_view text) {
        const char* const before = std::exchange(origin, nullptr);
        const bool more = piece(step, text);
        origin = before;
        return more;
    }

    bool space(std::size_t index, std::string_view text) {
        if (text.starts_with(' ') || !adds_space(steps[index], text)) return piece(index + 1, text);
        return changed(index + 1, std::string(" ").append(text));
    }

    bool metaspace(std::size_t index, std::string_view text) {
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
            if (!changed(index + 1, all.substr(begin, end - begin))) return false;
            begin = end;
        }
        return true;
    }

    // Emits the number in groups of three digits, counted from its end. `isolate`: the text from `pending` to the
    // number, and the digits before the first whole group, are pieces too; otherwise they stay one piece with what
    // precedes them, and the last group stays pending. Moves `pending` to the end of the emitted text.
    bool groups(std::size_t step, std::string_view text, std::size_t& pending, RegexMatch number, bool isolate) {
        std::vector<std::size_t> cuts;  // from the right
        std::size_t at = number.end;
        for (;;) {
            std::size_t digits = 0;
            for (; digits < 3 && at > number.begin; ++digits) at = previous_character(text, at);
            if (digits == 3) cuts.push_back(at);
            if (digits < 3 || at == number.begin) break;
        }
        const auto emit_to = [&](std::size_t end) {
            const std::string_view part = text.substr(pending, end - pending);
            pending = end;
            return piece(step + 1, part);
        };
        if (isolate && !emit_to(number.begin)) return false;
        for (; !cuts.empty(); cuts.pop_back()) {
            if (!emit_to(cuts.back())) return false;
        }
        return !isolate || emit_to(number.end);
    }

    // Calls use(match) for each match of the step in order, until it returns false.
    template <typename Use>
    bool each_match(const Step& step, std::string_view text, Use use) {
        RegexMatch match;
        std::size_t from = 0;
        while (from <= text.size() && step.expression->find(*scratch, text, from, match)) {
            if (!use(match)) return false;
            from = match.end;
            if (match.begin == match.end) from += from < text.size() ? next_utf8(text.substr(from)).length_bytes : 1;
        }
        return true;
    }

    bool thousands(std::size_t index, std::string_view text) {
        const Step& step = steps[index];
        std::size_t pending = 0;
        const auto use = [&](RegexMatch match) {
            return groups(index, text, pending, match, step.match == SplitStep::Match::thousands);
        };
        return each_match(step, text, use) && piece(index + 1, text.substr(pending));
    }

    bool cut(std::size_t index, std::string_view text) {
        std::size_t pending = 0;
        const auto use = [&](RegexMatch match) {
            const std::string_view gap = text.substr(pending, match.begin - pending);
            pending = match.end;
            return piece(index + 1, gap) && piece(index + 1, text.substr(match.begin, match.end - match.begin));
        };
        return each_match(steps[index], text, use) && piece(index + 1, text.substr(pending));
    }

    // All behaviours but the usual one: matches and gaps in turn, some of which join.
    bool cut_and_merge(std::size_t index, std::string_view text) {
        const Step& step = steps[index];
        struct Part {
            std::size_t begin, end;
            bool match;
        };
        std::optional<Part> last;
        std::size_t begin = 0, done = 0;
        // Emits the last part, unless it joins the next.
        const auto emit_before = [&](const Part* next) {
            if (!last) return true;
            const Part part = *last;
            if (step.behavior == SplitBehavior::removed)
                return part.match || piece(index + 1, text.substr(part.begin, part.end - part.begin));
            const bool here = part.match, there = next && next->match;
            const bool joins = (step.behavior == SplitBehavior::contiguous && here == there) ||
                               (step.behavior == SplitBehavior::merged_with_previous && !here && there) ||
                               (step.behavior == SplitBehavior::merged_with_next && here && !there);
            if (next && joins) return true;
            const std::string_view all = text.substr(begin, part.end - begin);
            begin = part.end;
            return piece(index + 1, all);
        };
        const auto add = [&](const Part& part) {
            const bool more = emit_before(&part);
            last = part;
            return more;
        };
        const auto use = [&](RegexMatch match) {
            if (match.begin > done && !add({done, match.begin, step.invert})) return false;
            done = match.end;
            return add({match.begin, match.end, !step.invert});
        };
        if (!each_match(step, text, use)) return false;
        if (text.size() > done && !add({done, text.size(), step.invert})) return false;
        return emit_before(nullptr);
    }
};

Splitter::Splitter(const Pretokenizer& pretokenizer, std::string source) {
    if (pretokenizer.steps.size() > kMaxSteps)
        throw Error(source + ": the pre-tokenizer has more than " + std::to_string(kMaxSteps) +
                    " steps; use a model whose tokenizer is of a known kind");
    for (const SplitStep& step : pretokenizer.steps) steps_.emplace_back(step, source);
}

bool Splitter::keeps_every_byte() const {
    return std::ranges::none_of(steps_, [](const Step& step) {
        if (step.match == SplitStep::Match::metaspace) return step.mark.empty();
        return step.match == SplitStep::Match::piece && step.behavior == SplitBehavior::removed;
    });
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, TextPlace place, Emit emit, void* context) const {
    std::optional<RegexScratch> scratch;
    if (!steps_.empty()) scratch.emplace(text.size());
    Run run{steps_, emit, context, scratch ? &*scratch : nullptr, text.data(), place};
    while (!text.empty()) {
        const std::size_t valid = valid_utf8_prefix(text);
        if (!run.piece(0, text.substr(0, valid))) return;
        text.remove_prefix(valid);
        std::size_t invalid = 0;
        while (invalid < text.size()) {
            const Utf8Step step = next_utf8(text.substr(invalid));
            if (step.status == Utf8Status::valid) break;
            invalid += step.length_bytes;
        }
        if (invalid > 0 && !emit(context, text.substr(0, invalid))) return;
        text.remove_prefix(invalid);
        run.origin = text.data();  // no space goes after bytes that are no text
        run.place = TextPlace::continuation;
    }
}

}  // namespace foresay::core
