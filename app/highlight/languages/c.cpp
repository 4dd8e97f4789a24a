#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"h"};
constexpr std::string_view kKeywords[] = {
    "auto",      "bool",           "break",         "case",     "char",     "const",    "continue",  "default",
    "do",        "double",         "else",          "enum",     "extern",   "float",    "for",       "goto",
    "if",        "inline",         "int",           "long",     "register", "restrict", "return",    "short",
    "signed",    "sizeof",         "static",        "struct",   "switch",   "typedef",  "union",     "unsigned",
    "void",      "volatile",       "while",         "_Alignas", "_Alignof", "_Atomic",  "_Bool",     "_Generic",
    "_Noreturn", "_Static_assert", "_Thread_local", "size_t",   "ssize_t",  "int8_t",   "int16_t",   "int32_t",
    "int64_t",   "uint8_t",        "uint16_t",      "uint32_t", "uint64_t", "intptr_t", "uintptr_t", "ptrdiff_t"};
constexpr std::string_view kConstants[] = {"NULL", "true", "false"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {{.open = "\"", .close = "\""}, {.open = "'", .close = "'"}};
constexpr Sigil kSigils[] = {{.character = '#', .look = Look::keyword}};

}  // namespace

extern const Language kC;
const Language kC = {.name = "c",
                     .aliases = kAliases,
                     .keywords = kKeywords,
                     .constants = kConstants,
                     .line_comments = kComments,
                     .block_comments = Language::Block::flat,
                     .strings = kStrings,
                     .sigils = kSigils};

}  // namespace foresay::app
