#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"rs"};
constexpr std::string_view kKeywords[] = {
    "as",   "async",  "await",  "bool",  "break",  "char",  "const", "continue", "crate", "dyn", "else",
    "enum", "extern", "f32",    "f64",   "fn",     "for",   "i8",    "i16",      "i32",   "i64", "i128",
    "if",   "impl",   "in",     "isize", "let",    "loop",  "match", "mod",      "move",  "mut", "pub",
    "ref",  "return", "static", "str",   "struct", "super", "trait", "type",     "u8",    "u16", "u32",
    "u64",  "u128",   "unsafe", "use",   "usize",  "where", "while"};
constexpr std::string_view kConstants[] = {"true", "false", "self", "Self", "None", "Some", "Ok", "Err"};
constexpr std::string_view kDefiners[] = {"fn", "struct", "enum", "trait", "mod", "type"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {
    {.open = "r##\"", .close = "\"##", .escape = 0, .multiline = true},
    {.open = "r#\"", .close = "\"#", .escape = 0, .multiline = true},
    {.open = "r\"", .close = "\"", .escape = 0, .multiline = true},
    {.open = "br#\"", .close = "\"#", .escape = 0, .multiline = true},
    {.open = "br\"", .close = "\"", .escape = 0, .multiline = true},
    {.open = "\"", .close = "\"", .multiline = true},
    {.open = "'", .close = "'"},
};

}  // namespace

extern const Language kRust;
const Language kRust = {.name = "rust",
                        .aliases = kAliases,
                        .keywords = kKeywords,
                        .constants = kConstants,
                        .definers = kDefiners,
                        .line_comments = kComments,
                        .block_comments = Language::Block::nested,
                        .strings = kStrings,
                        .lifetimes = true};

}  // namespace foresay::app
