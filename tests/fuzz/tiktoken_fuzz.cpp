// Any bytes as a tiktoken rank file: it loads or throws Error, and what loads encodes and decodes.
//
// The first line is the expression that cuts the text, the rest are the ranks. Ranks of all single bytes are added when
// the first byte is a '+', so that small inputs are whole files.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "base/error.h"
#include "core/text/tokenizer.h"
#include "core/text/tokenizer_ranks.h"

namespace {

// Lines for the ranks 0 to 255: each byte by itself.
std::string single_bytes() {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (unsigned byte = 0; byte < 256; ++byte)
        out += std::string{kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='} + " " + std::to_string(byte) + "\n";
    return out;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size) {
    using namespace foresay::core;
    std::string_view text(reinterpret_cast<const char*>(bytes), size);
    const bool whole = text.starts_with('+');
    if (whole) text.remove_prefix(1);
    const std::size_t end = std::min(text.find('\n'), text.size());
    const RankFileSettings settings{.pattern = std::string(text.substr(0, end)), .special = {}};
    std::string ranks = whole ? single_bytes() : std::string();
    ranks += text.substr(std::min(end + 1, text.size()));
    try {
        const Tokenizer loaded(parse_tiktoken(ranks, settings, "fuzz.tiktoken"));
        const std::string_view sample = "I'm  12345 \xC3\xA9\xFF <s>\n\n abcabc";
        const auto ids = loaded.encode(sample, {.add_special = false, .parse_special = false});
        // Steps of a rank file lose nothing, and every byte has a rank.
        if (loaded.decode(ids, true) != sample) std::abort();
    } catch (const foresay::Error&) {
    }
    return 0;
}
