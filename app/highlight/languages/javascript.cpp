// JavaScript and TypeScript. A regular expression is not recognised, because that takes a parser.
#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"js", "jsx", "mjs", "cjs", "node", "typescript", "ts", "tsx", "mts"};
constexpr std::string_view kKeywords[] = {
    "abstract",   "any",    "as",        "asserts",  "async",      "await",     "boolean", "break",     "case",
    "catch",      "class",  "const",     "continue", "debugger",   "declare",   "default", "delete",    "do",
    "else",       "enum",   "export",    "extends",  "finally",    "for",       "from",    "function",  "if",
    "implements", "import", "in",        "infer",    "instanceof", "interface", "is",      "keyof",     "let",
    "namespace",  "never",  "new",       "number",   "of",         "override",  "private", "protected", "public",
    "readonly",   "return", "satisfies", "static",   "string",     "super",     "switch",  "symbol",    "throw",
    "try",        "type",   "typeof",    "unknown",  "var",        "void",      "while",   "with",      "yield"};
constexpr std::string_view kConstants[] = {"true", "false", "null", "undefined", "NaN", "Infinity", "this"};
constexpr std::string_view kDefiners[] = {"function", "class", "interface", "enum", "namespace"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {
    {.open = "\"", .close = "\""}, {.open = "'", .close = "'"}, {.open = "`", .close = "`", .multiline = true}};
constexpr Sigil kSigils[] = {{.character = '@', .look = Look::keyword, .inside = "."}};

}  // namespace

extern const Language kJavaScript;
const Language kJavaScript = {.name = "javascript",
                              .aliases = kAliases,
                              .keywords = kKeywords,
                              .constants = kConstants,
                              .definers = kDefiners,
                              .word_characters = "$",
                              .line_comments = kComments,
                              .block_comments = Language::Block::flat,
                              .strings = kStrings,
                              .sigils = kSigils};

}  // namespace foresay::app
