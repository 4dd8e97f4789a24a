// speculative/known_drafts.h: pairs of published models that are known to work, and what a draft is expected to gain.
//
// Models are recognised by their shapes (core::published_name()), not by the names of their files.
// To add a pair, add a row in known_drafts.cpp. docs/models.md shows the table.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "core/models/model_config.h"

namespace foresay::speculative {

struct KnownDraft {
    std::string_view target, draft;  // names of shapes
    double acceptance;               // share of drafted tokens that were right, as others have stated; 0: not stated
    std::string_view repository;     // where the draft's file is: REPOSITORY:QUANT
};

// Best first for each target.
std::span<const KnownDraft> known_drafts();
// The row of a pair; null: none.
const KnownDraft* find_known_draft(std::string_view target, std::string_view draft);
// The first row of a target; null: none.
const KnownDraft* first_known_draft(std::string_view target);

// For pairs of which nothing is stated.
inline constexpr double kAssumedAcceptance = 0.6;

struct GainInput {
    double acceptance = kAssumedAcceptance;
    double draft_share = 0.0;  // bytes that a token of the draft reads, as a share of those of the target
    double row_share = 0.0;    // cost of one more row of the target, as a share of a plain step
    std::int32_t experts = 0, experts_used = 0;
    double expert_share = 0.0;  // bytes of the chosen experts, as a share of what one token of the target reads
};

struct Gain {
    double times = 1.0;       // tokens per second, against plain decoding
    std::int32_t length = 0;  // drafted tokens with which that is reached
};

// The best length and its gain. Steps cost what they read: rows of a mixture of experts read those that none of the
// earlier rows has read.
Gain expected_gain(const GainInput& input);

}  // namespace foresay::speculative
