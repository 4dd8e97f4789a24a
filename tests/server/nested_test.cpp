// What is wrong within a member of a member: refused with its path, where it would have been left out in silence. And
// what clients send besides is taken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/json.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;
using ::testing::HasSubstr;

struct Sent {
    const char* path;
    const char* body;
    const char* param;
    const char* says = "";
};

// The field that an error names; Anthropic's and Ollama's have it in the sentence.
bool names(const Json& answer, const std::string& param) {
    const Json& error = answer["error"];
    if (error.is_object() && error.has("param")) return error.text("param") == param;
    const std::string& message = error.is_string() ? error.string() : error.text("message");
    return message.find("'" + param + "'") != std::string::npos;
}

constexpr const char* kChat = "/v1/chat/completions";
constexpr const char* kResponses = "/v1/responses";
constexpr const char* kMessages = "/v1/messages";

TEST(Nested, WrongTypesAreRefusedWithTheirPath) {
    Direct direct;
    direct.backend().tokens = bundled().tokenizer().encode("y = 2", {.add_special = false});
    const std::vector<Sent> table = {
        // ---- chat
        {kChat, R"({"messages":[{"role":"user","content":[{"type":"text","text":5}]}]})",
         "messages[0].content[0].text"},
        {kChat, R"({"messages":[{"role":"user","content":[5]}]})", "messages[0].content[0]"},
        {kChat, R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing"},
        {kChat,
         R"({"messages":[{"role":"assistant","tool_calls":[{"id":"c","function":{"name":"f","arguments":5}}]}]})",
         "messages[0].tool_calls[0].function.arguments", "a string or an object, not a number"},
        {kChat, R"({"messages":[{"role":"assistant","tool_calls":[{"id":7,"function":{"name":"f"}}]}]})",
         "messages[0].tool_calls[0].id"},
        {kChat, R"({"messages":[{"role":"assistant","function_call":{"name":"f","arguments":[]}}]})",
         "messages[0].function_call.arguments"},
        {kChat, R"({"messages":[{"role":"user","content":"x"}],"stream_options":{"include_usage":"yes"}})",
         "stream_options.include_usage", "a boolean, not a string"},
        {kChat, R"({"messages":[{"role":"user","content":"x"}],"response_format":{"type":7}})", "response_format.type"},
        {kChat, R"({"messages":[{"role":"user","content":"x"}],"response_format":{}})", "response_format.type",
         "missing"},
        {kChat,
         R"({"messages":[{"role":"user","content":"x"}],)"
         R"("response_format":{"type":"json_schema","json_schema":{"schema":"x"}}})",
         "response_format.json_schema.schema"},
        {kChat, R"({"messages":[{"role":"user","content":"x"}],"tool_choice":{"function":5}})", "tool_choice.function"},
        {kChat, R"({"messages":[{"role":"user","content":"x"}],"tools":[{"function":{"name":"f","strict":"no"}}]})",
         "tools[0].function.strict"},
        // ---- responses
        {kResponses, R"({"input":[{"role":"robot","content":"x"}]})", "input[0].role", "one of: user"},
        {kResponses, R"({"input":[{"role":"user"}]})", "input[0].content", "missing"},
        {kResponses, R"({"input":[{"role":"user","content":[{"type":"input_text","text":5}]}]})",
         "input[0].content[0].text"},
        {kResponses, R"({"input":[{"type":"function_call","name":"f","call_id":"c","arguments":{"a":1}}]})",
         "input[0].arguments", "a string, not an object"},
        {kResponses, R"({"input":[{"type":"function_call_output","call_id":5,"output":"x"}]})", "input[0].call_id"},
        {kResponses, R"({"input":[{"type":"function_call_output","call_id":"c","output":{}}]})", "input[0].output"},
        {kResponses, R"({"input":"x","tools":[{"type":"function","name":"f","parameters":"none"}]})",
         "tools[0].parameters"},
        {kResponses, R"({"input":"x","text":{"format":{"type":"json_schema","schema":7}}})", "text.format.schema"},
        {kResponses, R"({"input":"x","text":{"format":{"type":"json_schema"}}})", "text.format.schema", "missing"},
        {kResponses, R"({"input":"x","tools":[{"type":"function"}]})", "tools[0].name", "missing"},
        // ---- anthropic
        {kMessages, R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":5}]}]})",
         "messages[0].content[0].text", "a string, not a number"},
        {kMessages, R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text"}]}]})",
         "messages[0].content[0].text", "missing"},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","name":"f","input":"x"}]}]})",
         "messages[0].content[0].input", "an object"},
        {kMessages, R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"tool_use","input":{}}]}]})",
         "messages[0].content[0].name", "missing"},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"user","content":)"
         R"([{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":5}]}]}]})",
         "messages[0].content[0].content[0].text"},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"system":[{"type":"text","text":5}]})",
         "system[0].text"},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"effort":"gigantic"}})",
         "output_config.effort", "one of: low, medium"},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"output_config":{"format":{"type":"poem"}}})",
         "output_config.format.type"},
        // ---- others
        {"/api/chat", R"({"messages":[{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":5}}]}]})",
         "messages[0].tool_calls[0].function.arguments"},
        {"/api/chat", R"({"messages":[{"role":"user","content":"x"}],"tools":[{"function":7}]})", "tools[0].function"},
        {"/apply-template", R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role", "one of: system"},
        {"/apply-template", R"({"messages":[{"role":"user"}]})", "messages[0].content", "missing"},
        {"/apply-template", R"({"messages":[{"role":"user","content":"x"}],"continue_final_message":"yes"})",
         "continue_final_message"},
        {"/v1/chat/completions/input_tokens", R"({"messages":[{"role":"robot","content":"x"}]})", "messages[0].role"},
        {"/tokenize", R"({"messages":[{"role":"user","content":"x"}],"add_generation_prompt":"yes"})",
         "add_generation_prompt"},
        {"/tokenize", R"({"messages":[{"content":"x"}]})", "messages[0].role", "missing"},
        {"/v1/token/encode", R"({"text":[{"role":"user"}]})", "text[0].content", "missing"},
        {"/v1/token/encode", R"({"text":[{"content":"x"}]})", "text[0].role", "missing"},
    };
    for (const Sent& sent : table) {
        const server::HttpResponse answer = direct.post(sent.path, sent.body);
        EXPECT_EQ(answer.status, 400) << sent.path << " " << sent.body << "\n" << answer.body;
        EXPECT_TRUE(names(parse_json(answer.body), sent.param)) << sent.param << ": " << answer.body;
        EXPECT_THAT(answer.body, HasSubstr(sent.says)) << sent.body;
    }
}

