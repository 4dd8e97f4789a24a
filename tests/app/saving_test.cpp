// Conversations are kept, and nothing runs that was not asked for: /save, names, plugins that a session names, pruning,
// damaged ends, and closed streams. tests/app/limits_test.cpp has full disks, limits and signals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <thread>

#include "app/journal/journal.h"
#include "app/journal/record.h"
#include "app/plugin_trust.h"
#include "core/config/layers.h"
#include "engine/configuration.h"
#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

Outcome chat(const std::string& input, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"-n", "5"});
    return testing::chat(input, std::move(more));
}

fs::path session_file(const std::string& name) { return scratch() / "foresay" / "sessions" / (name + ".session"); }

std::string bytes_of(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

std::string shown(const std::string& name) { return run({"session", "show", name}).out; }

// ------------------------------------------------------------------------------------------------------------ /save

TEST(Save, DoesNotReplaceAnOpenSession) {
    Outcome theirs;
    Call mine;
    mine.arguments = {"chat", "--lines", "-n", "5", "--session", "work"};
    mine.input = "mine = 1\nmine = 2\n";
    // While the first conversation is open, another one tries to take its name.
    mine.on_output = [&](pid_t pid) {
        ::kill(pid, SIGSTOP);
        theirs = chat("theirs = 1\n/save work\n/save! work\n/load work\n");
        ::kill(pid, SIGCONT);
    };
    const Outcome outcome = run(mine);
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    EXPECT_EQ(theirs.status, 1);
    EXPECT_THAT(theirs.error, AllOf(HasSubstr("is open in another foresay process"), Not(HasSubstr("Saved as"))));
    EXPECT_THAT(shown("work"), AllOf(HasSubstr("mine = 1"), HasSubstr("mine = 2"), Not(HasSubstr("theirs"))));
}

TEST(Save, ReplacesAClosedSessionOnlyWhenToldTo) {
    chat("first = 1\n", {"--session", "closed"});
    const Outcome refused = chat("second = 1\n/save closed\n");
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, AllOf(HasSubstr("holds another conversation"), HasSubstr("/save! closed")));
    EXPECT_THAT(shown("closed"), HasSubstr("first = 1"));
    EXPECT_EQ(chat("second = 1\n/save! closed\n").status, 0);
    EXPECT_THAT(shown("closed"), AllOf(HasSubstr("second = 1"), Not(HasSubstr("first"))));
    // /sa and /sav still mean /save.
    EXPECT_EQ(chat("third = 1\n/sav fresh\n").status, 0);
    EXPECT_EQ(chat("third = 1\n/sav closed\n").status, 1);
}

TEST(Save, BringsItsOwnCopyUpToDate) {
    EXPECT_EQ(chat("one = 1\n/save copy\ntwo = 2\n/save copy\n").status, 0);
    EXPECT_THAT(shown("copy"), AllOf(HasSubstr("one = 1"), HasSubstr("two = 2")));
    EXPECT_EQ(chat("three = 3\n/save copy2\nfour = 4\n/save copy2\n/save own\n", {"--session", "own"}).status, 0);
    EXPECT_EQ(shown("copy2"), shown("own"));
}

// --pages keeps keys and values, too, and the session says so when it is continued; a broken file costs only time.
TEST(Save, KeepsThePagesWhereAsked) {
    const Outcome saved = chat("one = 1\n/save --pages paged\n/save --pages a b\n");
    EXPECT_THAT(saved.out + saved.error, AllOf(HasSubstr("The keys and values of"), HasSubstr("paged.session.pages"),
                                               HasSubstr("a session's name has no blanks")));
    const fs::path pages = session_file("paged").string() + ".pages";
    ASSERT_TRUE(fs::exists(pages));
    const Outcome resumed = chat("two = 2\n/stats\n", {"--session", "paged"});
    EXPECT_THAT(resumed.out + resumed.error, AllOf(HasSubstr("tokens came back from " + pages.string()),
                                                   HasSubstr("tokens came back from files, of 0")));
    const std::string answers = shown("paged");
    const std::string bytes = bytes_of(pages);
    std::ofstream(pages, std::ios::binary) << bytes.substr(0, bytes.size() / 2);
    const Outcome broken = chat("/undo\ntwo = 2\n", {"--session", "paged"});
    EXPECT_EQ(broken.status, 0);
    EXPECT_THAT(broken.out + broken.error,
                HasSubstr("the pages in " + pages.string() + " are not used: it was cut off"));
    EXPECT_EQ(shown("paged"), answers);
    EXPECT_EQ(run({"session", "delete", "paged"}).status, 0);
    EXPECT_FALSE(fs::exists(pages));
}

