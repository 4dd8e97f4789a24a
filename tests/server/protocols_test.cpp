// Each protocol: the shape of its answers, of its streams and of its errors, and the same text whichever is spoken.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "server/json.h"
#include "server/stored.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using server::Json;
using server::parse_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

std::vector<std::string> events_of(const std::string& stream) {
    std::vector<std::string> all;
    std::istringstream lines(stream);
    for (std::string line; std::getline(lines, line);) {
        if (line.starts_with("event: ")) all.push_back(line.substr(7));
    }
    return all;
}

TEST(Protocols, TheSameTextInEachOfThem) {
    Served served;
    Client client = served.client();
    const std::string prompt = "import os\\n\\ndef walk(path):\\n";
    const auto text = [&](const char* path, const std::string& body, auto take) {
        const Reply reply = client.post(path, body);
        EXPECT_EQ(reply.status, 200) << path << ": " << reply.body;
        return reply.status == 200 ? take(parse_json(reply.body)) : std::string();
    };
    const std::string expected =
        text("/v1/completions", "{\"prompt\":\"" + prompt + "\",\"max_tokens\":20,\"seed\":3,\"temperature\":0.7}",
             [](const Json& json) { return json["choices"].items()[0].text("text"); });
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(text("/completion", "{\"prompt\":\"" + prompt + "\",\"n_predict\":20,\"seed\":3,\"temperature\":0.7}",
                   [](const Json& json) { return json.text("content"); }),
              expected);
    EXPECT_EQ(text("/api/generate",
                   "{\"prompt\":\"" + prompt +
                       "\",\"stream\":false,\"options\":{\"num_predict\":20,\"seed\":3,\"temperature\":0.7}}",
                   [](const Json& json) { return json.text("response"); }),
              expected);
    // Without a chat template a conversation is its texts, one after the other.
    EXPECT_EQ(text("/v1/chat/completions",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"" + prompt +
                       "\"}],\"max_tokens\":20,\"seed\":3,\"temperature\":0.7}",
                   [](const Json& json) { return json["choices"].items()[0]["message"].text("content"); }),
              expected);
    EXPECT_EQ(text("/v1/messages",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"" + prompt +
                       "\"}],\"max_tokens\":20,\"seed\":3,\"temperature\":0.7}",
                   [](const Json& json) { return json["content"].items()[0].text("text"); }),
              expected);
    EXPECT_EQ(text("/api/chat",
                   "{\"messages\":[{\"role\":\"user\",\"content\":\"" + prompt +
                       "\"}],\"stream\":false,\"options\":{\"num_predict\":20,\"seed\":3,\"temperature\":0.7}}",
                   [](const Json& json) { return json["message"].text("content"); }),
              expected);
}

TEST(Responses, StreamsEveryEventWithItsPlace) {
    Served served;
    Client client = served.client();
    const std::string body = R"({"instructions":"# Python","input":[{"role":"developer","content":"x"},)"
                             R"({"type":"message","role":"user","content":[{"type":"input_text","text":"y = 2"}]},)"
                             R"({"type":"unknown_item"}],"tools":[{"type":"web_search"}],"store":false,)"
                             R"("max_output_tokens":10,"seed":2,"ignore_eos":true)";
    const Reply whole = client.post("/v1/responses", body + "}");
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json response = parse_json(whole.body);
    EXPECT_EQ(response.text("status"), "incomplete");
    EXPECT_EQ(response["usage"]["output_tokens"].integer(), 10);
    const std::string text = response["output"].items()[0]["content"].items()[0].text("text");
    const Reply stream = client.post("/v1/responses", body + R"(,"stream":true})");
    const std::vector<std::string> events = events_of(stream.body);
    ASSERT_GE(events.size(), 8u);
    EXPECT_EQ(events[0], "response.created");
    EXPECT_EQ(events[1], "response.in_progress");
    EXPECT_EQ(events[2], "response.output_item.added");
    EXPECT_EQ(events[3], "response.content_part.added");
    EXPECT_EQ(events.back(), "response.incomplete");
    std::string deltas;
    std::int64_t number = 0;
    for (const std::string& data : data_of(stream.body)) {
        const Json event = parse_json(data);
        EXPECT_EQ(event["sequence_number"].integer(), number++);
        if (event.text("type") == "response.output_text.delta") deltas += event.text("delta");
        if (event.text("type") == "response.created") {
            EXPECT_TRUE(event["response"]["output"].is_list());
        }
        if (event.text("type") == "response.incomplete") {
            EXPECT_EQ(event["response"]["output"].items()[0]["content"].items()[0].text("text"), text);
        }
    }
    EXPECT_EQ(deltas, text);
    const Reply previous = client.post("/v1/responses", R"({"input":"x","previous_response_id":"resp_1"})");
    EXPECT_EQ(previous.status, 404);
    EXPECT_EQ(parse_json(previous.body)["error"].text("code"), "previous_response_not_found");
    EXPECT_EQ(client.get("/v1/responses/resp_1").status, 404);
    EXPECT_GT(
        parse_json(client.post("/v1/responses/input_tokens", R"({"input":"x = 1"})").body)["input_tokens"].integer(),
        0);
}

