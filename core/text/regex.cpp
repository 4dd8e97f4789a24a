#include "core/text/regex.h"

#include <algorithm>
#include <cctype>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

constexpr std::size_t kMaxRegexBytes = 1 << 15;
constexpr std::uint32_t kHeapLimitKib = 256 * 1024;
constexpr std::uint32_t kMatchLimit = 100'000'000;  // backtracking steps; white space takes one per byte

// Of bounded expressions, in backtracking steps or bytes that a try has seen. A try of kFreeSteps in its first window
// costs nothing.
constexpr std::size_t kFirstWindow = 256;
constexpr std::uint32_t kFreeSteps = 256;
constexpr std::size_t kStepsPerByte = 16;
constexpr std::size_t kStepsPerTry = 4096;
constexpr std::size_t kBudgetPerByte = 256;
constexpr std::size_t kBudget = std::size_t{1} << 24;

constexpr std::string_view kSpace =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view kNotSpace =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff}\x{200b}-\x{2027})"
    R"(\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view kWord = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

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

Code compile(std::string_view regex, const std::string& source, RegexTrust trust, RegexAnchors anchors) {
    if (regex.size() > kMaxRegexBytes) refuse(source, regex, "is too long");
    const std::string portable = portable_regex(regex, source);
    struct Context {
        pcre2_compile_context* handle = pcre2_compile_context_create(nullptr);
        ~Context() { pcre2_compile_context_free(handle); }
    } context;
    if (!context.handle) throw Error("out of memory while reading " + source);
    pcre2_set_newline(context.handle, PCRE2_NEWLINE_LF);
    std::uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C;
    options |= anchors == RegexAnchors::lines ? PCRE2_MULTILINE : PCRE2_DOLLAR_ENDONLY;
    if (trust == RegexTrust::bounded) options |= PCRE2_ANCHORED;  // find_bounded() chooses where a try starts
    int error = 0;
    PCRE2_SIZE at = 0;
    Code code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(portable.data()), portable.size(), options, &error, &at,
                            context.handle));
    if (!code) {
        PCRE2_UCHAR message[160] = {};
        pcre2_get_error_message(error, message, sizeof message);
        refuse(source, regex, std::string("is not understood: ") + reinterpret_cast<const char*>(message));
    }
    // Without a JIT, matching interprets.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    if (trust == RegexTrust::bounded) pcre2_jit_compile(code.get(), PCRE2_JIT_PARTIAL_HARD);
    return code;
}

// Translates one expression: see portable_regex().
class Translation {
public:
    Translation(std::string_view regex, const std::string& source) : regex_(regex), source_(source) {}

    std::string translate() {
        std::string out;
        while (at_ < regex_.size()) {
            if (regex_[at_] == '\\' && at_ + 1 < regex_.size()) {
                escape(out, false);
            } else if (regex_[at_] == '[') {
                out += character_class();
            } else {
                if (regex_.substr(at_, 2) == "(?") refuse_line_options();
                out += regex_[at_++];
            }
        }
        return out;
    }

private:
    [[noreturn]] void refuse_class() const { refuse(source_, regex_, "combines character classes"); }
    [[noreturn]] void refuse_escape() const {
        refuse(source_, regex_, "uses an escape that means different things to different engines");
    }

    // (?m) lets a dot match line ends in one engine, and moves ^ and $ in another.
    void refuse_line_options() const {
        for (std::size_t i = at_ + 2;
             i < regex_.size() && (std::isalpha(static_cast<unsigned char>(regex_[i])) != 0 || regex_[i] == '-'); ++i)
            if (regex_[i] == 'm') refuse(source_, regex_, "uses an option that means different things to engines");
    }

