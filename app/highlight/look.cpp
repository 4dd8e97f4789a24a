#include "app/highlight/look.h"

namespace foresay::app {

std::string_view escape_of(Look look) {
    switch (look) {
        case Look::keyword:
            return "\x1b[35m";
        case Look::string:
            return "\x1b[32m";
        case Look::number:
            return "\x1b[36m";
        case Look::comment:
            return "\x1b[2m";
        case Look::name:
            return "\x1b[1m";
        case Look::plain:
            break;
    }
    return "";
}

void append(Runs& runs, std::string_view text, Look look) {
    if (text.empty()) return;
    if (runs.empty() || runs.back().look != look) runs.push_back({"", look});
    runs.back().text += text;
}

std::string with_colours(const Runs& runs) {
    std::string out;
    for (const Run& run : runs) {
        out.append(escape_of(run.look)).append(run.text);
        if (run.look != Look::plain) out += "\x1b[0m";
    }
    return out;
}

}  // namespace foresay::app
