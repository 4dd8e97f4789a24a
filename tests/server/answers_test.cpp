// What an answer has beside its text: the prompt as it was sent, log probabilities, calls in the form of the request.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "server/json.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;
using ::testing::HasSubstr;

std::vector<std::int32_t> tokens_of(std::string_view text) {
    return bundled().tokenizer().encode(text, {.add_special = false, .parse_special = false});
}

std::vector<Json> events_of(const std::string& body) {
    std::vector<Json> all;
    for (const std::string& data : data_of(body)) {
        if (data != "[DONE]") all.push_back(parse_json(data));
    }
    return all;
}

// ---- echo

TEST(Echo, IsThePromptAsItWasSent) {
    Direct direct;
    direct.backend().tokens = tokens_of("y = 2");
    const auto echoed = [&](const std::string& prompt) {
        const std::string body = "{\"prompt\":" + prompt + ",\"echo\":true";
        std::vector<std::string> texts;
        const Json whole = parse_json(direct.post("/v1/completions", body + "}").body);
        for (const Json& choice : whole["choices"].items()) texts.push_back(choice.text("text"));
        std::vector<std::string> streamed(texts.size());
        for (const Json& event : events_of(direct.post("/v1/completions", body + ",\"stream\":true}").body)) {
            for (const Json& choice : event["choices"].items())
                streamed.at(static_cast<std::size_t>(choice["index"].integer())) += choice.text("text");
        }
        EXPECT_EQ(streamed, texts) << prompt;
        return texts.empty() ? "" : texts.front();
    };
    const std::string begin(bundled().tokenizer().text(bundled().tokenizer().special().bos));
    ASSERT_THAT(begin, HasSubstr("<|")) << "this tokenizer puts a token in front of texts";
    EXPECT_EQ(echoed("\"x = 1\\n\""), "x = 1\ny = 2");
    EXPECT_EQ(echoed("\"  x\""), "  xy = 2");
    // What the client has sent itself stays.
    EXPECT_EQ(echoed(server::json_quoted(begin + "x")), begin + "xy = 2");
    Json ids = Json::list();
    for (const std::int32_t token : tokens_of("x = 1\n")) ids.push(token);
    EXPECT_EQ(echoed(ids.dump()), "x = 1\ny = 2");
    const Json completion = parse_json(direct.post("/completion", R"({"prompt":"x = 1"})").body);
    EXPECT_EQ(completion.text("prompt"), "x = 1");
    const Json mixed =
        parse_json(direct.post("/completion", "{\"prompt\":[\"def f\"," + ids.dump().substr(1) + "}").body);
    EXPECT_EQ(mixed.text("prompt"), "def fx = 1\n");
}

TEST(Echo, HasNoLogProbabilities) {
    Direct direct;
    const server::HttpResponse refused =
        direct.post("/v1/completions", R"({"prompt":"x","echo":true,"logprobs":1,"max_tokens":1})");
    EXPECT_EQ(refused.status, 400) << refused.body;
    EXPECT_EQ(parse_json(refused.body)["error"].text("param"), "echo");
}

// ---- log probabilities

std::string joined(const Json& entries) {
    std::string text;
    for (const Json& entry : entries.items()) {
        text += entry.text("token");
        EXPECT_EQ(entry["logprob"].number(), -0.5);
        EXPECT_TRUE(entry["bytes"].is_list());
        EXPECT_TRUE(entry["top_logprobs"].is_list());
    }
    return text;
}

