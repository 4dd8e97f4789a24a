#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"py", "python3", "py3", "pyi", "pycon"};
// Without match, case and type, which are names more often than keywords.
constexpr std::string_view kKeywords[] = {
    "and",      "as",     "assert",  "async", "await", "break",  "class", "continue", "def",  "del",  "elif",
    "else",     "except", "finally", "for",   "from",  "global", "if",    "import",   "in",   "is",   "lambda",
    "nonlocal", "not",    "or",      "pass",  "raise", "return", "try",   "while",    "with", "yield"};
constexpr std::string_view kConstants[] = {"True", "False", "None", "NotImplemented", "Ellipsis", "self", "cls"};
constexpr std::string_view kDefiners[] = {"def", "class"};
constexpr std::string_view kComments[] = {"#"};
constexpr StringRule kStrings[] = {
    {.open = "\"\"\"", .close = "\"\"\"", .multiline = true},
    {.open = "'''", .close = "'''", .multiline = true},
    {.open = "\"", .close = "\""},
    {.open = "'", .close = "'"},
};
constexpr Sigil kSigils[] = {{.character = '@', .look = Look::keyword, .inside = "."}};

}  // namespace

extern const Language kPython;
const Language kPython = {.name = "python",
                          .aliases = kAliases,
                          .keywords = kKeywords,
                          .constants = kConstants,
                          .definers = kDefiners,
                          .line_comments = kComments,
                          .strings = kStrings,
                          .sigils = kSigils};

}  // namespace foresay::app
