// Answers under a grammar, in each protocol, over sockets: JSON that is valid, calls that are made, and grammars that
// are refused before anything is generated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sstream>

#include "server/json.h"
#include "tests/server/direct.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

// The requests that a grammar of llama.cpp's notation cuts short: each protocol's path, the body, and the field that
// limits the tokens.
struct Limited {
    const char *path, *before, *after, *field;
    std::string body(const std::string& grammar, const std::string& tokens, bool stream) const {
        return std::string(before) + R"("grammar":")" + grammar + R"(",)" + tokens + after +
               (stream ? R"(,"stream":true})" : R"(,"stream":false})");
    }
};

std::vector<Limited> limited() {
    static const std::string chat = "{" + kMessages + ",", ollama = "{" + kMessages + ",\"options\":{";
    return {{"/v1/chat/completions", chat.c_str(), "", "max_completion_tokens"},
            {"/v1/completions", R"({"prompt":"x = 1",)", "", "max_tokens"},
            {"/v1/responses", R"({"input":"x = 1",)", "", "max_output_tokens"},
            {"/v1/messages", chat.c_str(), "", "max_tokens"},
            {"/api/chat", ollama.c_str(), "}", "num_predict"},
            {"/api/generate", R"({"prompt":"x = 1","options":{)", "}", "num_predict"},
            {"/completion", R"({"prompt":"x = 1",)", "", "n_predict"}};
}

// The last part of an answer that has a reason for its end, and that reason.
struct Ending {
    std::string reason;
    Json part;
};

Ending ending_of(const Json& part) {
    for (const Json& choice : part["choices"].is_list() ? part["choices"].items() : Json::List{})
        if (choice.has("finish_reason")) return {choice.text("finish_reason"), choice};
    if (part.has("done_reason")) return {part.text("done_reason"), part};
    if (part.has("stop_type")) return {part.text("stop_type"), part};
    if (part.has("stop_reason")) return {part.text("stop_reason"), part};
    if (part["delta"].has("stop_reason")) return {part["delta"].text("stop_reason"), part};
    const Json& response = part["response"].is_object() ? part["response"] : part;
    if (response.has("incomplete_details")) return {response["incomplete_details"].text("reason"), response};
    if (response.text("status") == "completed" && response.has("output")) return {"completed", response};
    return {};
}

Ending ending_of_body(const std::string& body, bool stream) {
    if (!stream) return ending_of(parse_json(body));
    Ending last;
    std::vector<std::string> parts = data_of(body);
    if (parts.empty()) {  // lines
        std::istringstream lines(body);
        for (std::string line; std::getline(lines, line);) parts.push_back(line);
    }
    for (const std::string& part : parts) {
        if (part == "[DONE]") continue;
        if (Ending one = ending_of(parse_json(part)); !one.reason.empty()) last = std::move(one);
    }
    return last;
}

