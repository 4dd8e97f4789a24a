#include "core/text/quoted.h"

namespace foresay::core {

void append_quoted(std::string_view text, std::string& out) {
    constexpr char kDigits[] = "0123456789abcdef";
    out += '"';
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        switch (c) {
            case '"':
                out += "\\\"";
                break;
            case '\\':
                out += "\\\\";
                break;
            case '\n':
                out += "\\n";
                break;
            case '\r':
                out += "\\r";
                break;
            case '\t':
                out += "\\t";
                break;
            default:
                if (byte < 0x20 || byte == 0x7f) {
                    out += "\\u00";
                    out += kDigits[byte >> 4];
                    out += kDigits[byte & 15];
                } else {
                    out += c;
                }
        }
    }
    out += '"';
}

}  // namespace foresay::core
