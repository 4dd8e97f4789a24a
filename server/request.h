// server/request.h: what a client asks for, in no protocol's words. Protocols fill it in; server/answering.h runs it.
//
// Threads:  values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "samplers/stage.h"
#include "server/json.h"

namespace foresay::server {

struct ToolCall {
    std::string id, name;
    std::string arguments;  // a JSON object as text
};

struct Message {
    std::string role;  // "system", "developer", "user", "assistant", "tool"
    std::string content;
    std::string reasoning;           // of the assistant
    std::vector<ToolCall> calls;     // of the assistant
    std::string call_id, tool_name;  // of a tool's result
    std::string path;                // where it stands in the request: "messages[2]"
};

struct Tool {
    std::string name, description;
    Json parameters;      // a JSON Schema; null: none
    bool strict = false;  // its calls have arguments that are valid under the schema
    std::string param;    // the field that the schema comes from
};

// A conversation that is to be answered.
struct Conversation {
    std::vector<Message> messages;
    std::string param = "messages";  // the field that has them
    std::vector<Tool> tools;         // empty: the answer is not searched for calls
    bool continue_last = false;      // the last message is the beginning of the answer
    bool generation_prompt = true;
    bool must_call = false;   // the answer is one call or several
    std::string call_name;    // of the only tool that may then be called; empty: any
    bool one_call = false;    // at most one
    std::string call_param;   // the field that says so
    std::string reasoning;    // "", "off", "on", "low", "medium", "high"
    Json template_arguments;  // an object or null
};

// The text that is missing between two others.
struct Hole {
    std::string prefix, suffix;
    struct File {
        std::string name, text;
    };
    std::vector<File> others;  // of the same project
};

// Exactly one of them.
struct Prompt {
    std::optional<Conversation> conversation;
    std::optional<Hole> hole;
    // Texts and token ids, one after the other.
    struct Part {
        std::string text;
        std::vector<std::int32_t> tokens;  // counts when there is no text
        bool is_text = false;
    };
    std::vector<Part> parts;
    std::string param;  // the field that it comes from
};

// A parameter of a sampler stage, with the field that sets it.
struct SamplerSetting {
    std::string stage, parameter;
    samplers::ParameterValue value;
    std::string param;
    bool adds_stage = true;  // false: counts only where the chain has the stage, or another setting adds it
    bool of_plugin = false;  // of a stage of the chain that is none of ours
};

// What the content of an answer must be.
struct AnswerForm {
    bool is_schema = true;  // `schema` counts, else `gbnf`
    Json schema;            // a JSON Schema
    std::string gbnf;       // a grammar in llama.cpp's notation
    std::string param;      // the field that it comes from
};

struct GenerationRequest {
    std::vector<Prompt> prompts;  // each gets `n` answers
    int n = 1;
    std::optional<std::int64_t> max_tokens;  // none: to the end of the context
    std::string max_tokens_param;            // the field that says so
    std::optional<std::uint64_t> seed;       // none: we choose
    bool negative_seed = false;              // it was written as a number below 0, and is told so
    std::uint64_t branch = 0;                // of the first answer
    std::vector<std::string> stop;
    bool ignore_eos = false;
    std::vector<SamplerSetting> samplers;
    int mirostat = 0;             // version that takes the place of the stages that drop tokens; 0: none
    double dynatemp_range = 0.0;  // of the temperature around the value that is set; 0: it is fixed
    std::string dynatemp_param;   // the field that says so
    std::optional<AnswerForm> form;
    std::optional<std::vector<std::string>> chain;  // the names of the stages, in order; none: the configured ones
    int alternatives = -1;                          // log probabilities: how many of the likeliest; -1: none
    std::optional<int> draft;                       // tokens to draft: 0 for none; none: as configured
    std::string prediction;                         // what the answer may be
    int priority = 0;                               // above 0: for admins alone
    bool reuse = true;
    // For a hole: the text ends at a line that is indented less than so many blanks.
    int least_indent = 0;
    std::int64_t time_limit_ms = 0;  // after it, the text ends at the next line break; 0: none
    std::int64_t deadline_ms = 0;    // after it, the text ends; 0: none
};

}  // namespace foresay::server
