#include "core/text/fill.h"

#include <algorithm>
#include <span>

namespace foresay::core {

bool has_fill_tokens(const Tokenizer& tokenizer) {
    const SpecialTokens& special = tokenizer.special();
    return special.fim_prefix >= 0 && special.fim_suffix >= 0 && special.fim_middle >= 0;
}

bool ends_middle(const Tokenizer& tokenizer, std::int32_t token) {
    const SpecialTokens& special = tokenizer.special();
    return token >= 0 && (token == special.fim_prefix || token == special.fim_suffix || token == special.fim_middle);
}

std::int64_t fill_room(std::int64_t capacity, std::int64_t max_tokens) {
    const std::int64_t most = max_tokens > 0 ? max_tokens : capacity / 4;
    return std::max(capacity / 2, capacity - most);
}

bool leaves_out_blank(const Tokenizer& tokenizer, std::string_view prefix, FimOrder order) {
    const bool continued = order == FimOrder::spm || !has_fill_tokens(tokenizer);
    return continued && prefix.size() > 1 && prefix.ends_with(' ');
}

std::vector<std::int32_t> encode_fill(const Tokenizer& tokenizer, std::string_view prefix, std::string_view suffix,
                                      std::int64_t room, FimOrder order) {
    const SpecialTokens& special = tokenizer.special();
    const EncodeOptions plain{.add_special = false, .parse_special = false};
    if (leaves_out_blank(tokenizer, prefix, order)) prefix.remove_suffix(1);
    std::vector<std::int32_t> before = tokenizer.encode(prefix, plain);
    if (!has_fill_tokens(tokenizer)) {
        const std::size_t most = static_cast<std::size_t>(std::max<std::int64_t>(1, room - 1));
        if (before.size() > most) before.erase(before.begin(), before.end() - static_cast<std::ptrdiff_t>(most));
        if (tokenizer.adds_bos()) before.insert(before.begin(), special.bos);
        return before;
    }
    std::vector<std::int32_t> after = tokenizer.encode(suffix, plain);
    room = std::max<std::int64_t>(0, room - 4);  // the special tokens
    const auto size = [](const std::vector<std::int32_t>& tokens) { return static_cast<std::int64_t>(tokens.size()); };
    if (size(before) + size(after) > room) {
        const std::int64_t least = std::min(size(after), room / 4);
        const std::int64_t kept = std::max(least, room - size(before));
        after.resize(static_cast<std::size_t>(std::min(size(after), kept)));
        before.erase(before.begin(), before.end() - std::min(size(before), room - size(after)));
    }
    std::vector<std::int32_t> tokens;
    const auto add = [&](const std::vector<std::int32_t>& part) {
        tokens.insert(tokens.end(), part.begin(), part.end());
    };
    if (tokenizer.adds_bos()) tokens.push_back(special.bos);
    tokens.push_back(special.fim_prefix);
    if (order == FimOrder::psm) add(before);
    tokens.push_back(special.fim_suffix);
    add(after);
    tokens.push_back(special.fim_middle);
    if (order == FimOrder::spm) add(before);
    return tokens;
}

bool decode_fill(const Tokenizer& tokenizer, const std::vector<std::int32_t>& input, std::string& prefix,
                 std::string& suffix) {
    const auto place_of = [&](std::int32_t id) {
        return static_cast<std::size_t>(std::find(input.begin(), input.end(), id) - input.begin());
    };
    const SpecialTokens& special = tokenizer.special();
    const std::size_t begin = place_of(special.fim_prefix);
    const std::size_t hole = place_of(special.fim_suffix);
    const std::size_t end = place_of(special.fim_middle);
    if (special.fim_prefix < 0 || begin >= hole || hole >= end || end >= input.size()) return false;
    // One of the two is empty.
    prefix = tokenizer.decode(std::span(input).subspan(begin + 1, hole - begin - 1)) +
             tokenizer.decode(std::span(input).subspan(end + 1));
    suffix = tokenizer.decode(std::span(input).subspan(hole + 1, end - hole - 1));
    return true;
}

}  // namespace foresay::core
