// What is wrong with a request is said in one sentence, with the status and the field, and others do not notice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "server/json.h"
#include "server/keys.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using namespace std::chrono_literals;
using server::Json;
using server::parse_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

std::string chat(const std::string& more, const std::string& messages = R"([{"role":"user","content":"x"}])") {
    return R"({"max_tokens":2,"messages":)" + messages + (more.empty() ? "" : "," + more) + "}";
}

struct Wrong {
    const char* path;
    std::string body;
    int status;
    const char* code;
    const char* param;
    const char* says;
};

TEST(Errors, NameTheFieldAndSayWhatItMustBe) {
    Served served;
    Client client = served.client();
    std::string deep;
    for (int i = 0; i < 70; ++i) deep += "[";
    const char* const kChat = "/v1/chat/completions";
    const char* const kText = "/v1/completions";
    std::string many;
    for (int i = 0; i < 17; ++i) many += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\"";
    const std::vector<Wrong> table = {
        {kChat, "{\"messages\": [", 400, "invalid_json", "", "no JSON"},
        {kChat, deep, 400, "invalid_json", "", "deeper than 64"},
        {kChat, "[]", 400, "invalid_type", "", "must be an object"},
        {kChat, "{}", 400, "missing_required_parameter", "messages", "missing"},
        {kChat, R"({"messages":null})", 400, "missing_required_parameter", "messages", "missing"},
        {kChat, R"({"messages":"x"})", 400, "invalid_type", "messages", "a list"},
        {kChat, R"({"messages":[]})", 400, "invalid_value", "messages", "empty"},
        {kChat, chat("", R"([{"role":"user","content":"x"},{"role":"owner","content":"x"}])"), 400, "invalid_value",
         "messages[1].role", "one of: system, developer"},
        {kChat, chat("", R"([{"content":"x"}])"), 400, "missing_required_parameter", "messages[0].role", "missing"},
        {kChat, chat("", R"([{"role":"user","content":5}])"), 400, "invalid_type", "messages[0].content",
         "a string or a list, not a number"},
        {kChat, chat("", R"([{"role":"user","content":[{"type":"image_url","image_url":{"url":"http://x/"}}]}])"), 400,
         "unsupported_content", "messages[0].content[0]", "reads text alone"},
        {kChat, chat(R"("temperature":"hot")"), 400, "invalid_type", "temperature", "a number, not a string"},
        {kChat, chat(R"("temperature":-1)"), 400, "invalid_value", "temperature", "from 0 to 100"},
        {kChat, chat(R"("top_p":1.5)"), 400, "invalid_value", "top_p", "from 0 to 1"},
        {kChat, chat(R"("n":0)"), 400, "invalid_value", "n", "from 1 to 64"},
        {kChat, chat(R"("n":1.5)"), 400, "invalid_type", "n", "an integer, not a number"},
        {kChat, chat(R"("max_tokens":-5)"), 400, "invalid_value", "max_tokens", "from -1"},
        {kChat, chat(R"("max_tokens":1e30)"), 400, "invalid_value", "max_tokens", "from -1 to 1000000000"},
        {kChat, chat(R"("seed":18446744073709551616)"), 400, "invalid_value", "seed",
         "from -9223372036854775808 to 18446744073709551615"},
        {kChat, chat(R"("seed":-1e30)"), 400, "invalid_value", "seed", "from -9223372036854775808"},
        {kChat, chat(R"("seed":1e18)"), 400, "invalid_value", "seed", "in digits alone"},
        {kChat, chat(R"("seed":1.5)"), 400, "invalid_type", "seed", "an integer, not a number"},
        {kChat, chat(R"("stream":1)"), 400, "invalid_type", "stream", "a boolean"},
        {kChat, chat(R"("stop":[1])"), 400, "invalid_type", "stop[0]", "a string"},
        {kChat, chat("\"stop\":[" + many + "]"), 400, "invalid_value", "stop", "16 texts"},
        {kChat, chat(R"("logit_bias":{"hello":1})"), 400, "invalid_value", "logit_bias", "token ids"},
        {kChat, chat(R"("logit_bias":{"99999999":1})"), 400, "invalid_value", "logit_bias", "but the model's are 0 to"},
        {kChat, chat(R"("logit_bias":{"1":101})"), 400, "invalid_value", "logit_bias", "from -100 to 100"},
        {kChat, chat(R"("top_logprobs":2)"), 400, "invalid_value", "top_logprobs", "needs 'logprobs'"},
        {kChat, chat(R"("response_format":{"type":"poem"})"), 400, "invalid_value", "response_format.type",
         "must be one of: text, json_object, json_schema"},
        {kChat, chat(R"("response_format":{"type":"json_schema"})"), 400, "missing_required_parameter",
         "response_format.json_schema.schema", "missing"},
        {kChat, chat(R"("response_format":{"type":"json_schema","json_schema":{"name":"x"}})"), 400,
         "missing_required_parameter", "response_format.json_schema.schema", "missing"},
        {kChat, chat(R"("response_format":{"type":"json_schema","json_schema":{"schema":{"not":{}}}})"), 400,
         "invalid_value", "response_format.json_schema.schema", "\"not\" at # is not supported"},
        {kChat, chat(R"("response_format":{"type":"json_object"},"grammar":"root ::= \"a\"")"), 400, "invalid_value",
         "response_format", "both say"},
        {kText, R"({"prompt":"x","grammar":"root ::= x"})", 400, "invalid_value", "grammar", "no rule"},
        {kText, R"({"prompt":"x","json_schema":{"type":"nonsense"}})", 400, "invalid_value", "json_schema",
         "names no type"},
        {kChat,
         chat(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"parameters":)"
              R"({"type":"object","properties":{"a":{"uniqueItems":true}}}}}])"),
         400, "invalid_value", "tools[0].function.parameters", "\"uniqueItems\" at #/properties/a"},
        {kChat, chat(R"("tools":[{"type":"function","function":{}}])"), 400, "missing_required_parameter",
         "tools[0].function.name", "missing"},
        {kChat, chat(R"("tools":[{}])"), 400, "missing_required_parameter", "tools[0].function.name", "missing"},
        {kChat, chat(R"("functions":[{}])"), 400, "missing_required_parameter", "functions[0].name", "missing"},
        {kChat, chat(R"("tool_choice":"x")"), 400, "invalid_value", "tool_choice",
         "one of: none, auto, required, or an object"},
        {kChat, chat(R"("tool_choice":"required")"), 400, "invalid_value", "tool_choice", "there are no tools"},
        {kChat,
         chat(R"("tool_choice":{"type":"function","function":{"name":"g"}},"tools":[{"function":{"name":"f"}}])"), 400,
         "invalid_value", "tool_choice.function.name", "names the tool 'g'"},
        {kChat, chat(R"("typical_p":1.5)"), 400, "invalid_value", "typical_p", "from 0 to 1"},
        {kChat, chat(R"("dynatemp_range":9.5,"temperature":1)"), 400, "invalid_value", "dynatemp_range",
         "more than 10 together"},
        {kChat, chat(R"("mirostat":3)"), 400, "invalid_value", "mirostat", "from 0 to 2"},
        {kChat, chat(R"("dry_sequence_breakers":[1])"), 400, "invalid_type", "dry_sequence_breakers[0]", "string"},
        {kChat, chat(R"("foresay":{"chain":["nonesuch"]})"), 400, "invalid_value", "foresay.chain",
         "neither built in nor"},
        {kChat, chat(R"("foresay":{"speculation":"sometimes"})"), 400, "invalid_value", "foresay.speculation",
         "one of: auto, off, or an integer from 0 to 32"},
        {kChat, chat(R"("foresay":{"speculation":1e30})"), 400, "invalid_value", "foresay.speculation", "from 0 to 32"},
        {kChat, chat(R"("foresay":{"plugins":{"nonesuch":{"a":1}}})"), 400, "invalid_value",
         "foresay.plugins.nonesuch.a", "no plugin 'nonesuch' is in the chain"},
        {kChat, chat(R"("foresay":{"plugins":{"top_k":{"k":1}}})"), 400, "invalid_value", "foresay.plugins.top_k.k",
         "no plugin 'top_k'"},
        {kChat, chat(R"("foresay":{"plugins":{"a":{"b":{}}}})"), 400, "invalid_type", "foresay.plugins.a.b",
         "must be a boolean"},
        {kChat, chat(R"("foresay":{"plugins":{"a":1}})"), 400, "invalid_type", "foresay.plugins.a",
         "must be an object"},
        {kChat, chat(R"("foresay":{"priority":11})"), 400, "invalid_value", "foresay.priority", "from -10 to 10"},
        {kChat, chat(R"("foresay":{"deadline_ms":0})"), 400, "invalid_value", "foresay.deadline_ms", "from 1"},
        {kText, R"({"prompt":[1,99999999]})", 400, "invalid_value", "prompt", "but the model's are 0 to"},
        {kText, R"({"prompt":[true]})", 400, "invalid_type", "prompt", "texts and token ids"},
        {kText, R"({"prompt":"x","best_of":2})", 400, "invalid_value", "best_of", "what 'n' is"},
        {kText, "{\"prompt\":\"\xff\"}", 400, "invalid_json", "", "no JSON"},
    };
    for (const Wrong& wrong : table) {
        const Reply reply = client.post(wrong.path, wrong.body);
        EXPECT_EQ(reply.status, wrong.status) << wrong.body << "\n" << reply.body;
        if (reply.status != wrong.status) continue;
        const Json error = parse_json(reply.body)["error"];
        EXPECT_EQ(error.text("type"), "invalid_request_error") << wrong.body;
        EXPECT_EQ(error.text("code"), wrong.code) << wrong.body;
        EXPECT_EQ(error.text("param"), wrong.param) << wrong.body;
        EXPECT_THAT(error.text("message"), HasSubstr(wrong.says)) << wrong.body;
        EXPECT_FALSE(reply.headers.at("x-request-id").empty());
    }
}

