// The fields of OpenAI's chat and completions.
#include "server/api/openai.h"

namespace foresay::server {

namespace {

// What a tool is; Responses has it in the tool itself.
std::vector<Field> function_fields() {
    return {{.name = "name", .kinds = kString, .doc = "The name by which it is called."},
            {.name = "description", .kinds = kString, .doc = "What it does."},
            {.name = "parameters", .kinds = kObject, .doc = "A JSON Schema."},
            {.name = "strict", .kinds = kBoolean, .doc = "true: the arguments of a call are valid under parameters."}};
}

const Shape& function_shape() {
    static const Shape shape{"function", function_fields()};
    return shape;
}

const Shape& called_shape() {
    static const Shape shape{
        "called_function",
        {{.name = "name", .kinds = kString, .doc = "The function that is called."},
         {.name = "arguments", .kinds = kString | kObject, .doc = "A JSON object, as a text or as it is."}}};
    return shape;
}

const Shape& named_shape() {
    static const Shape shape{"named_function",
                             {{.name = "name", .kinds = kString, .doc = "The function that must be called."}}};
    return shape;
}

const Shape& allowed_shape() {
    static const Shape shape{"allowed_tools",
                             {{.name = "mode",
                               .kinds = kString,
                               .doc = "Whether one of them must be called.",
                               .choices = {"auto", "required"}},
                              {.name = "tools", .kinds = kList, .doc = "Tools by their names.", .items = kObject}}};
    return shape;
}

// A schema with its name, as chat nests it.
const Shape& named_schema_shape() {
    static const Shape shape{
        "json_schema",
        {{.name = "schema", .kinds = kObject | kBoolean, .doc = "A JSON Schema that the answer is valid under."},
         {.name = "name", .kinds = kString, .doc = "Its name; it changes nothing."},
         {.name = "description", .kinds = kString, .doc = "What it is for; it changes nothing."},
         {.name = "strict", .kinds = kBoolean, .doc = "Accepted: the answer is valid under the schema either way."}}};
    return shape;
}

const Shape& response_format_shape() {
    static const Shape shape{
        "response_format",
        {{.name = "type",
          .kinds = kString,
          .doc = "json_schema has the member json_schema; json_object is any object.",
          .choices = {"text", "json_object", "json_schema"},
          .required = true},
         {.name = "json_schema", .kinds = kObject, .doc = "Of json_schema.", .shape = &named_schema_shape()},
         {.name = "schema",
          .kinds = kObject | kBoolean,
          .doc = "A JSON Schema, as llama.cpp's clients write it, also of json_object."}}};
    return shape;
}

const Shape& stream_options_shape() {
    static const Shape shape{
        "stream_options",
        {{.name = "include_usage", .kinds = kBoolean, .doc = "true: a last chunk has usage, timings and foresay."},
         {.name = "include_obfuscation", .kinds = kAny, .doc = "Ignored.", .ignored = true},
         {.name = "continuous_usage_stats", .kinds = kAny, .doc = "Ignored.", .ignored = true}}};
    return shape;
}

const Shape& common_shape() {
    static const Shape shape{
        "generation",
        {
            {.name = "model", .kinds = kString, .doc = "The name of the model."},
            {.name = "stream", .kinds = kBoolean, .doc = "Whether the answer comes piece by piece."},
            {.name = "stream_options",
             .kinds = kObject,
             .doc = "What a stream tells besides.",
             .shape = &stream_options_shape()},
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
                               .items = kString | kObject,
                               .shape = &chat_part_shape(),
                               .required = true}}};
    return shape;
}

}  // namespace

const Shape& chat_part_shape() {
    static const Shape shape{.name = "part",
                             .fields = {{.name = "type",
                                         .kinds = kString,
                                         .doc = "text (input_text, output_text), or refusal; others are refused."},
                                        {.name = "text", .kinds = kString, .doc = "The text."},
                                        {.name = "refusal", .kinds = kString, .doc = "Of the type refusal."}},
                             .types = {"text", "input_text", "output_text", "reasoning_text", "refusal"}};
    return shape;
}

const Shape& chat_tool_shape() {
    static const Shape shape = [] {
        Shape all{.name = "tool",
                  .fields = {{.name = "type", .kinds = kString, .doc = "function; tools of other types are left out."},
                             {.name = "function",
                              .kinds = kObject,
                              .doc = "The function; or its members stand here, as in Responses.",
                              .shape = &function_shape()}},
                  .types = {"function"}};
        for (Field& field : function_fields()) all.fields.push_back(std::move(field));
        return all;
    }();
    return shape;
}