TEST(AnswersUnderAGrammar, ThatAreCutSaySoInEachProtocol) {
    Served served;
    Client client = served.client();
    for (const Limited& one : limited()) {
        const std::string field = one.field;
        for (const bool stream : {false, true}) {
            const std::string what = one.path + std::string(stream ? ", streamed" : "");
            const Reply cut = client.post(
                one.path, one.body(R"(root ::= [a-z]{400} \"!\")", "\"" + field + R"(":3,"temperature":0)", stream));
            ASSERT_EQ(cut.status, 200) << what << ": " << cut.body;
            const Ending ending = ending_of_body(cut.body, stream);
            EXPECT_THAT(ending.reason, AnyOf("length", "max_tokens", "limit", "max_output_tokens")) << what;
            EXPECT_EQ(ending.part["foresay"].text("unfinished"),
                      "the answer ends before the grammar of sampler 'grammar' does: it has the 3 tokens that it may "
                      "have; " +
                          std::string(field == "num_predict" ? "options." : "") + field + " allows more")
                << what << ": " << cut.body;
            const Reply whole =
                client.post(one.path, one.body(R"(root ::= \"a\" | \"b\")", "\"" + field + "\":8", stream));
            EXPECT_THAT(ending_of_body(whole.body, stream).reason, AnyOf("stop", "end_turn", "eos", "completed"))
                << what;
            EXPECT_THAT(whole.body, Not(HasSubstr("unfinished"))) << what;
        }
    }
}

TEST(AnswersUnderAGrammar, ThatAreCutSayWhatCutThem) {
    Served served;
    Client client = served.client();
    const auto choices = [&](const std::string& body) {
        const Reply reply = client.post("/v1/chat/completions", "{" + kMessages + "," + body + "}");
        EXPECT_EQ(reply.status, 200) << reply.body;
        return parse_json(reply.body)["choices"];
    };
    // Each of several answers, and calls that are not made.
    const Json calls = choices(R"("max_tokens":4,"n":2,"foresay":{"explain":true},"tool_choice":"required",)"
                               R"("tools":[{"type":"function","function":{"name":"set"}}])");
    ASSERT_EQ(calls.items().size(), 2u);
    for (const Json& choice : calls.items()) {
        EXPECT_EQ(choice.text("finish_reason"), "length");
        EXPECT_THAT(choice["foresay"].text("unfinished"), HasSubstr("it has the 4 tokens")) << choice.dump();
        EXPECT_EQ(choice["foresay"]["tokens"].items().size(), 4u);
    }
    // The end of the context, and a limit at which the text may end.
    std::string lines;
    for (int i = 0; i < 98; ++i) lines += "x = 1\\n";
    const std::string prompt = "{\"prompt\":\"" + lines + R"(","temperature":0,"grammar":)";
    const Json full = parse_json(client.post("/completion", prompt + R"("root ::= [a-z]{400} \"!\""})").body);
    EXPECT_EQ(full["foresay"].text("unfinished"),
              "the answer ends before the grammar of sampler 'grammar' does: the context is full; target.context makes "
              "it longer")
        << full.dump();
    const Json may_end = parse_json(client.post("/completion", prompt + R"("root ::= [a-z]*","n_predict":1})").body);
    EXPECT_EQ(may_end.text("stop_type"), "limit");
    EXPECT_FALSE(may_end.has("foresay")) << may_end.dump();
    // A deadline.
    Direct direct;
    direct.backend().tokens = direct.model().tokenizer().encode("abc", {.add_special = false});
    direct.backend().finish = server::BackendEnd::Finish::deadline;
    const std::string late = R"({"prompt":"x","foresay":{"deadline_ms":600000},"grammar":"root ::= [a-z]{400}"})";
    const Json timed = parse_json(direct.post("/completion", late).body);
    EXPECT_EQ(timed.text("content"), "abc") << timed.dump();
    EXPECT_THAT(timed["foresay"].text("unfinished"),
                HasSubstr("it has taken the time that it may take; foresay.deadline_ms allows more"));
    // A prompt alone, a text without a grammar, and one that a stop string ends.
    const std::string tail = R"("root ::= [a-z]{400}",)";
    for (const std::string& body : {prompt + tail + R"("n_predict":0})", prompt + R"("","n_predict":2})",
                                    prompt + R"("root ::= \"stop\" [a-z]{400}","stop":["stop"]})"}) {
        const Reply reply = client.post("/completion", body);
        EXPECT_EQ(reply.status, 200) << reply.body;
        EXPECT_THAT(reply.body, Not(HasSubstr("unfinished")));
    }
}

// After the text of a grammar nothing may come but its end, so it ends there, whatever end tokens are.
TEST(AnswersUnderAGrammar, EndWhereEndTokensDoNot) {
    for (const std::size_t parallel : {1u, 4u}) {
        server::ServingOptions options;
        options.parallel = parallel;
        Served served(std::move(options));
        Client client = served.client();
        for (const bool stream : {false, true}) {
            for (const Limited& one : limited()) {
                const Reply reply = client.post(
                    one.path,
                    one.body(R"(root ::= \"yes\" | \"no\")",
                             "\"" + std::string(one.field) + R"(":20,"ignore_eos":true,"temperature":1)", stream));
                EXPECT_EQ(reply.status, 200) << reply.body;
                EXPECT_THAT(ending_of_body(reply.body, stream).reason, AnyOf("stop", "end_turn", "eos", "completed"))
                    << one.path << ": " << reply.body;
            }
        }
        const std::string body = R"({"prompt":"x = 1","ignore_eos":true,"n_predict":20,"grammar":"root ::= )";
        const Json whole = parse_json(client.post("/completion", body + R"(\"yes\" | \"no\""})").body);
        EXPECT_THAT(whole.text("content"), AnyOf("yes", "no"));
        // Without a grammar they are tokens like any other.
        const Json free = parse_json(
            client.post("/completion", R"({"prompt":"x = 1","ignore_eos":true,"n_predict":20,"grammar":""})").body);
        EXPECT_EQ(free.text("stop_type"), "limit");
        EXPECT_EQ(free["tokens_predicted"].integer(), 20);
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
