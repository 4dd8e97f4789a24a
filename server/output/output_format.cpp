#include "server/output/output_format.h"

#include <algorithm>
#include <array>

#include "server/output/call_syntax.h"

namespace foresay::server {

std::string_view name_of(OutputFamily family) {
    constexpr std::array<std::string_view, 8> kNames = {"hermes",  "qwen-coder", "llama3", "mistral",
                                                        "harmony", "deepseek",   "gemma",  "generic"};
    return kNames[static_cast<std::size_t>(family)];
}

OutputFormat detect_output_format(std::string_view chat_template, const core::Tokenizer& tokenizer) {
    const auto has = [&](std::string_view text) { return chat_template.find(text) != chat_template.npos; };
    OutputFormat format;
    if (has("<|channel|>") && has("<|message|>")) {
        format.family = OutputFamily::harmony;
    } else if (has("｜tool▁calls▁begin｜") || has("｜DSML｜")) {
        format.family = OutputFamily::deepseek;
    } else if (has("<|tool_call>") || has("<start_function_call>")) {
        format.family = OutputFamily::gemma;
    } else if (has("[TOOL_CALLS]")) {
        format.family = OutputFamily::mistral;
    } else if (has("<function=")) {
        format.family = OutputFamily::qwen_coder;
    } else if (has("<tool_call>")) {
        format.family = OutputFamily::hermes;
    } else if (has("<|start_header_id|>") || has("<|python_tag|>")) {
        format.family = OutputFamily::llama3;
    }
    format.named_arguments = has("[ARGS]");
    format.fenced_arguments = has("```json");
    format.dsml = has("｜DSML｜");
    // Marks and what else the syntaxes consist of.
    constexpr std::array<std::string_view, 20> kOthers = {"</tool_call>",
                                                          "[ARGS]",
                                                          "[CALL_ID]",
                                                          "<tool_call|>",
                                                          "<end_function_call>",
                                                          "<|\"|>",
                                                          "<escape>",
                                                          "<｜tool▁sep｜>",
                                                          "<｜tool▁call▁end｜>",
                                                          "<｜tool▁calls▁end｜>",
                                                          "<｜tool▁call▁begin｜>",
                                                          "｜DSML｜",
                                                          "<|python_tag|>",
                                                          "<tool_call>",
                                                          "</function>",
                                                          "<|tool_call>",
                                                          "[TOOL_CALLS]",
                                                          "<function=",
                                                          "</parameter>",
                                                          "<parameter="};
    const auto add = [&](std::string_view text) {
        const auto id = tokenizer.find(text);
        if (id && tokenizer.is_control(*id)) format.controls.push_back(*id);
    };
    for (const std::string_view mark : call_marks(format.family)) add(mark);
    for (const std::string_view other : kOthers) add(other);
    std::sort(format.controls.begin(), format.controls.end());
    format.controls.erase(std::unique(format.controls.begin(), format.controls.end()), format.controls.end());
    return format;
}

}  // namespace foresay::server
