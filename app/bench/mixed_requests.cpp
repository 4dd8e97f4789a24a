#include "app/bench/mixed_requests.h"

#include <algorithm>
#include <array>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"

namespace foresay::app {

namespace {

using nlohmann::json;

constexpr std::array kPaths = {"/v1/chat/completions", "/v1/completions", "/v1/responses",
                               "/v1/messages",         "/api/chat",       "/api/generate",
                               "/completion",          "/infill",         "/v1/fim/completions"};
constexpr std::array kTemperatures = {0.0, 0.4, 0.8, 1.2};

bool is_ollama(std::string_view path) { return path.starts_with("/api/"); }

std::string code_of(std::size_t number) {
    const std::string name = std::to_string(number % 23);
    return "import os\n\n\ndef read_" + name +
           "(path):\n    with open(path) as file:\n        return file.read()\n\n\n" + "def count_" + name +
           "(path, word):\n";
}

// What a protocol calls the prompt, how long the answer may be and the seed.
json body_of(std::string_view path, std::size_t number, std::int64_t tokens) {
    const json messages = json::array({{{"role", "user"}, {"content", code_of(number)}}});
    if (path == "/v1/chat/completions") return {{"messages", messages}, {"max_tokens", tokens}, {"seed", number}};
    if (path == "/v1/completions") return {{"prompt", code_of(number)}, {"max_tokens", tokens}, {"seed", number}};
    if (path == "/v1/responses") return {{"input", code_of(number)}, {"max_output_tokens", tokens}, {"seed", number}};
    if (path == "/v1/messages") return {{"messages", messages}, {"max_tokens", tokens}, {"seed", number}};
    if (path == "/completion") return {{"prompt", code_of(number)}, {"n_predict", tokens}, {"seed", number}};
    if (path == "/infill")
        return {{"input_prefix", code_of(number)},
                {"input_suffix", "\n\nprint(count_1('a', 'b'))\n"},
                {"prompt", "    "},
                {"input_extra", json::array({{{"filename", "other.py"}, {"text", "word = 'x'\n"}}})},
                {"n_predict", tokens},
                {"seed", number}};
    if (path == "/v1/fim/completions")
        return {{"prompt", code_of(number)},
                {"suffix", "\n    return n\n"},
                {"max_tokens", tokens},
                {"random_seed", number}};
    const json options = {{"num_predict", tokens}, {"seed", number}};
    if (path == "/api/chat") return {{"messages", messages}, {"options", options}};
    return {{"prompt", code_of(number)}, {"raw", true}, {"options", options}};
}

// What an answer says, in no protocol's words, whether it came whole or in pieces.
struct Told {
    struct Choice {
        std::string text, reasoning, finish;
        std::vector<std::pair<std::string, std::string>> calls;  // names and arguments
        json tokens = json::array();                             // ids or log probabilities, one for each token
    };
    std::map<std::size_t, Choice> choices;
    json prompt_tokens, tokens, seed;  // null where the protocol does not tell