// Members that are not listed, null, and types of other servers.
TEST(Nested, WhatClientsSendBesidesIsTaken) {
    Direct direct;
    direct.backend().tokens = bundled().tokenizer().encode("y = 2", {.add_special = false});
    const std::vector<Sent> table = {
        {kChat,
         R"({"messages":[{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}],)"
         R"("name":null},{"role":"assistant","content":null,"refusal":null,"audio":null,"annotations":[],)"
         R"("tool_calls":[{"id":"c","type":"function","index":0,"function":{"name":"f","arguments":"{}"},)"
         R"("extra_content":{}}],"function_call":null},{"role":"tool","tool_call_id":"c","content":"y"}],)"
         R"("stream_options":{"include_obfuscation":false},"response_format":{"type":"text","x":1}})",
         ""},
        {kResponses,
         R"({"input":[{"type":"reasoning","id":"r","summary":[],"content":null,"encrypted_content":"e"},)"
         R"({"type":"computer_call_output","output":{"type":"computer_screenshot"},"call_id":7},)"
         R"({"type":"message","role":"assistant","status":"completed","content":[{"type":"output_text","text":"x",)"
         R"("annotations":[],"logprobs":[]}]},{"role":"user","content":"x"}],"tools":[{"type":"web_search"},)"
         R"({"type":"custom","name":"c","format":{"type":"text"},"parameters":"?"}],"text":{"verbosity":"low"},)"
         R"("reasoning":{"summary":"auto"}})",
         ""},
        {kMessages,
         R"({"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"t",)"
         R"("signature":"s"},{"type":"redacted_thinking","data":"d"},{"type":"text","text":"x","citations":null}]},)"
         R"({"role":"user","content":"x"}],"tools":[{"type":"bash_20250124","name":"bash","strict":"?"}],)"
         R"("output_config":{"effort":"max","task_budget":{"total":1}}})",
         ""},
    };
    for (const Sent& sent : table) {
        const server::HttpResponse answer = direct.post(sent.path, sent.body);
        EXPECT_EQ(answer.status, 200) << sent.path << " " << sent.body << "\n" << answer.body;
    }
}

const Json& at(const Json& json, std::initializer_list<const char*> path) {
    const Json* found = &json;
    for (const char* name : path) found = &(*found)[name];
    return *found;
}

// /openapi.json says what is in them.
TEST(Nested, OpenApiDescribesThem) {
    Direct direct;
    const Json openapi = parse_json(direct.ask("GET", "/openapi.json").body);
    const auto fields = [&](const char* path) -> const Json& {
        return at(openapi["paths"][path]["post"],
                  {"requestBody", "content", "application/json", "schema", "properties"});
    };
    const Json& block = at(fields(kMessages), {"messages", "items", "properties", "content", "items", "properties"});
    EXPECT_EQ(block["text"].text("type"), "string");
    EXPECT_EQ(block["input"].text("type"), "object");
    EXPECT_TRUE(at(fields(kMessages), {"output_config", "properties", "effort", "enum"}).is_list());
    const Json& item = at(fields(kResponses), {"input", "items", "properties"});
    EXPECT_EQ(item["arguments"].text("type"), "string");
    EXPECT_TRUE(at(fields(kResponses), {"tools", "items", "properties", "parameters"}).is_object());
    EXPECT_EQ(at(fields(kChat), {"stream_options", "properties", "include_usage"}).text("type"), "boolean");
    EXPECT_TRUE(
        at(fields(kChat), {"response_format", "properties", "json_schema", "properties", "schema"}).is_object());
    // A choice that may be an object is no enum of texts.
    EXPECT_FALSE(fields(kChat)["tool_choice"].has("enum"));
    EXPECT_EQ(fields(kChat)["tool_choice"]["anyOf"].items().size(), 2u);
}

}  // namespace
}  // namespace foresay::testing
