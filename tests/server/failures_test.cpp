// What goes wrong while an answer is made: each protocol tells it in its own shape, before the first piece as an answer
// and afterwards as the last event; others do not notice, and of clients that go nothing is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include "engine/configuration.h"
#include "server/json.h"
#include "server/loop_backend.h"
#include "server/model.h"
#include "tests/server/direct.h"

namespace foresay::testing {
namespace {

using namespace std::chrono_literals;
using server::Json;
using server::parse_json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const server::Header* header_of(const server::HttpResponse& response, const std::string& name) {
    for (const server::Header& header : response.headers) {
        if (header.name == name) return &header;
    }
    return nullptr;
}

// The part after the last blank line, or of Ollama's lines the last one.
std::string last_event(std::string body, bool lines) {
    while (body.ends_with('\n')) body.pop_back();
    const std::size_t at = body.rfind(lines ? "\n" : "\n\n");
    return at == body.npos ? body : body.substr(at + (lines ? 1 : 2));
}

using Finish = server::BackendEnd::Finish;

std::vector<std::int32_t> tokens_of(std::string_view text) {
    return bundled().tokenizer().encode(text, {.add_special = false, .parse_special = false});
}

TEST(Failures, AreToldInTheShapeOfTheProtocol) {
    Direct direct;
    direct.backend().finish = Finish::failed;
    int failed = 0, begun = 0;
    for (const Asked& request : asked()) {
        const bool lines = std::string_view(request.path).starts_with("/api/");
        direct.backend().tokens = {};
        const server::HttpResponse whole = direct.post(request.path, request.with(false));
        EXPECT_EQ(whole.status, 500) << request.path << whole.body;
        EXPECT_THAT(whole.body, HasSubstr(ScriptedBackend::kError)) << request.path;
        EXPECT_EQ(direct.count_of(500), ++failed) << request.path;
        EXPECT_EQ(direct.log(), "POST " + std::string(request.path) + " 500: " + ScriptedBackend::kError + "\n");
        for (const char* text : {"", "x = 1"}) {
            direct.backend().tokens = tokens_of(text);
            const server::HttpResponse stream = direct.post(request.path, request.with(true));
            EXPECT_EQ(stream.status, 200) << request.path;
            const std::string last = last_event(stream.body, lines);
            EXPECT_TRUE(last.starts_with(request.last)) << request.path << ": " << last;
            EXPECT_THAT(last, HasSubstr(ScriptedBackend::kError)) << request.path;
            EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]"))) << request.path;
            EXPECT_EQ(direct.count_of(200), ++begun) << request.path;
            EXPECT_EQ(direct.log(), "POST " + std::string(request.path) + " 200\nPOST " + request.path +
                                        ": failed after its beginning: " + ScriptedBackend::kError + "\n");
        }
    }
}

// The server stops, or changes its model.
TEST(Failures, AnAnswerThatIsCutOffIsNoAnswer) {
    Direct direct;
    direct.backend().finish = Finish::cancelled;
    int cut = 0;
    for (const Asked& request : asked()) {
        const server::HttpResponse whole = direct.post(request.path, request.with(false));
        EXPECT_EQ(whole.status, 503) << request.path;
        EXPECT_THAT(whole.body, HasSubstr("come again")) << request.path;
        EXPECT_EQ(direct.count_of(503), ++cut);
    }
    direct.service().drain();
    const server::HttpResponse refused = direct.post("/v1/completions", "");
    EXPECT_EQ(refused.status, 503);
    ASSERT_NE(header_of(refused, "retry-after"), nullptr);
    EXPECT_THAT(refused.body, HasSubstr("shutting_down"));
    EXPECT_EQ(direct.count_of(503), cut + 1);
}

// The status of an answer whose client has gone reaches no one, so it is no failure of the server.
TEST(Failures, AClientThatHasGoneIsCountedApart) {
    Direct direct;
    direct.backend().finish = Finish::cancelled;
    server::HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    request.body = R"({"prompt":"x"})";
    request.id = "req_0123456789abcdef";
    const auto taken = std::make_shared<Taken>();
    taken->leaves = true;
    direct.service().handle(std::move(request), taken);
    taken->wait();
    EXPECT_EQ(direct.count_of(server::Metrics::kClientGone), 1);
    EXPECT_EQ(direct.count_of(503), 0);
    EXPECT_EQ(direct.log(), "POST /v1/completions 499: the client has gone\n");
}

// Messages quote what is wrong; the log names the field.
TEST(Failures, TheLogHasNoTextOfARequest) {
    const std::filesystem::path file =
        std::filesystem::temp_directory_path() / ("foresay_quotes_" + std::to_string(::getpid()) + ".jinja");
    std::ofstream(file) << "{% for m in messages %}{% if 'SECRET' in m.content %}{{ raise_exception('refused: ' + "
                           "m.content) }}{% endif %}{{ m.content }}{% endfor %}";
    const std::vector<std::string> settings = {"sampling.chain=[\"temperature\"]", "target.context=512",
                                               "chat.style=\"auto\"", "chat.template=\"" + file.string() + "\""};
    engine::EngineOptions engine_options;
    engine_options.draft = false;
    const engine::Engine engine = engine::Engine::open(
        engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings), engine_options);
    server::ServiceOptions options;
    options.any_model = false;
    Direct direct(engine, "", std::move(options));
    direct.backend().tokens = tokens_of("SECRET");
    const struct {
        const char *path, *body;
        int status;
        const char* note;
    } table[] = {
        {"/v1/completions", R"({"prompt":"SECRET)", 400, "invalid_json"},
        {"/v1/completions", "{\"prompt\":\"SECRET\nSECRET\"}", 400, "invalid_json"},
        {"/v1/completions", R"(SECRET)", 400, "invalid_json"},
        {"/v1/completions", R"({"prompt" "SECRET"})", 400, "invalid_json"},
        {"/v1/completions", R"({"prompt":"SECRET","seed":1e999})", 400, "invalid_json"},
        {"/v1/chat/completions", R"({"messages":[{"role":"SECRET","content":"x"}]})", 400,
         "invalid_value \"messages[0].role\""},
        {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"SECRET"}]})", 400, "messages"},
        {"/v1/messages", R"({"max_tokens":1,"messages":[{"role":"user","content":[{"type":"SECRET"}]}]})", 400,
         "unsupported_content \"messages[0].content[0]\""},
        {"/v1/completions", R"({"prompt":"x","model":"SECRET"})", 404, "model_not_found \"model\""},
        {"/v1/completions", R"({"prompt":"x","foresay":{"chain":["SECRET"]}})", 400, "invalid_value \"foresay.chain\""},
        {"/v1/completions", R"({"prompt":"x","grammar":"SECRET"})", 400, "invalid_value \"grammar\""},
        {"/v1/completions", R"({"prompt":"SECRET"})", 200, ""},
        {"/v1/completions", R"({"prompt":"SECRET","stream":true})", 200, ""},
    };
    for (const auto& [path, body, status, note] : table) {
        const server::HttpResponse answer = direct.post(path, body);
        EXPECT_EQ(answer.status, status) << body << answer.body;
        const std::string log = direct.log();
        EXPECT_THAT(log, Not(HasSubstr("SECRET"))) << body;
        EXPECT_THAT(log, HasSubstr("POST " + std::string(path) + " " + std::to_string(status))) << body;
        EXPECT_THAT(log, HasSubstr(note)) << body;
        if (std::string_view(note) == "invalid_json") {
            EXPECT_THAT(answer.body, AllOf(HasSubstr("at byte "), Not(HasSubstr("SECRET"))));
        }
    }
    std::filesystem::remove(file);
}

