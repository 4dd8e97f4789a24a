// What a model may write, told by the real service: reasoning, calls of tools, calls that are broken. Each protocol
// tells the same of it, streamed or not, and nothing that a model writes is an error.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/configuration.h"
#include "server/json.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::OutputFamily;
using server::parse_json;
using ::testing::ElementsAre;

// The bundled model with a chat template of a family: the marks are what tells it.
engine::Engine engine_of(const std::string& marks, const std::string& prompt_end = "") {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("foresay_family_" + std::to_string(::getpid()) + ".jinja");
    std::ofstream(file) << "{# " << marks << " #}{% if tools %}{{ tools | length }} tools\n{% endif %}"
                        << "{% for m in messages %}{{ m.content }}\n{% endfor %}"
                        << "{% if add_generation_prompt %}" << prompt_end << "{% endif %}";
    const std::vector<std::string> settings = {"sampling.chain=[\"temperature\"]", "target.context=512",
                                               "chat.style=\"auto\"", "chat.template=\"" + file.string() + "\""};
    engine::EngineOptions options;
    options.draft = false;
    engine::Engine engine =
        engine::Engine::open(engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings), options);
    std::filesystem::remove(file);
    return engine;
}

const char* marks_of(OutputFamily family) {
    switch (family) {
        case OutputFamily::hermes:
            return "<tool_call>";
        case OutputFamily::qwen_coder:
            return "<tool_call><function=";
        case OutputFamily::llama3:
            return "<|start_header_id|>";
        case OutputFamily::mistral:
            return "[TOOL_CALLS][ARGS]";
        case OutputFamily::harmony:
            return "<|channel|><|message|>";
        case OutputFamily::deepseek:
            return "<｜tool▁calls▁begin｜>";
        case OutputFamily::gemma:
            return "<|tool_call>";
        case OutputFamily::generic:
            break;
    }
    return "";
}

// An answer, in no protocol's words.
struct Heard {
    std::string content, reasoning, finish;
    std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
    std::int64_t reasoning_tokens = -1;                      // -1: the protocol does not tell
    // Of protocols whose answers are lists: what is in them, in order.
    std::vector<std::string> items;
};

std::vector<Json> events_of(const std::string& body) {
    std::vector<Json> all;
    for (const std::string& data : data_of(body)) {
        if (data != "[DONE]") all.push_back(parse_json(data));
    }
    return all;
}

std::vector<Json> lines_of(const std::string& body) {
    std::vector<Json> all;
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line));
    return all;
}

std::string finish_of(const std::string& name) {
    if (name == "tool_calls" || name == "tool_use") return "calls";
    return name == "end_turn" ? "stop" : name;
}

void hear_openai(const Json& part, const char* member, Heard& heard) {
    for (const Json& choice : part["choices"].items()) {
        const Json& message = choice[member];
        heard.content += message.text("content") + choice.text("text");
        heard.reasoning += message.text("reasoning_content");
        if (message["tool_calls"].is_list()) {
            for (const Json& call : message["tool_calls"].items()) {
                const Json& function = call["function"];
                if (function.has("name")) heard.calls.push_back({function.text("name"), ""});
                ASSERT_FALSE(heard.calls.empty());
                heard.calls.back().second += function.text("arguments");
            }
        }
        if (choice.has("finish_reason")) heard.finish = finish_of(choice.text("finish_reason"));
    }
    if (part["usage"].is_object())
        heard.reasoning_tokens = part["usage"]["completion_tokens_details"]["reasoning_tokens"].integer();
}

void hear_block(const Json& block, Heard& heard) {
    const std::string& type = block.text("type");
    heard.items.push_back(type + ": " + block.text("text") + block.text("thinking") + block.text("name"));
    heard.content += block.text("text");
    heard.reasoning += block.text("thinking");
    if (block.text("type") == "tool_use") heard.calls.push_back({block.text("name"), block["input"].dump()});
}

// A stream says of each block what it is, and then what is in it.
void hear_block_event(const Json& event, Heard& heard) {
    if (event.text("type") == "content_block_start") {
        hear_block(event["content_block"], heard);
        if (event["content_block"].text("type") == "tool_use") heard.calls.back().second.clear();
    } else if (event.text("type") == "content_block_delta") {
        heard.content += event["delta"].text("text");
        heard.reasoning += event["delta"].text("thinking");
        heard.items.back() += event["delta"].text("text") + event["delta"].text("thinking");
        if (event["delta"].has("partial_json")) heard.calls.back().second += event["delta"].text("partial_json");
    } else if (event.text("type") == "message_delta") {
        heard.finish = finish_of(event["delta"].text("stop_reason"));
    }
}

