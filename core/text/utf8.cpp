#include "core/text/utf8.h"

#include <cstdint>
#include <cstring>

namespace foresay::core {
namespace {

// What follows from a lead byte: the character's length and the valid range of its second byte, which excludes overlong
// forms, surrogates and codes above U+10FFFF. Length 0: not a lead byte.
struct Lead {
    std::size_t length = 0;
    unsigned char low = 0x80, high = 0xBF;
};

Lead lead_of(unsigned char byte) {
    if (byte >= 0xC2 && byte <= 0xDF) return {2};
    if (byte == 0xE0) return {3, 0xA0, 0xBF};
    if (byte == 0xED) return {3, 0x80, 0x9F};
    if (byte >= 0xE1 && byte <= 0xEF) return {3};
    if (byte == 0xF0) return {4, 0x90, 0xBF};
    if (byte >= 0xF1 && byte <= 0xF3) return {4};
    if (byte == 0xF4) return {4, 0x80, 0x8F};
    return {0};
}

}  // namespace

Utf8Step next_utf8(std::string_view text) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x80) return {Utf8Status::valid, 1, first};
    const Lead lead = lead_of(first);
    if (lead.length == 0) return {Utf8Status::invalid, 1, 0};
    char32_t code = first & (0x7Fu >> lead.length);
    for (std::size_t i = 1; i < lead.length; ++i) {
        if (i == text.size()) return {Utf8Status::incomplete, i, 0};
        const auto byte = static_cast<unsigned char>(text[i]);
        const unsigned char low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
        if (byte < low || byte > high) return {Utf8Status::invalid, i, 0};
        code = (code << 6) | (byte & 0x3Fu);
    }
    return {Utf8Status::valid, lead.length, code};
}

std::size_t valid_utf8_prefix(std::string_view text) {
    std::size_t at = 0;
    while (at < text.size()) {
        while (at + 8 <= text.size()) {
            std::uint64_t eight;
            std::memcpy(&eight, text.data() + at, 8);
            if (eight & 0x8080808080808080u) break;
            at += 8;
        }
        if (at == text.size()) break;
        const Utf8Step step = next_utf8(text.substr(at));
        if (step.status != Utf8Status::valid) break;
        at += step.length_bytes;
    }
    return at;
}

void append_valid_utf8(std::string_view text, std::string& out) {
    while (!text.empty()) {
        const std::size_t valid = valid_utf8_prefix(text);
        out.append(text.substr(0, valid));
        text.remove_prefix(valid);
        if (text.empty()) return;
        out.append(kReplacementCharacter);
        text.remove_prefix(next_utf8(text).length_bytes);
    }
}

std::string to_valid_utf8(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    append_valid_utf8(text, out);
    return out;
}

void append_utf8(char32_t code, std::string& out) {
    const auto put = [&out](char32_t byte) { out.push_back(static_cast<char>(byte)); };
    if (code < 0x80) {
        put(code);
    } else if (code < 0x800) {
        put(0xC0 | (code >> 6));
        put(0x80 | (code & 0x3F));
    } else if (code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) {
        out.append(kReplacementCharacter);
    } else if (code < 0x10000) {
        put(0xE0 | (code >> 12));
        put(0x80 | ((code >> 6) & 0x3F));
        put(0x80 | (code & 0x3F));
    } else {
        put(0xF0 | (code >> 18));
        put(0x80 | ((code >> 12) & 0x3F));
        put(0x80 | ((code >> 6) & 0x3F));
        put(0x80 | (code & 0x3F));
    }
}

}  // namespace foresay::core
