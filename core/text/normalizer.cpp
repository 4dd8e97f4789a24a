#include "core/text/normalizer.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/text/charsmap.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxNormalizeSteps = 64;
constexpr std::size_t kFreeBytes = 4096;  // of expansion, whatever the length of the text

std::string strip(std::string_view text, bool left, bool right) {
    while (left && !text.empty()) {
        const Utf8Step step = next_utf8(text);
        if (step.status != Utf8Status::valid || !is_white_space(step.code)) break;
        text.remove_prefix(step.length_bytes);
    }
    while (right && !text.empty()) {
        std::size_t at = text.size() - 1;
        while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
        const Utf8Step step = next_utf8(text.substr(at));
        if (step.status != Utf8Status::valid || step.length_bytes != text.size() - at || !is_white_space(step.code))
            break;
        text = text.substr(0, at);
    }
    return std::string(text);
}

}  // namespace

struct Normalizer::Step : NormalizeStep {
    Step(const NormalizeStep& step, const std::string& source) : NormalizeStep(step) {
        if (kind == Kind::replace_regex) expression.emplace(pattern, source, trust_of(pattern));
        if (kind == Kind::charsmap || kind == Kind::sentencepiece) map.emplace(pattern, source);
        if (kind == Kind::replace && pattern.empty())
            throw Error(source + ": the normalizer replaces nothing by something; get or convert the model again");
    }

    std::string apply(std::string_view text, TextPlace place, const auto& check_size) const {
        switch (kind) {
            case Kind::form: {
                std::string out;
                out.reserve(text.size());
                append_normalized(text, form, out);
                return out;
            }
            case Kind::strip:
                return core::strip(text, left, right);
            case Kind::prepend:
                return !text.empty() && wants_space(space, place) ? content + std::string(text) : std::string(text);
            case Kind::replace:
                return replaced(text, check_size);
            case Kind::replace_regex:
                return replaced_by_regex(text, check_size);
            case Kind::charsmap:
                return mapped(text, check_size);
            case Kind::sentencepiece:
                break;
        }
        return as_sentencepiece(text, place, check_size);
    }

    std::string replaced(std::string_view text, const auto& check_size) const {
        std::string out;
        out.reserve(text.size() * 5 / 4 + 16);
        for (;;) {
            const std::size_t at = text.find(pattern);
            if (at == std::string_view::npos) return out.append(text);
            out.append(text.substr(0, at)).append(content);
            text.remove_prefix(at + pattern.size());
            check_size(out);
        }
    }

    std::string replaced_by_regex(std::string_view text, const auto& check_size) const {
        std::string out;
        RegexScratch scratch(text.size());
        while (!text.empty()) {
            const std::string_view valid = text.substr(0, valid_utf8_prefix(text));
            RegexMatch match;
            std::size_t done = 0, from = 0;
            while (from <= valid.size() && expression->find(scratch, valid, from, match)) {
                out.append(valid.substr(done, match.begin - done)).append(content);
                check_size(out);
                done = from = match.end;
                if (match.begin == match.end)
                    from += from < valid.size() ? next_utf8(valid.substr(from)).length_bytes : 1;
            }
            out.append(valid.substr(done));
            text.remove_prefix(valid.size());
            if (text.empty()) break;
            const std::size_t invalid = next_utf8(text).length_bytes;
            out.append(text.substr(0, invalid));
            text.remove_prefix(invalid);
        }
        return out;
    }

