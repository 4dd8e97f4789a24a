#include "app/highlight/language.h"

namespace foresay::app {

namespace {

constexpr std::string_view kAliases[] = {"sh", "shell", "zsh", "console", "shellscript"};
constexpr std::string_view kKeywords[] = {"break",  "case", "cd",       "continue", "declare", "do",    "done",
                                          "echo",   "elif", "else",     "esac",     "eval",    "exec",  "exit",
                                          "export", "fi",   "for",      "function", "if",      "in",    "local",
                                          "printf", "read", "readonly", "return",   "select",  "set",   "shift",
                                          "source", "test", "then",     "trap",     "unset",   "until", "while"};
constexpr std::string_view kConstants[] = {"true", "false"};
constexpr std::string_view kDefiners[] = {"function"};
constexpr std::string_view kComments[] = {"#"};
constexpr StringRule kStrings[] = {
    {.open = "\"", .close = "\"", .multiline = true},
    {.open = "'", .close = "'", .escape = 0, .multiline = true},
    {.open = "${", .close = "}", .escape = 0, .look = Look::number},
};
constexpr Sigil kSigils[] = {{.character = '$', .look = Look::number, .alone = "0123456789@*#?!$-"}};

}  // namespace

extern const Language kBash;
const Language kBash = {.name = "bash",
                        .aliases = kAliases,
                        .keywords = kKeywords,
                        .constants = kConstants,
                        .definers = kDefiners,
                        .word_characters = "-./",  // neither --for nor a/for is a loop
                        .line_comments = kComments,
                        .comment_begins_word = true,
                        .strings = kStrings,
                        .here_documents = true,
                        .sigils = kSigils};

}  // namespace foresay::app
