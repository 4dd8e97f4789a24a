#include "core/text/bounded_encode.h"

#include <algorithm>

#include "base/error.h"

namespace foresay::core {

namespace {

constexpr std::int64_t kSeam = 16;  // tokens by which a text may shrink between others; a bound

// The tokens of `text`, or some of them when there are more than `most`; `least` is how many there are at least.
std::vector<std::int32_t> encode_some(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options,
                                      std::int64_t most, std::int64_t& least) {
    least = tokenizer.least_tokens(text.size());
    if (least > most) return {};
    options.enough = static_cast<std::size_t>(std::max<std::int64_t>(most, 0));
    std::vector<std::int32_t> tokens = tokenizer.encode(text, options);
    least = std::max(least, static_cast<std::int64_t>(tokens.size()));
    return tokens;
}

}  // namespace

std::int64_t count_tokens(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options, std::int64_t most) {
    std::int64_t least = 0;
    encode_some(tokenizer, text, options, most, least);
    return least;
}

std::int64_t count_tokens_of_part(const Tokenizer& tokenizer, std::string_view part, EncodeOptions options,
                                  std::int64_t most) {
    return count_tokens(tokenizer, part, options, most + kSeam) - kSeam;
}

std::vector<std::int32_t> encode_within(const Tokenizer& tokenizer, std::string_view text, EncodeOptions options,
                                        std::int64_t most, const std::string& what) {
    std::int64_t least = 0;
    std::vector<std::int32_t> tokens = encode_some(tokenizer, text, options, most, least);
    if (least <= most) return tokens;
    throw Error(what + " has at least " + std::to_string(least) + " tokens, but the context has " +
                std::to_string(most) + " positions; shorten it, or set a longer --context if the model allows one");
}

}  // namespace foresay::core
