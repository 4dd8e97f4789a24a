// TabbyAPI's side: models and templates by name while the server runs, what a key may do, tokens.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>

#include "engine/configuration.h"
#include "server/json.h"
#include "server/keys.h"
#include "tests/server/served.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using server::Json;
using server::parse_json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// As the program's, for configurations alone.
class Store final : public server::ModelStore {
public:
    const engine::Engine& open(const fs::path& file) {
        file_ = file;
        config_ = engine::load_config(file);
        engine_ = engine::Engine::open(config_, options());
        return *engine_;
    }
    bool keeps_style = false;  // of a configuration, beside a template

    void load(const server::ModelChange& change, const std::function<void()>& release) override {
        std::vector<std::string> settings;
        if (change.context > 0) settings.push_back("target.context=" + std::to_string(change.context));
        if (change.prompt_template) settings.push_back("chat.template=\"" + change.prompt_template->string() + "\"");
        if (change.prompt_template && !keeps_style) settings.emplace_back("chat.style=\"auto\"");
        if (!change.kv_format.empty()) settings.push_back("runtime.kv_cache=\"" + change.kv_format + "\"");
        before_ = engine_ ? std::optional(config_) : std::nullopt;
        const fs::path file = change.model.empty() ? file_ : change.model;
        const core::Config config = engine::load_config(file, settings);
        if (engine_) {
            engine_->reload(config, release);
        } else {
            release();
            engine_ = engine::Engine::open(config, options());
        }
        file_ = file;
        config_ = config;
    }
    void go_back() override {
        if (!before_) return unload();
        engine_->reload(*before_, [] {});
        config_ = *before_;
    }
    void unload() override { engine_.reset(); }
    const engine::Engine* engine() const override { return engine_ ? &*engine_ : nullptr; }

private:
    static engine::EngineOptions options() {
        engine::EngineOptions options;
        options.branches = 4;
        options.draft = false;
        return options;
    }
    fs::path file_;
    core::Config config_;
    std::optional<core::Config> before_;
    std::optional<engine::Engine> engine_;
};

class Models : public ::testing::Test {
protected:
    Models() {
        fs::create_directories(folder_ / "models" / "templates");
        const auto write = [&](const fs::path& path, const std::string& text) {
            std::ofstream(folder_ / "models" / path) << text;
        };
        const std::string base = "extends = \"" FORESAY_SOURCE_DIR
                                 "/configs/python-coder.toml\"\n"
                                 "[sampling]\nchain = [\"top_k\", \"top_p\", \"temperature\"]\n";
        write("one.toml", base + "[target]\ncontext = 512\n");
        write("two.toml", base + "[target]\ncontext = 384\n");
        write("broken.toml", base + "[target]\nmodel = \"nonesuch.gguf\"\n");
        write("templates/loud.jinja",
              "{% for m in messages %}<<{{ m.role }}>>{{ m.content }}\n{% endfor %}"
              "{% if add_generation_prompt %}<<assistant>>{% endif %}");
        std::ofstream(folder_ / "outside.toml") << base;
        fs::create_symlink(folder_ / "outside.toml", folder_ / "models" / "link.toml");
        fs::create_symlink(folder_ / "models" / "templates" / "loud.jinja",
                           folder_ / "models" / "templates" / "linked.jinja");
        std::ofstream(folder_ / "keys") << admin_.line << "\n" << user_.line << " tokens_per_minute=100000\n";

        server::ServingOptions options;
        options.keys = folder_ / "keys";
        options.models = folder_ / "models";
        options.store = &store_;
        options.name = "one";
        served_ = std::make_unique<Served>(std::move(options), store_.open(folder_ / "models" / "one.toml"));
    }
    ~Models() override {
        served_.reset();
        fs::remove_all(folder_);
    }
    Reply ask(const char* method, const std::string& path, const std::string& body = "", bool as_admin = true) {
        return served_->client().ask(method, path, body, {"x-api-key: " + (as_admin ? admin_.key : user_.key)});
    }
    Reply load(const std::string& body) { return ask("POST", "/v1/model/load", body); }
    std::string text() {
        const Reply reply = ask("POST", "/v1/completions", R"({"prompt":"def f(x):\n","max_tokens":12,"seed":4})");
        return reply.status == 200 ? text_of_answer(reply.body) : "status " + std::to_string(reply.status);
    }
    std::vector<std::string> names(const Reply& reply) {
        std::vector<std::string> all;
        const Json whole = parse_json(reply.body);
        for (const Json& one : whole["data"].items()) all.push_back(one.is_string() ? one.string() : one.text("id"));
        return all;
    }

