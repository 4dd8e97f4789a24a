#include "app/stage_text.h"

#include <cmath>
#include <cstdint>

#include "app/terminal.h"
#include "core/config/value.h"

namespace foresay::app {

namespace {

std::string type_name(samplers::ParameterType type) {
    switch (type) {
        case samplers::ParameterType::boolean:
            return "boolean";
        case samplers::ParameterType::integer:
            return "integer";
        case samplers::ParameterType::real:
            return "number";
        case samplers::ParameterType::text:
            return "string";
        case samplers::ParameterType::choice:
            return "choice";
        case samplers::ParameterType::text_list:
            return "list of strings";
        case samplers::ParameterType::integer_list:
            return "list of integers";
        case samplers::ParameterType::real_list:
            return "list of numbers";
        case samplers::ParameterType::file:
            return "file";
    }
    return "value";
}

std::string range_of(const samplers::ParameterSchema& parameter) {
    std::string out;
    using Type = samplers::ParameterType;
    constexpr double kWhole = 9e15;  // up to which every whole number is a double
    const bool integers = parameter.type == Type::integer || parameter.type == Type::integer_list;
    const auto number = [&](double value) {
        if (integers && std::abs(value) < kWhole) return std::to_string(static_cast<std::int64_t>(value));
        return core::to_toml(core::ConfigValue(value));
    };
    if (parameter.min) out += ", at least " + number(*parameter.min);
    if (parameter.max) out += ", at most " + number(*parameter.max);
    for (const std::string& choice : parameter.choices)
        out += (&choice == parameter.choices.data() ? ": " : ", ") + choice;
    return out;
}

}  // namespace

std::string describe_stage(const samplers::StageDescription& stage) {
    std::string out = stage.name + "\n  " + stage.doc + "\n";
    const samplers::StageTraits& traits = stage.traits;
    out += "  state: ";
    out += traits.memory == samplers::StageMemory::stateless ? "none"
           : traits.memory == samplers::StageMemory::history ? "the tokens so far"
                                                             : "the tokens so far and their probabilities";
    if (traits.randomised) out += "; uses keyed random numbers";
    if (traits.masks_only) out += "; only drops candidates";
    out += traits.whole_vocabulary ? "; sees the whole vocabulary" : "; sees the best candidates";
    if (!traits.clonable) out += "; hidden from the draft";
    out += "\n";
    for (const samplers::ParameterSchema& parameter : stage.parameters) {
        out += "  " + padded(parameter.name + " = " + core::to_toml(parameter.fallback), 28) + parameter.doc + " (" +
               type_name(parameter.type) + range_of(parameter) + ")\n";
    }
    return out;
}

}  // namespace foresay::app
