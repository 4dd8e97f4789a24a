// Answers under a grammar, in each protocol, over sockets: JSON that is valid, calls that are made, and grammars that
// are refused before anything is generated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/json.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;

constexpr const char* kSchema = R"({"type":"object","properties":{"ok":{"type":"boolean"},"size":{"enum":[1,2,3]}},)"
                                R"("required":["ok","size"],"additionalProperties":false})";
const std::string kMessages = R"("messages":[{"role":"user","content":"x = 1"}])";

void expect_valid(const std::string& text) {
    const Json json = parse_json(text);
    EXPECT_EQ(json.members().size(), 2u) << text;
    EXPECT_TRUE(json["ok"].is(Json::Kind::boolean)) << text;
    EXPECT_GE(json["size"].number(), 1) << text;  // 1.0 is 1
    EXPECT_EQ(text.find(' '), std::string::npos) << text;
}

TEST(AnswersUnderAGrammar, AreValidInEachProtocol) {
    Served served;
    Client client = served.client();
    const auto ask = [&](const char* path, const std::string& body) {
        const Reply reply = client.post(path, body);
        EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
        return reply.status == 200 ? parse_json(reply.body) : Json::object();
    };
    const std::string format = std::string(R"({"type":"json_schema","schema":)") + kSchema + "}";
    for (const char* more : {R"("temperature":0)", R"("temperature":1.5,"seed":3)"}) {
        const std::string tail = std::string(",") + more + "}";
        const Json chat =
            ask("/v1/chat/completions", "{" + kMessages +
                                            R"(,"response_format":{"type":"json_schema","json_schema":{"name":"a",)" +
                                            R"("strict":true,"schema":)" + kSchema + "}}" + tail);
        expect_valid(chat["choices"].items()[0]["message"].text("content"));
        EXPECT_EQ(chat["choices"].items()[0].text("finish_reason"), "stop");
        const Json responses = ask("/v1/responses", R"({"input":"x = 1","text":{"format":)" + format + "}" + tail);
        expect_valid(responses["output"].items()[0]["content"].items()[0].text("text"));
        const Json message = ask(
            "/v1/messages", "{" + kMessages + R"(,"max_tokens":60,"output_config":{"format":)" + format + "}" + tail);
        expect_valid(message["content"].items()[0].text("text"));
        expect_valid(
            ask("/completion", std::string(R"({"prompt":"x = 1","json_schema":)") + kSchema + tail).text("content"));
        expect_valid(
            ask("/v1/completions", std::string(R"({"prompt":"x = 1","json_schema":)") + kSchema + tail)["choices"]
                .items()[0]
                .text("text"));
        expect_valid(ask("/api/chat", "{" + kMessages + R"(,"stream":false,"format":)" + kSchema + ",\"options\":{" +
                                          more + "}}")["message"]
                         .text("content"));
        EXPECT_THAT(ask("/completion", std::string(R"({"prompt":"x = 1","grammar":"root ::= \"yes\" | \"no\"")") + tail)
                        .text("content"),
                    AnyOf("yes", "no"));
    }
    EXPECT_EQ(ask("/api/generate", R"({"prompt":"x","stream":false,"format":"json","options":{"num_predict":40}})")
                  .text("response")
                  .substr(0, 1),
              "{");
}

// Streamed or not, with speculation and without, beside others: the same bytes.
TEST(AnswersUnderAGrammar, AreTheSameHoweverTheyAreMade) {
    Served served;
    Client client = served.client();
    const std::string body = "{" + kMessages + R"(,"seed":5,"temperature":1.2,"n":3,"max_tokens":40,)" +
                             R"("response_format":{"type":"json_object"})";
    const Reply whole = client.post("/v1/chat/completions", body + "}");
    const Reply plain =
        client.post("/v1/chat/completions", body + R"(,"foresay":{"speculation":"off","cache":false}})");
    const Reply stream = client.post("/v1/chat/completions", body + R"(,"stream":true})");
    for (std::size_t i = 0; i < 3; ++i) {
        const std::string text = text_of_answer(whole.body, i);
        EXPECT_EQ(text.substr(0, 1), "{");
        EXPECT_EQ(text_of_answer(plain.body, i), text);
        EXPECT_EQ(text_of_stream(stream.body, i), text);
    }
}

TEST(RequiredCalls, AreMadeWithValidArguments) {
    Served served;
    Client client = served.client();
    const std::string parameters = kSchema;
    const std::string tools = R"("tools":[{"type":"function","function":{"name":"set","strict":true,"parameters":)" +
                              parameters + R"(}},{"type":"function","function":{"name":"other"}}])";
    const std::string body =
        "{" + kMessages + "," + tools + R"(,"parallel_tool_calls":false,"temperature":1,"seed":1,)";
    const Json forced = parse_json(
        client.post("/v1/chat/completions", body + R"("tool_choice":{"type":"function","function":{"name":"set"}}})")
            .body);
    const Json& choice = forced["choices"].items()[0];
    EXPECT_EQ(choice.text("finish_reason"), "tool_calls") << forced.dump();
    ASSERT_EQ(choice["message"]["tool_calls"].items().size(), 1u);
    const Json& call = choice["message"]["tool_calls"].items()[0]["function"];
    EXPECT_EQ(call.text("name"), "set");
    expect_valid(call.text("arguments"));

    const Json any = parse_json(
        client.post("/v1/chat/completions", body + R"("max_tokens":200,"logit_bias":{},"tool_choice":"required"})")
            .body);
    EXPECT_THAT(any["choices"].items()[0].text("finish_reason"), AnyOf("tool_calls", "length")) << any.dump();
    const Json used = parse_json(
        client
            .post("/v1/messages",
                  "{" + kMessages + R"(,"max_tokens":80,"tools":[{"name":"set","strict":true,)" + R"("input_schema":)" +
                      parameters + R"(}],"tool_choice":{"type":"tool","name":"set","disable_parallel_tool_use":true}})")
            .body);
    EXPECT_EQ(used.text("stop_reason"), "tool_use") << used.dump();
    EXPECT_EQ(used["content"].items()[0]["input"].members().size(), 2u);
    const Json item = parse_json(
        client
            .post("/v1/responses", R"({"input":"x = 1","parallel_tool_calls":false,"tools":[{"type":"function",)"
                                   R"("name":"set","strict":true,"parameters":)" +
                                       parameters + R"(}],"tool_choice":{"type":"function","name":"set"}})")
            .body);
    ASSERT_EQ(item["output"].items().size(), 1u) << item.dump();
    EXPECT_EQ(item["output"].items()[0].text("type"), "function_call");
    expect_valid(item["output"].items()[0].text("arguments"));
}

// What would take minutes or gigabytes to compile is refused by its size, its depth or its work; the next request is
// answered.
TEST(HostileGrammars, AreRefusedAndHurtNoOne) {
    Served served;
    Client client = served.client();
    const auto refused = [&](const std::string& schema) {
        const Reply reply =
            client.post("/v1/completions", R"({"prompt":"x","max_tokens":1,"json_schema":)" + schema + "}");
        EXPECT_EQ(reply.status, 400) << reply.body.substr(0, 300);
        return parse_json(reply.body)["error"].text("message");
    };
    std::string patterns;
    for (int i = 0; i < 30; ++i)
        patterns += (i == 0 ? "\"" : ",\"") + std::string("^.*x.{") + std::to_string(10 + i) + "}$\":{}";
    const std::string overlapping = R"({"type":"object","patternProperties":{)" + patterns + "}}";
    EXPECT_THAT(refused(overlapping), AnyOf(HasSubstr("takes too long"), HasSubstr("too many")));
    EXPECT_THAT(refused(overlapping), AnyOf(HasSubstr("takes too long"), HasSubstr("too many")));  // now it is known
    std::string names;
    for (int i = 0; i < 40'000; ++i) names += (i == 0 ? "\"a" : ",\"a") + std::to_string(i) + "\"";
    EXPECT_THAT(refused("{\"enum\":[" + names + "]}"), HasSubstr("262144 are allowed"));
    std::string deep = "{}";
    for (int i = 0; i < 70; ++i) deep = "{\"items\":" + deep + "}";
    EXPECT_THAT(refused(deep), HasSubstr("no JSON"));
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
}

}  // namespace
}  // namespace foresay::testing
