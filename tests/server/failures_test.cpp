// What goes wrong while an answer is made: each protocol tells it in its own shape, before the first piece as an answer
// and afterwards as the last event; others do not notice, and of clients that go nothing is left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <future>

#include "engine/configuration.h"
#include "server/json.h"
#include "server/keys.h"
#include "server/service.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

using namespace std::chrono_literals;
using server::Json;
using server::parse_json;
using ::testing::HasSubstr;
using ::testing::Not;

// Writes three tokens of the prompt, or none, and fails.
class FailingBackend final : public server::Backend {
public:
    server::Ticket submit(server::BackendRequest request, std::shared_ptr<server::TokenSink> sink) override {
        thread_ = std::async(std::launch::async, [this, sink, prompt = std::move(request.prompt)] {
            for (int i = 0; i < tokens && sink->token({prompt[0], false, "", nullptr}); ++i) {
            }
            server::BackendEnd end;
            end.finish = finish;
            end.error = "the stage 'x' has failed";
            sink->end(end);
        });
        return 1;
    }
    void cancel(server::Ticket) override {}
    void pause(server::Ticket, bool) override {}
    void stop() override {}
    std::size_t running() const override { return 0; }
    std::size_t waiting() const override { return 0; }
    std::size_t most_running() const override { return 1; }

    int tokens = 0;
    server::BackendEnd::Finish finish = server::BackendEnd::Finish::failed;

private:
    std::future<void> thread_;
};

class Taken final : public server::Exchange {
public:
    void send(server::HttpResponse response) override {
        const std::lock_guard lock(mutex_);
        response_ = std::move(response);
        begun_ = ended_ = true;
        ended_now_.notify_all();
    }
    void begin(server::HttpResponse head, std::string) override {
        const std::lock_guard lock(mutex_);
        response_ = std::move(head);
        begun_ = true;
    }
    void write(std::string_view bytes) override {
        const std::lock_guard lock(mutex_);
        response_.body += bytes;
    }
    void finish() override {
        const std::lock_guard lock(mutex_);
        ended_ = true;
        ended_now_.notify_all();
    }
    bool begun() const override { return begun_; }
    bool gone() const override { return false; }
    void on_gone(std::function<void()>) override {}
    void on_pressure(std::function<void(bool)>) override {}
    server::HttpResponse wait() {
        std::unique_lock lock(mutex_);
        EXPECT_TRUE(ended_now_.wait_for(lock, 10s, [this] { return ended_; }));
        return response_;
    }

private:
    std::mutex mutex_;
    std::condition_variable ended_now_;
    server::HttpResponse response_;
    std::atomic<bool> begun_{false};
    bool ended_ = false;
};

struct Asked {
    const char* path;
    std::string body;  // without the braces
    const char* last;  // what the last event of a stream that fails begins with
};

std::vector<Asked> asked() {
    const std::string messages = R"("messages":[{"role":"user","content":"x = 1"}],"max_tokens":20)";
    return {{"/v1/chat/completions", messages, "data: {\"error\":{\"message\":"},
            {"/v1/completions", R"("prompt":"x = 1")", "data: {\"error\":{\"message\":"},
            {"/v1/responses", R"("input":"x = 1")", "event: response.failed\ndata: {"},
            {"/v1/messages", messages, "event: error\ndata: {\"type\":\"error\",\"error\":{"},
            {"/api/chat", R"("messages":[{"role":"user","content":"x = 1"}])", "{\"error\":"},
            {"/api/generate", R"("prompt":"x = 1","raw":true)", "{\"error\":"},
            {"/completion", R"("prompt":"x = 1")", "data: {\"error\":{"},
            {"/infill", R"("input_prefix":"x = ","input_suffix":"\n")", "data: {\"error\":{"},
            {"/v1/fim/completions", R"("prompt":"x = ","suffix":"\n")", "data: {\"error\":{"}};
}

struct Direct {
    server::Keys keys{""};
    FailingBackend* backend = new FailingBackend;
    server::Service service{keys, {}};

    Direct() {
        service.serve(std::make_shared<server::Loaded>(bundled(), "", std::vector<std::string>{},
                                                       std::unique_ptr<server::Backend>(backend)));
    }
    server::HttpResponse ask(const Asked& request, bool stream) {
        server::HttpRequest http;
        http.method = "POST";
        http.path = request.path;
        http.body = "{" + request.body + (stream ? R"(,"stream":true})" : R"(,"stream":false})");
        http.id = "req_0123456789abcdef";
        const auto taken = std::make_shared<Taken>();
        service.handle(std::move(http), taken);
        return taken->wait();
    }
};

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

TEST(Failures, AreToldInTheShapeOfTheProtocol) {
    Direct direct;
    for (const Asked& request : asked()) {
        const bool lines = std::string_view(request.path).starts_with("/api/");
        direct.backend->tokens = 0;
        const server::HttpResponse whole = direct.ask(request, false);
        EXPECT_EQ(whole.status, 500) << request.path << whole.body;
        EXPECT_THAT(whole.body, HasSubstr("the stage 'x' has failed")) << request.path;
        for (const int tokens : {0, 3}) {
            direct.backend->tokens = tokens;
            const server::HttpResponse stream = direct.ask(request, true);
            EXPECT_EQ(stream.status, 200) << request.path;
            const std::string last = last_event(stream.body, lines);
            EXPECT_TRUE(last.starts_with(request.last)) << request.path << ": " << last;
            EXPECT_THAT(last, HasSubstr("the stage 'x' has failed")) << request.path;
            EXPECT_THAT(stream.body, Not(HasSubstr("[DONE]"))) << request.path;
        }
    }
}

// The server stops, or changes its model.
TEST(Failures, AnAnswerThatIsCutOffIsNoAnswer) {
    Direct direct;
    direct.backend->finish = server::BackendEnd::Finish::cancelled;
    for (const Asked& request : asked()) {
        const server::HttpResponse whole = direct.ask(request, false);
        EXPECT_EQ(whole.status, 503) << request.path;
        EXPECT_THAT(whole.body, HasSubstr("come again")) << request.path;
    }
    direct.service.drain();
    server::HttpRequest http;
    http.method = "POST";
    http.path = "/v1/completions";
    http.id = "req_0123456789abcdef";
    http.from_network = false;
    const auto refused = direct.service.check(http);
    ASSERT_TRUE(refused.has_value());
    EXPECT_EQ(refused->status, 503);
    ASSERT_NE(header_of(*refused, "retry-after"), nullptr);
    EXPECT_THAT(refused->body, HasSubstr("shutting_down"));
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
    for (const std::string& text : others.get()) EXPECT_EQ(text, alone);
    EXPECT_TRUE(served.idle_within(2s));
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
    EXPECT_TRUE(served.idle_within(5s)) << "every place is free again";
    EXPECT_EQ(served.client().post("/v1/completions", R"({"prompt":"x","max_tokens":1})").status, 200);
}

}  // namespace
}  // namespace foresay::testing
