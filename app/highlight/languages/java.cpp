#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kKeywords[] = {
    "abstract",  "assert",   "boolean",   "break", "byte",    "case",       "catch",    "char",       "class",
    "const",     "continue", "default",   "do",    "double",  "else",       "enum",     "extends",    "final",
    "finally",   "float",    "for",       "goto",  "if",      "implements", "import",   "instanceof", "int",
    "interface", "long",     "native",    "new",   "package", "permits",    "private",  "protected",  "public",
    "record",    "return",   "sealed",    "short", "static",  "strictfp",   "super",    "switch",     "synchronized",
    "throw",     "throws",   "transient", "try",   "var",     "void",       "volatile", "while",      "yield"};
constexpr std::string_view kConstants[] = {"true", "false", "null", "this"};
constexpr std::string_view kDefiners[] = {"class", "interface", "enum", "record"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {{.open = "\"\"\"", .close = "\"\"\"", .multiline = true},
                                   {.open = "\"", .close = "\""},
                                   {.open = "'", .close = "'"}};
constexpr Sigil kSigils[] = {{.character = '@', .look = Look::keyword, .inside = "."}};

}  // namespace

extern const Language kJava;
const Language kJava = {.name = "java",
                        .keywords = kKeywords,
                        .constants = kConstants,
                        .definers = kDefiners,
                        .word_characters = "$",
                        .line_comments = kComments,
                        .block_comments = Language::Block::flat,
                        .strings = kStrings,
                        .sigils = kSigils};

}  // namespace foresay::app
