#include "grammar/vocabulary.h"

#include <algorithm>
#include <numeric>

#include "grammar/characters.h"

namespace foresay::grammar {
namespace {

// The number of characters; 0 where the token is not plain.
std::uint32_t plain_characters(std::string_view bytes) {
    std::uint32_t count = 0;
    while (!bytes.empty()) {
        if (!is_plain(static_cast<std::uint8_t>(bytes[0])) || take_utf8(bytes) < 0) return 0;
        ++count;
    }
    return count;
}

}  // namespace

Trie::Trie(const std::vector<TokenText>& tokens, const std::vector<std::int32_t>& order) {
    std::vector<std::uint32_t> open;  // the nodes above the next one
    std::string_view before;
    const auto close = [&](std::size_t depth) {
        for (; open.size() > depth; open.pop_back())
            nodes_[open.back()].end = static_cast<std::uint32_t>(nodes_.size());
    };
    for (const std::int32_t id : order) {
        const std::string_view bytes = tokens[static_cast<std::size_t>(id)].bytes;
        std::size_t common = 0;
        while (common < before.size() && common < bytes.size() && before[common] == bytes[common]) ++common;
        close(common);
        for (std::size_t i = common; i < bytes.size(); ++i) {
            open.push_back(static_cast<std::uint32_t>(nodes_.size()));
            nodes_.push_back({0, -1, static_cast<std::uint8_t>(bytes[i]), static_cast<std::uint8_t>(i + 1)});
        }
        nodes_[open.back()].token = id;
        before = bytes;
    }
    close(0);
    std::fill(std::begin(first_), std::end(first_), static_cast<std::uint32_t>(nodes_.size()));
    for (std::uint32_t i = 0; i < nodes_.size(); i = nodes_[i].end) first_[nodes_[i].byte] = i;
}

Vocabulary::Vocabulary(std::int32_t size, const std::function<TokenText(std::int32_t)>& token) {
    tokens_.reserve(static_cast<std::size_t>(size));
    std::vector<std::int32_t> order;
    for (std::int32_t id = 0; id < size; ++id) {
        tokens_.push_back(token(id));
        const TokenText& text = tokens_.back();
        if (text.kind == TokenText::Kind::special) special_.push_back(id);
        if (text.kind == TokenText::Kind::end) ends_.push_back(id);
        if (text.kind != TokenText::Kind::text || text.bytes.empty()) continue;
        (text.bytes.size() > 255 ? long_ : order).push_back(id);
    }
    const auto bytes = [&](std::int32_t id) -> const std::string& {
        return tokens_[static_cast<std::size_t>(id)].bytes;
    };
    std::sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
        const int order = bytes(a).compare(bytes(b));
        return order != 0 ? order < 0 : a < b;
    });
    std::vector<std::int32_t> distinct;
    for (const std::int32_t id : order) {
        if (!distinct.empty() && bytes(distinct.back()) == bytes(id)) {
            twins_.emplace_back(distinct.back(), id);
        } else {
            distinct.push_back(id);
        }
    }
    all_ = std::make_unique<Trie>(tokens_, distinct);

    std::vector<std::pair<std::uint32_t, std::uint32_t>> bounds = {{0, 0}};
    for (std::uint32_t n = 1; n <= 16; ++n) bounds.emplace_back(n, n);
    bounds.emplace_back(17, 32);
    bounds.emplace_back(33, kEndless);
    std::vector<std::vector<std::int32_t>> members(bounds.size());
    for (const std::int32_t id : distinct) {
        const std::uint32_t n = plain_characters(bytes(id));
        std::size_t group = 0;
        while (n < bounds[group].first || n > bounds[group].second) ++group;
        members[group].push_back(id);
    }
    for (std::size_t g = 0; g < bounds.size(); ++g) {
        Group group{bounds[g].first, bounds[g].second, Trie(tokens_, members[g]), {}};
        group.bits.assign(words(), 0);
        for (const std::int32_t id : members[g]) group.bits[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
        groups_.push_back(std::move(group));
    }
}

}  // namespace foresay::grammar