void hear_response(const Json& response, Heard& heard) {
    for (const Json& item : response["output"].items()) {
        heard.items.push_back(item.text("type") + ": " + item.text("name"));
        if (item.text("type") == "function_call") heard.calls.push_back({item.text("name"), item.text("arguments")});
        if (!item["content"].is_list()) continue;
        for (const Json& part : item["content"].items()) {
            (item.text("type") == "reasoning" ? heard.reasoning : heard.content) += part.text("text");
            heard.items.back() += part.text("text");
        }
    }
    heard.finish = response.text("status") == "completed" ? (heard.calls.empty() ? "stop" : "calls") : "length";
    heard.reasoning_tokens = response["usage"]["output_tokens_details"]["reasoning_tokens"].integer();
}

void hear_responses(const std::vector<Json>& events, Heard& heard) {
    Heard whole;
    std::vector<Json> done;
    for (const Json& event : events) {
        const std::string& type = event.text("type");
        if (type == "response.output_text.delta") heard.content += event.text("delta");
        if (type == "response.reasoning_text.delta") heard.reasoning += event.text("delta");
        if (type == "response.output_item.added" && event["item"].text("type") == "function_call")
            heard.calls.push_back({event["item"].text("name"), ""});
        if (type == "response.function_call_arguments.delta") heard.calls.back().second += event.text("delta");
        if (type == "response.output_item.added") heard.items.push_back(event["item"].text("type") + ": ");
        if (type.ends_with("_text.delta")) heard.items.back() += event.text("delta");
        if (type == "response.function_call_arguments.done") heard.items.back() += event.text("name");
        if (type == "response.output_item.done") done.push_back(event["item"]);
        if (!event["response"].has("usage")) continue;
        hear_response(event["response"], whole);
        EXPECT_EQ(event["response"]["output"].items(), done) << "each item as it was told to be done";
    }
    EXPECT_EQ(whole.items, heard.items);
    // The last event has it all once more.
    EXPECT_EQ(whole.content, heard.content);
    EXPECT_EQ(whole.reasoning, heard.reasoning);
    EXPECT_EQ(whole.calls, heard.calls);
    heard.finish = whole.finish;
    heard.reasoning_tokens = whole.reasoning_tokens;
}

void hear_ollama(const Json& part, Heard& heard) {
    const Json& message = part["message"];
    heard.content += message.text("content") + part.text("response");
    heard.reasoning += message.text("thinking") + part.text("thinking");
    if (message["tool_calls"].is_list()) {
        for (const Json& call : message["tool_calls"].items())
            heard.calls.push_back({call["function"].text("name"), call["function"]["arguments"].dump()});
    }
    if (part["done"].is_true()) heard.finish = heard.calls.empty() ? part.text("done_reason") : "calls";
}

Heard heard_of(const std::string& path, bool stream, const std::string& body) {
    Heard heard;
    if (path == "/v1/messages") {
        if (stream) {
            for (const Json& event : events_of(body)) hear_block_event(event, heard);
            return heard;
        }
        const Json message = parse_json(body);
        for (const Json& block : message["content"].items()) hear_block(block, heard);
        heard.finish = finish_of(message.text("stop_reason"));
    } else if (path == "/v1/responses") {
        if (stream) {
            hear_responses(events_of(body), heard);
        } else {
            hear_response(parse_json(body), heard);
        }
    } else if (path.starts_with("/api/")) {
        for (const Json& line : lines_of(body)) hear_ollama(line, heard);
    } else if (path == "/completion" || path == "/infill") {
        for (const Json& part : stream ? events_of(body) : std::vector{parse_json(body)}) {
            heard.content += part.text("content");
            if (part["stop"].is_true()) heard.finish = part.text("stop_type") == "eos" ? "stop" : "length";
        }
    } else {
        for (const Json& part : stream ? events_of(body) : std::vector{parse_json(body)})
            hear_openai(part, stream ? "delta" : "message", heard);
    }
    return heard;
}

constexpr const char* kConversing[] = {"/v1/chat/completions", "/v1/responses", "/v1/messages", "/api/chat"};