const Shape& chat_choice_shape() {
    static const Shape shape{
        "tool_choice",
        {{.name = "type",
          .kinds = kString,
          .doc = "function with its name, allowed_tools, or auto, none and required as the texts of these names."},
         {.name = "function", .kinds = kObject, .doc = "The tool that must be called.", .shape = &named_shape()},
         {.name = "name", .kinds = kString, .doc = "The same, as Responses has it."},
         {.name = "allowed_tools",
          .kinds = kObject,
          .doc = "The tools that may be called; or its members stand here, as in Responses.",
          .shape = &allowed_shape()}},
        &allowed_shape()};
    return shape;
}

const Shape& chat_call_shape() {
    static const Shape shape{
        "tool_call",
        {{.name = "id", .kinds = kString, .doc = "What its result refers to."},
         {.name = "type", .kinds = kString, .doc = "function."},
         {.name = "function", .kinds = kObject, .doc = "What was called.", .shape = &called_shape()}}};
    return shape;
}

const Shape& chat_message_shape() {
    static const Shape shape{"message",
                             {{.name = "role",
                               .kinds = kString,
                               .doc = "Who speaks.",
                               .choices = {"system", "developer", "user", "assistant", "tool", "function"},
                               .required = true},
                              {.name = "content",
                               .kinds = kString | kList,
                               .doc = "A text, or a list of parts of the type text. An answer may have none.",
                               .items = kString | kObject,
                               .shape = &chat_part_shape()},
                              {.name = "reasoning_content", .kinds = kString, .doc = "The reasoning of an answer."},
                              {.name = "tool_calls",
                               .kinds = kList,
                               .doc = "The calls of an answer.",
                               .items = kObject,
                               .shape = &chat_call_shape()},
                              {.name = "function_call",
                               .kinds = kObject,
                               .doc = "The call of an answer, in its old form.",
                               .shape = &called_shape()},
                              {.name = "tool_call_id", .kinds = kString, .doc = "Which call this is the result of."},
                              {.name = "name", .kinds = kString, .doc = "Of a tool; of a speaker it is left out."}}};
    return shape;
}

const Shape& schema_format_shape() {
    static const Shape shape{"format",
                             {{.name = "type",
                               .kinds = kString,
                               .doc = "json_schema has the member schema; json_object is any object.",
                               .choices = {"text", "json_object", "json_schema"},
                               .required = true}},
                             &named_schema_shape()};
    return shape;
}

const Shape& chat_conversation_shape() {
    static const Shape shape{
        "conversation",
        {
            {.name = "tools",
             .kinds = kList,
             .doc = "Functions that the model may call.",
             .items = kObject,
             .shape = &chat_tool_shape()},
            {.name = "functions",
             .kinds = kList,
             .doc = "The old form of tools; calls are then told in the old form as well.",
             .items = kObject,
             .shape = &function_shape()},
            {.name = "tool_choice",
             .kinds = kString | kObject,
             .doc = "none, auto, required, or the tool that must be called.",
             .choices = {"none", "auto", "required"},
             .shape = &chat_choice_shape()},
            {.name = "function_call",
             .kinds = kString | kObject,
             .doc = "The old form of tool_choice.",
             .choices = {"none", "auto"},
             .shape = &named_shape()},
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
        }};
    return shape;
}

const Shape& chat_shape() {
    // Bases are a chain, so the fields of a conversation are among its own.
    static const Shape shape = [] {
        Shape all{
            "chat",
            {
                {.name = "messages",
                 .kinds = kList,
                 .doc = "The conversation.",
                 .items = kObject,
                 .shape = &chat_message_shape(),
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
                 .doc = "The form of the answer.",
                 .shape = &response_format_shape()},
                {.name = "prediction",
                 .kinds = kObject,
                 .doc = "What the answer may be: it is drafted from. The text is the same.",
                 .shape = &prediction_shape()},
                {.name = "modalities", .kinds = kList, .doc = "text alone.", .items = kString},
            },
            &common_shape()};
        const std::vector<Field>& more = chat_conversation_shape().fields;
        all.fields.insert(all.fields.end(), more.begin(), more.end());
        return all;
    }();
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
            {.name = "echo",
             .kinds = kBoolean,
             .doc = "Whether the prompt comes first, as it was sent. Not with logprobs: a prompt's tokens have none."},
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
