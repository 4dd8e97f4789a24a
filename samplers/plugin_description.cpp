#include "samplers/plugin_description.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "samplers/plugin_call.h"

namespace foresay::samplers {
namespace {

constexpr std::uint32_t kMaxParameters = 256;
constexpr std::uint32_t kMustBeKnown = 0xffffu;  // flags that a host must understand

[[noreturn]] void broken(const std::string& origin, const std::string& what) {
    throw Error(origin + ": the plugin breaks the sampler contract: " + what +
                "; ask its author for a corrected build");
}

std::string checked_name(const char* text, const std::string& origin, const std::string& what) {
    if (text == nullptr) broken(origin, what + " is missing");
    const std::size_t length = strnlen(text, 65);
    const bool legal = length >= 1 && length <= 64 && std::all_of(text, text + length, [](char c) {
                           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_';
                       });
    if (!legal) broken(origin, what + " is not of 1 to 64 lower-case letters, digits and underscores");
    return {text, length};
}

std::string limited(const char* text) {
    return text == nullptr ? std::string() : one_line({text, strnlen(text, 500)}, 500);
}

ParameterValue from_value(const foresay_value& value) {
    switch (value.type) {
        case FORESAY_BOOLEAN:
            return value.integer != 0;
        case FORESAY_INTEGER:
            return value.integer;
        case FORESAY_REAL:
            return value.real;
        case FORESAY_TEXT:
        case FORESAY_CHOICE:
            return std::string(value.text.data, static_cast<std::size_t>(value.text.size));
        case FORESAY_INTEGER_LIST:
            return std::vector<std::int64_t>(value.integers, value.integers + value.count);
        case FORESAY_REAL_LIST:
            return std::vector<double>(value.reals, value.reals + value.count);
        case FORESAY_FILE:
            return std::string();
        default:
            break;
    }
    std::vector<std::string> texts;
    for (std::uint32_t i = 0; i < value.count; ++i) {
        texts.emplace_back(value.texts[i].data, static_cast<std::size_t>(value.texts[i].size));
    }
    return texts;
}

ParameterType parameter_type(std::uint32_t type) {
    switch (type) {
        case FORESAY_BOOLEAN:
            return ParameterType::boolean;
        case FORESAY_INTEGER:
            return ParameterType::integer;
        case FORESAY_REAL:
            return ParameterType::real;
        case FORESAY_TEXT:
            return ParameterType::text;
        case FORESAY_CHOICE:
            return ParameterType::choice;
        case FORESAY_TEXT_LIST:
            return ParameterType::text_list;
        case FORESAY_INTEGER_LIST:
            return ParameterType::integer_list;
        case FORESAY_REAL_LIST:
            return ParameterType::real_list;
        default:
            return ParameterType::file;
    }
}

ParameterSchema read_parameter(const foresay_parameter& p, const std::string& origin) {
    ParameterSchema schema;
    schema.name = checked_name(p.name, origin, "a parameter's name");
    const std::string what = "parameter '" + schema.name + "'";
    if (p.type < FORESAY_BOOLEAN || p.type > FORESAY_FILE) broken(origin, what + " has an unknown type");
    if (p.fallback.type != p.type) broken(origin, what + " has a default of another type");
    if (p.type == FORESAY_FILE && (p.fallback.count > 0 || p.fallback.text.size > 0)) {
        broken(origin, what + " is a file with a default");
    }
    if (p.fallback.count > 100000 || p.fallback.text.size > 1000000) broken(origin, what + " has a huge default");
    schema.type = parameter_type(p.type);
    schema.doc = limited(p.doc);
    schema.fallback = from_value(p.fallback);
    if (std::isnan(p.min) || std::isnan(p.max)) broken(origin, what + " has a range that is not of numbers");
    if (p.min > p.max) broken(origin, what + " has a minimum above its maximum");
    if (p.min < p.max) {
        schema.min = p.min;
        schema.max = p.max;
    }
    if (p.type == FORESAY_CHOICE) {
        if (p.choice_count == 0 || p.choice_count > 1000 || p.choices == nullptr)
            broken(origin, what + " has no choices");
        for (std::uint32_t i = 0; i < p.choice_count; ++i) schema.choices.push_back(limited(p.choices[i]));
    }
    try {
        check_range("the default of " + what, schema, schema.fallback);
    } catch (const Error& problem) {
        broken(origin, problem.what());
    }
    return schema;
}

}  // namespace

foresay_sampler known_part(const foresay_sampler* sampler, const std::string& origin) {
    if (sampler == nullptr) broken(origin, "an empty entry in its list of samplers");
    if (sampler->struct_size < kSamplerSize) broken(origin, "a sampler has a wrong struct_size");
    foresay_sampler known{};
    std::memcpy(&known, sampler, std::min<std::size_t>(sampler->struct_size, sizeof known));
    return known;
}

StageDescription read_description(const foresay_sampler& s, const std::string& origin) {
    StageDescription description;
    description.name = checked_name(s.name, origin, "a sampler's name");
    description.doc = limited(s.doc);
    if (s.create == nullptr || s.destroy == nullptr) broken(origin, "create or destroy is missing");
    if (!s.process && !s.test && !s.mask) broken(origin, "process, test and mask are all missing");
    if (s.memory > FORESAY_FEEDBACK) broken(origin, "an unknown kind of memory");
    const bool stateful = s.memory != FORESAY_STATELESS;
    if (stateful && (!s.state_create || !s.state_destroy || !s.state_begin || !s.accept)) {
        broken(origin, "a stateful sampler without its state functions");
    }
    if (s.memory == FORESAY_FEEDBACK && !s.process) {
        broken(origin, "a sampler that remembers probabilities without process()");
    }
    const std::uint32_t known = FORESAY_RANDOMISED | FORESAY_MASKS_ONLY | FORESAY_WHOLE_VOCABULARY;
    if ((s.flags & kMustBeKnown & ~known) != 0) broken(origin, "unknown flags");
    description.traits.memory = static_cast<StageMemory>(s.memory);
    description.traits.randomised = (s.flags & FORESAY_RANDOMISED) != 0;
    const bool judges = s.memory != FORESAY_FEEDBACK && (s.test != nullptr || s.mask != nullptr);
    description.traits.masks_only = judges || (s.flags & FORESAY_MASKS_ONLY) != 0;
    description.traits.whole_vocabulary = judges || (s.flags & FORESAY_WHOLE_VOCABULARY) != 0;
    description.traits.clonable = !stateful || s.state_copy != nullptr;
    if (s.parameter_count > kMaxParameters || (s.parameter_count > 0 && s.parameters == nullptr)) {
        broken(origin, "its parameter list is missing or too long");
    }
    // A library compiled against a later minor version has longer entries: the first one's size is the stride.
    const char* at = reinterpret_cast<const char*>(s.parameters);
    for (std::uint32_t i = 0; i < s.parameter_count; ++i, at += s.parameters->struct_size) {
        const std::uint32_t size = reinterpret_cast<const foresay_parameter*>(at)->struct_size;
        if (size < kParameterSize || size != s.parameters->struct_size) {
            broken(origin, "parameter " + std::to_string(i + 1) + " has a wrong struct_size");
        }
        foresay_parameter known_members{};
        std::memcpy(&known_members, at, std::min<std::size_t>(size, sizeof known_members));
        ParameterSchema schema = read_parameter(known_members, origin);
        const bool twice = std::any_of(description.parameters.begin(), description.parameters.end(),
                                       [&](const ParameterSchema& other) { return other.name == schema.name; });
        if (twice) broken(origin, "two parameters are called '" + schema.name + "'");
        description.parameters.push_back(std::move(schema));
    }
    return description;
}

}  // namespace foresay::samplers
