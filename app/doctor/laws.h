// app/doctor/laws.h: whether this machine keeps what foresay promises, checked on an open engine in seconds. The tests
// check far more; this is for machines without a build folder.
//
// Threads:  one caller at a time.
// Cost:     some hundred forwards.
// Errors:   what the engine throws. A law that does not hold is a result, not an error.
#pragma once

#include <string>
#include <vector>

#include "engine/engine.h"

namespace foresay::app {

struct LawCheck {
    std::string name;    // "rows alone and 4 together"
    std::string detail;  // "16 rows", or where the first difference is
    bool holds = false;
};

// Law 1: the bits of a row's logits do not depend on the rows beside it, nor on how a prompt is cut.
std::vector<LawCheck> check_rows(const engine::Engine& engine);
// A text is the same with speculation and without, with the chain of the configuration. Needs a tokenizer.
LawCheck check_speculation(const engine::Engine& engine);

}  // namespace foresay::app