TEST(LogProbabilities, OfAResponse) {
    Direct direct;
    direct.backend().tokens = tokens_of("def f(x): return x");
    for (const char* asks : {R"("include":["reasoning.encrypted_content","message.output_text.logprobs"])",
                             R"("top_logprobs":2)", R"("top_logprobs":0)"}) {
        const std::string body = std::string(R"({"input":"x = 1",)") + asks;
        const Json whole = parse_json(direct.post("/v1/responses", body + "}").body);
        const Json& part = whole["output"].items()[0]["content"].items()[0];
        EXPECT_EQ(joined(part["logprobs"]), "def f(x): return x") << asks;
        std::string deltas;
        for (const Json& event : events_of(direct.post("/v1/responses", body + ",\"stream\":true}").body)) {
            const std::string& type = event.text("type");
            if (type == "response.output_text.delta") deltas += joined(event["logprobs"]);
            if (type == "response.output_text.done") {
                EXPECT_EQ(event["logprobs"], part["logprobs"]);
            }
            if (type == "response.content_part.done") {
                EXPECT_EQ(event["part"]["logprobs"], part["logprobs"]);
            }
            if (type == "response.completed") {
                EXPECT_EQ(event["response"]["output"].items()[0]["content"].items()[0]["logprobs"], part["logprobs"]);
            }
        }
        EXPECT_EQ(deltas, "def f(x): return x") << asks;
    }
    const Json none = parse_json(direct.post("/v1/responses", R"({"input":"x = 1","include":[]})").body);
    EXPECT_TRUE(none["output"].items()[0]["content"].items()[0]["logprobs"].items().empty());
    EXPECT_EQ(direct.post("/v1/responses", R"({"input":"x = 1","top_logprobs":21})").status, 400);
}

// The tokens that the model itself writes, with the likeliest beside each.
TEST(LogProbabilities, AreThoseOfTheModel) {
    Served served;
    const auto likeliest = [](const Json& entries) {
        EXPECT_EQ(entries.items().size(), 5u);
        for (const Json& entry : entries.items()) {
            EXPECT_EQ(entry["top_logprobs"].items().size(), 3u);
            EXPECT_EQ(entry["top_logprobs"].items()[0].text("token"), entry.text("token")) << "at temperature 0";
        }
        return entries.dump();
    };
    Client client = served.client();
    const Json chat = parse_json(client
                                     .post("/v1/chat/completions",
                                           R"({"messages":[{"role":"user","content":"import os"}],"max_tokens":5,)"
                                           R"("temperature":0,"logprobs":true,"top_logprobs":3})")
                                     .body);
    const std::string expected = likeliest(chat["choices"].items()[0]["logprobs"]["content"]);
    const Json response = parse_json(
        client.post("/v1/responses", R"({"input":"import os","max_output_tokens":5,"temperature":0,"top_logprobs":3})")
            .body);
    EXPECT_EQ(likeliest(response["output"].items()[0]["content"].items()[0]["logprobs"]), expected);
    const Json line = parse_json(
        client
            .post("/api/chat", R"({"messages":[{"role":"user","content":"import os"}],"stream":false,"logprobs":true,)"
                               R"("top_logprobs":3,"options":{"num_predict":5,"temperature":0}})")
            .body);
    EXPECT_EQ(likeliest(line["logprobs"]), expected);
}

TEST(LogProbabilities, OfOllamasLines) {
    Direct direct;
    direct.backend().tokens = tokens_of("def f(x): return x");
    for (const char* path : {"/api/chat", "/api/generate"}) {
        const std::string body =
            std::string(R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","raw":true,"logprobs":true)");
        EXPECT_EQ(joined(parse_json(direct.post(path, body + ",\"stream\":false}").body)["logprobs"]),
                  "def f(x): return x");
        std::istringstream lines(direct.post(path, body + "}").body);
        std::string text;
        for (std::string line; std::getline(lines, line);) {
            const Json json = parse_json(line);
            if (json.has("logprobs")) text += joined(json["logprobs"]);
        }
        EXPECT_EQ(text, "def f(x): return x") << path;
        EXPECT_EQ(
            direct.post(path, R"({"messages":[{"role":"user","content":"x"}],"prompt":"x","top_logprobs":1})").status,
            400);
    }
}

}  // namespace
}  // namespace foresay::testing
