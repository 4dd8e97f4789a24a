#include "core/weights/quote.h"

namespace foresay::core {

std::string quote(std::string_view text, std::size_t longest) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string out = "'";
    for (char c : text.substr(0, longest)) {
        const auto byte = static_cast<unsigned char>(c);
        if (byte >= 0x20 && byte < 0x7f) {
            out += c;
        } else {
            out += "\\x";
            out += kHex[byte >> 4];
            out += kHex[byte & 15];
        }
    }
    if (text.size() > longest) out += "...";
    return out + "'";
}

}  // namespace foresay::core
