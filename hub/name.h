// hub/name.h: how people name a model of the hub: [hf:]ORG/NAME[@REVISION][:CHOICE].
//
// CHOICE is one model of several in a repository: a quantisation ("Q4_K_M", in any case), the name of a GGUF file, or
// "safetensors". The address of the repository's page is understood in place of ORG/NAME.
// Errors:   Error that says what is wrong with the name.
#pragma once

#include <string>
#include <string_view>

namespace foresay::hub {

struct ModelName {
    std::string repo;               // "ORG/NAME", or "NAME" for a few old ones
    std::string revision = "main";  // a branch, a tag, refs/pr/N or a commit
    std::string choice;             // empty: the one that foresay prefers

    // "ORG/NAME:Q4_0", as parse_model_name() reads it.
    std::string text() const;
};

inline constexpr std::string_view kHubPrefix = "hf:";

ModelName parse_model_name(std::string_view text);

// Whether `text` may be a path below a folder that belongs to us: relative, without "..", empty parts and control
// characters.
bool is_safe_path(std::string_view text);
// Whether `text` is a commit: 40 hexadecimal digits.
bool is_commit(std::string_view text);

}  // namespace foresay::hub