    // Short graphemes are looked up whole, and whatever the shortest match is replaces all of them; longer ones are
    // looked up character by character. That is how the library does it.
    std::string mapped(std::string_view text, const auto& check_size) const {
        std::string out;
        out.reserve(text.size());
        while (!text.empty()) {
            const Utf8Step first = next_utf8(text);
            if (first.status != Utf8Status::valid) {
                out.append(text.substr(0, first.length_bytes));
                text.remove_prefix(first.length_bytes);
                continue;
            }
            // Between two ASCII characters a grapheme ends, but for a carriage return and a line feed.
            const bool plain = text.size() > 1 && first.code < 0x80 && first.code != '\r' &&
                               static_cast<unsigned char>(text[1]) < 0x80;
            std::string_view grapheme = text.substr(0, plain ? 1 : grapheme_length(text));
            text.remove_prefix(grapheme.size());
            if (grapheme.size() < 6) {
                const Charsmap::Hit hit = map->shortest(grapheme);
                if (hit.length > 0) {
                    out.append(hit.replacement);
                    grapheme = {};
                }
            }
            while (!grapheme.empty()) {
                const std::string_view character = grapheme.substr(0, next_utf8(grapheme).length_bytes);
                const Charsmap::Hit hit = map->shortest(character);
                out.append(hit.length > 0 ? hit.replacement : character);
                grapheme.remove_prefix(character.size());
            }
            check_size(out);
        }
        return out;
    }

    // `content` is what a space becomes.
    std::string as_sentencepiece(std::string_view text, TextPlace place, const auto& check_size) const {
        std::string out;
        out.reserve(text.size() * 5 / 4 + content.size());
        bool after_space = join_spaces && place != TextPlace::continuation;
        bool started = !join_spaces;
        const auto start = [&] {
            if (!started && wants_space(space, place)) out.append(content);
            started = true;
        };
        if (started && !text.empty() && wants_space(space, place)) out.append(content);
        while (!text.empty()) {
            Charsmap::Hit hit = map->longest(text);
            if (hit.length == 0) {
                hit.length = next_utf8(text).length_bytes;
                hit.replacement = text.substr(0, hit.length);
            }
            text.remove_prefix(hit.length);
            std::string_view part = hit.replacement;
            while (after_space && part.starts_with(' ')) part.remove_prefix(1);
            if (part.empty()) continue;
            start();
            for (const char c : part) c == ' ' ? out.append(content) : out.append(1, c);
            after_space = join_spaces && part.ends_with(' ');
            check_size(out);
        }
        while (join_spaces && !content.empty() && out.ends_with(content)) out.resize(out.size() - content.size());
        return out;
    }

    std::size_t most_shrinking() const {
        switch (kind) {
            case Kind::form:
                // A character of up to four bytes becomes one byte at least. Composed characters take two bytes at
                // least and have up to four parts, each of which may have been a character of four bytes.
                return 8;
            case Kind::prepend:
                return 1;
            case Kind::replace:
                return content.empty() ? 0 : (std::max(pattern.size(), content.size()) - 1) / content.size() + 1;
            case Kind::strip:
            case Kind::replace_regex:
            case Kind::charsmap:
            case Kind::sentencepiece:
                break;
        }
        return 0;
    }

    std::optional<Regex> expression;
    std::optional<Charsmap> map;
};

Normalizer::Normalizer(const std::vector<NormalizeStep>& steps, std::string source) : source_(std::move(source)) {
    if (steps.size() > kMaxNormalizeSteps)
        throw Error(source_ + ": the normalizer has more than " + std::to_string(kMaxNormalizeSteps) +
                    " steps; use a model whose tokenizer is of a known kind");
    for (const NormalizeStep& step : steps) steps_.emplace_back(step, source_);
}

Normalizer::Normalizer(Normalizer&&) noexcept = default;
Normalizer::~Normalizer() = default;

std::size_t Normalizer::most_shrinking() const {
    constexpr std::size_t kNoUse = std::size_t{1} << 20;  // such a limit tells nothing; the product must not wrap
    std::size_t all = 1;
    for (const Step& step : steps_) {
        all *= step.most_shrinking();
        if (all == 0 || all > kNoUse) return 0;
    }
    return all;
}

std::string Normalizer::apply(std::string_view text, TextPlace place) const {
    std::string now(text);
    for (const Step& step : steps_) {
        const std::size_t most = now.size() * kMaxExpansion + kFreeBytes;
        now = step.apply(now, place, [&](const std::string& out) {
            if (out.size() > most)
                throw Error(source_ + ": the normalizer makes a text more than " + std::to_string(kMaxExpansion) +
                            " times as long; get or convert the model again");
        });
    }
    return now;
}

}  // namespace foresay::core
