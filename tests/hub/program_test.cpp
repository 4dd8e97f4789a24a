// The program with a hub on this machine: pull, list, chat, remove, as a new user would, and what goes wrong.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "hub/http.h"
#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"
#include "tests/hub/hub_server.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr const char* kRepo = "ann/python-coder-GGUF";
const std::string kName = std::string(kRepo) + ":Q8_0";

std::string contents(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

const std::string& small_model() {
    static const std::string bytes = contents(source("models/python-coder/draft-q8_0.gguf"));
    return bytes;
}

// The files of the bundled pair on a hub.
void put_pair(HubServer& server) {
    server.put(kRepo, {{"python-coder-Q8_0.gguf", small_model()},
                       {"python-coder-Q4_K_M.gguf", contents(source("models/python-coder/target-q4_k_m.gguf"))},
                       {"mmproj-Q8_0.gguf", "eyes"},
                       {"README.md", "# a pair", false}});
}

class HubProgram : public ::testing::Test {
protected:
    void SetUp() override {
        if (const std::string why = hub::missing_libcurl(); !why.empty()) GTEST_SKIP() << why;
        home_ = scratch() / ::testing::UnitTest::GetInstance()->current_test_info()->name();
        put_pair(server_);
    }
    Call call(std::vector<std::string> arguments, std::string input = "") const {
        Call call;
        call.arguments = std::move(arguments);
        call.input = std::move(input);
        // What the user's own shell sets takes no part.
        for (const char* name :
             {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "HF_TOKEN_PATH",
              "HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE", "HF_HUB_DOWNLOAD_TIMEOUT", "CURL_CA_BUNDLE", "SSL_CERT_FILE",
              "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "http_proxy", "https_proxy", "all_proxy", "no_proxy"}) {
            call.environment.emplace_back(name, "");
        }
        call.environment.emplace_back("HF_HOME", home_.string());
        call.environment.emplace_back("HF_ENDPOINT", server_.url());
        return call;
    }
    Outcome foresay(std::vector<std::string> arguments, std::string input = "") const {
        return run(call(std::move(arguments), std::move(input)));
    }
    fs::path repo_folder() const { return home_ / "hub/models--ann--python-coder-GGUF"; }
    json listed() const { return json::parse(foresay({"list", "--json"}).out).at("models"); }
    void expect_nothing_visible() const {
        EXPECT_THAT(listed(), IsEmpty());
        EXPECT_FALSE(fs::exists(repo_folder() / "refs/main"));
        std::error_code ignored;
        for (const auto& blob : fs::directory_iterator(repo_folder() / "blobs", ignored)) {
            EXPECT_EQ(blob.path().extension(), ".incomplete");
        }
    }
    // The storage sends so slowly that a signal comes in the middle.
    void slow_down() {
        server_.set_fault([](const ServedRequest& request, Reply& reply) {
            if (request.storage) reply.piece = std::chrono::milliseconds(5);
        });
    }

    HubServer server_;
    fs::path home_;
};

TEST_F(HubProgram, PullListChatRemove) {
    const Outcome pulled = foresay({"pull", kName});
    ASSERT_EQ(pulled.status, 0) << pulled.error;
    EXPECT_THAT(pulled.out, AllOf(StartsWith(repo_folder().string()), EndsWith("/python-coder-Q8_0.gguf\n")));
    EXPECT_EQ(pulled.error, "") << "quiet without a terminal";
    const std::string path = pulled.out.substr(0, pulled.out.size() - 1);
    EXPECT_EQ(contents(path), small_model());

    const Outcome list = foresay({"list"});
    EXPECT_EQ(list.status, 0);
    EXPECT_THAT(list.out, AllOf(StartsWith("NAME "), HasSubstr(kName + "  7.2 MiB  q8_0     llama")));
    const json one = listed().at(0);
    EXPECT_EQ(one.at("name"), kName);
    EXPECT_EQ(one.at("bytes"), small_model().size());
    EXPECT_EQ(one.at("path"), path);
    EXPECT_EQ(one.at("weights"), "q8_0");
    EXPECT_THAT(one.at("last_used").get<std::string>(), HasSubstr("T"));
    EXPECT_FALSE(one.contains("problem"));

    const std::vector<std::string> prompt = {"-p", "def f(x):\n", "-n", "8", "--temperature", "0"};
    const auto completed = [&](std::vector<std::string> model) {
        model.insert(model.begin(), "complete");
        model.insert(model.end(), prompt.begin(), prompt.end());
        return foresay(model);
    };
    server_.forget_requests();
    const Outcome by_path = completed({"--model", path});
    ASSERT_EQ(by_path.status, 0) << by_path.error;
    EXPECT_NE(by_path.out, "");
    for (const std::vector<std::string>& model :
         std::vector<std::vector<std::string>>{{"--model", "hf:" + kName},
                                               {"hf:" + kName},
                                               {"hf:" + std::string(kRepo)},
                                               {"--set", "target.model=hf:" + kName}}) {
        const Outcome by_name = completed(model);
        EXPECT_EQ(by_name.out, by_path.out) << model.back() << by_name.error;
    }
    EXPECT_THAT(server_.requests(), IsEmpty()) << "what is here is used as it is";
    const Outcome chat = foresay({"chat", "hf:" + kName, "-n", "4"}, "def f(x):\n");
    EXPECT_EQ(chat.status, 0) << chat.error;
    EXPECT_NE(chat.out, "");
    EXPECT_EQ(foresay({"inspect", "--verify", "hf:" + kName}).status, 0);

    EXPECT_EQ(foresay({"remove", kName}).status, 2) << "there is no terminal to ask at";
    EXPECT_TRUE(fs::exists(path));
    const Outcome removed = foresay({"remove", kName, "--yes"});
    EXPECT_EQ(removed.status, 0) << removed.error;
    EXPECT_EQ(removed.out, "removed " + kName + ": 1 file, 7.2 MiB\n");
    EXPECT_FALSE(fs::exists(repo_folder()));
    EXPECT_THAT(listed(), IsEmpty());
    EXPECT_THAT(foresay({"list"}).error, HasSubstr("`foresay pull ORG/NAME:QUANT` fetches one"));
    const Outcome again = foresay({"remove", kName, "--yes"});
    EXPECT_EQ(again.status, 1);
    EXPECT_THAT(again.error, HasSubstr("there is no ann/python-coder-GGUF in"));
}

// Two models fetched, and a conversation with the larger: the smaller one, in a repository of its own, drafts for it.
TEST_F(HubProgram, ANewUserPullsListsAndChatsWithADraft) {
    server_.put("ann/python-coder-draft-GGUF", {{"python-coder-draft-Q8_0.gguf", small_model()}});
    for (const char* name : {"ann/python-coder-GGUF:Q4_K_M", "ann/python-coder-draft-GGUF"}) {
        const Outcome pulled = foresay({"pull", name});
        ASSERT_EQ(pulled.status, 0) << pulled.error;
    }
    EXPECT_THAT(foresay({"list"}).out,
                AllOf(HasSubstr("ann/python-coder-GGUF:Q4_K_M"), HasSubstr("ann/python-coder-draft-GGUF:Q8_0")));
    server_.forget_requests();
    const auto chat = [&](std::vector<std::string> more) {
        Call chat = call({"chat", "hf:ann/python-coder-GGUF:Q4_K_M", "-n", "16", "--no-save"}, "def f(x):\n");
        chat.arguments.insert(chat.arguments.end(), more.begin(), more.end());
        chat.environment.emplace_back("FORESAY_LOG", "info");
        return run(chat);
    };
    const Outcome found = chat({}), without = chat({"--draft", "none"});
    ASSERT_EQ(found.status, 0) << found.error;
    EXPECT_NE(found.out, "");
    EXPECT_EQ(found.out, without.out);
    EXPECT_THAT(found.error, AllOf(HasSubstr("models--ann--python-coder-draft-GGUF"), HasSubstr("times as fast"),
                                   HasSubstr("loading the draft")));
    EXPECT_THAT(without.error, Not(HasSubstr("loading the draft")));
    EXPECT_THAT(server_.requests(), IsEmpty()) << "what is here is used as it is";
}

TEST_F(HubProgram, AConfigurationNamesBothModelsAndTheyAreFetched) {
    const std::string pair = write_scratch("pair.toml", "[target]\nmodel = \"hf:" + std::string(kRepo) +
                                                            ":Q4_K_M\"\n[draft]\nmodel = \"hf:" + kName + "\"\n");
    const Outcome unchecked = foresay({"config", "check", pair});
    EXPECT_EQ(unchecked.status, 1);
    EXPECT_THAT(unchecked.error, AllOf(HasSubstr("pair.toml:2:9: ann/python-coder-GGUF:Q4_K_M is not in"),
                                       HasSubstr("get it with `foresay pull ann/python-coder-GGUF:Q4_K_M`")));
    EXPECT_THAT(server_.requests(), IsEmpty()) << "checking fetches nothing";
    const std::vector<std::string> prompt = {"-p", "def f(x):\n", "-n", "8", "--temperature", "0"};
    std::vector<std::string> bundled = {"complete"}, named = {"complete", pair};
    bundled.insert(bundled.end(), prompt.begin(), prompt.end());
    named.insert(named.end(), prompt.begin(), prompt.end());
    const Outcome result = foresay(named);
    EXPECT_EQ(result.status, 0) << result.error;
    EXPECT_EQ(result.out, foresay(bundled).out);
    EXPECT_EQ(listed().size(), 2u);
    EXPECT_EQ(foresay({"config", "check", pair}).status, 0);
    EXPECT_THAT(foresay({"config", "show", pair}).out, HasSubstr("model = \"hf:ann/python-coder-GGUF:Q4_K_M\""));
}

TEST_F(HubProgram, PrintsLinesForPrograms) {
    slow_down();
    const Outcome pulled = foresay({"pull", kName, "--json"});
    ASSERT_EQ(pulled.status, 0) << pulled.error;
    EXPECT_EQ(pulled.error, "");
    std::vector<json> lines;
    std::istringstream stream(pulled.out);
    for (std::string line; std::getline(stream, line);) lines.push_back(json::parse(line));
    ASSERT_GE(lines.size(), 3u);
    EXPECT_EQ(lines.front().at("event"), "plan");
    EXPECT_EQ(lines.front().at("missing"), small_model().size());
    EXPECT_EQ(lines.front().at("files").at(0).at("path"), "python-coder-Q8_0.gguf");
    EXPECT_EQ(lines[1].at("event"), "progress");
    EXPECT_EQ(lines[1].at("bytes"), small_model().size());
    EXPECT_EQ(lines.back().at("event"), "done");
    EXPECT_EQ(contents(lines.back().at("path").get<std::string>()), small_model());
    EXPECT_EQ(lines.back().at("fetched"), small_model().size());
}

TEST_F(HubProgram, ASignalInTheMiddleLeavesNothingHalfWritten) {
    slow_down();
    int stopped = 0;
    for (const int signal : {SIGINT, SIGTERM, SIGKILL, SIGINT, SIGKILL}) {
        Call one = call({"pull", kName, "--json"});
        one.on_more = [&](pid_t program, const Outcome& so_far) {
            if (so_far.out.find("\"progress\"") != std::string::npos) ::kill(program, signal);
        };
        const Outcome outcome = run(one);
        if (outcome.status == 0) break;  // the rest came at once
        ++stopped;
        EXPECT_EQ(outcome.status, signal == SIGINT ? 130 : 128 + signal);
        if (signal == SIGINT) {
            EXPECT_THAT(outcome.error, HasSubstr("continues where it stopped"));
        }
        expect_nothing_visible();
    }
    EXPECT_GE(stopped, 3);
    server_.set_fault(nullptr);
    const Outcome whole = foresay({"pull", kName});
    EXPECT_EQ(whole.status, 0) << whole.error;
    EXPECT_EQ(contents(whole.out.substr(0, whole.out.size() - 1)), small_model());
}

TEST_F(HubProgram, CtrlCWhileAConversationFetchesItsModel) {
    slow_down();
    Call one = call({"chat", "hf:" + kName}, "x\n");
    one.environment.emplace_back("FORESAY_LOG", "info");
    one.on_more = [](pid_t program, const Outcome& so_far) {
        if (so_far.error.find("7.2 MiB") != std::string::npos) ::kill(program, SIGINT);
    };
    const Outcome outcome = run(one);
    EXPECT_EQ(outcome.status, 130);
    EXPECT_THAT(outcome.error, HasSubstr("`foresay pull ann/python-coder-GGUF:Q8_0` continues where it stopped"));
    expect_nothing_visible();
}

TEST_F(HubProgram, TwoPullsFetchOnce) {
    slow_down();
    Outcome first, second;
    std::thread other([&] { second = foresay({"pull", kName}); });
    first = foresay({"pull", kName});
    other.join();
    EXPECT_EQ(first.status, 0) << first.error;
    EXPECT_EQ(first.out, second.out);
    std::size_t bytes = 0;
    for (const ServedRequest& request : server_.requests()) bytes += request.storage ? 1 : 0;
    EXPECT_EQ(bytes, 1u) << "one request, since the file is smaller than a segment";
}

TEST_F(HubProgram, AFullDisk) {
    Call one = call({"pull", kName});
    one.in_child = [] {
        const rlimit limit = {1 << 20, 1 << 20};
        ::setrlimit(RLIMIT_FSIZE, &limit);
    };
    const Outcome outcome = run(one);
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("make room and pull again, what has arrived is kept"));
    expect_nothing_visible();
    EXPECT_EQ(foresay({"pull", kName}).status, 0);
}

TEST_F(HubProgram, BadInput) {
    server_.put("ann/empty", {{"README.md", "nothing", false}});
    struct Case {
        std::vector<std::string> arguments;
        int status;
        std::string wanted;
    };
    const std::vector<Case> cases = {
        {{"pull"}, 2, "MODEL"},
        {{"pull", "../x"}, 2, "'../x' is no model of the hub; write ORG/NAME"},
        {{"pull", "ann/none"}, 1, "there is no ann/none at http://127.0.0.1"},
        {{"pull", "ann/empty"}, 1, "ann/empty has no GGUF file and no folder of safetensors"},
        {{"pull", std::string(kRepo) + ":Q2_K"}, 1, "has no 'Q2_K'; name one of them after a colon: Q4_K_M, Q8_0"},
        {{"pull", kName + "@v7"}, 1, "has no revision 'v7'"},
        {{"complete", "--model", "hf:ann/none", "-p", "x"}, 1, "--model: there is no ann/none at"},
        {{"complete", "--draft", "hf:x y", "-p", "x"}, 1, "--draft: 'hf:x y' is no model of the hub"},
        {{"complete", "hf:a/b", "--model", "c", "-p", "x"},
         2,
         "the model is named twice, as hf:a/b and with --model c"},
        {{"chat", "hf:a/b", "--shape", "llama-3.2-1b"}, 2, "--shape replaces the model"},
        {{"remove", "ann/none", "-y"}, 1, "there is no ann/none in"},
    };
    for (const Case& one : cases) {
        const Outcome outcome = foresay(one.arguments);
        EXPECT_EQ(outcome.status, one.status) << one.arguments[0] << outcome.error;
        EXPECT_THAT(outcome.error, HasSubstr(one.wanted));
        EXPECT_EQ(outcome.out, "");
    }
    EXPECT_THAT(listed(), IsEmpty());
}

TEST_F(HubProgram, TheTokenIsNeverShown) {
    server_.gate(kRepo, "hf_secret");
    Call one = call({"pull", kName, "--json"});
    one.environment.emplace_back("FORESAY_LOG", "trace");
    const Outcome without = run(one);
    EXPECT_EQ(without.status, 1);
    EXPECT_THAT(without.error, HasSubstr("is gated: accept its terms at http://127.0.0.1"));
    fs::create_directories(home_);
    std::ofstream(home_ / "token") << "hf_wrong\n";
    const Outcome wrong = run(one);
    EXPECT_THAT(wrong.error, AllOf(HasSubstr("with the account of the token in " + (home_ / "token").string()),
                                   Not(HasSubstr("hf_wrong"))));
    one.environment.emplace_back("HF_TOKEN", "hf_secret");
    const Outcome with = run(one);
    EXPECT_EQ(with.status, 0) << with.error;
    EXPECT_THAT(with.out + with.error, Not(HasSubstr("hf_secret")));
}

TEST_F(HubProgram, UsesTheProxyOfTheEnvironment) {
    Call one = call({"pull", kName});
    one.environment.emplace_back("http_proxy", "http://127.0.0.1:9");
    one.environment.emplace_back("no_proxy", "");
    const Outcome refused = run(one);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, AllOf(HasSubstr("no connection to " + server_.url()), HasSubstr("port 9")));
    EXPECT_THAT(server_.requests(), IsEmpty()) << "all goes through the proxy";
    one.environment.back().second = "127.0.0.1";
    EXPECT_EQ(run(one).status, 0);
}