    const fs::path folder_ = fs::temp_directory_path() / ("foresay_models_" + std::to_string(::getpid()));
    const server::NewKey admin_ = server::make_key("root", true), user_ = server::make_key("ann", false);
    Store store_;
    std::unique_ptr<Served> served_;
};

TEST_F(Models, AreListedLoadedAndUnloadedByThoseWhoMay) {
    EXPECT_THAT(names(ask("GET", "/v1/model/list")), ElementsAre("broken", "one", "two"));
    EXPECT_THAT(names(ask("GET", "/v1/model/list", "", false)), ElementsAre("one"));
    EXPECT_THAT(names(ask("GET", "/v1/templates")), ElementsAre("loud"));
    EXPECT_EQ(parse_json(ask("GET", "/v1/auth/permission").body).text("permission"), "admin");
    EXPECT_EQ(parse_json(ask("GET", "/v1/auth/permission", "", false).body).text("permission"), "api");
    for (const char* path : {"/v1/model/load", "/v1/model/unload", "/v1/template/switch", "/v1/template/unload"})
        EXPECT_EQ(ask("POST", path, R"({"model_name":"two","prompt_template_name":"loud"})", false).status, 403)
            << path;
    EXPECT_EQ(ask("GET", "/v1/templates", "", false).status, 403);

    const std::string before = text();
    const Reply loaded = load(R"({"model_name":"two"})");
    ASSERT_EQ(loaded.status, 200) << loaded.body;
    const std::vector<std::string> steps = data_of(loaded.body);
    ASSERT_EQ(steps.size(), 2u) << loaded.body;
    EXPECT_EQ(parse_json(steps[0]).text("status"), "processing");
    EXPECT_EQ(parse_json(steps[1]).text("status"), "finished");
    const Json model = parse_json(ask("GET", "/v1/model", "", false).body);
    EXPECT_EQ(model.text("id"), "two");
    EXPECT_EQ(model["parameters"]["max_seq_len"].integer(), 384);
    EXPECT_EQ(text(), before) << "it is the same model, with a shorter context";
    load(R"({"model_name":"two","max_seq_len":256})");
    EXPECT_EQ(parse_json(ask("GET", "/v1/model").body)["parameters"]["max_seq_len"].integer(), 256);

    EXPECT_EQ(ask("POST", "/v1/model/unload").status, 200);
    for (const char* path : {"/v1/model", "/v1/models", "/ready", "/health"}) {
        const Reply none = ask("GET", path);
        EXPECT_EQ(none.status, 503) << path;
        EXPECT_EQ(parse_json(none.body)["error"].text("code"), "model_not_loaded") << path;
        EXPECT_THAT(none.body, HasSubstr("no model is loaded; an admin loads one with POST /v1/model/load")) << path;
        EXPECT_EQ(none.headers.count("retry-after"), 0u) << path << ": nothing is being loaded";
        EXPECT_EQ(none.headers.count("x-should-retry"), 0u) << path << ": somebody may load one";
    }
    EXPECT_EQ(text(), "status 503");
    EXPECT_TRUE(names(ask("GET", "/v1/model/list", "", false)).empty());
    EXPECT_EQ(ask("POST", "/v1/template/switch", R"({"prompt_template_name":"loud"})").status, 400);
    EXPECT_EQ(load(R"({"model_name":"one"})").status, 200);
    EXPECT_EQ(text(), before);
}

