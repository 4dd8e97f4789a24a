// app/json.h: JSON text of the program's results and the files it is given. Its .cpp files see the JSON library.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

// The `tokens` and `positions` of a file for `logits`. Errors: Error naming `path` and the member that is wrong.
struct TokensFile {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> positions;  // in the order of the file; all of them when it names none
};
TokensFile parse_tokens_file(std::string_view text, const std::string& path, std::int32_t vocabulary);

// One line of a prompts file: {"id": ..., "kind": ..., "prompt": ...}.
struct Prompt {
    std::string id, kind, text;
};
std::vector<Prompt> parse_prompts(std::string_view text, const std::string& path);

}  // namespace foresay::app