// A session keeps the format of its cache, and says so when it is continued with another.
TEST(Save, KeepsThePagesOfACacheWithFewerBits) {
    const auto pages = [](const std::string& name) { return session_file(name).string() + ".pages"; };
    EXPECT_EQ(chat("one = 1\n/save --pages low\n", {"--kv-cache", "k=q6,v=q4"}).status, 0);
    ASSERT_TRUE(fs::exists(pages("low")));
    const Outcome resumed = chat("two = 2\n", {"--session", "low"});
    EXPECT_THAT(resumed.out + resumed.error, HasSubstr("tokens came back from " + pages("low")));
    const Outcome other = chat("three = 3\n", {"--session", "low", "--kv-cache", "f16"});
    EXPECT_EQ(other.status, 0);
    EXPECT_THAT(other.out + other.error, HasSubstr("the pages in " + pages("low") +
                                                   " are not used: it belongs to another model, device, format or "));
    // A page of float16 would be more than three times as large.
    const Outcome set = chat("one = 1\n/set runtime.kv_cache q4\ntwo = 2\n/save --pages set\n");
    EXPECT_EQ(set.status, 0) << set.error;
    EXPECT_THAT(set.out + set.error, HasSubstr("runtime.kv_cache = \"q4\""));
    EXPECT_EQ(chat("one = 1\n/save --pages half\n").status, 0);
    EXPECT_LT(3 * fs::file_size(pages("set")), fs::file_size(pages("half")));
}

TEST(Save, NeverReplacesWhatIsNoSession) {
    const std::string notes = write_scratch("notes.txt", "dear diary\n");
    const Outcome outcome = chat("x = 1\n/save! " + notes + "\n/save! /dev/null\n/save! /tmp\n");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, AllOf(HasSubstr("notes.txt is not a saved session"),
                                     HasSubstr("/dev/null is not a file"), HasSubstr("/tmp is not a file")));
    EXPECT_EQ(bytes_of(notes), "dear diary\n");
    EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

