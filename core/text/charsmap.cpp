#include "core/text/charsmap.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::core {
namespace {

std::uint32_t little_endian(std::string_view bytes, std::size_t at) {
    std::uint32_t value = 0;
    for (std::size_t i = 4; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes[at + i]);
    return value;
}

// The fields of a unit of darts-clone.
bool has_leaf(std::uint32_t unit) { return ((unit >> 8) & 1) != 0; }
std::uint32_t value_of(std::uint32_t unit) { return unit & 0x7FFFFFFFu; }
std::uint32_t label_of(std::uint32_t unit) { return unit & 0x800000FFu; }
std::uint32_t offset_of(std::uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }

}  // namespace

Charsmap::Charsmap(std::string_view map, std::string source) : source_(std::move(source)) {
    if (map.empty()) return;
    const auto cut_off = [&] {
        throw Error(source_ + ": the character map of the normalizer is cut off; get or convert the model again");
    };
    if (map.size() < 4) cut_off();
    const std::size_t trie = little_endian(map, 0);
    if (trie % 4 != 0 || trie > map.size() - 4) cut_off();
    units_.reserve(trie / 4);
    for (std::size_t at = 4; at < 4 + trie; at += 4) units_.push_back(little_endian(map, at));
    replacements_ = map.substr(4 + trie);
}

Charsmap::Hit Charsmap::search(std::string_view text, bool longest) const {
    if (units_.empty()) return {};
    std::uint32_t node = offset_of(units_[0]);
    std::uint32_t value = 0;
    std::size_t length = 0;
    for (std::size_t i = 0; i < std::min(text.size(), kMaxCharsmapKey); ++i) {
        const std::uint32_t byte = static_cast<unsigned char>(text[i]);
        node ^= byte;
        // A key holds no zero byte, and an unused unit looks like one.
        if (byte == 0 || node >= units_.size() || label_of(units_[node]) != byte) break;
        const std::uint32_t unit = units_[node];
        node ^= offset_of(unit);
        if (!has_leaf(unit) || node >= units_.size()) continue;
        value = value_of(units_[node]);
        length = i + 1;
        if (!longest) break;
    }
    if (length == 0) return {};
    if (value >= replacements_.size()) return {length, {}};
    const std::string_view rest = std::string_view(replacements_).substr(value, kMaxCharsmapReplacement + 1);
    const std::size_t end = std::min(rest.find('\0'), rest.size());
    if (end > kMaxCharsmapReplacement)
        throw Error(source_ + ": the character map of the normalizer replaces a character by more than " +
                    std::to_string(kMaxCharsmapReplacement) + " bytes; get or convert the model again");
    return {length, rest.substr(0, end)};
}

}  // namespace foresay::core
