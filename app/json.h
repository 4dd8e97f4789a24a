// app/json.h: parses the JSON files that commands read. Keeps the JSON library out of headers.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

// The file of `foresay logits --tokens`. Errors: Error naming `path` and the invalid member.
struct TokensFile {
    std::vector<std::int32_t> tokens;
    std::vector<std::int32_t> positions;  // in the order of the file; all positions if the file has none
};
TokensFile parse_tokens_file(std::string_view text, const std::string& path, std::int32_t vocabulary);

// One line of a prompts file: {"id": ..., "kind": ..., "prompt": ...}.
struct Prompt {
    std::string id, kind, text;
};
std::vector<Prompt> parse_prompts(std::string_view text, const std::string& path);

}  // namespace foresay::app