TEST_F(Models, NamesAreNoPathsAndLinksDoNotCount) {
    const struct {
        const char* name;
        int status;
    } wrong[] = {{"../outside", 400}, {"..", 400},  {"", 400},           {"models/one", 400}, {"/etc/passwd", 400},
                 {".hidden", 400},    {"a b", 400}, {"one\\u0000", 400}, {"link", 404},       {"nonesuch", 404}};
    for (const auto& [name, status] : wrong) {
        const std::string quoted = std::string("\"") + name + "\"";
        const Reply model = load(R"({"model_name":)" + quoted + "}");
        EXPECT_EQ(model.status, status) << name << model.body;
        EXPECT_EQ(parse_json(model.body)["error"].text("param"), "model_name") << name;
        EXPECT_EQ(ask("POST", "/v1/template/switch", R"({"prompt_template_name":)" + quoted + "}").status, status)
            << name;
        const Reply draft = load(R"({"model_name":"one","draft_model":{"draft_model_name":)" + quoted + "}}");
        EXPECT_EQ(draft.status, *name == '\0' ? 200 : status) << name << draft.body;
    }
    EXPECT_EQ(ask("POST", "/v1/template/switch", R"({"prompt_template_name":"linked"})").status, 404);
    EXPECT_EQ(load(R"({"model_name":"one","prompt_template":"../x"})").status, 400);
    EXPECT_THAT(text(), Not(HasSubstr("status")));
}

TEST_F(Models, WhatCannotBeLoadedLeavesTheModelThatIsThere) {
    const std::string before = text();
    const Reply reply = load(R"({"model_name":"broken"})");
    EXPECT_EQ(reply.status, 400) << reply.body;
    EXPECT_THAT(parse_json(reply.body)["error"].text("message"), HasSubstr("nonesuch.gguf"));
    EXPECT_EQ(parse_json(reply.body)["error"].text("code"), "model_not_loaded");
    EXPECT_EQ(load(R"({"model_name":"one","max_seq_len":99999999})").status, 400);
    EXPECT_EQ(text(), before);
    EXPECT_EQ(parse_json(ask("GET", "/v1/model").body).text("id"), "one");
}

// The new model is there when it turns out that its template does not go with its style.
TEST_F(Models, WhatCannotBeServedGivesTheModelBack) {
    const std::string before = text();
    std::ofstream(folder_ / "models" / "styled.toml") << "extends = \"" FORESAY_SOURCE_DIR
                                                         "/configs/python-coder.toml\"\n[sampling]\nchain = "
                                                         "[\"top_k\", \"temperature\"]\n[chat]\nstyle = \"chatml\"\n"
                                                         "[target]\ncontext = 320\n";
    store_.keeps_style = true;
    const Reply reply = load(R"({"model_name":"styled","prompt_template":"loud"})");
    EXPECT_THAT(reply.body, HasSubstr("chat.style"));
    EXPECT_EQ(text(), before);
    EXPECT_EQ(parse_json(ask("GET", "/v1/model").body)["parameters"]["max_seq_len"].integer(), 512);
}

TEST_F(Models, TheCacheHasTheFormatThatIsAskedFor) {
    for (const char* mode : {"Q8", "q6", "Q4", "FP16"}) {
        const Reply reply = load(std::string(R"({"model_name":"one","cache_mode":")") + mode + "\"}");
        EXPECT_EQ(reply.status, 200) << mode << reply.body;
        EXPECT_THAT(reply.body, HasSubstr("finished")) << mode;
        EXPECT_THAT(text(), Not(HasSubstr("status"))) << mode;
    }
    EXPECT_EQ(load(R"({"model_name":"one","cache_mode":"Q5"})").status, 400);
}

