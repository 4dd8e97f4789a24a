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

// A choice of an answer or of a chunk.
std::string text_of_choice(const json& choice) {
    if (choice.contains("text")) return choice["text"].get<std::string>();
    const json& message = choice.contains("message") ? choice["message"] : choice.value("delta", json::object());
    std::string text = message.value("reasoning_content", std::string());
    if (message.contains("content") && message["content"].is_string()) text += message["content"].get<std::string>();
    if (message.contains("tool_calls")) {
        for (const json& call : message["tool_calls"])
            text += call["function"].value("name", std::string()) + call["function"].value("arguments", std::string());
    }
    return text;
}

// Of a whole answer, of a chunk, of an event or of a line: by index of the answer.
void add_texts(const json& part, bool stream, std::map<std::size_t, std::string>& texts) {
    if (part.contains("error") && !part["error"].is_null()) throw Error("the server says: " + part["error"].dump());
    if (part.contains("choices")) {
        for (const json& choice : part["choices"]) texts[choice.value("index", 0u)] += text_of_choice(choice);
    } else if (part.contains("output") && part["output"].is_array() && !stream) {
        for (const json& item : part["output"]) {
            for (const json& content : item.value("content", json::array()))
                texts[0] += content.value("text", std::string());
        }
    } else if (part.value("type", std::string()).ends_with("_text.delta")) {
        texts[0] += part["delta"].get<std::string>();
    } else if (part.value("type", std::string()) == "content_block_delta") {
        texts[0] += part["delta"].value("text", std::string());
    } else if (part.contains("message") && part["message"].contains("content") &&
               part["message"]["content"].is_string()) {
        texts[0] += part["message"]["content"].get<std::string>();
    } else if (part.contains("response") && part["response"].is_string()) {
        texts[0] += part["response"].get<std::string>();
    } else if (part.contains("content") && part["content"].is_array() && !stream) {
        for (const json& block : part["content"]) texts[0] += block.value("text", std::string());
    } else if (part.contains("content") && part["content"].is_string()) {
        texts[part.value("index", 0u)] += part["content"].get<std::string>();
    }
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
    if (request.path == "/v1/chat/completions" && round % 2 == 1)
        body["prediction"] = {{"type", "content"}, {"content", "    return read_1(path).count(word)\n"}};
    if (request.path == "/v1/chat/completions" && round % 6 == 4)
        body["response_format"] = {
            {"type", "json_schema"},
            {"json_schema",
             {{"name", "x"},
              {"schema",
               {{"type", "object"},
                {"properties", {{"a", {{"type", "integer"}, {"maximum", 99}}}, {"b", {{"type", "boolean"}}}}},
                {"required", {"a", "b"}},
                {"additionalProperties", false}}}}}};
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
    if (variant == 0 || is_ollama(request.path)) return request;
    json body = json::parse(request.body);
    if (variant == 1) body["foresay"]["speculation"] = "off";
    if (variant == 2) body["foresay"]["cache"] = false;
    request.body = body.dump();
    return request;
}

std::string texts_of(const MixedRequest& request, std::string_view body) {
    std::map<std::size_t, std::string> texts;
    const auto add = [&](std::string_view text) {
        const json part = json::parse(text, nullptr, false);
        if (part.is_discarded()) throw Error("the server sends what is no JSON: " + std::string(text.substr(0, 80)));
        add_texts(part, request.stream, texts);
    };
    if (!request.stream) {
        add(body);
    } else {
        while (!body.empty()) {
            const std::size_t end = std::min(body.find('\n'), body.size());
            std::string_view line = body.substr(0, end);
            body.remove_prefix(std::min(end + 1, body.size()));
            if (is_ollama(request.path)) {
                if (!line.empty()) add(line);
            } else if (line.starts_with("data: ") && line != "data: [DONE]") {
                add(line.substr(6));
            }
        }
    }
    std::string all;
    for (const auto& [index, text] : texts) all += text + '\x1f';
    return all;
}

}  // namespace foresay::app