// Times are looked at with each token.
TEST(Failures, ATimeLimitEndsAText) {
    Direct direct;
    direct.backend().tokens = tokens_of("x\ny\nz");
    direct.backend().between = 20ms;
    // Of a hole: after that time, at the next line break that follows another.
    const std::string hole = R"({"input_prefix":"a = ","input_suffix":"","t_max_predict_ms":)";
    const Json cut = parse_json(direct.post("/infill", hole + "1}").body);
    EXPECT_EQ(cut.text("content"), "x\ny");
    EXPECT_EQ(cut.text("stop_type"), "limit");
    EXPECT_EQ(cut["timings"].text("truncated_by"), "time");
    const Json whole = parse_json(direct.post("/infill", hole + "1000000}").body);
    EXPECT_EQ(whole.text("content"), "x\ny\nz");
    EXPECT_EQ(whole.text("stop_type"), "eos");
    EXPECT_FALSE(whole["timings"].has("truncated_by"));
    // Of any text: at once.
    const std::string prompt = R"({"prompt":"a = ","foresay":{"deadline_ms":)";
    const server::HttpResponse late = direct.post("/v1/completions", prompt + "1}}");
    EXPECT_EQ(late.status, 408) << late.body;
    EXPECT_EQ(parse_json(late.body)["error"].text("code"), "deadline_exceeded");
    ASSERT_NE(header_of(late, "x-should-retry"), nullptr);
    EXPECT_EQ(header_of(late, "x-should-retry")->value, "false");
    EXPECT_EQ(direct.count_of(408), 1);
    direct.backend().tokens = tokens_of("x");
    direct.backend().tokens.resize(3, direct.backend().tokens[0]);
    direct.backend().between = 0ms;
    direct.backend().after_first = 4100ms;
    const server::HttpResponse begun = direct.post("/v1/completions", prompt + "4000}}");
    EXPECT_EQ(begun.status, 200) << begun.body;
    EXPECT_EQ(text_of_answer(begun.body), "x");
    EXPECT_EQ(parse_json(begun.body)["timings"].text("truncated_by"), "deadline");
    EXPECT_EQ(parse_json(begun.body)["choices"].items()[0].text("finish_reason"), "length");
    direct.backend().after_first = 0ms;
    const server::HttpResponse all = direct.post("/v1/completions", prompt + "1000000}}");
    EXPECT_EQ(text_of_answer(all.body), "xxx");
}