// The tools as a protocol has them, for the body of a request.
std::string tools_of(const std::string& path, const Json& tools) {
    Json list = Json::list();
    for (const Json& tool : tools.items()) {
        const Json &name = tool["name"], &parameters = tool["parameters"];
        const Json function = Json::object({{"name", name}, {"parameters", parameters}});
        if (path == "/v1/messages") {
            list.push(Json::object({{"name", name}, {"input_schema", parameters}}));
        } else if (path == "/v1/responses") {
            list.push(Json::object({{"type", "function"}, {"name", name}, {"parameters", parameters}}));
        } else {
            list.push(Json::object({{"type", "function"}, {"function", function}}));
        }
    }
    return "\"tools\":" + list.dump() + ",";
}

Heard ask(Direct& direct, const std::string& path, bool stream, const std::string& more) {
    for (const Asked& request : asked()) {
        if (request.path != path) continue;
        std::string body = "{" + more + request.with(stream).substr(1);
        if (stream && path == "/v1/chat/completions") body.insert(1, R"("stream_options":{"include_usage":true},)");
        const server::HttpResponse answer = direct.post(path, body);
        EXPECT_EQ(answer.status, 200) << path << ": " << answer.body;
        EXPECT_EQ(answer.body.find("\"error\":{"), std::string::npos) << path << ": " << answer.body;
        return answer.status == 200 ? heard_of(path, stream, answer.body) : Heard();
    }
    ADD_FAILURE() << "no request for " << path;
    return {};
}

std::vector<std::int32_t> tokens_of(std::string_view text) {
    std::vector<std::int32_t> tokens =
        bundled().tokenizer().encode(text, {.add_special = false, .parse_special = false});
    EXPECT_EQ(bundled().tokenizer().decode(tokens, true), text);
    return tokens;
}

Json recorded() {
    std::ifstream file(FORESAY_SOURCE_DIR "/tests/server/outputs.json");
    return parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
}

// All of outputs.json, half of which is broken, through every protocol that knows tools.
TEST(Scripted, WhatEachFamilyWritesIsTheSameInEveryProtocol) {
    const Json whole = recorded();
    for (int number = 0; number <= static_cast<int>(OutputFamily::generic); ++number) {
        const auto family = static_cast<OutputFamily>(number);
        const std::string name(name_of(family));
        const engine::Engine engine = engine_of(marks_of(family));
        Direct direct(engine);
        ASSERT_EQ(direct.model().output_format().family, family) << name;
        for (const Json& one : whole["families"][name].items()) {
            const std::string& text = one.items()[0].string();
            const Json::List& calls = one.items()[1].items();
            direct.backend().tokens = tokens_of(text);
            for (const std::string path : kConversing) {
                std::vector<std::string> items;
                for (const bool stream : {false, true}) {
                    const Heard heard = ask(direct, path, stream, tools_of(path, whole["tools"]));
                    if (!stream) items = heard.items;
                    ASSERT_EQ(heard.items, items) << path << ": " << text;
                    const std::string what = name + " " + path + (stream ? " streamed: " : ": ") + text;
                    ASSERT_EQ(heard.content, one.items()[2].string()) << what;
                    ASSERT_EQ(heard.reasoning, "") << what;
                    ASSERT_EQ(heard.finish, calls.empty() ? "stop" : "calls") << what;
                    ASSERT_EQ(heard.calls.size(), calls.size()) << what;
                    for (std::size_t i = 0; i < calls.size(); ++i) {
                        ASSERT_EQ(heard.calls[i].first, calls[i].items()[0].string()) << what;
                        ASSERT_EQ(parse_json(heard.calls[i].second), calls[i].items()[1]) << what;
                    }
                }
            }
        }
    }
}