TEST(Errors, APromptThatIsTooLongNamesBothNumbers) {
    Served served;
    std::string prompt;
    for (int i = 0; i < 600; ++i) prompt += "x = " + std::to_string(i) + "\\n";
    const Reply reply = served.client().post("/v1/completions", "{\"prompt\":\"" + prompt + "\"}");
    EXPECT_EQ(reply.status, 400);
    const Json error = parse_json(reply.body)["error"];
    EXPECT_EQ(error.text("code"), "context_length_exceeded");
    EXPECT_EQ(error["n_ctx"].integer(), 512);
    EXPECT_GT(error["n_prompt_tokens"].integer(), 1000);
    EXPECT_THAT(error.text("message"), HasSubstr("512"));
    EXPECT_THAT(error.text("message"), Not(HasSubstr("at least")));
}

// A text of many contexts is not counted to its end.
TEST(Errors, APromptThatIsMuchTooLongHasSoManyTokensAtLeast) {
    Served served;
    std::string prompt;
    for (int i = 0; i < 20'000; ++i) prompt += "x = " + std::to_string(i) + "\\n";
    const Reply reply = served.client().post("/v1/completions", "{\"prompt\":\"" + prompt + "\"}");
    EXPECT_EQ(reply.status, 400);
    const Json error = parse_json(reply.body)["error"];
    EXPECT_THAT(error.text("message"), HasSubstr("the prompt has at least"));
    EXPECT_GE(error["n_prompt_tokens"].integer(), 16 * 512);
    EXPECT_LT(error["n_prompt_tokens"].integer(), 20'000) << "it is a bound";
}

TEST(Errors, PathsMethodsHostsAndOrigins) {
    Served served;
    Client client = served.client();
    EXPECT_EQ(client.get("/v1/nothing").status, 404);
    for (const char* path : {"/v1/embeddings", "/api/embed", "/api/embeddings"}) {
        const Reply none = client.post(path, "{}");
        EXPECT_EQ(none.status, 501) << path;
        EXPECT_THAT(none.body, HasSubstr("this server has no embeddings")) << path;
    }
    const Reply method = client.get("/v1/chat/completions");
    EXPECT_EQ(method.status, 405);
    EXPECT_EQ(method.headers.at("allow"), "POST");
    EXPECT_EQ(client.get("/health", {"Host: evil.example"}).status, 421);
    EXPECT_EQ(client.get("/health", {"Host: evil.example:8080"}).status, 421);
    EXPECT_EQ(client.get("/health", {"Host: LOCALHOST:8080"}).status, 200);
    EXPECT_EQ(client.get("/health", {"Host: [::1]:8080"}).status, 200);
    EXPECT_EQ(client.get("/health", {"Origin: http://evil.example"}).status, 403);
    EXPECT_EQ(client.get("/health", {"Origin: null"}).status, 403);
    EXPECT_EQ(client.get("/health", {"Host: localhost:1", "Origin: http://localhost:1"}).status, 200);
    EXPECT_EQ(client.ask("OPTIONS", "/v1/chat/completions", "", {"Origin: http://evil.example"}).status, 403);
    EXPECT_EQ(client.ask("HEAD", "/health").status, 200);

    server::ServingOptions options;
    options.service.hosts = {"Box.example"};
    options.service.origins = {"http://Page.example"};
    Served other(std::move(options));
    Client page = other.client();
    EXPECT_EQ(page.get("/health", {"Host: box.example"}).status, 200);
    const Reply allowed = page.get("/health", {"Origin: http://page.example"});
    EXPECT_EQ(allowed.status, 200);
    EXPECT_EQ(allowed.headers.at("access-control-allow-origin"), "http://page.example");
    EXPECT_EQ(allowed.headers.at("access-control-expose-headers"), "x-request-id, retry-after");
    const Reply before =
        page.ask("OPTIONS", "/v1/messages", "",
                 {"Origin: http://page.example", "Access-Control-Request-Headers: anthropic-version,x-api-key"});
    EXPECT_EQ(before.status, 204);
    EXPECT_EQ(before.headers.at("access-control-allow-headers"), "anthropic-version,x-api-key");
}

TEST(Errors, AnotherModelIsNotFoundWhereNamesCount) {
    server::ServingOptions options;
    options.service.any_model = false;
    Served served(std::move(options));
    Client client = served.client();
    const Reply reply = client.post("/v1/completions", R"({"prompt":"x","max_tokens":1,"model":"gpt-4"})");
    EXPECT_EQ(reply.status, 404);
    EXPECT_EQ(parse_json(reply.body)["error"].text("code"), "model_not_found");
    EXPECT_EQ(client.post("/v1/completions", R"({"prompt":"x","max_tokens":1,"model":"target-q4_k_m"})").status, 200);
}

TEST(Errors, WhatIsTooLargeIsRefusedAndTheConnectionEnds) {
    server::ServingOptions options;
    options.limits.body_bytes = 1000;
    Served served(std::move(options));
    const std::string body = "{\"prompt\":\"" + std::string(2000, 'x') + "\"}";
    Client announced = served.client();
    const Reply large = announced.post("/v1/completions", body);
    EXPECT_EQ(large.status, 413);
    EXPECT_THAT(large.body, HasSubstr("1000 bytes"));
    EXPECT_TRUE(announced.is_closed());
    Client chunked = served.client();
    chunked.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n7d0\r\n" +
                 std::string(2000, 'x') + "\r\n0\r\n\r\n");
    EXPECT_EQ(chunked.receive().status, 413);
    Client headers = served.client();
    EXPECT_EQ(headers.get("/health", {"X-Long: " + std::string(20000, 'x')}).status, 431);
    Client target = served.client();
    EXPECT_EQ(target.get("/health?" + std::string(9000, 'x')).status, 414);
    Client noise = served.client();
    noise.send("\x16\x03\x01\x02 hello\r\n\r\n");
    EXPECT_EQ(noise.receive().status, 400);
    EXPECT_EQ(served.client().get("/health").status, 200);
}

TEST(Errors, AFullQueueSaysWhenToComeAgain) {
    server::ServingOptions options;
    options.queue = 1;
    options.parallel = 1;
    Served served(std::move(options));
    // Three texts, of which one runs and one may wait.
    const Reply reply =
        served.client().post("/v1/completions", R"({"prompt":"x","ignore_eos":true,"max_tokens":450,"n":3})");
    EXPECT_EQ(reply.status, 429);
    EXPECT_EQ(reply.headers.at("retry-after"), "1");
    EXPECT_EQ(reply.headers.at("x-should-retry"), "true");
    EXPECT_EQ(parse_json(reply.body)["error"].text("type"), "rate_limit_error");
    EXPECT_TRUE(served.becomes_idle()) << "what was taken is given up";
}

TEST(Errors, KeysAreNeededWhereThereAreKeys) {
    const auto file = std::filesystem::temp_directory_path() / ("foresay_keys_" + std::to_string(::getpid()));
    const server::NewKey one = server::make_key("ann", false), two = server::make_key("bob", true);
    std::ofstream(file) << "# keys\n" << one.line << " running=1\n\n";
    server::ServingOptions options;
    options.keys = file;
    pause_soon(options);
    Served served(std::move(options));
    Client client = served.client();
    const std::string body = R"({"prompt":"x","max_tokens":1})";
    EXPECT_EQ(client.get("/live").status, 200);
    const Reply none = client.get("/v1/models");
    EXPECT_EQ(none.status, 401);
    EXPECT_EQ(parse_json(none.body)["error"].text("type"), "authentication_error");
    // Refused before the body is read.
    Client early = served.client();
    early.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000000\r\n\r\n");
    EXPECT_EQ(early.receive().status, 401);
    EXPECT_EQ(client.get("/v1/models", {"Authorization: Bearer fs-wrong"}).status, 401);
    EXPECT_EQ(client.post("/v1/completions", body, {"Authorization: Bearer " + one.key}).status, 200);
    EXPECT_EQ(client.post("/v1/completions", body, {"x-api-key: " + one.key}).status, 200);
    EXPECT_EQ(client.get("/v1/models", {"x-api-key: " + two.key}).status, 401);

    // One whose reader does not read goes on for as long as the test wants.
    Client busy(served.address(1));
    busy.send(Client::text_of("POST", "/v1/completions", kNeverRead, {"x-api-key: " + one.key}));
    busy.receive([](std::string_view) { return false; });
    const Reply more = client.post("/v1/completions", body, {"x-api-key: " + one.key});
    EXPECT_EQ(more.status, 429);
    EXPECT_THAT(more.body, HasSubstr("'ann' may have 1"));
    const Reply other = client.post("/v1/messages", chat(""), {"x-api-key: " + one.key});
    EXPECT_EQ(other.status, 429) << "the server has room: " << other.body;
    EXPECT_EQ(parse_json(other.body)["error"].text("type"), "rate_limit_error");
    EXPECT_EQ(other.headers.at("retry-after"), "1");
    busy.close();
    EXPECT_TRUE(served.becomes_idle());

    std::ofstream(file) << two.line << "\n";
    served.serving().reload_keys();
    EXPECT_EQ(client.get("/v1/models", {"x-api-key: " + two.key}).status, 200);
    EXPECT_EQ(client.get("/v1/models", {"x-api-key: " + one.key}).status, 401);
    std::ofstream(file) << "nonsense\n";
    served.serving().reload_keys();
    EXPECT_EQ(client.get("/v1/models", {"x-api-key: " + two.key}).status, 200) << "the keys from before stay";
    std::filesystem::remove(file);
    EXPECT_EQ(client.get("/v1/models", {"x-api-key: " + two.key}).status, 200);
}

// What one key has asked does not show in the counts and the times of another one, unless the server was told so.
TEST(Errors, KeysShareNoBeginnings) {
    const auto file = std::filesystem::temp_directory_path() / ("foresay_salts_" + std::to_string(::getpid()));
    const server::NewKey one = server::make_key("ann", false), two = server::make_key("bob", false);
    std::ofstream(file) << one.line << "\n" << two.line << "\n";
    std::string prompt;
    for (int i = 0; i < 20; ++i) prompt += "def read_" + std::to_string(i) + "(path):\\n    return path\\n\\n";
    for (const std::size_t parallel : {4, 1}) {
        for (const bool shared : {false, true}) {
            server::ServingOptions options;
            options.keys = file;
            options.parallel = parallel;
            options.share_cache = shared;
            Served served(std::move(options));
            Client client = served.client();
            const auto cached = [&](const server::NewKey& key, const std::string& more = "") {
                const Reply reply =
                    client.post("/v1/completions", "{\"prompt\":\"" + prompt + "\",\"max_tokens\":4" + more + "}",
                                {"x-api-key: " + key.key});
                EXPECT_EQ(reply.status, 200) << reply.body;
                return parse_json(reply.body)["usage"]["prompt_tokens_details"]["cached_tokens"].integer();
            };
            EXPECT_EQ(cached(one), 0);
            EXPECT_GT(cached(one), 20);
            EXPECT_EQ(cached(two) > 20, shared) << parallel;
            EXPECT_GT(cached(two), 20);
            EXPECT_EQ(cached(two, ",\"cache_prompt\":false"), 0);
        }
    }
    std::filesystem::remove(file);
}

// A key's tokens of a minute may be used at once; what goes beyond them delays the next request.
TEST(Errors, AKeyHasItsTokensPerMinute) {
    const auto file = std::filesystem::temp_directory_path() / ("foresay_rate_" + std::to_string(::getpid()));
    const server::NewKey one = server::make_key("ann", false), two = server::make_key("bob", true);
    std::ofstream(file) << one.line << " tokens_per_minute=20\n" << two.line << "\n";
    server::ServingOptions options;
    options.keys = file;
    Served served(std::move(options));
    const auto ask = [&](const server::NewKey& key, const std::string& more = "") {
        return served.client().post("/v1/completions",
                                    R"({"prompt":"x","ignore_eos":true,"max_tokens":60)" + more + "}",
                                    {"x-api-key: " + key.key});
    };
    EXPECT_EQ(ask(one).status, 200);
    EXPECT_TRUE(served.becomes_idle());
    const Reply refused = ask(one);
    EXPECT_EQ(refused.status, 429);
    EXPECT_THAT(refused.body, HasSubstr("20 tokens per minute"));
    const int wait = std::stoi(refused.headers.at("retry-after"));
    EXPECT_TRUE(wait > 60 && wait < 130) << wait << " s until 40 tokens have come back";
    EXPECT_EQ(ask(two).status, 200) << "others do not notice";
    // A priority above others' is for admins.
    std::ofstream(file) << one.line << "\n" << two.line << "\n";
    served.serving().reload_keys();
    EXPECT_EQ(ask(one, R"(,"foresay":{"priority":5})").status, 403);
    EXPECT_EQ(ask(one, R"(,"foresay":{"priority":-5})").status, 200);
    EXPECT_EQ(ask(two, R"(,"foresay":{"priority":5})").status, 200);
    std::filesystem::remove(file);
}

// No prompt of this length is read in a millisecond.
TEST(Errors, ADeadlineMayComeBeforeTheFirstToken) {
    Served served;
    std::string prompt;
    for (int i = 0; i < 60; ++i) prompt += "x = " + std::to_string(i) + "\\n";
    const Reply late = served.client().post(
        "/v1/completions", "{\"prompt\":\"" + prompt + R"(","max_tokens":50,"foresay":{"deadline_ms":1}})");
    EXPECT_EQ(late.status, 408) << late.body;
    EXPECT_EQ(parse_json(late.body)["error"].text("code"), "deadline_exceeded");
    EXPECT_EQ(late.headers.at("x-should-retry"), "false");
    EXPECT_TRUE(served.becomes_idle());
}