// Goes when it is told to, and counts what it is sent.
class Leaving final : public server::Exchange {
public:
    void send(server::HttpResponse) override { end(); }
    void begin(server::HttpResponse, std::string) override { begun_ = true; }
    void write(std::string_view) override {
        ++pieces;
        if (on_piece) on_piece(pieces);
    }
    void finish() override { end(); }
    bool begun() const override { return begun_; }
    bool gone() const override { return gone_; }
    void on_gone(std::function<void()> callback) override { when_gone_ = std::move(callback); }
    void on_pressure(std::function<void(bool)>) override {}
    void leave() {
        gone_ = true;
        at_leaving = pieces;
        when_gone_();
    }
    void end() {
        if (!std::exchange(over_, true)) ended_.set_value();
    }
    bool ended() { return ended_.get_future().wait_for(30s) == std::future_status::ready; }

    int pieces = 0, at_leaving = 0;
    std::function<void(int)> on_piece;

private:
    std::function<void()> when_gone_;
    std::atomic<bool> begun_{false}, gone_{false};
    bool over_ = false;
    std::promise<void> ended_;
};

// The forward that runs when a client goes may still give its text a token; the next one has no row for it.
TEST(Failures, AClientThatGoesIsOutOfTheNextForward) {
    server::Keys keys("");
    server::Service service(keys, {});
    const auto loaded = std::make_shared<server::Loaded>(bundled(), "", std::vector<std::string>{},
                                                         std::make_unique<server::LoopBackend>(bundled(), 4, 4, false));
    service.serve(loaded);
    const auto stays = std::make_shared<Leaving>(), goes = std::make_shared<Leaving>();
    // Between two tokens of its own text, which makes them on the thread that runs the forwards.
    stays->on_piece = [&](int pieces) {
        if (pieces == 10) goes->leave();
    };
    const auto ask = [&](const std::shared_ptr<Leaving>& exchange, const char* prompt, int tokens) {
        server::HttpRequest request;
        request.method = "POST";
        request.path = "/v1/completions";
        request.body = std::string(R"({"prompt":")") + prompt + R"(","stream":true,"ignore_eos":true,)" +
                       R"("foresay":{"speculation":"off"},"max_tokens":)" + std::to_string(tokens) + "}";
        request.id = "req_0123456789abcdef";
        service.handle(std::move(request), exchange);
    };
    ask(goes, "x = ", 450);
    while (loaded->backend->running() == 0) std::this_thread::yield();
    ask(stays, "y = ", 100);
    EXPECT_TRUE(stays->ended());
    EXPECT_TRUE(goes->ended());
    EXPECT_LE(goes->pieces, goes->at_leaving + 2) << "one token, and the event that ends the stream";
    EXPECT_LT(goes->pieces, 400);
    loaded->backend->stop();
    service.finish();
}

// A plugin that throws ends the texts that have it in their chain, and no other.
TEST(Failures, APluginThatFailsFailsAlone) {
    namespace fs = std::filesystem;
    const fs::path file = fs::temp_directory_path() / ("foresay_bad_" + std::to_string(::getpid()) + ".toml");
    std::ofstream(file) << "extends = \"" FORESAY_SOURCE_DIR
                           "/configs/python-coder.toml\"\n[target]\ncontext = 512\n[sampling]\nchain = "
                           "[\"bad_throws\", \"top_k\", \"temperature\"]\n[[plugin]]\nname = \"bad_throws\"\npath = "
                           "\"" FORESAY_BAD_FOLDER "/bad_throws.so\"\n";
    engine::EngineOptions engine_options;
    engine_options.draft = false;
    const engine::Engine engine = engine::Engine::open(engine::load_config(file), engine_options);
    Served served({}, engine);
    const std::string fine = R"({"prompt":"def f(x):\n","max_tokens":120,"seed":5,"ignore_eos":true,)"
                             R"("foresay":{"chain":["top_k","temperature"]}})";
    const std::string alone = text_of_answer(served.client().post("/v1/completions", fine).body);
    auto others = std::async(std::launch::async, [&] {
        std::vector<std::string> texts;
        for (int i = 0; i < 4; ++i) texts.push_back(text_of_answer(served.client().post("/v1/completions", fine).body));
        return texts;
    });
    for (int i = 0; i < 6; ++i) {
        const Reply reply = served.client().post("/v1/completions", R"({"prompt":"x","max_tokens":5})");
        EXPECT_EQ(reply.status, 500) << reply.body;
        EXPECT_EQ(reply.headers.at("x-should-retry"), "false");
        EXPECT_THAT(reply.body, HasSubstr("bad_throws"));
    }
    EXPECT_THAT(served.client().get("/metrics").body,
                HasSubstr("foresay_responses_total{model_name=\"target-q4_k_m\",status=\"500\"} 6\n"));
    for (const std::string& text : others.get()) EXPECT_EQ(text, alone);
    EXPECT_TRUE(served.becomes_idle());
    fs::remove(file);
}

// Its chain need not have a plugin that requests may name, and a stage has the settings of the configuration's table.
TEST(Failures, RequestsMayNamePluginsThatTheChainLeavesOut) {
    namespace fs = std::filesystem;
    const fs::path file = fs::temp_directory_path() / ("foresay_spare_" + std::to_string(::getpid()) + ".toml");
    const auto fingerprint_and_answers = [&](const char* forbidden, const char* least) {
        std::ofstream(file) << "extends = \"" FORESAY_SOURCE_DIR
                               "/configs/python-coder.toml\"\n[target]\ncontext = 512\n[sampling]\nchain = "
                               "[\"top_k\", \"temperature\"]\n[sampling.min_length]\ntokens = "
                            << least
                            << "\n[[plugin]]\nname = \"words\"\nsampler = \"logit_bias\"\n[plugin.options]\n"
                               "texts = [\""
                            << forbidden << "\"]\ntext_values = [-inf]\n";
        engine::EngineOptions options;
        options.draft = false;
        options.every_plugin = true;
        const engine::Engine engine = engine::Engine::open(engine::load_config(file), options);
        Served served({}, engine);
        std::vector<std::string> all = {server::ServedModel(engine, "", {}).fingerprint()};
        for (const char* chain : {R"("top_k","temperature")", R"("words","top_k","temperature")",
                                  R"("min_length","top_k","temperature")"}) {
            const std::string body =
                R"({"prompt":"def add(a, b):\n    return","max_tokens":60,"seed":5,"temperature":0,)"
                R"("foresay":{"chain":[)" +
                std::string(chain) + "]}}";
            all.push_back(text_of_answer(served.client().post("/v1/completions", body).body));
        }
        return all;
    };
    const std::vector<std::string> some = fingerprint_and_answers(" a", "50");
    EXPECT_THAT(some[1], ::testing::StartsWith(" a + b"));
    EXPECT_THAT(some[2], ::testing::StartsWith(" add(")) << "the token ' a' may not come";
    EXPECT_EQ(fingerprint_and_answers(" a", "50"), some);
    EXPECT_NE(fingerprint_and_answers(" b", "50")[0], some[0]) << "an option of the plugin";
    EXPECT_NE(fingerprint_and_answers(" a", "51")[0], some[0]) << "a table of a built-in stage";
    fs::remove(file);
}

TEST(Failures, ATemplateThatRefusesIsTheRequestsFault) {
    namespace fs = std::filesystem;
    const fs::path base = fs::temp_directory_path() / ("foresay_template_" + std::to_string(::getpid()));
    std::ofstream(base.string() + ".jinja")
        << "{% for m in messages %}{% if m.role == 'system' and not loop.first %}{{ raise_exception('no place for it') "
           "}}{% endif %}{% if m.content == 'boom' %}{{ raise_exception('no explosions here') }}{% endif %}{{ "
           "m.content "
           "}}{% endfor %}";
    const std::vector<std::string> settings = {"sampling.chain=[\"top_k\", \"temperature\"]", "target.context=512",
                                               "chat.style=\"auto\"", "chat.template=\"" + base.string() + ".jinja\""};
    engine::EngineOptions options;
    options.draft = false;
    const engine::Engine engine =
        engine::Engine::open(engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings), options);
    Served served({}, engine);
    const Reply reply = served.client().post("/v1/chat/completions",
                                             R"({"max_tokens":2,"messages":[{"role":"user","content":"boom"}]})");
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_EQ(parse_json(reply.body)["error"].text("param"), "messages");
    EXPECT_THAT(parse_json(reply.body)["error"].text("message"), HasSubstr("no explosions here"));
    fs::remove(base.string() + ".jinja");
}

// Clients that go at every byte of their request, and after each piece of the answer.
TEST(Failures, ClientsMayGoInEveryPhase) {
    Served served;
    const std::string prompt(200, 'x');
    for (const bool stream : {true, false}) {
        const std::string body = R"({"prompt":")" + prompt + R"(","ignore_eos":true,"max_tokens":60,"stream":)" +
                                 (stream ? "true}" : "false}");
        const std::string request = Client::text_of("POST", "/v1/completions", body, {});
        for (std::size_t sent = 1; sent <= request.size(); sent += 1 + request.size() / 40) {
            Client client = served.client();
            client.send(std::string_view(request).substr(0, sent));
            client.close();
        }
        for (int wait = 0; wait < 12; ++wait) {
            Client client = served.client();
            client.send(request);
            if (stream) {
                int pieces = wait;
                client.receive([&](std::string_view) { return pieces-- > 0; });
            } else {
                std::this_thread::sleep_for(std::chrono::milliseconds(wait));
            }
            client.close();
        }
    }
    EXPECT_TRUE(served.becomes_idle()) << "every place is free again";
    EXPECT_EQ(served.client().post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
}

}  // namespace
}  // namespace foresay::testing
