// app/doctor/laws.h: whether this machine keeps what foresay promises, checked on an open engine in seconds. The tests
// check far more; this is for machines without a build folder.
//
// Threads:  one caller at a time.
// Cost:     some hundred forwards.
// Errors:   what the engine throws. A law that does not hold is a result, not an error.
#pragma once

#include <cstdint>
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
// What a model makes on a device, to be compared with what it makes on another one of the kind, or on several.
struct Sample {
    std::vector<std::vector<float>> logits;  // after a prompt, and of the rows that follow
    std::vector<std::int32_t> text;          // empty: the model has no tokenizer
};
Sample take_sample(const engine::Engine& engine);
// Whether they are the same bits. `other`: names the first one's device.
LawCheck check_same(const std::string& other, const Sample& expected, const Sample& found);
// A text is the same with speculation and without, with the chain of the configuration. Needs a tokenizer.
LawCheck check_speculation(const engine::Engine& engine);

}  // namespace foresay::app