TEST_F(HubProgram, OverHttpsWithACertificateOfOnesOwn) {
    HubServer secure(true);
    put_pair(secure);
    Call one = call({"pull", kName});
    one.environment.back().second = secure.url();
    const Outcome refused = run(one);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, HasSubstr("is not trusted"));
    const std::string certificate = write_scratch("ca.pem", secure.certificate());
    for (const std::string variable : {"SSL_CERT_FILE", "CURL_CA_BUNDLE"}) {
        fs::remove_all(home_);
        one.environment.emplace_back(variable, certificate);
        const Outcome accepted = run(one);
        EXPECT_EQ(accepted.status, 0) << variable << accepted.error;
        one.environment.pop_back();
    }
}

TEST_F(HubProgram, StartsWithoutLibcurl) {
    // A file that is no library, where the loader looks first.
    write_scratch("nothing/libcurl.so.4", "no library");
    write_scratch("nothing/libcurl-gnutls.so.4", "no library");
    const auto without = [&](std::vector<std::string> arguments) {
        Call one = call(std::move(arguments));
        one.environment.emplace_back("LD_LIBRARY_PATH", (scratch() / "nothing").string());
        return run(one);
    };
    const Outcome pulled = without({"pull", kName});
    EXPECT_EQ(pulled.status, 1);
    EXPECT_THAT(pulled.error, AllOf(HasSubstr("libcurl, which is not installed; install it"),
                                    HasSubstr("apt-get install libcurl4 ca-certificates")));
    EXPECT_EQ(without({"list"}).status, 0);
    EXPECT_EQ(without({"complete", "-p", "x", "-n", "1"}).status, 0);
    ASSERT_EQ(foresay({"pull", kName}).status, 0);
    EXPECT_EQ(without({"complete", "hf:" + kName, "-p", "x", "-n", "1"}).status, 0) << "what is here needs no libcurl";
}