// Two conversations begin with the same new name: the second goes to a file of its own.
TEST(Save, ANameThatIsTakenMeanwhileCostsNothing) {
    const fs::path state = scratch() / "shared";
    const std::string said = (state / "said").string(), go = (state / "go").string();
    fs::create_directories(state);
    const std::string second =
        "(echo /nonsense; until [ -e " + go +
        " ]; do sleep 0.05; done; printf 'second = 1\\n"
        "second = 2\\n') | env FORESAY_LOG=error XDG_CONFIG_HOME=/nowhere XDG_CONFIG_DIRS=/nowhere "
        "XDG_STATE_HOME=" +
        state.string() + " " FORESAY_PROGRAM " chat --lines -n 5 --session shared > /dev/null 2> " + said;
    std::thread waiting([&] { EXPECT_NE(std::system(second.c_str()), -1); });
    // It reports the nonsense after it has looked for the session.
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (bytes_of(said).find("/nonsense") == std::string::npos && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    Call first;
    first.environment = {{"XDG_STATE_HOME", state.string()}};
    first.arguments = {"chat", "--lines", "-n", "5", "--session", "shared"};
    first.input = "first = 1\nfirst = 2\n";
    EXPECT_EQ(run(first).status, 0);
    std::ofstream(go) << "go";
    waiting.join();
    EXPECT_THAT(bytes_of(said),
                HasSubstr("was created by another program meanwhile; this conversation is saved as " + state.string()));
    Call show;
    show.environment = first.environment;
    show.arguments = {"session", "show", "shared"};
    EXPECT_THAT(run(show).out, AllOf(HasSubstr("first = 2"), Not(HasSubstr("second"))));
    show.arguments = {"session", "list"};
    EXPECT_THAT(run(show).out, AllOf(HasSubstr("first = 1"), HasSubstr("second = 1"), HasSubstr("2 turns")));
}

// -------------------------------------------------------------------------------------------------- what was cut off

// A signal that a thread of the computation takes does not end what the main thread waits for.
TEST(Signals, OnlyTheMainThreadTakesThem) {
    // On the CPU: a GPU's driver starts threads of its own, which take signals.
    Call call;
    call.arguments = {"chat", "--lines", "--no-save", "--device", "cpu", "--threads", "3", "-n", "200"};
    call.input = "def f(x):\n";
    std::size_t threads = 0, takers = 0;
    bool faults_blocked = false;
    call.on_output = [&](pid_t pid) {
        for (const auto& task : fs::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
            std::ifstream status(task.path() / "status");
            std::string word;
            while (status >> word && word != "SigBlk:") continue;
            std::uint64_t blocked = 0;
            status >> std::hex >> blocked;
            const auto blocks = [&](int signal) { return (blocked >> (signal - 1) & 1) != 0; };
            ++threads;
            if (!blocks(SIGTERM) || !blocks(SIGINT)) ++takers;
            faults_blocked = faults_blocked || blocks(SIGSEGV) || blocks(SIGBUS);
        }
    };
    EXPECT_EQ(run(call).status, 0);
    EXPECT_GE(threads, 3u);
    EXPECT_EQ(takers, 1u);
    EXPECT_FALSE(faults_blocked) << "the handler of crashes would not run";
}

TEST(Damage, ADamagedEndIsSaidByEveryReader) {
    chat("one = 1\ntwo = 2\n", {"--session", "damaged"});
    std::string bytes = bytes_of(session_file("damaged"));
    bytes[bytes.size() - 20] ^= 1;
    std::ofstream(session_file("damaged"), std::ios::binary) << bytes;
    const Outcome show = run({"session", "show", "damaged"});
    EXPECT_EQ(show.status, 0);
    // The partial answer of the line before is what is left of the turn.
    EXPECT_THAT(show.error, HasSubstr("the program ended during the last answer"));
    EXPECT_THAT(show.out, AllOf(HasSubstr("one = 1"), HasSubstr("two = 2")));
    // Without one, the last whole turn is.
    std::string all, line;
    std::ifstream stream(session_file("damaged"), std::ios::binary);
    while (std::getline(stream, line)) {
        const bool partial = line.find("\"unfinished\"") != line.npos || line.find("{\"of\"") != line.npos;
        if (!partial) all += line + "\n";
    }
    stream.close();
    std::ofstream(session_file("damaged"), std::ios::binary) << all;
    for (const std::vector<std::string>& arguments :
         {std::vector<std::string>{"session", "show", "damaged"}, {"session", "replay", "damaged"}}) {
        const Outcome outcome = run(arguments);
        EXPECT_EQ(outcome.status, 0);
        EXPECT_THAT(outcome.error, HasSubstr("the last change was cut off by a crash and is lost"));
        EXPECT_THAT(outcome.out, Not(HasSubstr("two = 2")));
    }
    EXPECT_THAT(chat("three = 3\n", {"--session", "damaged"}).error, HasSubstr("the last change was cut off"));
    EXPECT_EQ(run({"session", "show", "damaged"}).error, "");
}

TEST(Keeping, AsManyUnnamedSessionsAsConfigured) {
    const fs::path state = scratch() / "pruned";
    Call call;
    call.environment = {{"XDG_STATE_HOME", state.string()}};
    const fs::path folder = state / "foresay" / "sessions";
    fs::create_directories(folder);
    chat("x = 1\n", {"--session", "template"});
    // An unnamed session is begun by a conversation at a terminal, which `script` provides.
    for (int i = 0; i < 3; ++i) {
        const std::string name = "20250101-00000" + std::to_string(i) + ".session";
        fs::copy_file(session_file("template"), folder / name);
        fs::last_write_time(folder / name, fs::file_time_type::clock::now() - std::chrono::hours(10 - i));
    }
    fs::copy_file(session_file("template"), folder / "named.session");
    const std::string command =
        "printf 'x = 1\\n/quit\\n' | env TERM=dumb FORESAY_LOG=error XDG_CONFIG_HOME=" + state.string() +
        " XDG_CONFIG_DIRS=" + state.string() + " XDG_STATE_HOME=" + state.string() +
        " script -qec '" FORESAY_PROGRAM
        " chat -n 5 --simple-io --set chat.keep_sessions=2' /dev/null > /dev/null 2>&1";
    if (std::system("command -v script > /dev/null 2>&1") != 0) GTEST_SKIP() << "script(1) is not installed";
    ASSERT_EQ(std::system(command.c_str()), 0);
    std::vector<std::string> left;
    for (const auto& entry : fs::directory_iterator(folder)) left.push_back(entry.path().stem().string());
    EXPECT_EQ(left.size(), 3u) << "two unnamed ones, the new one included, and the named one";
    EXPECT_THAT(left, AllOf(::testing::Contains("named"), ::testing::Contains("20250101-000002")));
}

// ---------------------------------------------------------------------------------------------------------- plugins

// A plugin with one sampler, NAME, built in `folder`; `body` is its process(), `more` stands before it. Returns a
// configuration that loads it.
std::string build_plugin(const fs::path& folder, const std::string& name, const std::string& body,
                         const std::string& more = "") {
    fs::create_directories(folder);
    const std::string file = (folder / (name + ".cpp")).string();
    std::ofstream(file) << "#include \"sampler.hpp\"\n#include <csignal>\n#include <cstdio>\n#include <stdexcept>\n"
                           "#include <unistd.h>\nnamespace {\n"
                        << more << "\nstruct Own {\n static constexpr foresay::Info info{\"" << name
                        << "\", \"1\", \"Leaves a trace.\", \"Apache-2.0\"};\n explicit "
                           "Own(foresay::detail::NoParameters, foresay::Host) {}\n void process(const "
                           "foresay::Context&, foresay::Candidates&) const {"
                        << body << "}\n};\n}\nFORESAY_EXPORT_SAMPLERS(Own)\n";
    const std::string command = std::string(FORESAY_COMPILER) + " -std=c++17 -shared -fPIC -I " +
                                source("samplers/sdk") + " " + file + " -o " + (folder / (name + ".so")).string();
    EXPECT_EQ(std::system(command.c_str()), 0) << command;
    EXPECT_EQ(run({"plugin", "trust", (folder / (name + ".so")).string()}).status, 0);
    const std::string config = (folder / (name + ".toml")).string();
    std::ofstream(config) << "[target]\nmodel = \"" << source("models/python-coder/target-q4_k_m.gguf")
                          << "\"\n[[plugin]]\nname = \"" << name << "\"\npath = \"" << name
                          << ".so\"\n[sampling]\nchain = [\"" << name << "\", \"temperature\"]\n";
    return config;
}

// ------------------------------------------------------------------------------------- answers that do not end well

TEST(Answers, ThatFailLeaveNothing) {
    const std::string config = build_plugin(scratch() / "fails", "fails", "throw std::runtime_error(\"no\");");
    const Outcome first = chat("x = 1\n", {config, "--session", "failed"});
    EXPECT_EQ(first.status, 1) << first.error;
    EXPECT_FALSE(fs::exists(session_file("failed"))) << "a session begins with its first turn";
    EXPECT_EQ(chat("x = 1\n", {"--session", "failed"}).status, 0);
    const std::string before = shown("failed");
    EXPECT_EQ(chat("y = 2\n", {config, "--session", "failed"}).status, 1);
    EXPECT_EQ(shown("failed"), before);
    EXPECT_EQ(run({"session", "show", "failed"}).error, "");
}

// A plugin that hangs does not let the program end, but SIGTERM does, and the entry is kept.
TEST(Answers, ThatHangCanBeEnded) {
    const std::string config =
        build_plugin(scratch() / "hangs", "hangs", "::kill(::getpid(), SIGTERM); for (;;) ::pause();");
    const Outcome hung = chat("x = 1\n", {config, "--session", "hung"});
    EXPECT_EQ(hung.status, 128 + SIGTERM);
    EXPECT_THAT(hung.error, AllOf(HasSubstr("ended while sampler 'hangs' of plugin"), HasSubstr("in process()")));
    const Outcome show = run({"session", "show", "hung"});
    EXPECT_THAT(show.out, HasSubstr("> x = 1"));
    EXPECT_THAT(show.error, HasSubstr("the program ended during the last answer"));
}

// A plugin whose constructor function leaves a file: proof that its code ran.
class PluginOfASession : public TmuxTerminal {
protected:
    void SetUp() override {
        folder_ =
            scratch() / ("plugin_" + std::string(::testing::UnitTest::GetInstance()->current_test_info()->name()));
        trace_ = folder_ / "it-ran";
        library_ = folder_ / "trace.so";
        config_ = build_plugin(folder_, "trace", "",
                               "[[gnu::constructor]] void ran() { if (auto* f = std::fopen(\"" + trace_.string() +
                                   "\", \"w\")) std::fclose(f); }");
        state_ = {{"XDG_STATE_HOME", (folder_ / "state").string()}};
    }
    // Whether the plugin's code ran since the last call.
    bool ran() { return fs::remove(trace_); }
    // What a user writes who wants the plugin.
    static std::vector<std::string> named_by_hand(const std::string& plugin) {
        return {"complete",
                "-p",
                "x",
                "-n",
                "2",
                "--set",
                "plugin=[{" + plugin + "}]",
                "--set",
                "sampling.chain=[\"trace\"]"};
    }
    void trust() { EXPECT_EQ(here({"plugin", "trust", library_.string()}).status, 0); }
    Outcome here(std::vector<std::string> arguments, const std::string& input = "") {
        Call call;
        call.arguments = std::move(arguments);
        call.input = input;
        call.environment = state_;
        return run(call);
    }
    fs::path file() const { return folder_ / "state" / "foresay" / "sessions" / "traced.session"; }
    // A session that names the plugin and comes from elsewhere: no list of allowed plugins knows of it.
    void make_foreign_session() {
        trust();
        const Outcome made = here({"chat", config_, "--session", "traced", "-n", "5"}, "x = 1\n");
        ASSERT_EQ(made.status, 0) << made.error;
        EXPECT_TRUE(ran());
        fs::remove(folder_ / "state" / "foresay" / "plugins.allowed");
    }

    fs::path folder_, trace_, library_;
    std::string config_;
    std::vector<std::pair<std::string, std::string>> state_;
};

TEST_F(PluginOfASession, ReadingRunsNothing) {
    make_foreign_session();
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"session", "show", "traced"},
                                                      {"session", "list"},
                                                      {"config", "show", config_},
                                                      {"config", "check", config_},
                                                      {"plugin", "show", library_.string()},
                                                      {"plugin", "list"}}) {
        const Outcome outcome = here(arguments);
        EXPECT_EQ(outcome.status, 0) << outcome.error;
        EXPECT_FALSE(ran()) << arguments[0] << " " << arguments[1];
    }
    EXPECT_THAT(here({"config", "check", config_}).out, HasSubstr("not loaded, so their options are not checked"));
    EXPECT_THAT(here({"plugin", "show", library_.string()}).out, HasSubstr("looks like a sampler plugin"));
    // Only when that is asked for, and the file is trusted.
    EXPECT_THAT(here({"config", "check", "--load", config_}).error, HasSubstr("if you trust it: foresay plugin trust"));
    EXPECT_FALSE(ran());
    trust();
    EXPECT_THAT(here({"config", "check", "--load", config_}).out, HasSubstr("ok\n"));
    EXPECT_TRUE(ran());
    EXPECT_THAT(here({"plugin", "show", "--load", library_.string()}).out, HasSubstr("Leaves a trace."));
    EXPECT_TRUE(ran());
    EXPECT_EQ(here({"session", "delete", "traced"}).status, 0);
    EXPECT_FALSE(ran());
    // A file that is no plugin is refused without --load, too.
    const std::string none = write_scratch("none.so", "not a library");
    EXPECT_THAT(here({"plugin", "show", none}).error, HasSubstr("it is not a shared object"));
    std::ofstream(folder_ / "gone.toml") << "extends = \"trace.toml\"\n[[plugin]]\nname = \"trace\"\npath = \"" << none
                                         << "\"\n";
    EXPECT_THAT(here({"config", "check", (folder_ / "gone.toml").string()}).error,
                HasSubstr("it is not a shared object"));
}