    void escape(std::string& out, bool in_class) {
        const char escaped = regex_[at_ + 1];
        at_ += 2;
        const auto set = [&](std::string_view members, bool negated) {
            if (in_class) {
                out += members;
            } else {
                out.append(negated ? "[^" : "[").append(members).append("]");
            }
        };
        const std::string word = "[" + std::string(kWord) + "]";
        switch (escaped) {
            case 'h':
            case 'H':
            case 'O':
            case 'Q':
                refuse_escape();
            case 's':
                return set(kSpace, false);
            case 'S':
                return in_class ? set(kNotSpace, false) : set(kSpace, true);
            case 'w':
                return set(kWord, false);
            case 'W':
                if (in_class) refuse_class();
                return set(kWord, true);
            case 'b':
                if (in_class) break;  // a backspace
                out += "(?:(?<=" + word + ")(?!" + word + ")|(?<!" + word + ")(?=" + word + "))";
                return;
            case 'B':
                if (in_class) break;
                out += "(?:(?<=" + word + ")(?=" + word + ")|(?<!" + word + ")(?!" + word + "))";
                return;
            default:
                break;
        }
        out.append({'\\', escaped});
    }

    // [...] as it is, [a&&[^b]] as a character of the first class at a place where none of the second is.
    std::string character_class() {
        std::string out = "[";
        ++at_;
        if (regex_.substr(at_, 1) == "^") out += regex_[at_++];
        // A bracket right after the opening one is a member, not the end.
        if (regex_.substr(at_, 1) == "]") out += regex_[at_++];
        for (;;) {
            if (at_ >= regex_.size()) return out;  // PCRE2 says what is wrong
            const char c = regex_[at_];
            if (c == '\\' && at_ + 1 < regex_.size()) {
                escape(out, true);
            } else if (c == '[') {
                refuse_class();
            } else if (regex_.substr(at_, 2) == "&&") {
                return intersection(out + "]");
            } else {
                out += c;
                ++at_;
                if (c == ']') return out;
            }
        }
    }

    std::string intersection(const std::string& left) {
        at_ += 2;
        if (left.starts_with("[^") || regex_.substr(at_, 1) != "[") refuse_class();
        const std::string right = character_class();
        if (regex_.substr(at_, 1) != "]") refuse_class();
        ++at_;
        return "(?:(?=" + right + ")" + left + ")";
    }

    std::string_view regex_;
    const std::string& source_;
    std::size_t at_ = 0;
};

}  // namespace

std::string portable_regex(std::string_view regex, const std::string& source) {
    return Translation(regex, source).translate();
}

std::string regex_of_text(std::string_view text) {
    std::string escaped;
    for (const char c : text) {
        const bool plain = static_cast<unsigned char>(c) >= 0x80 || std::isalnum(static_cast<unsigned char>(c)) != 0;
        if (c == '\n' || c == '\0') {
            escaped += c == '\n' ? "\\n" : "\\x{0}";
            continue;
        }
        if (!plain) escaped.push_back('\\');
        escaped.push_back(c);
    }
    return escaped;
}

struct RegexScratch::Data {
    std::unique_ptr<pcre2_match_data, FreeMatchData> match;
    std::unique_ptr<pcre2_match_context, FreeMatchContext> limits;
    std::size_t budget = 0;
};

RegexScratch::RegexScratch(std::size_t text_bytes) : data_(std::make_unique<Data>()) {
    data_->match.reset(pcre2_match_data_create(1, nullptr));
    data_->limits.reset(pcre2_match_context_create(nullptr));
    if (!data_->match || !data_->limits) throw Error("out of memory while splitting text into tokens");
    pcre2_set_heap_limit(data_->limits.get(), kHeapLimitKib);
    pcre2_set_match_limit(data_->limits.get(), kMatchLimit);
    data_->budget = text_bytes * kBudgetPerByte + kBudget;
}

RegexScratch::RegexScratch(RegexScratch&&) noexcept = default;
RegexScratch::~RegexScratch() = default;

struct Regex::Compiled {
    Code code;
    RegexTrust trust = RegexTrust::bounded;
    bool jit = false;

    int match(RegexScratch::Data& data, std::string_view text, std::size_t from, std::uint32_t options) const {
        const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
        int rc = PCRE2_ERROR_JIT_STACKLIMIT;
        if (jit)
            rc = pcre2_jit_match(code.get(), subject, text.size(), from, options, data.match.get(), data.limits.get());
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT)
            rc = pcre2_match(code.get(), subject, text.size(), from, options | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                             data.match.get(), data.limits.get());
        return rc;
    }
};

