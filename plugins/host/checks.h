// plugins/host/checks.h: the checks of one sampler, as plugin_check.h runs them: each takes the contract's word for one
// thing and looks whether it is so.
//
// To add one: a function in checks.cpp (what it answers) or checks_life.cpp (what it does to the process), and a line
// in the table there.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "plugins/host/check_subject.h"

namespace foresay::plugins {

// What a check works with, in a process that has just loaded the plugin.
struct CheckInput {
    std::shared_ptr<const samplers::StageFactory> factory;
    samplers::Parameters parameters;
    std::uint64_t seed = 1;

    Subject subject(std::int32_t vocabulary = 3000) const { return {factory, parameters, vocabulary}; }
};

struct Check {
    const char* name;
    const char* doc;  // what holds where it passes
    // Empty: it passed. A text: why not. Throws NotApplicable, or Error, which is a failure.
    std::string (*run)(const CheckInput& input);
    // Where run is null: lines that two processes must agree on.
    struct Pair {
        std::string (*first)(const CheckInput& input) = nullptr;
        std::string (*second)(const CheckInput& input) = nullptr;
        bool moved = false;  // in the second one, everything lies elsewhere, the clock has moved on, and another thread
                             // asks
        const char* otherwise = "";  // what it means that they do not
    } pair = {};
};

inline constexpr int kCheckSteps = 24;  // tokens of a text that a check writes

std::span<const Check> answer_checks();
std::span<const Check> life_checks();

// What the functions of a sampler cost: "NAME\tTEXT" a line.
std::string measure(const CheckInput& input);

}  // namespace foresay::plugins
