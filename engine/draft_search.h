// engine/draft_search.h: finds a draft model for a target among the models of this machine (draft.model = "auto").
//
// Candidates: GGUF files and folders with safetensors, in the target's folder, in `folders` and two levels below them,
//           and the current revision of each model in a cache of the Hugging Face hub. Left out are models that read
//           more than half of the target's bytes a token, and files that cannot be read.
// Order:    pairs that are known to work (speculative/known_drafts.h) come first, then what shares the tokenizer; among
//           each, by the expected gain. The first whose vocabulary fits is chosen.
// Cost:     reads headers. Files that are too large are not opened; tokenizers are read for the best candidates only.
// Errors:   none: a candidate with a problem is skipped.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "core/models/model_source.h"
#include "core/text/tokenizer.h"

namespace foresay::engine {

struct DraftSearch {
    std::vector<std::filesystem::path> folders;
    std::filesystem::path hub;  // the folder of models--ORG--NAME; empty: none
    double row_share = 0.0;     // cost of one more row of the target, as a share of a plain step
    // Gets one sentence for each candidate that is skipped; may be null.
    std::function<void(const std::string&)> skipped;
};

struct FoundDraft {
    std::filesystem::path path;  // empty: none
    // One sentence for the user, without a full stop: what was chosen, why, and what it is expected to gain; or what to
    // fetch. Empty: there is nothing to say.
    std::string sentence;
};

// `target` is open; `path` is its file or folder. Without a tokenizer nothing is found.
FoundDraft find_draft(core::ModelSource& target, const core::Tokenizer* tokenizer, const std::filesystem::path& path,
                      const DraftSearch& search);

}  // namespace foresay::engine