TEST_F(PluginOfASession, ASessionAloneCannotLoadIt) {
    make_foreign_session();
    for (const std::vector<std::string>& arguments : {std::vector<std::string>{"chat", "--session", "traced"},
                                                      {"chat", "--continue"},
                                                      {"session", "replay", "traced"}}) {
        const Outcome outcome = here(arguments, "y = 2\n");
        EXPECT_EQ(outcome.status, 1) << arguments[1];
        EXPECT_FALSE(ran()) << arguments[1];
        EXPECT_THAT(outcome.error, AllOf(HasSubstr("session traced names the plugin " + library_.string()),
                                         HasSubstr("if you trust it: foresay plugin trust " + library_.string())));
    }
    const Outcome loaded = here({"chat", "--lines", "-n", "5"}, "/load traced\nx = 1\n");
    EXPECT_THAT(loaded.error, HasSubstr("outside the plugin path"));
    EXPECT_FALSE(ran());
    // A session cannot give a plugin of another layer a path either.
    const std::string forged = "plugin.wordlist.path = '" + library_.string() + "'\n";
    std::string text;
    std::ifstream stream(file(), std::ios::binary);
    for (std::string line; std::getline(stream, line);) {
        const bool settings = line.find("{\"settings\"") == 9;
        text += settings ? app::record_line(app::SettingsRecord{forged}) : line + "\n";
    }
    std::ofstream(file(), std::ios::binary) << text;
    const Outcome outcome = here({"chat", "--session", "traced", "--set", "target.context=512"}, "y = 2\n");
    EXPECT_EQ(outcome.status, 1);
    EXPECT_FALSE(ran()) << outcome.error;
}

