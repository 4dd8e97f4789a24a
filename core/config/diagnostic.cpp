#include "core/config/diagnostic.h"

#include <utility>

namespace foresay::core {

namespace {

// White space up to `column`, with the line's own tabs, so that the caret is under its character.
std::string indent_of(const std::string& line, int column) {
    std::string out;
    int seen = 1;
    for (const char c : line) {
        if (seen >= column) break;
        if ((static_cast<unsigned char>(c) & 0xc0) == 0x80) continue;  // inside a UTF-8 sequence
        out += c == '\t' ? '\t' : ' ';
        ++seen;
    }
    return seen < column ? out + std::string(static_cast<std::size_t>(column - seen), ' ') : out;
}

std::string join(const std::vector<Diagnostic>& diagnostics, int dropped, std::string_view prefix) {
    std::string out;
    for (const Diagnostic& diagnostic : diagnostics) {
        out += (out.empty() ? "" : "\n") + std::string(prefix) + to_text(diagnostic);
    }
    if (dropped > 0) out += "\n" + std::string(prefix) + "and " + std::to_string(dropped) + " more";
    return out;
}

}  // namespace

std::string to_text(const Diagnostic& diagnostic) {
    std::string out = diagnostic.where.text() + ": " + diagnostic.message;
    if (diagnostic.source_line.empty() || diagnostic.where.column < 1 || diagnostic.where.column > 200) return out;
    return out + "\n    " + diagnostic.source_line + "\n    " +
           indent_of(diagnostic.source_line, diagnostic.where.column) + "^";
}

ConfigError::ConfigError(std::vector<Diagnostic> diagnostics, int dropped)
    : Error(join(diagnostics, dropped, "")), diagnostics_(std::move(diagnostics)), dropped_(dropped) {}

std::string ConfigError::text(std::string_view prefix) const { return join(diagnostics_, dropped_, prefix); }

}  // namespace foresay::core