Regex::Regex(std::string_view expression, std::string source, RegexTrust trust, RegexAnchors anchors)
    : source_(std::move(source)), compiled_(std::make_unique<Compiled>()) {
    compiled_->code = compile(expression, source_, trust, anchors);
    compiled_->trust = trust;
    std::size_t jit_bytes = 0;
    pcre2_pattern_info(compiled_->code.get(), PCRE2_INFO_JITSIZE, &jit_bytes);
    compiled_->jit = jit_bytes > 0;
}

Regex::Regex(Regex&&) noexcept = default;
Regex::~Regex() = default;

bool Regex::find(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const {
    const bool trusted = compiled_->trust == RegexTrust::trusted;
    return trusted ? find_trusted(scratch, text, from, match) : find_bounded(scratch, text, from, match);
}

namespace {

[[noreturn]] void too_much(const std::string& source, std::size_t bytes) {
    throw Error(source + ": a pre-tokenizer expression needs too much effort on this text (" + std::to_string(bytes) +
                " bytes); shorten the text or use another model");
}

}  // namespace

bool Regex::find_trusted(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const {
    const int rc = compiled_->match(*scratch.data_, text, from, 0);
    if (rc == PCRE2_ERROR_NOMATCH) return false;
    if (rc < 0) too_much(source_, text.size());
    const PCRE2_SIZE* range = pcre2_get_ovector_pointer(scratch.data_->match.get());
    match = {range[0], range[1]};
    return match.begin >= from && match.end >= match.begin && match.end <= text.size();
}

bool Regex::find_bounded(RegexScratch& scratch, std::string_view text, std::size_t from, RegexMatch& match) const {
    RegexScratch::Data& data = *scratch.data_;
    const auto charge = [&](std::size_t effort) {
        if (effort > data.budget) too_much(source_, text.size());
        data.budget -= effort;
    };
    struct RestoreLimit {
        pcre2_match_context* limits;
        ~RestoreLimit() { pcre2_set_match_limit(limits, kMatchLimit); }
    } restore{data.limits.get()};
    std::size_t window = kFirstWindow;
    std::uint32_t steps = kFreeSteps;
    pcre2_set_match_limit(data.limits.get(), steps);
    for (std::size_t at = from; at <= text.size();) {
        std::size_t seen = text.size() - at <= window ? text.size() : at + window;
        while (seen < text.size() && (static_cast<unsigned char>(text[seen]) & 0xC0) == 0x80) ++seen;
        const bool whole = seen == text.size();
        const int rc = compiled_->match(data, text.substr(0, seen), at, whole ? 0 : PCRE2_PARTIAL_HARD);
        if (rc == PCRE2_ERROR_PARTIAL) {
            charge(seen - at);
            window *= 4;
            continue;
        }
        if (rc == PCRE2_ERROR_MATCHLIMIT) {
            const std::size_t more = std::min<std::size_t>((seen - at) * kStepsPerByte + kStepsPerTry, kMatchLimit);
            if (more <= steps) too_much(source_, text.size());
            charge(more);
            steps = static_cast<std::uint32_t>(more);
            pcre2_set_match_limit(data.limits.get(), steps);
            continue;
        }
        if (rc >= 0) {
            const PCRE2_SIZE* range = pcre2_get_ovector_pointer(data.match.get());
            match = {range[0], range[1]};
            // A lookbehind may move the start of a match with \K.
            return match.begin >= from && match.end >= match.begin && match.end <= text.size();
        }
        if (rc != PCRE2_ERROR_NOMATCH) too_much(source_, text.size());
        if (at == text.size()) break;
        at += next_utf8(text.substr(at)).length_bytes;
        if (steps != kFreeSteps) pcre2_set_match_limit(data.limits.get(), steps = kFreeSteps);
        window = kFirstWindow;
    }
    return false;
}

}  // namespace foresay::core