// Answers go on, those that come meanwhile are told to come again, and another change has to wait.
TEST_F(Models, ALoadWaitsForAnswers) {
    Client busy = served_->client();
    busy.send(Client::text_of("POST", "/v1/completions",
                              R"({"prompt":"x = 1\n","max_tokens":300,"ignore_eos":true,"stream":true,"seed":1})",
                              {"x-api-key: " + user_.key}));
    std::promise<void> begun;
    auto answer = std::async(std::launch::async, [&] {
        bool first = true;
        return busy.receive([&](std::string_view) {
            if (std::exchange(first, false)) begun.set_value();
            return true;
        });
    });
    begun.get_future().wait();
    auto loading = std::async(std::launch::async, [&] { return load(R"({"model_name":"two"})"); });
    const Reply whole = answer.get();
    EXPECT_TRUE(whole.complete);
    EXPECT_EQ(data_of(whole.body).back(), "[DONE]") << whole.body;
    EXPECT_THAT(loading.get().body, HasSubstr("finished"));
    EXPECT_EQ(parse_json(ask("GET", "/v1/model").body).text("id"), "two");
}

TEST_F(Models, TemplatesAreSwitched) {
    const char* const body = R"({"messages":[{"role":"user","content":"hi"}]})";
    const auto rendered = [&] { return parse_json(ask("POST", "/apply-template", body).body).text("prompt"); };
    const std::string before = rendered();
    const std::string fingerprint = served_->serving().model().fingerprint();
    const Reply reply = ask("POST", "/v1/template/switch", R"({"prompt_template_name":"loud"})");
    ASSERT_EQ(reply.status, 200) << reply.body;
    EXPECT_EQ(rendered(), "<<user>>hi\n<<assistant>>");
    EXPECT_NE(served_->serving().model().fingerprint(), fingerprint) << "the bits depend on it";
    EXPECT_EQ(ask("POST", "/v1/template/unload").status, 200);
    EXPECT_NE(rendered(), "<<user>>hi\n<<assistant>>");
}

// The bits depend on all that changes it, and on nothing that does not.
TEST(Fingerprint, IsOfAllThatTheBitsDependOnAndOfNothingElse) {
    const fs::path folder = fs::temp_directory_path() / ("foresay_print_" + std::to_string(::getpid()));
    fs::create_directories(folder);
    const std::string chain = "sampling.chain=[\"top_k\", \"top_p\", \"temperature\"]";
    const auto of = [&](std::vector<std::string> settings, bool draft = false) {
        settings.insert(settings.begin(), {chain, "target.context=512", "runtime.threads=1"});
        engine::EngineOptions options;
        options.draft = draft;
        const engine::Engine engine = engine::Engine::open(
            engine::load_config(FORESAY_SOURCE_DIR "/configs/python-coder.toml", settings), options);
        return server::ServedModel(engine, "", {}).fingerprint();
    };
    const std::string base = of({});
    EXPECT_THAT(base, ::testing::MatchesRegex("fp_[0-9a-f]+"));
    for (const char* same : {"runtime.threads=2", "speculation.mode=\"off\"", "speculation.max_draft=4",
                             "sampling.seed=5", "cache.host_mib=1"})
        EXPECT_EQ(of({same}), base) << same;
    EXPECT_EQ(of({}, true), base) << "the draft model";
    std::set<std::string> others = {base};
    for (const char* other :
         {"target.context=256", "runtime.kv_cache=\"q8\"", "sampling.top_k.k=20", "sampling.temperature.value=0.5",
          "sampling.chain=[\"top_p\", \"top_k\", \"temperature\"]", "sampling.chain=[\"top_k\", \"temperature\"]",
          "chat.style=\"chatml\"", "chat.fim_order=\"psm\"", "chat.newline=false"})
        EXPECT_TRUE(others.insert(of({other})).second) << other;
    // A plugin is its file.
    const auto plugged = [&](const char* more) {
        const fs::path library = folder / "bad_throws.so";
        fs::copy_file(FORESAY_BAD_FOLDER "/bad_throws.so", library, fs::copy_options::overwrite_existing);
        std::ofstream(library, std::ios::app) << more;
        std::ofstream(folder / "plugged.toml") << "extends = \"" FORESAY_SOURCE_DIR
                                                  "/configs/python-coder.toml\"\n[target]\ncontext = 512\n[sampling]\n"
                                                  "chain = [\"bad_throws\", \"temperature\"]\n[[plugin]]\nname = "
                                                  "\"bad_throws\"\npath = \"" +
                                                      library.string() + "\"\n";
        engine::EngineOptions options;
        options.draft = false;
        const engine::Engine engine = engine::Engine::open(engine::load_config(folder / "plugged.toml"), options);
        return server::ServedModel(engine, "", {}).fingerprint();
    };
    const std::string plugin = plugged("");
    EXPECT_TRUE(others.insert(plugin).second);
    EXPECT_EQ(plugged(""), plugin);
    EXPECT_TRUE(others.insert(plugged("x")).second) << "another file";
    fs::remove_all(folder);
}

