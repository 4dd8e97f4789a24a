// What the server promises, over real sockets: the bytes, the streams, the connections.
#include "tests/server/served.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <thread>

#include "server/http/server.h"
#include "server/json.h"

namespace foresay::testing {
namespace {

using namespace std::chrono_literals;
using server::Json;
using server::parse_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

const char* const kPrompt = "def fibonacci(n):\\n";

std::string completion(const std::string& more) {
    return std::string(R"({"prompt":")") + kPrompt + R"(","max_tokens":24,"seed":7,"temperature":0.8)" + more + "}";
}

// The same text as a generator of its own writes.
std::string text_alone(const std::string& prompt, std::uint64_t seed, std::uint64_t branch, double temperature,
                       std::int32_t tokens) {
    samplers::ChainSpec spec = bundled().chain_spec();
    samplers::set_parameter(spec, "temperature", "value", temperature);
    speculative::Generator generator = bundled().make_generator({});
    generator.set_chain(bundled().make_chain(spec));
    const std::vector<std::int32_t> input = bundled().tokenizer().encode(prompt);
    speculative::GenerateRequest request;
    request.input = input;
    request.max_tokens = tokens;
    request.seed = seed;
    request.branch = branch;
    return generator.generate(request).text;
}

// Streamed or not, with any drafts, cached or not.
void expect_everywhere(Served& served, const std::string& alone) {
    Client client = served.client();
    const Reply whole = client.post("/v1/completions", completion(""));
    ASSERT_EQ(whole.status, 200) << whole.body;
    EXPECT_EQ(text_of_answer(whole.body), alone);
    const Reply stream = client.post("/v1/completions", completion(R"(,"stream":true)"));
    ASSERT_EQ(stream.status, 200);
    EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream");
    EXPECT_EQ(text_of_stream(stream.body), alone);
    EXPECT_EQ(data_of(stream.body).back(), "[DONE]");
    EXPECT_TRUE(stream.complete);
    // Neither drafts nor the cache change a byte.
    for (const char* own : {R"({"speculation":"off"})", R"({"speculation":5})", R"({"cache":false})"}) {
        EXPECT_EQ(text_of_answer(client.post("/v1/completions", completion(",\"foresay\":" + std::string(own))).body),
                  alone)
            << own;
    }
}

TEST(Serve, WritesWhatAGeneratorWritesStreamedOrNot) {
    const std::string alone = text_alone("def fibonacci(n):\n", 7, 0, 0.8, 24);
    for (const std::size_t parallel : {std::size_t{1}, std::size_t{16}}) {
        server::ServingOptions options;
        options.parallel = parallel;
        Served served(std::move(options));
        expect_everywhere(served, alone);
    }
}

TEST(Serve, TellsTheSeedThatItChose) {
    Served served;
    Client client = served.client();
    const std::string body = std::string(R"({"prompt":")") + kPrompt + R"(","max_tokens":12,"temperature":1)";
    const Json first = parse_json(client.post("/v1/completions", body + "}").body);
    ASSERT_TRUE(first["seed"].is(Json::Kind::integer));
    const Json again =
        parse_json(client.post("/v1/completions", body + ",\"seed\":" + first["seed"].dump() + "}").body);
    EXPECT_EQ(again["choices"].dump(), first["choices"].dump());
    EXPECT_THAT(first.text("system_fingerprint"), StartsWith("fp_"));
    EXPECT_EQ(first.text("system_fingerprint"), Served().serving().model().fingerprint());
}

TEST(Serve, AnswersSeveralBranchesOfOneSeed) {
    std::vector<std::string> alone;
    for (std::uint64_t i = 0; i < 3; ++i) alone.push_back(text_alone("def fibonacci(n):\n", 7, i, 0.8, 24));
    Served served;
    Client client = served.client();
    const Reply reply = client.post("/v1/completions", completion(R"(,"n":3)"));
    ASSERT_EQ(reply.status, 200) << reply.body;
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(text_of_answer(reply.body, i), alone[i]) << i;
    const Reply stream = client.post("/v1/completions", completion(R"(,"n":3,"stream":true)"));
    for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(text_of_stream(stream.body, i), text_of_answer(reply.body, i));
    EXPECT_EQ(parse_json(reply.body)["usage"]["completion_tokens"].integer(), 72);
}

// Many at once, some of which go: each gets what it would get alone.
TEST(Serve, ManyClientsGetWhatEachWouldGetAlone) {
    constexpr std::size_t kClients = 32;
    const auto prompt = [](std::size_t i) { return "def f" + std::to_string(i % 5) + "(x):\n"; };
    std::vector<std::string> alone;
    for (std::size_t i = 0; i < kClients; ++i)
        alone.push_back(text_alone(prompt(i), i, 0, 0.1 * static_cast<double>(i % 10), 20));
    Served served;
    std::vector<std::future<std::string>> texts;
    for (std::size_t i = 0; i < kClients; ++i) {
        texts.push_back(std::async(std::launch::async, [&, i] {
            Client client = served.client();
            const bool stream = i % 2 == 0, goes = i % 7 == 3;
            const std::string body = "{\"prompt\":" + server::json_quoted(prompt(i)) +
                                     ",\"max_tokens\":20,\"seed\":" + std::to_string(i) + ",\"temperature\":0." +
                                     std::to_string(i % 10) + (stream ? ",\"stream\":true}" : "}");
            client.send(Client::text_of("POST", "/v1/completions", body, {}));
            if (goes) return std::string("gone");
            const Reply reply = client.receive();
            return stream ? text_of_stream(reply.body) : text_of_answer(reply.body);
        }));
    }
    for (std::size_t i = 0; i < kClients; ++i) {
        const std::string text = texts[i].get();
        if (i % 7 != 3) {
            EXPECT_EQ(text, alone[i]) << i;
        }
    }
    EXPECT_TRUE(served.becomes_idle());
}

TEST(Serve, APredictionChangesNothingButTheTime) {
    Served served;
    Client client = served.client();
    const std::string body =
        R"({"messages":[{"role":"user","content":"def add(a, b):"}],"max_tokens":32,"seed":1,"temperature":0.5)";
    const std::string text = text_of_answer(client.post("/v1/chat/completions", body + "}").body);
    std::vector<std::int64_t> accepted;
    for (const std::string& prediction : {text, std::string("something else")}) {
        const Reply reply = client.post("/v1/chat/completions", body + R"(,"prediction":{"type":"content","content":)" +
                                                                    server::json_quoted(prediction) + "}}");
        EXPECT_EQ(text_of_answer(reply.body), text) << reply.body;
        const Json details = parse_json(reply.body)["usage"]["completion_tokens_details"];
        accepted.push_back(details["accepted_prediction_tokens"].integer());
        EXPECT_GE(details["rejected_prediction_tokens"].integer(), 0);
        EXPECT_EQ(details["reasoning_tokens"].integer(), 0);
    }
    EXPECT_GT(accepted[0], 8);
    EXPECT_GT(accepted[0], accepted[1]);
}

TEST(Serve, TellsWhatTheCacheHeld) {
    Served served;
    Client client = served.client();
    std::string prompt;
    for (int i = 0; i < 20; ++i) prompt += "def read_" + std::to_string(i) + "(path):\\n    return path\\n\\n";
    const auto usage = [&](const std::string& more) {
        const Reply reply =
            client.post("/v1/completions", "{\"prompt\":\"" + prompt + "\",\"max_tokens\":4" + more + "}");
        EXPECT_EQ(reply.status, 200) << reply.body;
        return parse_json(reply.body)["usage"];
    };
    const auto cached = [](const Json& all) { return all["prompt_tokens_details"]["cached_tokens"].integer(); };
    EXPECT_EQ(cached(usage("")), 0);
    const Json again = usage("");
    EXPECT_GT(cached(again), 20);
    EXPECT_LT(cached(again), again["prompt_tokens"].integer());
    EXPECT_EQ(again["total_tokens"].integer(), again["prompt_tokens"].integer() + 4);
    EXPECT_EQ(cached(usage(R"(,"foresay":{"cache":false})")), 0);
    EXPECT_EQ(cached(usage(R"(,"cache_prompt":false)")), 0);
}

TEST(Serve, StopsBeforeAStopStringAndSaysWhy) {
    const std::string all = text_alone("def fibonacci(n):\n", 7, 0, 0.8, 24);
    const std::string stop = all.substr(all.size() / 2, 3);
    Served served;
    Client client = served.client();
    const Reply reply =
        client.post("/v1/completions", completion(",\"stop\":[" + server::json_quoted(stop) + ",\"\"]"));
    EXPECT_EQ(text_of_answer(reply.body), all.substr(0, all.find(stop)));
    EXPECT_EQ(parse_json(reply.body)["choices"].items()[0].text("finish_reason"), "stop");
    const Reply stream =
        client.post("/v1/completions", completion(",\"stream\":true,\"stop\":" + server::json_quoted(stop)));
    EXPECT_EQ(text_of_stream(stream.body), all.substr(0, all.find(stop)));
    EXPECT_EQ(
        parse_json(client.post("/v1/completions", completion("")).body)["choices"].items()[0].text("finish_reason"),
        "length");
}

TEST(Serve, AChatHasTheShapeThatClientsExpect) {
    Served served;
    Client client = served.client();
    const std::string body =
        R"({"messages":[{"role":"user","content":[{"type":"text","text":"def add(a, b):"}]}],"max_tokens":16,"seed":1)";
    const Reply whole = client.post("/v1/chat/completions", body + "}");
    ASSERT_EQ(whole.status, 200) << whole.body;
    const Json answer = parse_json(whole.body);
    EXPECT_EQ(answer.text("object"), "chat.completion");
    EXPECT_EQ(answer["choices"].items()[0]["message"].text("role"), "assistant");
    EXPECT_EQ(answer["usage"]["completion_tokens"].integer(), 16);
    EXPECT_EQ(answer["usage"]["total_tokens"].integer(), answer["usage"]["prompt_tokens"].integer() + 16);

    const Reply stream =
        client.post("/v1/chat/completions", body + R"(,"stream":true,"stream_options":{"include_usage":true}})");
    const std::vector<std::string> data = data_of(stream.body);
    ASSERT_GE(data.size(), 5u);
    const Json first = parse_json(data.front());
    EXPECT_EQ(first["choices"].items()[0]["delta"].text("role"), "assistant");
    const Json finish = parse_json(data[data.size() - 3]), usage = parse_json(data[data.size() - 2]);
    EXPECT_EQ(finish["choices"].items()[0].text("finish_reason"), "length");
    EXPECT_TRUE(usage["choices"].items().empty());
    EXPECT_EQ(usage["usage"]["completion_tokens"].integer(), 16);
    for (const std::string& one : data) {
        if (one != "[DONE]") {
            EXPECT_EQ(parse_json(one).text("id"), first.text("id"));
        }
    }
    EXPECT_EQ(text_of_stream(stream.body), answer["choices"].items()[0]["message"].text("content"));
}

TEST(Serve, TellsLogProbabilitiesOfEachToken) {
    Served served;
    Client client = served.client();
    const Reply reply = client.post(
        "/v1/chat/completions", R"({"messages":[{"role":"user","content":"import os"}],"max_tokens":6,"temperature":0,)"
                                R"("logprobs":true,"top_logprobs":3})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    const Json choice = parse_json(reply.body)["choices"].items()[0];
    const Json::List& entries = choice["logprobs"]["content"].items();
    ASSERT_EQ(entries.size(), 6u);
    std::string text;
    for (const Json& entry : entries) {
        text += entry.text("token");
        ASSERT_EQ(entry["top_logprobs"].items().size(), 3u);
        // At temperature 0 each token is the likeliest.
        EXPECT_EQ(entry["top_logprobs"].items()[0].text("token"), entry.text("token"));
        EXPECT_EQ(entry["top_logprobs"].items()[0]["logprob"].number(), entry["logprob"].number());
        EXPECT_LE(entry["logprob"].number(), 0.0);
        EXPECT_LE(entry["top_logprobs"].items()[1]["logprob"].number(), entry["logprob"].number());
    }
    EXPECT_EQ(text, choice["message"].text("content"));
}

TEST(Serve, ABiasedTokenComesAlways) {
    Served served;
    Client client = served.client();
    const std::int32_t token = bundled().tokenizer().encode("x", {.add_special = false}).front();
    const Reply reply =
        client.post("/v1/completions", completion(",\"logit_bias\":{\"" + std::to_string(token) + "\":100}"));
    std::string expected;
    for (int i = 0; i < 24; ++i) expected += bundled().tokenizer().bytes(token);
    EXPECT_EQ(text_of_answer(reply.body), expected);
}

TEST(Serve, KeepsAConnectionAndTakesRequestsThatComeEarly) {
    Served served;
    Client client = served.client();
    const std::string one = Client::text_of("POST", "/v1/completions", completion(""), {});
    ASSERT_TRUE(client.send(one + one + Client::text_of("GET", "/health", "", {})));
    const Reply first = client.receive(), second = client.receive(), third = client.receive();
    EXPECT_EQ(first.status, 200);
    EXPECT_EQ(text_of_answer(first.body), text_of_answer(second.body));
    EXPECT_EQ(third.status, 200);
    EXPECT_THAT(third.body, HasSubstr("ok"));
}

TEST(Serve, WaitsForABodyThatWasAnnounced) {
    Served served;
    Client client = served.client();
    const std::string body = completion("");
    client.send("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: " +
                std::to_string(body.size()) + "\r\n\r\n");
    std::this_thread::sleep_for(20ms);
    client.send(body);
    EXPECT_EQ(client.receive().status, 200);
}

TEST(Serve, AnOldClientGetsAStreamThatTheConnectionEnds) {
    const std::string alone = text_alone("def fibonacci(n):\n", 7, 0, 0.8, 24);
    Served served;
    Client client = served.client();
    const std::string body = completion(R"(,"stream":true)");
    client.send("POST /v1/completions HTTP/1.0\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
    const Reply reply = client.receive();
    EXPECT_EQ(reply.status, 200);
    EXPECT_FALSE(reply.headers.contains("transfer-encoding"));
    EXPECT_EQ(text_of_stream(reply.body), alone);
}

TEST(Serve, AClientThatGoesFreesItsPlace) {
    Served served;
    const std::string body =
        std::string(R"({"prompt":")") + kPrompt + R"(","ignore_eos":true,"max_tokens":400,"stream":)";
    for (const char* stream : {"true}", "false}"}) {
        Client client = served.client();
        client.send(Client::text_of("POST", "/v1/completions", body + stream, {}));
        if (stream[0] == 't') {
            client.receive([](std::string_view) { return false; });
        } else {
            std::this_thread::sleep_for(5ms);
        }
        Client waits = served.client();  // waits for its turn, and goes
        waits.send(Client::text_of("POST", "/v1/completions", body + stream, {}));
        std::this_thread::sleep_for(5ms);
        waits.close();
        client.close();
        EXPECT_TRUE(served.becomes_idle()) << stream;
    }
    EXPECT_EQ(served.client().post("/v1/completions", completion("")).status, 200);
}

// Others go on meanwhile, and what it reads in the end is what it would have read at once.
TEST(Serve, ATextWaitsForItsReader) {
    server::ServingOptions options;
    pause_soon(options);
    Served served(std::move(options));
    Client quick(served.address(1));
    const Reply expected = quick.post("/v1/completions", kNeverRead);
    ASSERT_EQ(data_of(expected.body).back(), "[DONE]");
    Client slow(served.address(1));
    slow.send(Client::text_of("POST", "/v1/completions", kNeverRead, {}));
    // Each of these is as long as the slow one's text, which would be over with the first of them.
    std::string other(kNeverRead);
    other.replace(other.find("f(x)"), 4, "g(y)");
    for (int i = 0; i < 3; ++i) EXPECT_EQ(data_of(quick.post("/v1/completions", other).body).back(), "[DONE]");
    EXPECT_EQ(served.serving().backend().running(), 1u) << "it waits";
    const Reply read = slow.receive();
    EXPECT_TRUE(read.complete);
    EXPECT_EQ(text_of_stream(read.body), text_of_stream(expected.body));
    const std::vector<std::string> pieces = data_of(read.body), before = data_of(expected.body);
    ASSERT_EQ(pieces.size(), before.size());
    for (std::size_t i = 0; i + 1 < pieces.size(); ++i)
        ASSERT_EQ(parse_json(pieces[i])["choices"].dump(), parse_json(before[i])["choices"].dump()) << i;
    EXPECT_TRUE(served.becomes_idle());
}

// While nothing is written, a stream says that it is still there.
TEST(Serve, AStreamThatWaitsIsPinged) {
    server::ServingOptions options;
    options.parallel = 1;
    options.limits.ping_time = 5ms;
    Served served(std::move(options));
    Client busy = served.client();
    busy.send(Client::text_of(
        "POST", "/v1/completions",
        std::string(R"({"prompt":")") + kPrompt + R"(","ignore_eos":true,"max_tokens":450,"stream":true})", {}));
    busy.receive([](std::string_view) { return false; });
    const std::string messages = R"("messages":[{"role":"user","content":"x"}],"stream":true,"seed":1,)";
    Client openai = served.client(), anthropic = served.client(), ollama = served.client();
    openai.send(
        Client::text_of("POST", "/v1/chat/completions", "{" + messages + R"("max_tokens":3,"ignore_eos":true})", {}));
    anthropic.send(
        Client::text_of("POST", "/v1/messages", "{" + messages + R"("max_tokens":3,"ignore_eos":true})", {}));
    ollama.send(Client::text_of("POST", "/api/chat", "{" + messages + R"("options":{"num_predict":3}})", {}));
    const Reply first = openai.receive(), second = anthropic.receive(), third = ollama.receive();
    EXPECT_THAT(first.body, HasSubstr("\n\n: ping\n\n"));
    EXPECT_THAT(first.body, HasSubstr("[DONE]"));
    EXPECT_THAT(second.body, HasSubstr("event: ping\ndata: {\"type\":\"ping\"}\n\nevent: ping\n"));
    EXPECT_THAT(second.body, HasSubstr("message_stop"));
    EXPECT_THAT(third.body, Not(HasSubstr("ping"))) << "lines have no comments";
    EXPECT_THAT(third.body, HasSubstr("\"done\":true"));
}

// Writes a stream of many small pieces.
class Chatty final : public server::Handler {
public:
    static constexpr int kPieces = 400;
    ~Chatty() override { writer_.join(); }
    std::optional<server::HttpResponse> check(server::HttpRequest&) override { return std::nullopt; }
    void handle(server::HttpRequest, std::shared_ptr<server::Exchange> exchange) override {
        writer_ = std::thread([exchange] {
            exchange->begin({.status = 200}, "");
            for (int i = 0; i < kPieces; ++i) {
                exchange->write(std::to_string(i) + "\n");
                std::this_thread::sleep_for(100us);
            }
            exchange->finish();
        });
    }
    server::HttpResponse problem(const server::HttpRequest&, int status, const std::string& message) override {
        return {.status = status, .body = message};
    }

private:
    std::thread writer_;
};

TEST(Serve, AFastStreamWakesItsClientOnceInAWhile) {
    const std::string path =
        (std::filesystem::temp_directory_path() / "foresay_chatty").string() + std::to_string(::getpid());
    server::HttpLimits limits;
    limits.gather_time = 20ms;
    Chatty chatty;
    server::HttpServer http({server::parse_listen_address("unix:" + path)}, limits, "test", chatty);
    std::thread network([&] { http.run(); });
    Client client("unix:" + path);
    const auto begun = std::chrono::steady_clock::now();
    const Reply reply = client.get("/");
    const auto taken = std::chrono::steady_clock::now() - begun;
    EXPECT_TRUE(reply.complete);
    std::string expected;
    for (int i = 0; i < Chatty::kPieces; ++i) expected += std::to_string(i) + "\n";
    EXPECT_EQ(reply.body, expected);
    EXPECT_LE(client.reads(), taken / limits.gather_time + 2);
    http.stop();
    network.join();
}

TEST(Serve, GivesUpAReaderThatReadsNothing) {
    server::ServingOptions options;
    options.limits.stall_time = 200ms;
    Served served(std::move(options));
    Client client = served.client();
    client.receive_little();
    // A large answer that is not read: a list of prompts that are told in full.
    std::string prompts;
    const std::string filler(8000, 'a');
    for (int i = 0; i < 60; ++i) prompts += (i == 0 ? "\"" : ",\"") + std::string("# ") + std::to_string(i) + "\"";
    const std::string body =
        "{\"prompt\":[" + prompts + "],\"max_tokens\":1,\"echo\":true,\"user\":\"" + filler + "\"}";
    std::string all;
    for (int i = 0; i < 400; ++i) all += Client::text_of("GET", "/openapi.json", "", {});
    client.send(all);
    EXPECT_EQ(served.client().post("/v1/completions", body).status, 200) << "others go on";
    const std::string given_up = "foresay_clients_stalled_total{model_name=\"target-q4_k_m\"} 1";
    const auto end = std::chrono::steady_clock::now() + kPatience;
    std::string metrics = served.client().get("/metrics").body;
    while (metrics.find(given_up) == std::string::npos && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(10ms);
        metrics = served.client().get("/metrics").body;
    }
    EXPECT_THAT(metrics, HasSubstr(given_up));
}

TEST(Serve, DrainsAnswersAndTakesNoMore) {
    Served served;
    Client busy = served.client(), idle = served.client();
    EXPECT_EQ(idle.get("/health").status, 200);
    busy.send(Client::text_of(
        "POST", "/v1/completions",
        std::string(R"({"prompt":")") + kPrompt + R"(","ignore_eos":true,"max_tokens":300,"stream":true})", {}));
    std::promise<void> begun;
    auto reply = std::async(std::launch::async, [&] {
        bool first = true;
        return busy.receive([&](std::string_view) {
            if (std::exchange(first, false)) begun.set_value();
            return true;
        });
    });
    begun.get_future().wait();
    served.drain();
    EXPECT_TRUE(idle.is_closed());
    const Reply whole = reply.get();
    EXPECT_TRUE(whole.complete);
    EXPECT_EQ(data_of(whole.body).back(), "[DONE]");
    EXPECT_ANY_THROW(served.client());
}

TEST(Serve, ListensOnASocketOfTheFileSystem) {
    const auto path = std::filesystem::temp_directory_path() / ("foresay_" + std::to_string(::getpid()) + ".sock");
    {
        server::ServingOptions options;
        options.addresses = {server::parse_listen_address("unix:" + path.string())};
        Served served(std::move(options));
        EXPECT_EQ(std::filesystem::status(path).permissions(),
                  std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
        EXPECT_EQ(served.client().get("/health", {"Host: anything.example"}).status, 200);
        server::ServingOptions same;
        same.addresses = {server::parse_listen_address("unix:" + path.string())};
        EXPECT_THROW(Served second(std::move(same)), Error);
    }
    EXPECT_FALSE(std::filesystem::exists(path));
}

TEST(Serve, TellsWhatItCounts) {
    Served served;
    Client client = served.client();
    client.post("/v1/completions", completion(""));
    // The answer is there a little before its text has given its pages back.
    const std::string unused = "vllm:kv_cache_usage_perc{model_name=\"target-q4_k_m\"} 0.000000\n";
    std::string metrics = client.get("/metrics").body;
    for (int looks = 0; looks < 500 && metrics.find(unused) == metrics.npos; ++looks) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
        metrics = client.get("/metrics").body;
    }
    EXPECT_THAT(metrics, HasSubstr(unused));
    EXPECT_THAT(metrics, HasSubstr("foresay_generated_tokens_total{model_name=\"target-q4_k_m\"} 24\n"));
    EXPECT_THAT(metrics, HasSubstr("vllm:generation_tokens_total{model_name=\"target-q4_k_m\"} 24\n"));
    EXPECT_THAT(metrics, HasSubstr("finish=\"length\",api=\"completions\"} 1\n"));
    EXPECT_THAT(metrics, HasSubstr("foresay_pages_stored_total{model_name=\"target-q4_k_m\"} 0\n"));
    EXPECT_THAT(metrics,
                HasSubstr("vllm:request_success_total{model_name=\"target-q4_k_m\",finished_reason=\"length\"} "
                          "1\n"));
    EXPECT_THAT(metrics, HasSubstr("foresay_preemptions_total{model_name=\"target-q4_k_m\"} 0\n"));
    const std::string own = client.get("/metrics?aliases=no").body;
    EXPECT_THAT(own, HasSubstr("foresay_generated_tokens_total{model_name=\"target-q4_k_m\"} 24\n"));
    EXPECT_THAT(own, Not(HasSubstr("vllm:")));
    const Json openapi = parse_json(client.get("/openapi.json").body);
    const Json& post = openapi["paths"]["/v1/chat/completions"]["post"];
    const Json& schema = post["requestBody"]["content"]["application/json"]["schema"];
    EXPECT_EQ(schema["properties"]["top_p"]["maximum"].number(), 1.0);
    EXPECT_EQ(schema["properties"]["messages"]["items"]["properties"]["role"]["type"].string(), "string");
}

// The addresses are there before the model is.
TEST(Serve, TellsToComeAgainWhileTheModelLoads) {
    server::ServingOptions options;
    options.addresses = {server::parse_listen_address("127.0.0.1:0")};
    options.service.version = "test";
    server::Serving serving(std::move(options));
    std::thread network([&] { serving.run(); });
    {
        Client client(serving.addresses()[0].text());
        EXPECT_EQ(client.get("/live").status, 200);
        EXPECT_EQ(client.get("/").status, 200);
        for (const char* path : {"/ready", "/health", "/v1/models", "/metrics"}) {
            const Reply reply = client.get(path);
            EXPECT_EQ(reply.status, 503) << path;
            EXPECT_EQ(reply.headers.at("retry-after"), "2");
            EXPECT_EQ(parse_json(reply.body)["error"].text("code"), "loading_model");
        }
        const Reply anthropic = client.post("/v1/messages", "{}");
        EXPECT_EQ(parse_json(anthropic.body)["error"].text("type"), "overloaded_error");
        serving.load(bundled());
        Client later(serving.addresses()[0].text());
        EXPECT_EQ(later.get("/ready").status, 200);
        EXPECT_EQ(later.post("/v1/completions", completion("")).status, 200);
    }
    serving.stop();
    network.join();
}

// A socket that was opened by someone else, as systemd does.
TEST(Serve, ListensOnASocketThatItIsGiven) {
    const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    ASSERT_EQ(::bind(socket, reinterpret_cast<sockaddr*>(&any), sizeof any), 0);
    const auto given = server::parse_listen_address("fd:" + std::to_string(socket));
    const auto start = [&] {
        server::ServingOptions options;
        options.addresses = {given};
        return std::make_unique<Served>(std::move(options));
    };
    EXPECT_THROW(start(), Error) << "it does not listen";
    ASSERT_EQ(::listen(socket, 4), 0);
    const auto served = start();
    EXPECT_NE(served->address(), "fd:" + std::to_string(socket));
    EXPECT_EQ(served->client().get("/ready").status, 200);
}

TEST(Serve, HasAPage) {
    Served served;
    Client client = served.client();
    const Reply page = client.get("/");
    EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
    EXPECT_THAT(page.headers.at("content-security-policy"), HasSubstr("default-src 'none'"));
    EXPECT_THAT(page.body, HasSubstr("/page/main.js"));
    EXPECT_EQ(client.get("/page/main.js").headers.at("content-type"), "text/javascript; charset=utf-8");
    EXPECT_EQ(client.get("/page/page.h").status, 404);
    server::ServingOptions options;
    options.service.page = false;
    Served without(std::move(options));
    EXPECT_EQ(without.client().get("/").status, 404);
}

TEST(Serve, ListsItsModel) {
    server::ServingOptions options;
    options.name = "coder";
    options.aliases = {"gpt-4"};
    Served served(std::move(options));
    Client client = served.client();
    const Json list = parse_json(client.get("/v1/models").body);
    EXPECT_EQ(list["data"].items()[0].text("id"), "coder");
    EXPECT_EQ(list["data"].items()[0]["meta"]["n_ctx"].integer(), 512);
    EXPECT_EQ(client.get("/v1/models/gpt-4").status, 200);
    EXPECT_EQ(client.get("/v1/models/other").status, 404);
    const Json anthropic = parse_json(client.get("/v1/models", {"anthropic-version: 2023-06-01"}).body);
    EXPECT_EQ(anthropic["data"].items()[0].text("type"), "model");
}

}  // namespace
}  // namespace foresay::testing