// A request that waits for others takes no place once its deadline has come, and is told so while they go on.
TEST(Errors, ADeadlineComesWhileOthersAreAnswered) {
    for (const std::size_t parallel : {1, 2}) {
        server::ServingOptions options;
        options.parallel = parallel;
        Served served(options);
        const std::string endless = R"({"prompt":"x = 1\n","ignore_eos":true,"max_tokens":480)";
        std::vector<std::future<Reply>> others;
        for (std::size_t i = 0; i < parallel; ++i) {
            others.push_back(
                std::async(std::launch::async, [&] { return served.client().post("/v1/completions", endless + "}"); }));
        }
        Client client = served.client();
        while (served.serving().backend().running() < parallel) std::this_thread::sleep_for(1ms);
        const Reply late = client.post("/v1/completions", endless + R"(,"foresay":{"deadline_ms":30}})");
        EXPECT_EQ(late.status, 408) << late.body;
        EXPECT_EQ(parse_json(late.body)["error"].text("code"), "deadline_exceeded");
        EXPECT_THAT(client.get("/metrics").body, HasSubstr(R"(finish="deadline",api="completions"} 1)"));
        for (std::future<Reply>& other : others) EXPECT_EQ(other.get().status, 200);
        EXPECT_TRUE(served.becomes_idle());
    }
}