// By its contents, wherever it lies; not after it has changed.
TEST_F(PluginOfASession, WhatIsTrustedIsLoaded) {
    make_foreign_session();
    const std::string copy = (folder_ / "copy.so").string();
    fs::copy_file(library_, copy);
    const Outcome trusted = here({"plugin", "trust", copy});
    EXPECT_EQ(trusted.status, 0) << trusted.error;
    EXPECT_THAT(trusted.out, HasSubstr("trusted " + copy + ", SHA-256 "));
    EXPECT_FALSE(ran());
    EXPECT_EQ(here({"chat", "--session", "traced", "-n", "5"}, "y = 2\n").status, 0);
    EXPECT_TRUE(ran());
    std::ofstream(library_, std::ios::binary | std::ios::app) << "x";
    EXPECT_EQ(here({"chat", "--session", "traced", "-n", "5"}, "y = 2\n").status, 1);
    EXPECT_FALSE(ran());
    EXPECT_THAT(here({"plugin", "trust", config_}).error, HasSubstr("it is not a shared object"));
}

// A configuration may come from anywhere, too.
TEST_F(PluginOfASession, AConfigurationAloneCannotLoadItEither) {
    const std::vector<std::string> complete = {"complete", config_, "-p", "x", "-n", "2"};
    const Outcome refused = here(complete);
    EXPECT_EQ(refused.status, 1);
    EXPECT_FALSE(ran());
    EXPECT_THAT(refused.error,
                AllOf(HasSubstr("the configuration " + config_ + " names the plugin " + library_.string()),
                      HasSubstr("if you trust it: foresay plugin trust " + library_.string())));
    // One that extends it is no better.
    const std::string outer = (folder_ / "outer.toml").string();
    std::ofstream(outer) << "extends = \"trace.toml\"\n";
    EXPECT_EQ(here({"complete", outer, "-p", "x", "-n", "2"}).status, 1);
    EXPECT_FALSE(ran());
    // The user's own word is enough.
    EXPECT_EQ(here(named_by_hand("name=\"trace\", path=\"" + library_.string() + "\"")).status, 0);
    EXPECT_TRUE(ran());
    trust();
    EXPECT_EQ(here(complete).status, 0);
    EXPECT_TRUE(ran());
    std::ofstream(library_, std::ios::binary | std::ios::app) << "x";
    EXPECT_EQ(here(complete).status, 1) << "it has changed";
    EXPECT_FALSE(ran());
    state_.emplace_back("FORESAY_PLUGIN_PATH", folder_.string());
    EXPECT_EQ(here(complete).status, 0) << "it is on the plugin path";
}