    json whole() const {
        json all = json::array();
        for (const auto& [index, choice] : choices)
            all.push_back({choice.text, choice.reasoning, choice.calls, choice.finish, choice.tokens});
        return {{"answers", std::move(all)}, {"prompt_tokens", prompt_tokens}, {"tokens", tokens}, {"seed", seed}};
    }
};

std::string text_at(const json& part, const char* name) {
    const auto member = part.find(name);
    return member != part.end() && member->is_string() ? member->get<std::string>() : std::string();
}

// The first piece of a call has its name, the others have more of its arguments.
void add_call(Told::Choice& choice, const json& function) {
    if (function.contains("name")) choice.calls.emplace_back(text_at(function, "name"), "");
    if (choice.calls.empty()) throw Error("the server sends arguments of no call");
    const auto arguments = function.find("arguments");
    if (arguments == function.end()) return;
    choice.calls.back().second += arguments->is_string() ? arguments->get<std::string>() : arguments->dump();
}

void add_logprobs(Told::Choice& choice, const json& logprobs) {
    if (!logprobs.is_object()) return;
    if (logprobs.contains("content")) {
        for (const json& token : logprobs["content"]) choice.tokens.push_back(token);
        return;
    }
    for (std::size_t i = 0; i < logprobs["tokens"].size(); ++i) {
        json token = json::array();
        for (const char* name : {"tokens", "token_logprobs", "top_logprobs", "text_offset"})
            token.push_back(logprobs[name][i]);
        choice.tokens.push_back(std::move(token));
    }
}

void add_openai(const json& part, Told& told) {
    for (const json& one : part["choices"]) {
        Told::Choice& choice = told.choices[one.value("index", 0u)];
        const json& message = one.contains("message") ? one["message"] : one.value("delta", json::object());
        choice.text += text_at(one, "text") + text_at(message, "content");
        choice.reasoning += text_at(message, "reasoning_content");
        for (const json& call : message.value("tool_calls", json::array())) add_call(choice, call["function"]);
        add_logprobs(choice, one.value("logprobs", json()));
        choice.finish += text_at(one, "finish_reason");
    }
    if (part.contains("usage") && part["usage"].is_object()) {
        told.prompt_tokens = part["usage"]["prompt_tokens"];
        told.tokens = part["usage"]["completion_tokens"];
    }
    if (part.contains("seed")) told.seed = part["seed"];
}

// A whole response, or the last event of a stream, which has it all once more.
void add_response(const json& response, Told& told) {
    Told::Choice choice;
    for (const json& item : response["output"]) {
        if (item["type"] == "function_call") add_call(choice, item);
        for (const json& content : item.value("content", json::array()))
            (item["type"] == "reasoning" ? choice.reasoning : choice.text) += text_at(content, "text");
    }
    Told::Choice& before = told.choices[0];
    if (!before.finish.empty() &&
        (before.text != choice.text || before.reasoning != choice.reasoning || before.calls != choice.calls))
        throw Error("the last event of a stream differs from those before it: " + response.dump());
    choice.finish = text_at(response, "status");
    before = std::move(choice);
    told.prompt_tokens = response["usage"]["input_tokens"];
    told.tokens = response["usage"]["output_tokens"];
    told.seed = response["seed"];
}

void add_response_event(const json& event, Told& told) {
    Told::Choice& choice = told.choices[0];
    const std::string type = text_at(event, "type");
    if (type == "response.output_text.delta") choice.text += text_at(event, "delta");
    if (type == "response.reasoning_text.delta") choice.reasoning += text_at(event, "delta");
    if (type == "response.output_item.added" && event["item"]["type"] == "function_call")
        add_call(choice, {{"name", event["item"]["name"]}});
    if (type == "response.function_call_arguments.delta") add_call(choice, {{"arguments", event["delta"]}});
    if (type == "response.failed") throw Error("the server says: " + event["response"]["error"].dump());
    if (type != "response.completed" && type != "response.incomplete") return;
    choice.finish = "there is something to compare";
    add_response(event["response"], told);
}

void add_block(const json& block, Told::Choice& choice) {
    choice.text += text_at(block, "text");
    choice.reasoning += text_at(block, "thinking");
    if (text_at(block, "type") == "tool_use") add_call(choice, {{"name", block["name"]}});
}

void add_message_end(const json& reasons, const json& usage, Told& told) {
    told.choices[0].finish = text_at(reasons, "stop_reason") + " " + text_at(reasons, "stop_sequence");
    told.prompt_tokens =
        usage.value("input_tokens", std::int64_t{0}) + usage.value("cache_read_input_tokens", std::int64_t{0});
    told.tokens = usage["output_tokens"];
}

void add_message(const json& part, Told& told) {
    Told::Choice& choice = told.choices[0];
    const std::string type = text_at(part, "type");
    if (type == "message") {
        for (const json& block : part["content"]) {
            add_block(block, choice);
            if (block.contains("input")) add_call(choice, {{"arguments", block["input"].dump()}});
        }
        add_message_end(part, part["usage"], told);
    } else if (type == "content_block_start") {
        add_block(part["content_block"], choice);
    } else if (type == "content_block_delta") {
        choice.text += text_at(part["delta"], "text");
        choice.reasoning += text_at(part["delta"], "thinking");
        // As the other way prints it: an answer that is no stream has the object.
        if (part["delta"].contains("partial_json"))
            add_call(choice, {{"arguments", json::parse(text_at(part["delta"], "partial_json")).dump()}});
    } else if (type == "message_delta") {
        add_message_end(part["delta"], part["usage"], told);
    }
}

void add_ollama(const json& part, Told& told) {
    Told::Choice& choice = told.choices[0];
    const json& message = part.value("message", part);
    choice.text += text_at(message, "content") + text_at(part, "response");
    choice.reasoning += text_at(message, "thinking");
    for (const json& call : message.value("tool_calls", json::array())) add_call(choice, call["function"]);
    if (!part.value("done", false)) return;
    choice.finish = text_at(part, "done_reason");
    told.prompt_tokens = part["prompt_eval_count"];
    told.tokens = part["eval_count"];
}

void add_llama(const json& part, Told& told) {
    Told::Choice& choice = told.choices[part.value("index", 0u)];
    choice.text += text_at(part, "content");
    for (const char* name : {"tokens", "completion_probabilities"}) {
        for (const json& token : part.value(name, json::array())) choice.tokens.push_back(token);
    }
    if (!part.value("stop", false)) return;
    choice.finish = text_at(part, "stop_type") + " " + text_at(part, "stopping_word");
    told.prompt_tokens = part["tokens_evaluated"];
    told.tokens = part["tokens_predicted"];
    told.seed = part["generation_settings"]["seed"];
}

// A whole answer, a chunk, an event or a line.
void add(const MixedRequest& request, const json& part, Told& told) {
    if (part.contains("error") && !part["error"].is_null()) throw Error("the server says: " + part["error"].dump());
    if (is_ollama(request.path)) {
        add_ollama(part, told);
    } else if (request.path == "/v1/messages") {
        add_message(part, told);
    } else if (request.path == "/v1/responses") {
        request.stream ? add_response_event(part, told) : add_response(part, told);
    } else if (request.path == "/completion" || request.path == "/infill") {
        add_llama(part, told);
    } else {
        add_openai(part, told);
    }
}

// A tool that must be called, as the protocol has it.
void add_tool(json& body, const std::string& path) {
    const json parameters = {{"type", "object"},
                             {"properties", {{"path", {{"enum", {"a.py", "b.py"}}}}, {"deep", {{"type", "boolean"}}}}},
                             {"required", {"path", "deep"}},
                             {"additionalProperties", false}};
    if (path == "/v1/messages") {
        body["tools"] = {{{"name", "read"}, {"input_schema", parameters}, {"strict", true}}};
        body["tool_choice"] = {{"type", "any"}, {"disable_parallel_tool_use", true}};
        body["max_tokens"] = 120;
        return;
    }
    const json function = {{"name", "read"}, {"parameters", parameters}, {"strict", true}};
    json tool = {{"type", "function"}};
    if (path == "/v1/responses") {
        tool.update(function);
    } else {
        tool["function"] = function;
    }
    body["tools"] = {tool};
    body["tool_choice"] = "required";
    body["parallel_tool_calls"] = false;
    body[path == "/v1/responses" ? "max_output_tokens" : "max_tokens"] = 120;
}

}  // namespace

MixedRequest mixed_request(std::size_t number, const MixedPlugin& plugin) {
    MixedRequest request;
    request.path = kPaths[number % kPaths.size()];
    const std::size_t round = number / kPaths.size();
    const auto tokens = static_cast<std::int64_t>(8 + number * 7 % 40);
    const bool openai = request.path == "/v1/chat/completions" || request.path == "/v1/completions";
    const bool ollama = is_ollama(request.path);
    json body = body_of(request.path, number, tokens);
    json own = json::object();
    // Samplers stand beside the other fields, or in Ollama's options.
    json& samplers = ollama ? body["options"] : body;
    samplers["temperature"] = kTemperatures[round % kTemperatures.size()];
    if (round % 3 == 1) samplers["top_p"] = 0.7;
    if (round % 5 == 2) samplers["repeat_penalty"] = 1.1;
    if (round % 4 == 1 && request.path != "/v1/messages") samplers["stop"] = json::array({"\n\n", "return"});
    if (round % 4 == 1 && request.path == "/v1/messages") body["stop_sequences"] = json::array({"\n\n", "return"});
    if (openai) body["n"] = 1 + round % 3;
    if (openai && round % 3 == 2) body["logit_bias"] = {{"20", -4}, {"300", 1.5}};
    if (openai && round % 7 == 3) body["logprobs"] = request.path == "/v1/completions" ? json(2) : json(true);
    if (openai || request.path == "/v1/fim/completions") body["stream_options"] = {{"include_usage", true}};
    if (request.path == "/completion" && round % 7 == 5) body["n_probs"] = 2;
    if (request.path == "/completion" && round % 7 == 2) body["return_tokens"] = true;
    const bool tools =
        request.path == "/v1/chat/completions" || request.path == "/v1/responses" || request.path == "/v1/messages";
    if (request.path == "/v1/chat/completions" && round % 2 == 1)
        body["prediction"] = {{"type", "content"}, {"content", "    return read_1(path).count(word)\n"}};
    if (tools && round % 8 == 6) {
        add_tool(body, request.path);
    } else if (request.path == "/v1/chat/completions" && round % 6 == 4) {
        body["response_format"] = {
            {"type", "json_schema"},
            {"json_schema",
             {{"name", "x"},
              {"schema",
               {{"type", "object"},
                {"properties", {{"a", {{"type", "integer"}, {"maximum", 99}}}, {"b", {{"type", "boolean"}}}}},
                {"required", {"a", "b"}},
                {"additionalProperties", false}}}}}};
    }
    if (!ollama) {
        if (round % 5 == 1) own["chain"] = json::array({"top_k", "temperature"});
        if (round % 5 == 3) own["branch"] = round % 4;
        if (!plugin.name.empty() && round % 5 == 0)
            own["plugins"] = {{plugin.name, {{plugin.option, {"return", "for"}}}}};
        if (round % 4 == 2) own["speculation"] = 5;
        if (!own.empty()) body["foresay"] = own;
    }
    request.leaves = number % 10 == 7;
    request.stream = number % 2 == 1 || request.leaves;
    body["stream"] = request.stream;
    if (request.leaves && openai) body["max_tokens"] = 400;
    request.body = body.dump();
    return request;
}

MixedRequest varied(MixedRequest request, std::size_t variant) {
    json body = json::parse(request.body);
    if (variant % 2 == 1) body["stream"] = request.stream = !request.stream;
    if (!is_ollama(request.path)) {
        if (variant / 2 == 1) body["foresay"]["speculation"] = "off";
        if (variant / 2 == 2) body["foresay"]["cache"] = false;
    }
    request.body = body.dump();
    return request;
}

std::string answer_of(const MixedRequest& request, std::string_view body) {
    Told told;
    const auto take = [&](std::string_view text) {
        const json part = json::parse(text, nullptr, false);
        if (part.is_discarded()) throw Error("the server sends what is no JSON: " + std::string(text.substr(0, 80)));
        try {
            add(request, part, told);
        } catch (const json::exception& problem) {
            throw Error("the server's answer lacks something: " + std::string(problem.what()) + " in " +
                        std::string(text.substr(0, 400)));
        }
    };
    if (!request.stream) {
        take(body);
        return told.whole().dump();
    }
    while (!body.empty()) {
        const std::size_t end = std::min(body.find('\n'), body.size());
        std::string_view line = body.substr(0, end);
        body.remove_prefix(std::min(end + 1, body.size()));
        if (is_ollama(request.path)) {
            if (!line.empty()) take(line);
        } else if (line.starts_with("data: ") && line != "data: [DONE]") {
            take(line.substr(6));
        }
    }
    return told.whole().dump();
}

}  // namespace foresay::app
