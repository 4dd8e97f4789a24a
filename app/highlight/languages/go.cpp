#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"golang"};
constexpr std::string_view kKeywords[] = {
    "any",     "bool",     "break",   "byte",   "case",      "chan",   "complex64",   "complex128",
    "const",   "continue", "default", "defer",  "else",      "error",  "fallthrough", "float32",
    "float64", "for",      "func",    "go",     "goto",      "if",     "import",      "int",
    "int8",    "int16",    "int32",   "int64",  "interface", "map",    "package",     "range",
    "return",  "rune",     "select",  "string", "struct",    "switch", "type",        "uint",
    "uint8",   "uint16",   "uint32",  "uint64", "uintptr",   "var"};
constexpr std::string_view kConstants[] = {"true", "false", "nil", "iota"};
constexpr std::string_view kDefiners[] = {"func", "type", "package"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {{.open = "\"", .close = "\""},
                                   {.open = "'", .close = "'"},
                                   {.open = "`", .close = "`", .escape = 0, .multiline = true}};

}  // namespace

extern const Language kGo;
const Language kGo = {.name = "go",
                      .aliases = kAliases,
                      .keywords = kKeywords,
                      .constants = kConstants,
                      .definers = kDefiners,
                      .line_comments = kComments,
                      .block_comments = Language::Block::flat,
                      .strings = kStrings};

}  // namespace foresay::app
