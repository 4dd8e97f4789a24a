#include "core/text/splitter.h"

#include <algorithm>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxSteps = 64;
constexpr std::size_t kMaxRegexBytes = 1 << 15;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::uint32_t kMatchLimit = 100'000'000;  // backtracking steps; white space takes one per byte

constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";

struct FreeCode {
    void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchContext {
    void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
struct FreeMatchData {
    void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
using Code = std::unique_ptr<pcre2_code, FreeCode>;

[[noreturn]] void refuse(const std::string& source, std::string_view regex, const std::string& why) {
    std::string shown = to_valid_utf8(regex.substr(0, 120));
    throw Error(source + ": the pre-tokenizer expression \"" + shown + (regex.size() > 120 ? "..." : "") + "\" " + why +
                "; use a model whose tokenizer is of a known kind");
}

Code compile(std::string_view regex, const std::string& source) {
    if (regex.size() > kMaxRegexBytes) refuse(source, regex, "is too long");
    const std::string portable = portable_regex(regex, source);
    struct Context {
        pcre2_compile_context* handle = pcre2_compile_context_create(nullptr);
        ~Context() { pcre2_compile_context_free(handle); }
    } context;
    if (!context.handle) throw Error("out of memory while reading " + source);
    pcre2_set_newline(context.handle, PCRE2_NEWLINE_LF);
    int error = 0;
    PCRE2_SIZE at = 0;
    // MULTILINE: in Oniguruma, for which tokenizer.json is written, ^ and $ match at line ends.
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(portable.data()), portable.size(),
                            PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &at,
                            context.handle));
    if (!code) {
        PCRE2_UCHAR message[160] = {};
        pcre2_get_error_message(error, message, sizeof message);
        refuse(source, regex, std::string("is not understood: ") + reinterpret_cast<const char*>(message));
    }
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);  // without a JIT, matching interprets
    return code;
}

std::size_t previous_character(std::string_view text, std::size_t at) {
    do --at;
    while (at > 0 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80);
    return at;
}

}  // namespace

std::string portable_regex(std::string_view regex, const std::string& source) {
    std::string out;
    bool in_class = false;
    for (std::size_t i = 0; i < regex.size(); ++i) {
        const char c = regex[i];
        if (c == '\\' && i + 1 < regex.size()) {
            const char escaped = regex[++i];
            if (escaped == 'h' || escaped == 'H' || escaped == 'O' || escaped == 'Q')
                refuse(source, regex, "uses an escape that means different things to different engines");
            const bool space = escaped == 's' || escaped == 'S';
            if (!space) out.append({c, escaped});
            if (space && !in_class) out.append(escaped == 's' ? "[" : "[^").append(kSpace).append("]");
            if (space && in_class) out.append(escaped == 's' ? kSpace : kNotSpace);
            continue;
        }
        if (in_class && (c == '[' || (c == '&' && regex.substr(i, 2) == "&&")))
            refuse(source, regex, "combines character classes");
        out.push_back(c);
        if (c == '[') {
            in_class = true;
            // A bracket right after the opening one is a member, not the end.
            if (regex.substr(i + 1, 1) == "^") out.push_back(regex[++i]);
            if (regex.substr(i + 1, 1) == "]") out.push_back(regex[++i]);
        } else if (c == ']') {
            in_class = false;
        }
    }
    return out;
}

struct Splitter::Compiled {
    struct Step {
        Code code;
        bool jit = false;
        SplitStep::Match match = SplitStep::Match::piece;
    };
    std::vector<Step> steps;
    std::unique_ptr<pcre2_match_context, FreeMatchContext> context;
};

// The state of one call of split(): where pieces go, and PCRE2's match data.
struct Splitter::Run {
    const Splitter& splitter;
    Emit emit;
    void* context;
    std::unique_ptr<pcre2_match_data, FreeMatchData> data;

