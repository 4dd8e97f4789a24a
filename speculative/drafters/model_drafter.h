// speculative/drafters/model_drafter.h: a small model that drafts with the target's own noise, temperature and masks.
//
// It has its own KV cache, which may be shorter than the sequence; it then holds a window of the latest tokens. The
// cache is brought up to date only when a draft is asked for, and no token in it is evaluated twice: after a full
// acceptance the last drafted token joins the next step as a second row.
//
// Cost:     one forward of the draft per proposed token.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/models/context.h"
#include "speculative/drafter.h"

namespace foresay::speculative {

// `context` is one sequence of the draft model. `never_proposed`: ids that mean another token to the draft than to the
// target, or none, in increasing order; a draft ends before one of them. Tokens of the text that the draft model has no
// row for are evaluated as token 0.
std::unique_ptr<Drafter> make_model_drafter(std::unique_ptr<core::Context> context, std::string name = "draft",
                                            std::vector<std::int32_t> never_proposed = {});

}  // namespace foresay::speculative