// A list has its items in the order in which the model wrote them, and an answer without a text has one that is empty
// where its protocol wants a message. Calls after the first one are left out where one is wanted.
TEST(Scripted, ItemsAreInOrderStreamedOrNot) {
    const Json tools = recorded()["tools"];
    const engine::Engine engine = engine_of("<think></think><tool_call>");
    Direct direct(engine);
    const std::string call = R"(<tool_call>{"name":"weather","arguments":{}}</tool_call>)";
    const auto items = [&](const std::string& path, const std::string& text, const std::string& more = "") {
        direct.backend().tokens = tokens_of(text);
        const std::vector<std::string> whole = ask(direct, path, false, more + tools_of(path, tools)).items;
        EXPECT_EQ(ask(direct, path, true, more + tools_of(path, tools)).items, whole) << path << ": " << text;
        return whole;
    };
    const std::string text = "<think>I wonder.</think>One." + call + "Two." + call + "Three.";
    EXPECT_THAT(items("/v1/responses", text),
                ElementsAre("reasoning: I wonder.", "message: One.", "function_call: weather", "message: Two.",
                            "function_call: weather", "message: Three."));
    EXPECT_THAT(items("/v1/messages", text), ElementsAre("thinking: I wonder.", "text: One.", "tool_use: weather",
                                                         "text: Two.", "tool_use: weather", "text: Three."));
    EXPECT_THAT(items("/v1/responses", text, R"("parallel_tool_calls":false,)"),
                ElementsAre("reasoning: I wonder.", "message: One.", "function_call: weather", "message: Two.Three."));
    EXPECT_THAT(items("/v1/messages", text, R"("tool_choice":{"type":"auto","disable_parallel_tool_use":true},)"),
                ElementsAre("thinking: I wonder.", "text: One.", "tool_use: weather", "text: Two.Three."));
    EXPECT_THAT(items("/v1/responses", ""), ElementsAre("message: "));
    EXPECT_THAT(items("/v1/messages", ""), ElementsAre());
    EXPECT_THAT(items("/v1/responses", "<think>I wonder.</think>"), ElementsAre("reasoning: I wonder.", "message: "));
    EXPECT_THAT(items("/v1/responses", call), ElementsAre("function_call: weather"));
}

// Who asks in the form from before there were tools is answered in it, and may send it back.
TEST(Scripted, TheOldFormOfCalls) {
    const engine::Engine engine = engine_of("<tool_call>");
    Direct direct(engine);
    direct.backend().tokens = tokens_of(
        "Let me look.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":\"Oslo\"}}</tool_call>"
        "<tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>");
    const std::string ask = R"("messages":[{"role":"user","content":"x"}],)"
                            R"("functions":[{"name":"weather","parameters":{"type":"object"}}],"function_call":"auto")";
    const std::string path = "/v1/chat/completions";
    const Json whole = parse_json(direct.post(path, "{" + ask + "}").body)["choices"].items()[0];
    EXPECT_EQ(whole.text("finish_reason"), "function_call");
    EXPECT_EQ(whole["message"]["function_call"].text("name"), "weather");
    EXPECT_EQ(whole["message"]["function_call"].text("arguments"), R"({"city":"Oslo"})");
    EXPECT_FALSE(whole["message"].has("tool_calls")) << whole.dump();
    std::string name, arguments, finish;
    for (const Json& event : events_of(direct.post(path, "{" + ask + R"(,"stream":true})").body)) {
        const Json& choice = event["choices"].items()[0];
        EXPECT_FALSE(choice["delta"].has("tool_calls")) << event.dump();
        name += choice["delta"]["function_call"].text("name");
        arguments += choice["delta"]["function_call"].text("arguments");
        finish += choice.text("finish_reason");
    }
    EXPECT_EQ(name, "weather");
    EXPECT_EQ(arguments, R"({"city":"Oslo"})");
    EXPECT_EQ(finish, "function_call");
    // A call that is sent back is the model's to read: as the same call in the form of today.
    Direct plain;  // without a template calls are told as text
    const auto length = [&](const std::string& call) {
        const Json count = parse_json(plain
                                          .post("/v1/chat/completions/input_tokens",
                                                R"({"messages":[{"role":"user","content":"x"},{"role":"assistant",)"
                                                R"("content":null,)" +
                                                    call + "}]}")
                                          .body);
        return count["input_tokens"].integer();
    };
    const std::string function = R"({"name":"weather","arguments":"{\"city\":\"Oslo\"}"})";
    EXPECT_EQ(length("\"function_call\":" + function), length("\"tool_calls\":[{\"function\":" + function + "}]"));
    EXPECT_GT(length("\"function_call\":" + function), length("\"name\":\"x\"") + 5);
}

TEST(Scripted, AChoiceAmongToolsMayBeAnObject) {
    const engine::Engine engine = engine_of("<tool_call>");
    Direct direct(engine);
    direct.backend().tokens = tokens_of(R"(<tool_call>{"name":"weather","arguments":{}}</tool_call>)");
    const Json tools = recorded()["tools"];
    for (const std::string path : {"/v1/chat/completions", "/v1/responses"}) {
        for (const std::string mode : {"auto", "none", "required"}) {
            const std::string all = tools_of(path, tools);
            const Heard text = ask(direct, path, false, "\"tool_choice\":\"" + mode + "\"," + all);
            const Heard object = ask(direct, path, false, "\"tool_choice\":{\"type\":\"" + mode + "\"}," + all);
            EXPECT_EQ(object.calls, text.calls) << path << mode;
            EXPECT_EQ(object.content, text.content) << path << mode;
            EXPECT_EQ(object.calls.empty(), mode == "none") << path << mode;
        }
        const Asked request = path == "/v1/responses" ? asked()[2] : asked()[0];
        const server::HttpResponse refused =
            direct.post(path, R"({"tool_choice":{"type":"required"},)" + request.with(false).substr(1));
        EXPECT_EQ(refused.status, 400) << "there are no tools: " << refused.body;
    }
}