TEST_F(PluginOfASession, WhatTheUserLoadedGoesOn) {
    trust();
    EXPECT_EQ(here({"chat", config_, "--session", "traced", "-n", "5"}, "x = 1\n").status, 0);
    EXPECT_EQ(here({"chat", "--session", "traced", "-n", "5"}, "y = 2\n").status, 0) << "the user named it before";
    EXPECT_EQ(here({"session", "replay", "traced"}).status, 0);
    // Another file in its place is another plugin.
    std::ofstream(library_, std::ios::binary | std::ios::app) << "x";
    ran();
    EXPECT_EQ(here({"chat", "--session", "traced", "-n", "5"}, "z = 3\n").status, 1);
    EXPECT_FALSE(ran());
    // Unless it is trusted, or is on the plugin path.
    trust();
    EXPECT_EQ(here({"chat", config_, "--session", "traced", "-n", "5"}, "z = 3\n").status, 0);
    fs::remove(folder_ / "state" / "foresay" / "plugins.allowed");
    state_.emplace_back("FORESAY_PLUGIN_PATH", folder_.string());
    EXPECT_EQ(here({"chat", "--session", "traced", "-n", "5"}, "z = 3\n").status, 0);
}

TEST_F(PluginOfASession, IsAskedForOnceAtATerminal) {
    TmuxTerminal::SetUp();
    if (IsSkipped()) return;
    make_foreign_session();
    const std::string own = "XDG_STATE_HOME=" + (folder_ / "state").string();
    start("--session traced", own);
    wait_for("Load it? [y/N]");
    type("n Enter");
    wait_for("status 1");
    EXPECT_THAT(screen(), HasSubstr("which you did not allow"));
    EXPECT_FALSE(ran());
    start("--session traced", own);
    wait_for("Load it? [y/N]");
    EXPECT_FALSE(ran());
    type("y Enter");
    wait_for("Continuing traced");
    EXPECT_TRUE(ran());
    start("--session traced", own);
    wait_for("Continuing traced");
    EXPECT_THAT(screen(), Not(HasSubstr("Load it?"))) << "once";
    stop();
    EXPECT_EQ(here({"session", "replay", "traced"}).status, 0);
}

