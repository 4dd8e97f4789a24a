#include "core/text/unicode.h"

#include <algorithm>
#include <array>
#include <vector>

#include <utf8proc.h>

#include "base/error.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

bool composes(NormalForm form) { return form == NormalForm::nfc || form == NormalForm::nfkc; }
bool is_compatible(NormalForm form) { return form == NormalForm::nfkc || form == NormalForm::nfkd; }

// The first lead byte of a character that the form may change: U+0300 for NFC, else the first that is not ASCII.
unsigned char first_lead(NormalForm form) { return form == NormalForm::nfc ? 0xCC : 0x80; }

std::int32_t combining_class(std::int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Sorts each run of combining marks by class. utf8proc's own sorting takes quadratic time.
void order_marks(std::vector<std::int32_t>& codes) {
    for (std::size_t i = 0; i < codes.size();) {
        if (combining_class(codes[i]) == 0) {
            ++i;
            continue;
        }
        std::size_t end = i;
        bool ordered = true;
        for (std::int32_t last = 0; end < codes.size(); ++end) {
            const std::int32_t own = combining_class(codes[end]);
            if (own == 0) break;
            ordered = ordered && own >= last;
            last = own;
        }
        if (!ordered)
            std::stable_sort(codes.begin() + static_cast<std::ptrdiff_t>(i),
                             codes.begin() + static_cast<std::ptrdiff_t>(end),
                             [](std::int32_t a, std::int32_t b) { return combining_class(a) < combining_class(b); });
        i = end;
    }
}

void append_valid(std::string_view text, NormalForm form, std::string& out) {
    std::vector<std::int32_t> codes;
    codes.reserve(text.size());
    const auto options = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE |
                                                        (is_compatible(form) ? UTF8PROC_COMPAT : 0));
    for (std::size_t at = 0; at < text.size();) {
        const Utf8Step step = next_utf8(text.substr(at));
        std::array<std::int32_t, 32> parts;  // the longest decomposition has 18 characters
        int boundary = 0;
        const auto count = utf8proc_decompose_char(static_cast<std::int32_t>(step.code), parts.data(),
                                                   static_cast<utf8proc_ssize_t>(parts.size()), options, &boundary);
        check(count >= 0 && count <= static_cast<utf8proc_ssize_t>(parts.size()), "a decomposition fits");
        codes.insert(codes.end(), parts.begin(), parts.begin() + count);
        at += step.length_bytes;
    }
    order_marks(codes);
    if (composes(form)) {
        const auto length =
            utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                     static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
        check(length >= 0, "composition cannot fail");
        codes.resize(static_cast<std::size_t>(length));
    }
    for (const std::int32_t code : codes) append_utf8(static_cast<char32_t>(code), out);
}

}  // namespace

void append_normalized(std::string_view text, NormalForm form, std::string& out) {
    const unsigned char lead = first_lead(form);
    const auto changes = [lead](char c) { return static_cast<unsigned char>(c) >= lead; };
    const auto is_ascii = [](char c) { return static_cast<unsigned char>(c) < 0x80; };
    while (!text.empty()) {
        // A stretch to normalise starts with the character before the first one that may change, because the two may
        // compose, and ends before an ASCII character, which composes with nothing before it.
        const auto change = std::find_if(text.begin(), text.end(), changes);
        if (change == text.end()) break;
        auto begin = static_cast<std::size_t>(change - text.begin());
        const auto end = static_cast<std::size_t>(std::find_if(change, text.end(), is_ascii) - text.begin());
        if (begin > 0) --begin;
        while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
        out.append(text.substr(0, begin));
        std::string_view stretch = text.substr(begin, end - begin);
        text.remove_prefix(end);
        while (!stretch.empty()) {
            const std::size_t valid = valid_utf8_prefix(stretch);
            append_valid(stretch.substr(0, valid), form, out);
            stretch.remove_prefix(valid);
            if (stretch.empty()) break;
            const std::size_t invalid = next_utf8(stretch).length_bytes;
            out.append(stretch.substr(0, invalid));
            stretch.remove_prefix(invalid);
        }
    }
    out.append(text);
}

bool is_white_space(char32_t c) {
    return (c >= 0x9 && c <= 0xD) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
           (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_word(char32_t c) {
    if (c < 0x80) return c == '_' || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z');
    if (c == 0x200C || c == 0x200D) return true;
    // Circled and squared letters are symbols, and alphabetic.
    if ((c >= 0x24B6 && c <= 0x24E9) || (c >= 0x1F130 && c <= 0x1F149) || (c >= 0x1F150 && c <= 0x1F169) ||
        (c >= 0x1F170 && c <= 0x1F189))
        return true;
    switch (utf8proc_category(static_cast<std::int32_t>(c))) {
        case UTF8PROC_CATEGORY_LU:
        case UTF8PROC_CATEGORY_LL:
        case UTF8PROC_CATEGORY_LT:
        case UTF8PROC_CATEGORY_LM:
        case UTF8PROC_CATEGORY_LO:
        case UTF8PROC_CATEGORY_MN:
        case UTF8PROC_CATEGORY_MC:
        case UTF8PROC_CATEGORY_ME:
        case UTF8PROC_CATEGORY_ND:
        case UTF8PROC_CATEGORY_NL:
        case UTF8PROC_CATEGORY_PC:
            return true;
        default:
            return false;
    }
}

std::size_t grapheme_length(std::string_view text) {
    std::size_t at = next_utf8(text).length_bytes;
    auto last = static_cast<std::int32_t>(next_utf8(text).code);
    std::int32_t state = 0;
    while (at < text.size()) {
        const Utf8Step step = next_utf8(text.substr(at));
        const auto code = static_cast<std::int32_t>(step.code);
        if (step.status != Utf8Status::valid || utf8proc_grapheme_break_stateful(last, code, &state)) break;
        last = code;
        at += step.length_bytes;
    }
    return at;
}

}  // namespace foresay::core