// Where there are no tools, a call is a text like any other.
TEST(Scripted, WhereThereAreNoToolsEveryByteIsContent) {
    const Json whole = recorded();
    const engine::Engine engine = engine_of("<tool_call>");
    Direct direct(engine);
    std::size_t number = 0;
    for (const auto& [family, outputs] : whole["families"].members()) {
        for (const Json& one : outputs.items()) {
            if (number++ % 9 != 0) continue;
            const std::string& text = one.items()[0].string();
            direct.backend().tokens = tokens_of(text);
            for (const Asked& request : asked()) {
                for (const bool stream : {false, true}) {
                    const Heard heard = ask(direct, request.path, stream, "");
                    ASSERT_EQ(heard.content, text) << request.path;
                    ASSERT_EQ(heard.finish, "stop") << request.path;
                    ASSERT_TRUE(heard.calls.empty()) << request.path;
                }
            }
        }
    }
}

constexpr const char* kThinks =
    "<think>\nI wonder.\nYes.\n</think>\n\nLet me look.\n<tool_call>{\"name\":\"weather\",\"arguments\":{\"city\":"
    "\"Oslo\"}}</tool_call>";

TEST(Scripted, ReasoningIsAFieldOfItsOwn) {
    const Json tools = recorded()["tools"];
    const engine::Engine engine = engine_of("<think></think><tool_call>");
    Direct direct(engine);
    direct.backend().tokens = tokens_of(kThinks);
    const auto thought = static_cast<std::int64_t>(tokens_of("\nI wonder.\nYes.\n").size());
    for (const std::string path : kConversing) {
        for (const bool stream : {false, true}) {
            const Heard heard = ask(direct, path, stream, tools_of(path, tools));
            EXPECT_EQ(heard.reasoning, "I wonder.\nYes.") << path << stream;
            EXPECT_EQ(heard.content, "Let me look.\n") << path << stream;
            ASSERT_EQ(heard.calls.size(), 1u) << path << stream;
            EXPECT_EQ(heard.calls[0].second, R"({"city":"Oslo"})") << path << stream;
            EXPECT_EQ(heard.finish, "calls") << path << stream;
            if (heard.reasoning_tokens < 0) continue;
            EXPECT_GE(heard.reasoning_tokens, thought / 2) << path << stream;
            EXPECT_LE(heard.reasoning_tokens, thought + 8) << path << stream;
        }
    }
    // An answer that ends while it reasons, where the prompt has begun the reasoning.
    const engine::Engine opened = engine_of("<think></think><tool_call>", "<think>");
    Direct begun(opened);
    begun.backend().tokens = tokens_of("I wonder <tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>");
    for (const std::string path : kConversing) {
        for (const bool stream : {false, true}) {
            const Heard heard = ask(begun, path, stream, tools_of(path, tools));
            EXPECT_EQ(heard.reasoning, "I wonder <tool_call>{\"name\":\"weather\",\"arguments\":{}}</tool_call>")
                << path << stream;
            EXPECT_EQ(heard.content, "") << path << stream;
            EXPECT_TRUE(heard.calls.empty()) << path << stream;
            EXPECT_EQ(heard.finish, "stop") << path << stream;
        }
    }
}

// The types of events, of which several of one kind in a row count once.
std::vector<std::string> kinds_of(const std::vector<Json>& events) {
    std::vector<std::string> kinds;
    for (const Json& event : events) {
        std::string kind = event.text("type");
        if (kind == "content_block_start") kind += " " + event["content_block"].text("type");
        if (kind == "content_block_delta") kind += " " + event["delta"].text("type");
        if (kind.starts_with("response.output_item")) kind += " " + event["item"].text("type");
        if (kinds.empty() || kinds.back() != kind) kinds.push_back(kind);
    }
    return kinds;
}

