#include "app/clipboard.h"

#include <cstdint>
#include <utility>

#include "app/edits/code_blocks.h"
#include "base/error.h"

namespace foresay::app {

namespace {

constexpr std::size_t kMostBytes = 74994;  // just below 100,000 characters of base64, which every terminal accepts

std::string base64(std::string_view bytes) {
    constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string out;
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        const std::size_t left = bytes.size() - i;
        const auto at = [&](std::size_t k) -> std::uint32_t {
            return k < left ? static_cast<unsigned char>(bytes[i + k]) : 0u;
        };
        const std::uint32_t group = at(0) << 16 | at(1) << 8 | at(2);
        for (std::size_t k = 0; k < 4; ++k) out += k <= left ? kDigits[(group >> (18 - 6 * k)) & 63u] : '=';
    }
    return out;
}

}  // namespace

std::optional<std::string> last_code_block(std::string_view text) {
    std::vector<CodeBlock> blocks = code_blocks(text);
    if (blocks.empty()) return std::nullopt;
    return std::move(blocks.back().text);
}

std::string clipboard_sequence(std::string_view text) {
    if (text.size() > kMostBytes) {
        throw Error("the text has " + std::to_string(text.size()) + " bytes, but terminals accept at most " +
                    std::to_string(kMostBytes) + " for the clipboard; /save it, or copy a smaller block");
    }
    return "\x1b]52;c;" + base64(text) + "\x07";
}

}  // namespace foresay::app