TEST(Errors, FilesOfKeysAreCheckedLineByLine) {
    const auto file = std::filesystem::temp_directory_path() / ("foresay_lines_" + std::to_string(::getpid()));
    const auto problem = [&](const std::string& text) -> std::string {
        std::ofstream(file) << text;
        try {
            server::Keys keys(file);
        } catch (const Error& error) {
            return error.what();
        }
        return "";
    };
    const std::string line = server::make_key("ann", false).line;
    EXPECT_EQ(problem(line + "\n"), "");
    EXPECT_THAT(problem(""), HasSubstr("has no key"));
    EXPECT_THAT(problem("\nsha256:12 name=x\n"), AllOf(HasSubstr(":2: "), HasSubstr("no hash")));
    EXPECT_THAT(problem(line + " rights=all"), HasSubstr("'rights=all' is not known"));
    EXPECT_THAT(problem(line + " running=0"), HasSubstr("above 0"));
    EXPECT_THAT(problem(line + " tokens_per_minute=x"), HasSubstr("'tokens_per_minute' must be a number"));
    EXPECT_THAT(problem(line.substr(0, 71)), HasSubstr("the name is missing"));
    std::filesystem::remove(file);
    EXPECT_THROW(server::Keys keys(file), Error);
}

TEST(Errors, AddressesAreChecked) {
    using server::parse_listen_address;
    for (const char* wrong : {"", "8080", "localhost", "1.2.3.4:99999", "example.org:80", "::1:80", "unix:", "fd:x"})
        EXPECT_THROW(parse_listen_address(wrong), Error) << wrong;
    EXPECT_TRUE(parse_listen_address("localhost:80").local());
    EXPECT_TRUE(parse_listen_address("[::1]:80").local());
    EXPECT_FALSE(parse_listen_address("0.0.0.0:80").local());
    EXPECT_FALSE(parse_listen_address("[::]:80").local());
    EXPECT_EQ(parse_listen_address("[::1]:80").text(), "[::1]:80");
    Served served;
    server::ServingOptions options;
    options.addresses = {parse_listen_address(served.address())};
    EXPECT_THROW(Served second(std::move(options)), Error);
}

TEST(Errors, ManyHalfOpenConnectionsLeaveRoomForOthers) {
    server::ServingOptions options;
    options.limits.connections = 50;
    Served served(std::move(options));
    std::vector<Client> half;
    for (int i = 0; i < 200; ++i) {
        half.push_back(served.client());
        half.back().send("POST /v1/completions HTTP/1.1\r\nX-Slow: ");
    }
    EXPECT_EQ(served.client().post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
}

TEST(Errors, SlowHeadersAndBodiesAreGivenUp) {
    server::ServingOptions options;
    options.limits.header_time = 100ms;
    options.limits.body_time = 100ms;
    Served served(std::move(options));
    Client slow = served.client(), silent = served.client(), body = served.client();
    slow.send("GET /health HTTP/1.1\r\nX: ");
    body.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{");
    EXPECT_TRUE(slow.is_closed());
    EXPECT_TRUE(silent.is_closed());
    EXPECT_TRUE(body.is_closed());
}

}  // namespace
}  // namespace foresay::testing
