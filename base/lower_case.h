// base/lower_case.h: ASCII text in small letters, for names that formats and protocols write in any case.
//
// Threads:  any.
#pragma once

#include <string>
#include <string_view>

namespace foresay {

// Other bytes stay.
inline std::string lower_case(std::string_view text) {
    std::string out(text);
    for (char& c : out) {
        if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
    }
    return out;
}

}  // namespace foresay