TEST_F(Models, TokensThereAndBack) {
    const Json encoded = parse_json(ask("POST", "/v1/token/encode", R"({"text":"x = 1","add_bos_token":false})").body);
    EXPECT_EQ(static_cast<std::int64_t>(encoded["tokens"].items().size()), encoded["length"].integer());
    const Reply decoded = ask("POST", "/v1/token/decode", R"({"tokens":)" + encoded["tokens"].dump() + "}");
    EXPECT_EQ(parse_json(decoded.body).text("text"), "x = 1");
    EXPECT_GT(parse_json(ask("POST", "/v1/token/encode", R"({"text":[{"role":"user","content":"x"}]})").body)["length"]
                  .integer(),
              0);
    EXPECT_EQ(ask("POST", "/v1/token/encode", R"({"text":[1]})").status, 400);
    for (const auto& [text, param] :
         {std::pair{"[]", "text"}, std::pair{R"([{"role":"user","content":5}])", "text[0].content"}}) {
        const Reply refused = ask("POST", "/v1/token/encode", std::string(R"({"text":)") + text + "}");
        EXPECT_EQ(refused.status, 400);
        EXPECT_EQ(parse_json(refused.body)["error"].text("param"), param) << refused.body;
    }
    EXPECT_EQ(ask("POST", "/v1/token/decode", R"({"tokens":[99999999]})").status, 400);
    EXPECT_EQ(ask("POST", "/v1/lora/load", "{}").status, 501);
    EXPECT_EQ(served_->client().get("/.well-known/serviceinfo").status, 200);
}

TEST(ModelsKept, AServerWithoutAFolderKeepsItsModel) {
    const auto file = fs::temp_directory_path() / ("foresay_kept_" + std::to_string(::getpid()));
    const server::NewKey key = server::make_key("root", true);
    std::ofstream(file) << key.line << "\n";
    server::ServingOptions options;
    options.keys = file;
    Served served(std::move(options));
    const auto ask = [&](const char* path) {
        return served.client().post(path, R"({"model_name":"x","prompt_template_name":"x"})",
                                    {"x-api-key: " + key.key});
    };
    for (const char* path : {"/v1/model/load", "/v1/model/unload", "/v1/template/switch"}) {
        const Reply reply = ask(path);
        EXPECT_EQ(reply.status, 501) << path;
        EXPECT_THAT(reply.body, HasSubstr("--models FOLDER")) << path;
    }
    EXPECT_EQ(Served().client().post("/v1/model/unload", "{}").status, 403) << "no keys, no admin";
    fs::remove(file);
}

}  // namespace
}  // namespace foresay::testing
