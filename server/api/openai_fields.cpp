// The fields of OpenAI's chat and completions.
#include "server/api/openai.h"

namespace foresay::server {

namespace {

const Shape& function_shape() {
    static const Shape shape{
        "function",
        {{.name = "name", .kinds = kString, .doc = "The name by which it is called."},
         {.name = "description", .kinds = kString, .doc = "What it does."},
         {.name = "parameters", .kinds = kObject, .doc = "A JSON Schema."},
         {.name = "strict", .kinds = kBoolean, .doc = "true: the arguments of a call are valid under parameters."}}};
    return shape;
}

const Shape& tool_shape() {
    static const Shape shape{
        "tool",
        {{.name = "type", .kinds = kString, .doc = "function; tools of other types are left out."},
         {.name = "function", .kinds = kObject, .doc = "The function.", .shape = &function_shape()}}};
    return shape;
}

const Shape& message_shape() {
    static const Shape shape{
        "message",
        {{.name = "role",
          .kinds = kString,
          .doc = "Who speaks.",
          .choices = {"system", "developer", "user", "assistant", "tool", "function"},
          .required = true},
         {.name = "content", .kinds = kString | kList, .doc = "A text, or a list of parts of the type text."},
         {.name = "reasoning_content", .kinds = kString, .doc = "The reasoning of an answer."},
         {.name = "tool_calls", .kinds = kList, .doc = "The calls of an answer.", .items = kObject},
         {.name = "tool_call_id", .kinds = kString, .doc = "Which call this is the result of."},
         {.name = "name", .kinds = kString, .doc = "Of a tool; of a speaker it is left out."}}};
    return shape;
}

const Shape& common_shape() {
    static const Shape shape{
        "generation",
        {
            {.name = "model", .kinds = kString, .doc = "The name of the model."},
            {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes piece by piece."},
            {.name = "stream_options", .kinds = kObject, .doc = "include_usage: a last chunk with the usage."},
            {.name = "n", .kinds = kInteger, .doc = "How many answers: branches of one seed.", .least = 1, .most = 64},
            {.name = "max_tokens",
             .kinds = kInteger,
             .doc = "Most tokens of an answer; absent or -1: to the end of the context.",
             .least = -1,
             .most = 1e9},
            {.name = "n_predict",
             .kinds = kInteger,
             .doc = "The same, in llama.cpp's words.",
             .least = -2,
             .most = 1e9},
            {.name = "user", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "metadata", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "store", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "service_tier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "safety_identifier", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "prompt_cache_key", .kinds = kAny, .doc = "Ignored here; gateways route by it.", .ignored = true},
            {.name = "prompt_cache_retention", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "verbosity", .kinds = kAny, .doc = "Ignored.", .ignored = true},
            {.name = "cache_prompt",
             .kinds = kBoolean,
             .doc = "false: evaluates the whole prompt, whatever the cache holds. The text is the same."},
        },
        &sampler_shape()};
    return shape;
}

const Shape& prediction_shape() {
    static const Shape shape{"prediction",
                             {{.name = "type", .kinds = kString, .doc = "content.", .choices = {"content"}},
                              {.name = "content",
                               .kinds = kString | kList,
                               .doc = "A text, or a list of parts of the type text.",
                               .required = true}}};
    return shape;
}

}  // namespace

const Shape& chat_shape() {
    static const Shape shape{
        "chat",
        {
            {.name = "messages",
             .kinds = kList,
             .doc = "The conversation.",
             .items = kObject,
             .shape = &message_shape(),
             .required = true},
            {.name = "max_completion_tokens",
             .kinds = kInteger,
             .doc = "As max_tokens, and above it.",
             .least = 0,
             .most = 1e9},
            {.name = "logprobs", .kinds = kBoolean, .doc = "Log probabilities of the tokens, before any sampler."},
            {.name = "top_logprobs",
             .kinds = kInteger,
             .doc = "How many of the likeliest tokens are told.",
             .least = 0,
             .most = 20},
            {.name = "response_format",
             .kinds = kObject,
             .doc = "The type text, json_object, or json_schema with the member json_schema."},
            {.name = "tools",
             .kinds = kList,
             .doc = "Functions that the model may call.",
             .items = kObject,
             .shape = &tool_shape()},
            {.name = "functions",
             .kinds = kList,
             .doc = "The old form of tools.",
             .items = kObject,
             .shape = &function_shape()},
            {.name = "tool_choice",
             .kinds = kString | kObject,
             .doc = "none, auto, required, or the tool that must be called.",
             .choices = {"none", "auto", "required"}},
            {.name = "function_call",
             .kinds = kString | kObject,
             .doc = "The old form of tool_choice.",
             .choices = {"none", "auto"}},
            {.name = "parallel_tool_calls", .kinds = kBoolean, .doc = "false: the first call alone counts."},
            {.name = "reasoning_effort",
             .kinds = kString,
             .doc = "How much the model reasons, where its template can tell it.",
             .choices = {"none", "minimal", "low", "medium", "high", "xhigh", "max"}},
            {.name = "chat_template_kwargs", .kinds = kObject, .doc = "Variables of the chat template."},
            {.name = "continue_final_message", .kinds = kBoolean, .doc = "The last message is the answer's beginning."},
            {.name = "add_generation_prompt",
             .kinds = kBoolean,
             .doc = "Whether the prompt ends where an answer begins."},
            {.name = "prediction",
             .kinds = kObject,
             .doc = "What the answer may be: it is drafted from. The text is the same.",
             .shape = &prediction_shape()},
            {.name = "modalities", .kinds = kList, .doc = "text alone.", .items = kString},
        },
        &common_shape()};
    return shape;
}

const Shape& completion_shape() {
    static const Shape shape{
        "completion",
        {
            {.name = "prompt",
             .kinds = kString | kList,
             .doc = "A text, a list of token ids, or a list of those.",
             .required = true},
            {.name = "suffix",
             .kinds = kString,
             .doc = "What follows the text that is wanted; the model must know holes."},
            {.name = "echo", .kinds = kBoolean, .doc = "Whether the prompt comes first."},
            {.name = "logprobs",
             .kinds = kInteger,
             .doc = "How many of the likeliest tokens are told.",
             .least = 0,
             .most = 20},
            {.name = "best_of", .kinds = kInteger, .doc = "Only what n says.", .least = 1, .most = 64},
        },
        &common_shape()};
    return shape;
}

const Shape& fim_shape() {
    static const Shape shape{
        "fim",
        {
            {.name = "prompt", .kinds = kString, .doc = "The text before the hole.", .required = true},
            {.name = "suffix", .kinds = kString, .doc = "The text after the hole."},
            {.name = "random_seed", .kinds = kInteger, .doc = "As seed."},
        },
        &common_shape()};
    return shape;
}

}  // namespace foresay::server
