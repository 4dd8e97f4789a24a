// server/output/output_format.h: how a family of models writes calls of tools into its answers.
//
// Threads:  values.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/text/tokenizer.h"

namespace foresay::server {

enum class OutputFamily : std::uint8_t {
    hermes,      // <tool_call>{"name": ..., "arguments": {...}}</tool_call>: Qwen, Hermes and many others
    qwen_coder,  // <tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>
    llama3,      // the whole answer is {"name": ..., "parameters": {...}}
    mistral,     // [TOOL_CALLS][{"name": ..., "arguments": {...}}], or [TOOL_CALLS]NAME[ARGS]{...}
    harmony,     // a message to=functions.NAME: gpt-oss
    deepseek,    // tool▁call▁begin
    gemma,       // <|tool_call>call:NAME{key:value}<tool_call|>
    generic,     // of hermes or of llama3; the tools were described in the system prompt
};

std::string_view name_of(OutputFamily family);

struct OutputFormat {
    OutputFamily family = OutputFamily::generic;
    // Control tokens of calls: their text matters, where that of others is not shown.
    std::vector<std::int32_t> controls;
    // How the template at hand writes what has several ways within a family.
    bool named_arguments = false;   // mistral: NAME[ARGS]{...}, not a list
    bool fenced_arguments = false;  // deepseek: function<sep>NAME, and the arguments as a block of code
    bool dsml = false;              // deepseek: <｜DSML｜invoke name="NAME">
};

// By the marks in the model's chat template.
OutputFormat detect_output_format(std::string_view chat_template, const core::Tokenizer& tokenizer);

}  // namespace foresay::server
