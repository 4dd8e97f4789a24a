#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"jsonc", "json5", "jsonl"};
constexpr std::string_view kConstants[] = {"true", "false", "null"};
constexpr std::string_view kComments[] = {"//"};
constexpr StringRule kStrings[] = {{.open = "\"", .close = "\""}};

}  // namespace

extern const Language kJson;
const Language kJson = {.name = "json",
                        .aliases = kAliases,
                        .constants = kConstants,
                        .line_comments = kComments,
                        .block_comments = Language::Block::flat,
                        .strings = kStrings,
                        .keys = Language::Keys::quoted};

}  // namespace foresay::app