    // Finds the next match of a step in `text` from `from` on; false when there is none.
    bool find(const Compiled::Step& step, std::string_view text, std::size_t from, std::size_t& begin,
              std::size_t& end) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        pcre2_match_context* limits = splitter.compiled_->context.get();
        int rc = PCRE2_ERROR_JIT_STACKLIMIT;
        if (step.jit) rc = pcre2_jit_match(step.code.get(), subject, text.size(), from, 0, data.get(), limits);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(step.code.get(), subject, text.size(), from, PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, data.get(),
                             limits);
        if (rc == PCRE2_ERROR_NOMATCH) return false;
        if (rc < 0)
            throw Error(splitter.source_ + ": a pre-tokenizer expression needs too much effort on this text (" +
                        std::to_string(text.size()) + " bytes); shorten the text or use another model");
        const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.get());
        begin = range[0];
        end = range[1];
        return begin >= from && end >= begin && end <= text.size();
    }

    // False when the caller wants no more; so do groups() and cut().
    bool piece(std::size_t step, std::string_view text) const {
        if (text.empty()) return true;
        if (step == splitter.compiled_->steps.size()) return emit(context, text);
        return cut(step, text);
    }

    // Emits the number [begin, end) in groups of three digits, counted from its end. `isolate`: the text from `pending`
    // to the number, and the digits before the first whole group, are pieces too; otherwise they stay one piece with
    // what precedes them, and the last group stays pending. Moves `pending` to the end of the emitted text.
    bool groups(std::size_t step, std::string_view text, std::size_t& pending, std::size_t begin, std::size_t end,
                bool isolate) const {
        std::vector<std::size_t> cuts;  // from the right
        std::size_t at = end;
        for (;;) {
            std::size_t digits = 0;
            for (; digits < 3 && at > begin; ++digits) at = previous_character(text, at);
            if (digits == 3) cuts.push_back(at);
            if (digits < 3 || at == begin) break;
        }
        const auto emit_to = [&](std::size_t place) {
            const std::string_view part = text.substr(pending, place - pending);
            pending = place;
            return piece(step + 1, part);
        };
        if (isolate && !emit_to(begin)) return false;
        for (; !cuts.empty(); cuts.pop_back()) {
            if (!emit_to(cuts.back())) return false;
        }
        return !isolate || emit_to(end);
    }

    bool cut(std::size_t index, std::string_view text) const {
        const Compiled::Step& step = splitter.compiled_->steps[index];
        std::size_t pending = 0, from = 0, begin = 0, end = 0;  // text[pending..] is not emitted yet
        while (from <= text.size() && find(step, text, from, begin, end)) {
            if (step.match != SplitStep::Match::piece) {
                if (!groups(index, text, pending, begin, end, step.match == SplitStep::Match::thousands)) return false;
            } else {
                if (!piece(index + 1, text.substr(pending, begin - pending))) return false;
                if (!piece(index + 1, text.substr(begin, end - begin))) return false;
                pending = end;
            }
            from = end;
            if (begin == end) from += end < text.size() ? next_utf8(text.substr(end)).length_bytes : 1;
        }
        return piece(index + 1, text.substr(pending));
    }
};

Splitter::Splitter(const Pretokenizer& pretokenizer, std::string source)
    : source_(std::move(source)), compiled_(std::make_unique<Compiled>()) {
    if (pretokenizer.steps.size() > kMaxSteps)
        throw Error(source_ + ": the pre-tokenizer has more than " + std::to_string(kMaxSteps) +
                    " steps; use a model whose tokenizer is of a known kind");
    for (const SplitStep& step : pretokenizer.steps) {
        Compiled::Step compiled{compile(step.regex, source_), false, step.match};
        std::size_t jit_bytes = 0;
        pcre2_pattern_info(compiled.code.get(), PCRE2_INFO_JITSIZE, &jit_bytes);
        compiled.jit = jit_bytes > 0;
        compiled_->steps.push_back(std::move(compiled));
    }
    compiled_->context.reset(pcre2_match_context_create(nullptr));
    if (!compiled_->context) throw Error("out of memory while reading " + source_);
    pcre2_set_heap_limit(compiled_->context.get(), kHeapLimitKib);
    pcre2_set_match_limit(compiled_->context.get(), kMatchLimit);
}

Splitter::Splitter(Splitter&&) noexcept = default;
Splitter::~Splitter() = default;

void Splitter::split(std::string_view text, Emit emit, void* context) const {
    Run run{*this, emit, context, {}};
    if (!compiled_->steps.empty()) {
        run.data.reset(pcre2_match_data_create(1, nullptr));
        if (!run.data) throw Error("out of memory while splitting text into tokens");
    }
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
    }
}

bool Splitter::matches_first(std::string_view text) const {
    if (!is_valid_utf8(text)) return false;
    Run run{*this, nullptr, nullptr, {}};
    run.data.reset(pcre2_match_data_create(1, nullptr));
    if (!run.data) throw Error("out of memory while splitting text into tokens");
    std::size_t begin = 0, end = 0;
    return run.find(compiled_->steps.front(), text, 0, begin, end);
}

}  // namespace foresay::core