TEST_F(HubProgram, ListsRubbishAndWhatCannotRun) {
    std::string damaged = small_model();
    damaged.resize(damaged.size() / 2);
    server_.put("ann/damaged-GGUF", {{"damaged-Q8_0.gguf", damaged}});
    server_.put("ann/text-GGUF", {{"text.gguf", "this is text"}});
    server_.put("ann/unknown", {{"config.json", R"({"model_type": "newest", "architectures": ["Newest"]})", false},
                                {"model.safetensors", contents(source("tests/golden/tiny/llama3/model.safetensors"))}});
    server_.put("ann/folder", {{"config.json", contents(source("tests/golden/tiny/llama3/config.json")), false},
                               {"model.safetensors", contents(source("tests/golden/tiny/llama3/model.safetensors"))}});
    for (const char* name : {"ann/damaged-GGUF", "ann/text-GGUF", "ann/unknown", "ann/folder"}) {
        EXPECT_EQ(foresay({"pull", name}).status, 0) << name;
    }
    const json models = listed();
    ASSERT_EQ(models.size(), 4u);
    EXPECT_EQ(models[0].at("name"), "ann/damaged-GGUF:Q8_0");
    EXPECT_TRUE(models[0].contains("problem"));
    EXPECT_EQ(models[0].at("weights"), "Q8_0") << "from its name";
    EXPECT_EQ(models[1].at("name"), "ann/folder");
    EXPECT_EQ(models[1].at("family"), "llama");
    EXPECT_EQ(models[1].at("files"), 2);
    EXPECT_EQ(models[2].at("family"), "");
    EXPECT_EQ(models[3].at("family"), "newest");
    const Outcome list = foresay({"list"});
    EXPECT_EQ(list.status, 0);
    EXPECT_THAT(list.out, AllOf(HasSubstr("ann/folder "), HasSubstr("    cannot run: ")));
}