// The same from within a conversation, whose terminal is in another mode.
TEST_F(PluginOfASession, IsAskedForByLoad) {
    TmuxTerminal::SetUp();
    if (IsSkipped()) return;
    make_foreign_session();
    start("-n 5", "XDG_STATE_HOME=" + (folder_ / "state").string());
    wait_for("lists the commands");
    type("'/load traced' Enter");
    wait_for("Load it? [y/N]");
    type("n Enter");
    wait_for("which you did not allow");
    EXPECT_FALSE(ran());
    type("'/load traced' Enter");
    wait_for("Load it? [y/N]", 2);
    type("y Enter");
    wait_for("Continuing traced");
    EXPECT_TRUE(ran());
    type("'y = 2' Enter");
    wait_for_answers(1);
}

TEST_F(PluginOfASession, AFileThatEveryoneCanChangeIsRefused) {
    const std::vector<std::string> named = named_by_hand("name=\"trace\", path=\"" + library_.string() + "\"");
    fs::permissions(library_, fs::perms::others_write, fs::perm_options::add);
    const Outcome refused = here(named);
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, AllOf(HasSubstr("every user of this machine can change " + library_.string() + ","),
                                     HasSubstr("chmod o-w it first")));
    EXPECT_FALSE(ran());
    fs::permissions(library_, fs::perms::others_write, fs::perm_options::remove);
    // Of a folder as well, also of one on the plugin path.
    fs::permissions(folder_, fs::perms::others_write, fs::perm_options::add);
    EXPECT_THAT(here(named).error, HasSubstr("every user of this machine can change " + folder_.string() + ","));
    state_.emplace_back("FORESAY_PLUGIN_PATH", folder_.string());
    EXPECT_EQ(here(named_by_hand("name=\"trace\"")).status, 1);
    EXPECT_FALSE(ran());
    // Whatever command would run its code.
    for (const std::vector<std::string>& command : {std::vector<std::string>{"plugin", "check", library_.string()},
                                                    {"plugin", "check", "trace"},
                                                    {"plugin", "show", "--load", library_.string()},
                                                    {"plugin", "show", "trace"},
                                                    {"plugin", "trust", library_.string()}}) {
        const Outcome outcome = here(command);
        EXPECT_EQ(outcome.status, 1) << ::testing::PrintToString(command);
        EXPECT_THAT(outcome.error, HasSubstr("every user of this machine can change " + folder_.string() + ","));
        EXPECT_FALSE(ran()) << ::testing::PrintToString(command);
    }
    fs::permissions(folder_, fs::perms::others_write, fs::perm_options::remove);
    EXPECT_EQ(here(named).status, 0);
    EXPECT_TRUE(ran());
}

