// speculative/drafters/drafters.h: every drafter that `speculation.sources` may name.
//
// To add one: a file in this folder that defines its DrafterKind, and its line in drafters.cpp.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/models/context.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

// What an engine offers for making a drafter.
struct DrafterParts {
    std::int32_t context_length = 0;           // positions of the target's context
    std::shared_ptr<const core::Model> draft;  // the draft model; null: none is loaded
    core::ContextOptions draft_context;        // for a context of the draft model
    std::vector<std::int32_t> never_proposed;  // ids that the draft model must not propose: see pairing.h
};

struct DrafterKind {
    std::string name;  // as in speculation.sources and in statistics
    std::string doc;   // one clause
    std::vector<std::string> aliases;
    bool needs_draft_model = false;
    // Null when `parts` lack what it needs.
    std::unique_ptr<Drafter> (*make)(const DrafterParts& parts) = nullptr;
};

// In the order in which the documents list them.
std::span<const DrafterKind> drafter_kinds();
// By name or alias; null when there is none.
const DrafterKind* find_drafter_kind(std::string_view name);

}  // namespace foresay::speculative
