// core/config/diagnostic.h: errors in a configuration, as `file:line:column: message` with the line and a caret.
//
// Errors:   ConfigError carries every diagnostic of one load, at most kMaxDiagnostics of them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "core/config/value.h"

namespace foresay::core {

inline constexpr int kMaxDiagnostics = 20;

struct Diagnostic {
    Origin where;
    std::string message;
    std::string source_line;  // the text of the line, empty when there is none
};

// "file:3:1: unknown key ...\n    tempurature = 1\n    ^"
std::string to_text(const Diagnostic& diagnostic);

class ConfigError : public Error {
public:
    // `dropped`: diagnostics beyond the limit, counted in the text.
    ConfigError(std::vector<Diagnostic> diagnostics, int dropped);
    const std::vector<Diagnostic>& diagnostics() const { return diagnostics_; }
    // what(), with `prefix` before each complaint.
    std::string text(std::string_view prefix) const;

private:
    std::vector<Diagnostic> diagnostics_;
    int dropped_;
};

}  // namespace foresay::core
