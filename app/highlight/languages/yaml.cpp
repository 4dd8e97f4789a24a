#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"yml"};
constexpr std::string_view kConstants[] = {"true", "false", "null", "True", "False"};
constexpr std::string_view kComments[] = {"#"};
constexpr StringRule kStrings[] = {{.open = "\"", .close = "\"", .multiline = true},
                                   {.open = "'", .close = "'", .escape = 0}};

}  // namespace

extern const Language kYaml;
const Language kYaml = {.name = "yaml",
                        .aliases = kAliases,
                        .constants = kConstants,
                        .word_characters = "-./",  // "null-safe" is no "null"
                        .line_comments = kComments,
                        .comment_begins_word = true,
                        .strings = kStrings,
                        .quote_begins_word = true,
                        .keys = Language::Keys::before_colon};

}  // namespace foresay::app
