// app/sampler_import.h: sampler settings of other programs, as a table [sampling] of a configuration.
//
// Errors:   Error: what cannot be read, or has no counterpart here.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

enum class SamplerDialect { llama, exllama };

struct ImportedSamplers {
    std::string toml;
    std::vector<std::string> left_out;  // names that say nothing about sampling
};

// Reads options of a command line, lines KEY = VALUE or KEY: VALUE, or a JSON object. What is not stated has the
// defaults of that program, and the stages have its order unless the settings state one.
ImportedSamplers import_samplers(std::string_view text, SamplerDialect dialect);

}  // namespace foresay::app