// What was looked at is what is loaded: neither the file nor where its path leads may change in between.
TEST_F(PluginOfASession, OnlyWhatWasAllowedIsLoaded) {
    ASSERT_EQ(::setenv("XDG_STATE_HOME", (folder_ / "state").c_str(), 1), 0);
    const auto problem = [](const fs::path& stated, const std::string& bytes) {
        return app::admit_plugin(stated, std::as_bytes(std::span(bytes)));
    };
    const fs::path link = folder_ / "link.so", later = folder_ / "later.so";
    fs::create_symlink(library_, link);
    const std::string good = bytes_of(library_);
    std::ofstream(config_) << "[[plugin]]\nname = \"trace\"\npath = \"link.so\"\n"
                           << "[[plugin]]\nname = \"later\"\npath = \"later.so\"\n";
    const core::Config config = engine::load_config(core::read_config_layers(config_), false);
    app::trust_plugin(library_);
    app::check_plugin_trust(config);
    EXPECT_EQ(problem(link, good), "");
    EXPECT_THAT(problem(link, good + "x"), HasSubstr("it changed while it was being loaded"));
    EXPECT_THAT(problem(later, good + "x"), HasSubstr("was not allowed")) << "there was no such file";
    // What the user names is not asked for, whatever was allowed before.
    app::check_plugin_trust(core::Config());
    EXPECT_EQ(problem(link, good + "x"), "");
    ::unsetenv("XDG_STATE_HOME");
}

}  // namespace
}  // namespace foresay::testing