TEST_F(HubProgram, TheProgressIsGoneWhenThePathIsPrinted) {
    if (shell("command -v script").empty()) GTEST_SKIP() << "script, which makes a terminal, is not installed";
    slow_down();
    const std::string shown =
        shell("env HF_HUB_CACHE= CURL_CA_BUNDLE= HF_HOME=" + home_.string() + " HF_ENDPOINT=" + server_.url() +
              " script -qec '" FORESAY_PROGRAM " pull " + kName + "' /dev/null");
    const std::size_t last = shown.rfind("\r\x1b[K");
    ASSERT_NE(last, shown.npos) << shown;
    EXPECT_THAT(shown.substr(0, last), AllOf(HasSubstr(" % of 7.2 MiB"), HasSubstr(" left")));
    EXPECT_THAT(shown.substr(last + 4), AllOf(StartsWith(home_.string()), EndsWith("python-coder-Q8_0.gguf\r\n")));
}

class HubTerminal : public TmuxTerminal {};

TEST_F(HubTerminal, ShowsRateAndTimeAndThenTheConversation) {
    if (IsSkipped()) return;
    if (const std::string why = hub::missing_libcurl(); !why.empty()) GTEST_SKIP() << why;
    HubServer server;
    put_pair(server);
    server.set_fault([](const ServedRequest& request, Reply& reply) {
        if (request.storage) reply.piece = std::chrono::milliseconds(10);
    });
    const fs::path home = scratch() / "terminal";
    start("hf:" + kName, "HF_HUB_CACHE= HF_HOME=" + home.string() + " HF_ENDPOINT=" + server.url());
    expect_screen(AllOf(HasSubstr("ann/python-coder-GGUF:Q8_0: 1 file, 7.2 MiB"), HasSubstr("[#"),
                        HasSubstr(" % of 7.2 MiB, "), HasSubstr("MiB/s, "), HasSubstr(" s left")));
    expect_screen(AllOf(Not(HasSubstr("s left")), HasSubstr("\n>")));
    fs::remove_all(home);
}

}  // namespace
}  // namespace foresay::testing