TEST(Scripted, EveryEventHasItsPlace) {
    const Json tools = recorded()["tools"];
    const engine::Engine engine = engine_of("<think></think><tool_call>");
    Direct direct(engine);
    direct.backend().tokens = tokens_of(kThinks);
    const auto events = [&](const std::string& path) {
        for (const Asked& request : asked()) {
            if (request.path == path)
                return events_of(direct.post(path, "{" + tools_of(path, tools) + request.with(true).substr(1)).body);
        }
        return std::vector<Json>();
    };
    const std::vector<Json> responses = events("/v1/responses");
    EXPECT_THAT(
        kinds_of(responses),
        ElementsAre("response.created", "response.in_progress", "response.output_item.added reasoning",
                    "response.content_part.added", "response.reasoning_text.delta", "response.reasoning_text.done",
                    "response.content_part.done", "response.output_item.done reasoning",
                    "response.output_item.added message", "response.content_part.added", "response.output_text.delta",
                    "response.output_text.done", "response.content_part.done", "response.output_item.done message",
                    "response.output_item.added function_call", "response.function_call_arguments.delta",
                    "response.function_call_arguments.done", "response.output_item.done function_call",
                    "response.completed"));
    std::int64_t number = 0, index = -1;
    std::string id;
    for (const Json& event : responses) {
        EXPECT_EQ(event["sequence_number"].integer(), number++);
        if (event.text("type") == "response.output_item.added") {
            ++index;
            id = event["item"].text("id");
        }
        if (event.has("output_index")) {
            EXPECT_EQ(event["output_index"].integer(), index);
        }
        if (event.has("item_id")) {
            EXPECT_EQ(event.text("item_id"), id);
        }
        if (event.text("type") == "response.function_call_arguments.done") {
            EXPECT_EQ(event.text("name"), "weather");
            EXPECT_EQ(event.text("arguments"), R"({"city":"Oslo"})");
        }
    }
    const std::vector<Json> messages = events("/v1/messages");
    EXPECT_THAT(
        kinds_of(messages),
        ElementsAre("message_start", "ping", "content_block_start thinking", "content_block_delta thinking_delta",
                    "content_block_delta signature_delta", "content_block_stop", "content_block_start text",
                    "content_block_delta text_delta", "content_block_stop", "content_block_start tool_use",
                    "content_block_delta input_json_delta", "content_block_stop", "message_delta", "message_stop"));
    index = -1;
    for (const Json& event : messages) {
        if (event.text("type") == "content_block_start") ++index;
        if (event.has("index")) {
            EXPECT_EQ(event["index"].integer(), index);
        }
    }
}

// A stream tells the log probabilities of all tokens, also of those whose text is held back: what may become a call, a
// stop string, or a character.
TEST(Scripted, AStreamTellsOfEveryToken) {
    const engine::Engine engine = engine_of("<tool_call>");
    Direct direct(engine);
    direct.backend().tokens = tokens_of("Å <tool_cal b\nwait <tool_");
    const std::size_t count = direct.backend().tokens.size();
    const auto told = [&](const std::string& path, const std::string& more, const auto& list) {
        for (const Asked& request : asked()) {
            if (request.path != path) continue;
            for (const bool stream : {false, true}) {
                const std::string body = direct.post(path, "{" + more + request.with(stream).substr(1)).body;
                std::size_t sum = 0;
                for (const Json& part : stream ? events_of(body) : std::vector{parse_json(body)}) sum += list(part);
                EXPECT_EQ(sum, count) << path << stream << body;
            }
        }
    };
    const auto size = [](const Json& list) { return list.is_list() ? list.items().size() : 0; };
    const std::string tools = tools_of("/v1/chat/completions", recorded()["tools"]);
    told("/v1/chat/completions", "\"logprobs\":true," + tools, [&](const Json& part) {
        return part["choices"].items().empty() ? 0 : size(part["choices"].items()[0]["logprobs"]["content"]);
    });
    told("/v1/completions", R"("logprobs":0,"stop":["<tool_x"],)", [&](const Json& part) {
        return part["choices"].items().empty() ? 0 : size(part["choices"].items()[0]["logprobs"]["tokens"]);
    });
    told("/completion", R"("n_probs":1,"stop":["<tool_x"],)",
         [&](const Json& part) { return size(part["completion_probabilities"]); });
    told("/completion", R"("return_tokens":true,"stop":["<tool_x"],)",
         [&](const Json& part) { return size(part["tokens"]); });
}

}  // namespace
}  // namespace foresay::testing
