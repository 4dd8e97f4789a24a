#include "core/text/added_tokens.h"

#include <algorithm>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "core/text/unicode.h"
#include "core/text/utf8.h"

namespace foresay::core {
namespace {

std::string_view first_character(std::string_view text) { return text.substr(0, next_utf8(text).length_bytes); }

std::string_view last_character(std::string_view text) {
    std::size_t at = text.size() - 1;
    while (at > 0 && text.size() - at < 4 && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
    return text.substr(at);
}

bool is_word_character(std::string_view character) {
    const Utf8Step step = next_utf8(character);
    return step.status == Utf8Status::valid && step.length_bytes == character.size() && is_word(step.code);
}

}  // namespace

void AddedTokens::add(std::string_view text, std::int32_t id, bool always, const std::string& source) {
    if (text.empty()) return;
    if (text.size() > kMaxAddedTokenBytes)
        throw Error(source + ": special token " + std::to_string(id) + " is longer than " +
                    std::to_string(kMaxAddedTokenBytes) + " bytes; get or convert the model again");
    std::int32_t node = 0;
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        std::int32_t child = child_of(node, byte);
        if (child < 0) {
            child = static_cast<std::int32_t>(nodes_.size());
            Node fresh;
            fresh.byte = byte;
            fresh.sibling = nodes_[static_cast<std::size_t>(node)].child;
            nodes_.push_back(fresh);
            nodes_[static_cast<std::size_t>(node)].child = child;
        }
        node = child;
    }
    nodes_[static_cast<std::size_t>(node)].id = id;
    nodes_[static_cast<std::size_t>(node)].always = always;
    const auto first = static_cast<unsigned char>(text[0]);
    starts_[first] = true;
    if (always) starts_always_[first] = true;
}

bool AddedTokens::swallows_space() const {
    return std::ranges::any_of(rules_,
                               [](const auto& rule) { return rule.second.left_strip || rule.second.right_strip; });
}

std::int32_t AddedTokens::child_of(std::int32_t node, unsigned char byte) const {
    std::int32_t child = nodes_[static_cast<std::size_t>(node)].child;
    while (child >= 0 && nodes_[static_cast<std::size_t>(child)].byte != byte)
        child = nodes_[static_cast<std::size_t>(child)].sibling;
    return child;
}

template <typename Accepts>
AddedTokens::Found AddedTokens::find_accepted(std::string_view text, std::size_t from,
                                              const std::array<bool, 256>& starts, Accepts accepts) const {
    for (std::size_t begin = from; begin < text.size(); ++begin) {
        if (!starts[static_cast<unsigned char>(text[begin])]) continue;
        Found found;
        std::int32_t node = 0;
        for (std::size_t at = begin; at < text.size(); ++at) {
            node = child_of(node, static_cast<unsigned char>(text[at]));
            if (node < 0) break;
            const Node& here = nodes_[static_cast<std::size_t>(node)];
            if (here.id >= 0 && accepts(here.id, here.always, begin, at + 1)) found = {begin, at + 1, here.id};
        }
        if (found.id >= 0) {
            const std::size_t behind = found.end;
            if (allowed(text, found, from)) return found;
            begin = behind - 1;
        }
    }
    return {};
}

AddedTokens::Found AddedTokens::find(std::string_view text, std::size_t from, bool parse_special) const {
    return find_accepted(text, from, parse_special ? starts_ : starts_always_,
                         [&](std::int32_t, bool always, std::size_t, std::size_t) { return parse_special || always; });
}

AddedTokens::Found AddedTokens::find(const MarkedText& text, std::size_t from) const {
    const auto touches_plain = [&](std::size_t begin, std::size_t end) {
        const auto after =
            std::upper_bound(text.plain.begin(), text.plain.end(), begin,
                             [](std::size_t place, const TextRange& range) { return place < range.end; });
        return after != text.plain.end() && after->begin < end;
    };
    return find_accepted(
        text.bytes, from, starts_, [&](std::int32_t id, bool always, std::size_t begin, std::size_t end) {
            const bool anywhere = always && !std::binary_search(text.markup.begin(), text.markup.end(), id);
            return anywhere || !touches_plain(begin, end);
        });
}

bool AddedTokens::allowed(std::string_view text, Found& found, std::size_t from) const {
    const auto entry = rules_.find(found.id);
    if (entry == rules_.end()) return true;
    const AddedTokenRule& rule = entry->second;
    if (rule.single_word) {
        if (found.begin > 0 && is_word_character(last_character(text.substr(0, found.begin)))) return false;
        if (found.end < text.size() && is_word_character(first_character(text.substr(found.end)))) return false;
    }
    const auto space = [](std::string_view character) {
        const Utf8Step step = next_utf8(character);
        return step.status == Utf8Status::valid && step.length_bytes == character.size() && is_white_space(step.code);
    };
    while (rule.left_strip && found.begin > from) {
        const std::string_view last = last_character(text.substr(from, found.begin - from));
        if (!space(last)) break;
        found.begin -= last.size();
    }
    while (rule.right_strip && found.end < text.size()) {
        const std::string_view first = first_character(text.substr(found.end));
        if (!space(first)) break;
        found.end += first.size();
    }
    return true;
}

}  // namespace foresay::core