TEST(Responses, GoOnFromAStoredOne) {
    server::ServingOptions options;
    options.service.stored_responses = 2;
    Served served(std::move(options));
    Client client = served.client();
    const auto ask = [&](const std::string& more) {
        return client.post("/v1/responses", R"({"max_output_tokens":8,"seed":3,"ignore_eos":true,)" + more + "}");
    };
    const Json first = parse_json(ask(R"("input":"a = 1","store":true,"metadata":{"k":"v"})").body);
    const std::string id = first.text("id");
    const std::string text = first["output"].items()[0]["content"].items()[0].text("text");
    EXPECT_TRUE(first["store"].boolean());
    const Reply kept = client.get("/v1/responses/" + id);
    ASSERT_EQ(kept.status, 200) << kept.body;
    EXPECT_EQ(parse_json(kept.body), first);
    EXPECT_EQ(parse_json(client.get("/v1/responses/" + id + "/input_items").body)["data"].items()[0].text("content"),
              "a = 1");
    // The same as with the whole conversation.
    const Json next =
        parse_json(ask(R"("input":"b = 2","store":true,"stream":false,"previous_response_id":")" + id + "\"").body);
    const Json whole = parse_json(ask(R"("input":[{"role":"user","content":"a = 1"},{"role":"assistant","content":)" +
                                      server::json_quoted(text) + R"(},{"role":"user","content":"b = 2"}])")
                                      .body);
    EXPECT_EQ(next.text("previous_response_id"), id);
    EXPECT_EQ(next["usage"]["input_tokens"].integer(), whole["usage"]["input_tokens"].integer());
    EXPECT_EQ(next["output"].items()[0]["content"].dump(), whole["output"].items()[0]["content"].dump());
    EXPECT_FALSE(whole["store"].boolean());
    EXPECT_EQ(client.get("/v1/responses/" + whole.text("id")).status, 404) << "it was not asked to be stored";
    // A streamed one is kept as well, and pushes the oldest out.
    EXPECT_EQ(client.get("/v1/responses/" + id).status, 200);
    const Reply stream = ask(R"("input":"c","store":true,"stream":true)");
    const Json last = parse_json(data_of(stream.body).back())["response"];
    EXPECT_EQ(parse_json(client.get("/v1/responses/" + last.text("id")).body), last);
    EXPECT_EQ(client.get("/v1/responses/" + next.text("id")).status, 404) << "two are kept";
    // Forgotten is forgotten.
    EXPECT_EQ(client.ask("DELETE", "/v1/responses/" + id).status, 200);
    EXPECT_EQ(client.ask("DELETE", "/v1/responses/" + id).status, 404);
    EXPECT_EQ(client.get("/v1/responses/" + id).status, 404);
    EXPECT_EQ(ask(R"("input":"x","previous_response_id":")" + id + "\"").status, 404);
}

