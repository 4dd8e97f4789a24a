#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"ini"};
constexpr std::string_view kConstants[] = {"true", "false", "inf", "nan"};
constexpr std::string_view kComments[] = {"#"};
constexpr StringRule kStrings[] = {{.open = "\"\"\"", .close = "\"\"\"", .multiline = true},
                                   {.open = "'''", .close = "'''", .escape = 0, .multiline = true},
                                   {.open = "\"", .close = "\""},
                                   {.open = "'", .close = "'", .escape = 0}};

}  // namespace

extern const Language kToml;
const Language kToml = {.name = "toml",
                        .aliases = kAliases,
                        .constants = kConstants,
                        .line_comments = kComments,
                        .strings = kStrings,
                        .keys = Language::Keys::before_equals};

}  // namespace foresay::app
