// app/sampler_import.h: sampler settings of other programs, as a table [sampling] of a configuration.
//
// Read are options of a command line, lines KEY = VALUE or KEY: VALUE (INI, and the YAML of tabbyAPI's overrides), or a
// JSON object. What is not stated has that program's default, and the stages have its order unless it is stated.
// Nothing is dropped in silence: `notes` has a sentence for each thing that has no counterpart here.
// Errors:   Error: the text cannot be read, with the line; a value of a wrong type; an order with an unknown name.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace foresay::app {

enum class SamplerDialect { llama_cpp, exllamav2, exllamav3, tabbyapi };

struct ImportedSamplers {
    std::string toml;                // with the notes as comments
    std::vector<std::string> notes;  // sentences without a full stop
};

ImportedSamplers import_samplers(std::string_view text, SamplerDialect dialect);

}  // namespace foresay::app