TEST(Responses, AreKeptWithinBoundsAndForTheirOwner) {
    server::StoredResponses stored(100, 20'000);
    for (int i = 0; i < 50; ++i)
        stored.add("resp_" + std::to_string(i), {"ann", std::string(1000, 'x'), Json::list(), {}});
    EXPECT_LE(stored.bytes(), 20'000u);
    EXPECT_LT(stored.count(), 20u);
    EXPECT_EQ(stored.find("resp_0", "ann"), nullptr);
    ASSERT_NE(stored.find("resp_49", "ann"), nullptr);
    EXPECT_EQ(stored.find("resp_49", "bob"), nullptr);
    EXPECT_FALSE(stored.remove("resp_49", "bob"));
    stored.add("resp_large", {"ann", std::string(30'000, 'x'), Json::list(), {}});
    EXPECT_EQ(stored.find("resp_large", "ann"), nullptr) << "one that is larger than all together";
    EXPECT_NE(stored.find("resp_49", "ann"), nullptr);
    while (stored.count() > 0) {
        const std::size_t before = stored.count();
        for (int i = 0; i < 50; ++i) stored.remove("resp_" + std::to_string(i), "ann");
        ASSERT_LT(stored.count(), before);
    }
    EXPECT_EQ(stored.bytes(), 0u);
}

// ---------------------------------------------------------------------------------------------------------- anthropic

TEST(Anthropic, StreamsBlocks) {
    Served served;
    Client client = served.client();
    const std::string body =
        R"({"model":"claude","max_tokens":12,"seed":1,"system":[{"type":"text","text":"# Python"}],)"
        R"("messages":[{"role":"user","content":[{"type":"text","text":"x = 1"}]}])";
    const Reply whole = client.post("/v1/messages?beta=true", body + "}");
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json message = parse_json(whole.body);
    EXPECT_EQ(message.text("type"), "message");
    EXPECT_EQ(message.text("model"), "claude");
    EXPECT_EQ(message.text("stop_reason"), "max_tokens");
    EXPECT_EQ(message["usage"]["output_tokens"].integer(), 12);
    const Reply stream = client.post("/v1/messages", body + R"(,"stream":true})");
    const std::vector<std::string> events = events_of(stream.body);
    ASSERT_GE(events.size(), 7u);
    EXPECT_EQ(events[0], "message_start");
    EXPECT_EQ(events[1], "ping");
    EXPECT_EQ(events[2], "content_block_start");
    EXPECT_EQ(events[events.size() - 3], "content_block_stop");
    EXPECT_EQ(events[events.size() - 2], "message_delta");
    EXPECT_EQ(events.back(), "message_stop");
    std::string text;
    for (const std::string& data : data_of(stream.body)) text += parse_json(data)["delta"].text("text");
    EXPECT_EQ(text, message["content"].items()[0].text("text"));
    const Reply counted = client.post("/v1/messages/count_tokens",
                                      R"({"system":"# Python","messages":[{"role":"user","content":"x = 1"}]})");
    const Json usage = message["usage"];
    EXPECT_EQ(parse_json(counted.body)["input_tokens"].integer(),
              usage["input_tokens"].integer() + usage["cache_read_input_tokens"].integer());
}

TEST(Anthropic, SaysWhatIsWrongInItsOwnShape) {
    Served served;
    Client client = served.client();
    const auto error = [&](const std::string& body, int status) {
        const Reply reply = client.post("/v1/messages", body);
        EXPECT_EQ(reply.status, status) << reply.body;
        const Json json = parse_json(reply.body);
        EXPECT_EQ(json.text("type"), "error");
        EXPECT_EQ(json["error"].text("type"), "invalid_request_error");
        EXPECT_THAT(json.text("request_id"), StartsWith("req_"));
        return json["error"].text("message");
    };
    EXPECT_THAT(error(R"({"messages":[{"role":"user","content":"x"}]})", 400), HasSubstr("'max_tokens' is missing"));
    EXPECT_THAT(error(R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image"}]}]})", 400),
                HasSubstr("messages[0].content[0]"));
    EXPECT_THAT(
        error(R"({"max_tokens":1,"messages":[{"role":"user","content":"x"}],"tool_choice":{"type":"any"}})", 400),
        HasSubstr("there are no tools"));
    std::string prompt;
    for (int i = 0; i < 600; ++i) prompt += "x = " + std::to_string(i) + "\\n";
    EXPECT_THAT(error("{\"max_tokens\":1,\"messages\":[{\"role\":\"user\",\"content\":\"" + prompt + "\"}]}", 400),
                HasSubstr("tokens > 511 maximum"));
    EXPECT_EQ(parse_json(client.get("/v1/messages/unknown").body).text("type"), "error");
}

// ------------------------------------------------------------------------------------------------------------- ollama

TEST(Ollama, StreamsLines) {
    Served served;
    Client client = served.client();
    const Reply stream = client.post(
        "/api/chat", R"({"messages":[{"role":"user","content":"x = 1"}],"options":{"num_predict":8,"seed":1}})");
    ASSERT_EQ(stream.status, 200) << stream.body;
    EXPECT_EQ(stream.headers.at("content-type"), "application/x-ndjson");
    std::istringstream lines(stream.body);
    std::vector<Json> all;
    for (std::string line; std::getline(lines, line);) all.push_back(parse_json(line));
    ASSERT_GE(all.size(), 2u);
    for (std::size_t i = 0; i + 1 < all.size(); ++i) EXPECT_FALSE(all[i]["done"].boolean());
    EXPECT_TRUE(all.back()["done"].boolean());
    EXPECT_EQ(all.back().text("done_reason"), "length");
    EXPECT_EQ(all.back()["eval_count"].integer(), 8);
    EXPECT_GT(all.back()["eval_duration"].integer(), 0);
}

TEST(Ollama, TellsWhatClientsLookFor) {
    Served served;
    Client client = served.client();
    EXPECT_THAT(parse_json(client.get("/api/version").body).text("version"),
                ::testing::MatchesRegex("[0-9]+\\.[0-9]+\\.[0-9]+"));
    const Json tag = parse_json(client.get("/api/tags").body)["models"].items()[0];
    EXPECT_EQ(tag.text("name"), "target-q4_k_m");
    EXPECT_EQ(tag["details"].text("quantization_level"), "q4_k");
    const Json show = parse_json(client.post("/api/show", R"({"name":"target-q4_k_m"})").body);
    EXPECT_EQ(show["model_info"]["llama.context_length"].integer(), 512);
    EXPECT_THAT(show["capabilities"].dump(), HasSubstr("\"tools\""));
    EXPECT_THAT(show.text("template"), HasSubstr(".Suffix"));
    EXPECT_EQ(parse_json(client.post("/api/generate", R"({"model":"x"})").body).text("done_reason"), "load");
    const Reply pull = client.post("/api/pull", R"({"model":"x"})");
    EXPECT_EQ(pull.status, 501);
    EXPECT_THAT(parse_json(pull.body).text("error"), HasSubstr("neither fetches nor changes"));
    const Reply wrong =
        client.post("/api/chat", R"({"messages":[{"role":"user","content":"x"}],"options":{"num_ctx":100000}})");
    EXPECT_EQ(wrong.status, 400);
    EXPECT_THAT(parse_json(wrong.body).text("error"), HasSubstr("'options.num_ctx' is 100000"));
}

// -------------------------------------------------------------------------------------------------------------- llama

TEST(Llama, FillsAHoleWithTheFieldsThatAreAskedFor) {
    Served served;
    Client client = served.client();
    const std::string body =
        R"({"input_prefix":"def add(a, b):\n","input_suffix":"\nprint(add(1, 2))\n","prompt":"    return ",)"
        R"("input_extra":[{"filename":"a.py","text":"x = 1\n"}],"n_predict":8,"temperature":0,)"
        R"("samplers":["top_k"],"t_max_predict_ms":100000,"response_fields":["content","timings/prompt_n","nothing"]})";
    const Reply reply = client.post("/infill", body);
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json json = parse_json(reply.body);
    ASSERT_EQ(json.members().size(), 2u) << reply.body;
    EXPECT_FALSE(json.text("content").empty());
    EXPECT_GT(json["timings/prompt_n"].integer(), 5);
    EXPECT_EQ(reply.body.find('\n'), std::string::npos) << "editors read one line";
    // What an editor sends to warm the cache up.
    EXPECT_EQ(client.post("/infill", R"({"input_prefix":"x","n_predict":0,"response_fields":[""]})").body, "{}");
    const Reply wrong = client.post("/infill", R"({"input_extra":[{"filename":"a"}]})");
    EXPECT_EQ(wrong.status, 400);
    const Json error = parse_json(wrong.body)["error"];
    EXPECT_EQ(error["code"].integer(), 400);
    EXPECT_EQ(error.text("param"), "input_extra[0].text");
}

// What clients send for every sampler that they know changes nothing where it is off; what is on has the text of the
// chain that it stands for.
TEST(Llama, TakesTheSamplersOfItsClients) {
    Served served;
    Client client = served.client();
    const auto text = [&](const std::string& more) {
        const Reply reply = client.post(
            "/completion", R"({"prompt":"def read(path):\n","n_predict":24,"seed":5,"temperature":0.9)" + more + "}");
        EXPECT_EQ(reply.status, 200) << reply.body;
        return parse_json(reply.body).text("content");
    };
    const std::string plain = text("");
    EXPECT_EQ(text(R"(,"typical_p":1,"tfs_z":1,"top_a":0,"top_n_sigma":-1,"dry_multiplier":0,"dry_base":1.75,)"
                   R"("dry_allowed_length":2,"dry_penalty_last_n":-1,"dry_sequence_breakers":["\n"],"mirostat":0,)"
                   R"("mirostat_tau":5,"mirostat_eta":0.1,"dynatemp_range":0,"dynatemp_exponent":1,"min_tokens":0,)"
                   R"("smoothing_factor":0,"smoothing_curve":1,"epsilon_cutoff":0,"eta_cutoff":0,"skew":0,)"
                   R"("adaptive_target":-1,"no_repeat_ngram_size":0,"xtc_probability":0,"xtc_threshold":0.1)"),
              plain);
    for (const int version : {1, 2}) {
        const std::string name = version == 1 ? "mirostat_1" : "mirostat";
        const std::string own = text(R"(,"mirostat_tau":2,"top_k":1,"mirostat":)" + std::to_string(version));
        EXPECT_EQ(own, text(R"(,"foresay":{"chain":["temperature",")" + name + R"("]},"mirostat_tau":2,"mirostat":)" +
                            std::to_string(version)))
            << "a top_k of 1 has no part in it";
        EXPECT_NE(own, plain);
    }
    EXPECT_NE(text(R"(,"dynatemp_range":0.8)"), plain);
    EXPECT_NE(text(R"(,"no_repeat_ngram_size":1)"), plain);
    EXPECT_EQ(text(R"(,"top_n_sigma":0.0001)"), text(R"(,"top_k":1)"));
}

TEST(Llama, AHoleEndsAtALineWithLessIndent) {
    Served served;
    Client client = served.client();
    const std::string body =
        R"({"input_prefix":"class A:\n    def f(self):\n        x = 1\n","input_suffix":"","n_predict":200,)"
        R"("temperature":0,"n_indent":)";
    const std::string all = parse_json(client.post("/infill", body + "0}").body).text("content");
    const Json cut = parse_json(client.post("/infill", body + "8}").body);
    const std::string text = cut.text("content");
    EXPECT_THAT(all, StartsWith(text));
    std::istringstream lines(text);
    std::string line;
    std::getline(lines, line);
    while (std::getline(lines, line)) {
        EXPECT_TRUE(line.find_first_not_of(' ') == std::string::npos || line.find_first_not_of(' ') >= 8) << text;
    }
    ASSERT_LT(text.size(), all.size()) << "the text that is asked for has a line with less indent";
    EXPECT_EQ(cut.text("stop_type"), "eos");
}

TEST(Llama, TokensThereAndBack) {
    Served served;
    Client client = served.client();
    const Json tokens = parse_json(client.post("/tokenize", R"({"content":"def f(x):"})").body)["tokens"];
    EXPECT_EQ(parse_json(client.post("/detokenize", "{\"tokens\":" + tokens.dump() + "}").body).text("content"),
              "def f(x):");
    const Json pieces =
        parse_json(client.post("/tokenize", R"({"content":"def f","with_pieces":true})").body)["tokens"];
    EXPECT_EQ(pieces.items()[0]["id"].integer(), tokens.items()[0].integer());
    const Json other = parse_json(client.post("/tokenize", R"({"prompt":"def f(x):"})").body);
    EXPECT_EQ(other["max_model_len"].integer(), 512);
    EXPECT_EQ(client.post("/detokenize", R"({"tokens":[-1]})").status, 400);
    const Reply render = client.post("/apply-template", R"({"messages":[{"role":"user","content":"hello"}]})");
    EXPECT_EQ(parse_json(render.body).text("prompt"), "hello\n");
    EXPECT_EQ(parse_json(client.get("/props").body)["default_generation_settings"]["n_ctx"].integer(), 512);
    EXPECT_EQ(parse_json(client.get("/slots").body).items()[0]["n_ctx"].integer(), 512);
}

TEST(Llama, ACompletionTellsTokensAndProbabilities) {
    Served served;
    Client client = served.client();
    const Json json = parse_json(
        client.post("/completion", R"({"prompt":["x = ",5],"n_predict":4,"n_probs":2,"return_tokens":true,"seed":-1})")
            .body);
    EXPECT_EQ(json["tokens"].items().size(), 4u);
    ASSERT_EQ(json["completion_probabilities"].items().size(), 4u);
    EXPECT_EQ(json["completion_probabilities"].items()[0]["top_logprobs"].items().size(), 2u);
    EXPECT_EQ(json.text("stop_type"), "limit");
    EXPECT_TRUE(json["generation_settings"]["seed"].is(Json::Kind::integer));
}

TEST(Mistral, FillsAHole) {
    Served served;
    const Reply reply = served.client().post(
        "/v1/fim/completions",
        R"({"prompt":"def add(a, b):\n    return ","suffix":"\n","max_tokens":6,"random_seed":1})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_FALSE(parse_json(reply.body)["choices"].items()[0]["message"].text("content").empty());
}

// An editor sends what is around the cursor before it asks for anything, so that the cache holds it.
TEST(Clients, AWarmingUpFillsTheCache) {
    Served served;
    Client client = served.client();
    const std::string place = R"({"input_prefix":"def a(x):\n    return x + 1\n\ndef b(x):\n    return a(x) * 2\n\n",)"
                              R"("input_suffix":"","prompt":"def")";
    const Reply warm = client.post("/infill", place + R"(,"n_predict":0,"response_fields":[""]})");
    ASSERT_EQ(warm.status, 200) << warm.body;
    EXPECT_EQ(warm.body, "{}");
    const Json next = parse_json(client.post("/infill", place + R"(,"n_predict":4})").body);
    EXPECT_GT(next["tokens_cached"].integer(), 10);
    const Json none = parse_json(client.post("/v1/completions", R"({"prompt":"x = 1","max_tokens":0})").body);
    EXPECT_EQ(none["usage"]["completion_tokens"].integer(), 0);
    EXPECT_EQ(none["choices"].items()[0].text("finish_reason"), "length");
    EXPECT_EQ(none["choices"].items()[0].text("text"), "");
}

// Requests as programs send them, with the fields that their sources have and short texts. Which of the programs were
// run as well, docs/editors.md says.
TEST(Clients, GetWhatTheyRead) {
    std::ifstream file(FORESAY_SOURCE_DIR "/tests/server/client_requests.json");
    const Json requests = parse_json(std::string(std::istreambuf_iterator<char>(file), {}));
    ASSERT_GE(requests.items().size(), 25u);
    Served served;
    for (const Json& request : requests.items()) {
        const std::string& who = request.text("client");
        std::vector<std::string> headers;
        if (request.has("headers")) {
            for (const Json& header : request["headers"].items()) headers.push_back(header.string());
        }
        Client client = served.client();
        Json body = request["body"];
        const bool stream = request.has("stream");
        const std::string& path = request.text("path");
        if (path == "/v1/responses") body.set("max_output_tokens", 8);
        const Reply reply =
            request.text("method") == "GET" ? client.get(path, headers) : client.post(path, body.dump(), headers);
        ASSERT_EQ(reply.status, 200) << who << ": " << reply.body;
        EXPECT_TRUE(reply.complete) << who;
        if (stream) {
            const std::string last = path.starts_with("/api/")           ? "\"done\":true"
                                     : path.starts_with("/v1/messages")  ? "message_stop"
                                     : path.starts_with("/v1/responses") ? "response.incomplete"
                                                                         : "[DONE]";
            EXPECT_NE(reply.body.find(last), std::string::npos) << who << ": " << reply.body;
            EXPECT_EQ(reply.body.find("\"error\":{"), std::string::npos) << who << ": " << reply.body;
            continue;
        }
        EXPECT_EQ(reply.body.find('\n'), std::string::npos) << who << " reads one line";
        const Json answer = parse_json(reply.body);
        for (const Json& name : request["reads"].items())
            EXPECT_TRUE(answer.has(name.string())) << who << ": " << name.string();
    }
}

}  // namespace
}  // namespace foresay::testing
