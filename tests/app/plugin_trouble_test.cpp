// The program with plugins that crash, end it, hang, or answer as they must not: nothing is lost, and the plugin is
// named.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>

#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

const std::string kBad = FORESAY_BAD_FOLDER;
const std::string kTrouble = kBad + "/trouble.so";
constexpr int kWide = 400;  // columns: messages that name a file of the build folder fit on one line

// Options that put trouble.so first in the chain.
std::vector<std::string> with_trouble(const std::string& deed, int at = 0, const std::string& file = kTrouble) {
    return {"--set",
            "plugin=[{name=\"trouble\", path=\"" + file + "\", options={deed=\"" + deed +
                "\", at=" + std::to_string(at) + "}}]",
            "--set", "sampling.chain=[\"trouble\",\"top_k\",\"temperature\"]"};
}

// A home of its own for each test, so that what is barred in one does not hinder another.
class PluginTrouble : public ::testing::Test {
protected:
    void SetUp() override { fs::remove_all(home()); }  // of an earlier round
    std::string home() const {
        return (scratch() / ::testing::UnitTest::GetInstance()->current_test_info()->name()).string();
    }
    Call call(std::vector<std::string> arguments, const std::vector<std::string>& more = {},
              const std::string& input = "") const {
        Call call;
        call.arguments = std::move(arguments);
        call.arguments.insert(call.arguments.end(), more.begin(), more.end());
        call.input = input;
        call.environment = {{"XDG_STATE_HOME", home()}};
        call.in_child = [] {
            const rlimit none{};
            ::setrlimit(RLIMIT_CORE, &none);
        };
        return call;
    }
    Outcome complete(const std::vector<std::string>& more) const {
        return run(call({"complete", "-p", "def f(x):", "-n", "8"}, more));
    }
    Outcome chat(const std::string& input, const std::vector<std::string>& more = {}) const {
        return run(call({"chat", "--lines", "-n", "6"}, more, input));
    }
};

#ifndef FORESAY_SANITIZED  // sanitizers report crashes themselves
TEST_F(PluginTrouble, TheCheckSaysWhatIsWrong) {
    const std::string wrong = kBad + "/wrong.so";
    const Outcome failed = run(call({"plugin", "check", wrong, "--sampler", "nan", "--only", "bounds", "--seed", "5"}));
    EXPECT_EQ(failed.status, 1) << failed.error;
    EXPECT_EQ(failed.out,
              "nan\n  FAILED   bounds                      process() returns a logit that is not a number, or infinite "
              "(step 1)\n0 passed, 1 failed, 0 skipped\n");
    const Outcome passed = run(call({"plugin", "check", wrong, "--sampler=nothing", "--only=clones", "--json"}));
    EXPECT_EQ(passed.status, 0) << passed.error;
    EXPECT_THAT(passed.out, AllOf(HasSubstr("\"failed\": 0"), HasSubstr("\"sampler\": \"nothing\""),
                                  HasSubstr("\"outcome\": \"ok\"")));
    const std::vector<std::string> crashing = {"plugin", "check", kTrouble, "--only", "same again"};
    EXPECT_EQ(run(call(crashing)).status, 0);
    EXPECT_THAT(run(call(crashing, {"deed=segfault"})).out,
                HasSubstr("FAILED   same again                  it crashes in process(): Segmentation fault"));
    EXPECT_THAT(run(call({"plugin", "list"})).out, Not(HasSubstr("barred"))) << "a check bars nothing";
    EXPECT_EQ(run(call({"plugin", "check", "top_k", "k=3", "--only", "bounds"})).status, 0);
    // A mistyped parameter is the caller's, and checks nothing.
    const Outcome slip = run(call({"plugin", "check", kTrouble, "dead=segfault"}));
    EXPECT_EQ(slip.status, 2);
    EXPECT_EQ(slip.out, "");
    EXPECT_EQ(slip.error, "foresay: sampler 'trouble' has no parameter 'dead'; did you mean 'deed'?\n");
    const Outcome type = run(call({"plugin", "check", "top_k", "k=x", "--only", "bounds"}));
    EXPECT_EQ(type.status, 2);
    EXPECT_EQ(type.error, "foresay: top_k.k must be an integer\n");
    EXPECT_THAT(run(call({"plugin", "check", "top_k", "--only", "bound"})).error, HasSubstr("did you mean 'bounds'?"));
    EXPECT_THAT(run(call({"plugin", "check", "no_such"})).error, HasSubstr("no built-in stage or plugin 'no_such'"));
}

TEST_F(PluginTrouble, ACrashIsNamedListedAndFreed) {
    const Outcome crashed = complete(with_trouble("segfault"));
    EXPECT_EQ(crashed.status, 128 + SIGSEGV);
    EXPECT_THAT(crashed.error, HasSubstr("foresay: sampler 'trouble' of plugin '" + kTrouble +
                                         "' crashed in process(): segmentation fault; "));
    const Outcome refused = complete(with_trouble("none"));
    EXPECT_EQ(refused.status, 1);
    EXPECT_THAT(refused.error, AllOf(ContainsRegex("^foresay: --set #1: plugin '" + kTrouble +
                                                   "' is barred since [-0-9]+ [:0-9]+ UTC: its sampler 'trouble' "
                                                   "crashed in process\\(\\): segmentation fault; "),
                                     HasSubstr("`foresay plugin free trouble`")));
    EXPECT_EQ(std::count(refused.error.begin(), refused.error.end(), '\n'), 1) << refused.error;
    EXPECT_THAT(run(call({"plugin", "list"})).out,
                ContainsRegex("barred\n  trouble +" + kTrouble + "  barred since .*segmentation fault\n"));
    EXPECT_THAT(run(call({"plugin", "free", "wordlist"})).error,
                HasSubstr("no plugin 'wordlist' is barred; barred are trouble"));
    EXPECT_EQ(run(call({"plugin", "free", kTrouble})).out, "freed " + kTrouble + "\n");
    EXPECT_THAT(run(call({"plugin", "free", "trouble"})).error, HasSubstr("no plugin 'trouble' is barred; none is"));
    EXPECT_EQ(complete(with_trouble("none")).status, 0);
}

// The key of the configuration: the same text, and what is bad ends the answer and not the program.
TEST_F(PluginTrouble, AnIsolatedPluginCostsItsOwnProcess) {
    const auto apart = [&](const std::string& deed, std::vector<std::string> more = {}) {
        std::vector<std::string> arguments = with_trouble(deed, 9);
        arguments.insert(arguments.end(),
                         {"--set", "plugin.trouble.isolated=true", "--set", "plugin.trouble.deadline_ms=300"});
        arguments.insert(arguments.end(), more.begin(), more.end());
        return complete(arguments);
    };
    const Outcome sound = complete(with_trouble("none", 9));
    EXPECT_EQ(apart("none").out, sound.out);
    EXPECT_EQ(apart("none", {"--set", "speculation.mode=off"}).out, sound.out);
    const std::pair<const char*, const char*> troubles[] = {
        {"segfault", "it crashed in process(): Segmentation fault"},
        {"hang", "process() did not return within 300 ms"},
        {"leak", "it used up the 1024 MiB of memory that it may have, in process(): std::bad_alloc"}};
    for (const auto& [deed, why] : troubles) {
        const Outcome failed = apart(deed);
        EXPECT_EQ(failed.status, 1) << deed;
        EXPECT_THAT(failed.error, HasSubstr("foresay: sampler 'trouble' failed: " + std::string(why)));
        EXPECT_THAT(sound.out, StartsWith(failed.out)) << "what was said before stays";
    }
    EXPECT_EQ(apart("segfault", {"--set", "plugin.trouble.on_error=skip"}).out, sound.out);
    EXPECT_THAT(run(call({"plugin", "list"})).out, Not(HasSubstr("barred"))) << "a crash there bars nothing";
}

// Of several answers the one that fails ends, with a sentence on its branch.
TEST_F(PluginTrouble, AFailureEndsItsOwnAnswerOfSeveral) {
    const std::vector<std::string> sound = with_trouble("none");
    const auto answer = [&](const char* branch) {
        return run(call({"complete", "-p", "def f(x):\n", "-n", "6", "--branch", branch}, sound)).out;
    };
    const Outcome outcome = chat("/n 3 def f(x):\n/branch\n/retry\n", with_trouble("branch"));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("foresay: sampler 'trouble' failed: this is branch 1\n"));
    EXPECT_THAT(outcome.error, HasSubstr("The first one is current"));
    EXPECT_THAT(outcome.out, StartsWith(answer("0") + "\n"));
    EXPECT_THAT(outcome.out, HasSubstr(answer("2") + "\n"));
    EXPECT_THAT(outcome.out, HasSubstr(answer("3") + "\n")) << "the conversation goes on";
    const Outcome first = chat("def f(x):\n/n 2\n", with_trouble("branch"));
    EXPECT_THAT(first.error, HasSubstr("foresay: sampler 'trouble' failed: this is branch 1\n"));
    EXPECT_THAT(first.error, HasSubstr("The first that did not fail is current (/branch 2: "));
    EXPECT_THAT(first.out, HasSubstr(answer("2") + "\n"));
    // The only answer: the conversation is as it was.
    const Outcome only = chat("def f(x):\n/n 1\n/branch\n", with_trouble("branch"));
    EXPECT_EQ(only.status, 1);
    EXPECT_THAT(only.error + only.out, Not(HasSubstr("is current")));
}

TEST_F(PluginTrouble, ASessionGoesOnWithoutTheBarredPlugin) {
    const Outcome crashed =
        chat("x = 1\n/plugin load " + kTrouble + " deed=abort\ny = 2\nz = 3\n", {"--session", "work"});
    EXPECT_EQ(crashed.status, 128 + SIGABRT);
    EXPECT_THAT(crashed.error, HasSubstr("crashed in process(): abort"));
    const Outcome resumed = chat("/sampler\nx = 4\n", {"--continue"});
    EXPECT_EQ(resumed.status, 0) << resumed.error;
    EXPECT_THAT(resumed.error,
                AllOf(StartsWith("foresay: the chain goes on without 'trouble', whose plugin is barred since "),
                      HasSubstr("crashed in process(): abort; to bring it back: /plugin free trouble, /plugin load " +
                                kTrouble + "\n"),
                      HasSubstr("1   wordlist")));
    EXPECT_THAT(run(call({"session", "show", "work"})).out, AllOf(HasSubstr("> x = 1\n"), HasSubstr("> x = 4\n")));
    EXPECT_EQ(run(call({"session", "replay", "work"})).status, 0) << "what was saved since needs no plugin";
    // A script that needs the plugin is told.
    const Outcome script = chat("x = 1\n", with_trouble("none"));
    EXPECT_EQ(script.status, 1);
    EXPECT_THAT(script.error, HasSubstr("is barred since "));
    EXPECT_EQ(script.out, "");
    // Back again.
    const Outcome back = chat("/plugin free nothing\n/plugin load " + kTrouble +
                                  "\n/plugin free trouble\n/plugin load " + kTrouble + "\nx = 5\n",
                              {"--session", "work"});
    EXPECT_EQ(back.status, 1) << "two of the commands were wrong";
    EXPECT_THAT(back.error, AllOf(HasSubstr("no plugin 'nothing' is barred; barred are trouble"),
                                  ContainsRegex("plugin '[^']+' is barred since .*\nFreed " + kTrouble + ".\n")));
    EXPECT_THAT(back.error, HasSubstr("1   trouble"));
}
#endif

TEST_F(PluginTrouble, EndingTheProgramIsAnErrorAndTheTextSoFarStays) {
    const std::string whole = complete(with_trouble("none")).out;
    const Outcome ended = complete(with_trouble("exit", 9));
#ifndef FORESAY_SANITIZED
    EXPECT_EQ(ended.status, 1);
    EXPECT_EQ(ended.error, "foresay: sampler 'trouble' of plugin '" + kTrouble +
                               "' called exit() in process(), which ends the program\n");
#endif
    EXPECT_THAT(ended.out, Not(IsEmpty()));
    EXPECT_TRUE(whole.starts_with(ended.out) && ended.out.size() < whole.size()) << ended.out;
    // _exit() asks no handler. The next start knows.
    EXPECT_EQ(complete(with_trouble("_exit")).status, 0);
    Call next = call({"complete", "-p", "x", "-n", "1"}, with_trouble("none"));
    next.environment.emplace_back("FORESAY_LOG", "warn");
    EXPECT_THAT(run(next).error, AllOf(HasSubstr("plugin '" + kTrouble + "' was running when foresay last ended"),
                                       HasSubstr("_exit()")));
    EXPECT_THAT(run(next).error, Not(HasSubstr("was running")));
    // The turns before stay.
    const Outcome talk = chat("x = 1\n/plugin load " + kTrouble + " deed=exit\ny = 2\n", {"--session", "work"});
#ifndef FORESAY_SANITIZED
    EXPECT_EQ(talk.status, 1);
#endif
    EXPECT_THAT(run(call({"session", "show", "work"})).out, HasSubstr("> x = 1\n"));
    EXPECT_EQ(chat("y = 2\n", {"--session", "work", "--set", "plugin.trouble.options.deed=none"}).status, 0);
}

TEST_F(PluginTrouble, WithoutRoomForAMarkerAllCommandsRun) {
    const std::string expected = complete({}).out;
    const auto limited = [&](Call one) {
        one.environment.emplace_back("FORESAY_LOG", "warn");
        one.in_child = [] {
            const rlimit limit{};
            ::setrlimit(RLIMIT_FSIZE, &limit);
        };
        return run(one);
    };
    const Outcome text = limited(call({"complete", "-p", "def f(x):", "-n", "8"}));
    EXPECT_EQ(text.status, 0) << text.error;
    EXPECT_EQ(text.out, expected);
    EXPECT_THAT(text.error, ContainsRegex("^foresay: warning: no crash marker can be kept in " + home() +
                                          "/foresay: File too large; [^\n]*\n$"));
    const std::string line = "def f(x):\n";  // what the entry adds to the document
    EXPECT_EQ(limited(call({"chat", "--lines", "-n", "8"}, {}, line)).out,
              run(call({"complete", "-p", line, "-n", "8"})).out + "\n");
    const std::string config = source("configs/python-coder.toml");
    for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
             {"plugin", "list"}, {"plugin", "show", "wordlist"}, {"config", "check", config}}) {
        const Outcome outcome = limited(call(arguments));
        EXPECT_EQ(outcome.status, 0) << arguments[0] << outcome.error;
        EXPECT_THAT(outcome.out, Not(IsEmpty()));
    }
    // Nor does a state folder that cannot be made matter.
    Call nowhere = call({"complete", "-p", "def f(x):", "-n", "8"});
    nowhere.environment = {{"XDG_STATE_HOME", "/proc/no"}, {"FORESAY_LOG", "warn"}};
    const Outcome elsewhere = run(nowhere);
    EXPECT_EQ(elsewhere.out, expected);
    EXPECT_THAT(elsewhere.error, HasSubstr("no crash marker can be kept in /proc/no/foresay: No such file"));
}

TEST_F(PluginTrouble, TheFirstInterruptNamesAPluginThatHangsAndTheSecondEnds) {
    Call hanging = call({"chat", "--lines", "-n", "6", "--session", "work"}, {},
                        "x = 1\n/plugin load " + kTrouble + " deed=hang\ny = 2\n");
    const std::string who = "sampler 'trouble' of plugin '" + kTrouble + "'";
    int interrupts = 0;
    hanging.on_more = [&](pid_t child, const Outcome& so_far) {
        const bool hangs = so_far.out.find("<hangs>") != std::string::npos;
        const bool named = so_far.error.find("does not return") != std::string::npos;
        if (interrupts == (named ? 1 : 0) && hangs) {
            ++interrupts;
            ::kill(child, SIGINT);
        }
    };
    const Outcome outcome = run(hanging);
    EXPECT_EQ(outcome.status, 130) << outcome.error;
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("foresay: " + who +
                                " does not return: it is in process(); press Ctrl-C again to end the program\n"),
                      HasSubstr("foresay: ended while " + who + " was in process()\n")));
    EXPECT_THAT(run(call({"session", "show", "work"})).out, HasSubstr("> x = 1\n"));
    // The user has seen it named, and it has not crashed.
    Call next = call({"chat", "--lines", "-n", "6", "--session", "work", "--set", "plugin.trouble.options.deed=none"},
                     {}, "y = 2\n");
    next.environment.emplace_back("FORESAY_LOG", "warn");
    const Outcome again = run(next);
    EXPECT_EQ(again.status, 0) << again.error;
    EXPECT_THAT(again.error, Not(HasSubstr("trouble")));
}

TEST_F(PluginTrouble, AnInterruptNamesAPluginThatHangsAndARequestToEndEnds) {
    for (const bool interrupt_first : {true, false}) {
        Call hanging = call({"chat", "--lines", "-n", "6", "--session", interrupt_first ? "one" : "two"}, {},
                            "x = 1\n/plugin load " + kTrouble + " deed=hang\ny = 2\n");
        int sent = 0;
        hanging.on_more = [&](pid_t child, const Outcome& so_far) {
            if (sent == 0 && so_far.out.find("<hangs>") != std::string::npos) {
                ++sent;
                ::kill(child, interrupt_first ? SIGINT : SIGTERM);
                if (!interrupt_first) ::kill(child, SIGINT);  // ends the program without waiting
            }
            if (interrupt_first && sent == 1 && so_far.error.find("does not return") != std::string::npos) {
                ++sent;
                ::kill(child, SIGTERM);
            }
        };
        const Outcome outcome = run(hanging);
        EXPECT_EQ(sent, interrupt_first ? 2 : 1);
        // Of two signals that wait for a program that is not running, the interrupt is delivered first, and the other
        // one ends it.
        std::vector<int> ends = {128 + SIGTERM};
        if (!interrupt_first) ends.push_back(130);
        EXPECT_THAT(ends, ::testing::Contains(outcome.status)) << outcome.error;
        EXPECT_THAT(outcome.error, HasSubstr("foresay: ended while sampler 'trouble' of plugin '" + kTrouble +
                                             "' was in process()\n"));
    }
}

TEST_F(PluginTrouble, ImpureAnswersAreFoundOut) {
    const Outcome outcome = run(call({"complete", "-p", "def f(x):", "-n", "40"}, with_trouble("impure")));
    EXPECT_EQ(outcome.status, 1);
    EXPECT_THAT(outcome.error, HasSubstr("sampler 'trouble' failed: asked twice about the same candidates, it gave two "
                                         "answers"));
}

// Only differences of logits count: equal ones are equally likely, however large they are.
TEST_F(PluginTrouble, HugeEqualLogitsAreEquallyLikely) {
    std::vector<std::string> options = with_trouble("huge");
    options.back() = "sampling.chain=[\"trouble\"]";
    const Outcome outcome =
        run(call({"complete", "-p", "def f(x):", "-n", "40", "--ignore-eos", "--token-ids"}, options));
    EXPECT_EQ(outcome.status, 0) << outcome.error;
    std::istringstream stream(outcome.out);
    std::set<int> tokens;
    for (int token = 0; stream >> token;) tokens.insert(token);
    EXPECT_GT(tokens.size(), 30u) << outcome.out;  // of the 512 best
}

TEST_F(PluginTrouble, WhatPluginsSayCannotControlTheTerminal) {
    const Outcome shown = run(call({"plugin", "show", "--load", kTrouble}));
    EXPECT_THAT(shown.out, AllOf(HasSubstr("trouble\n  Breaks ?[31mall? rules.\n"), Not(HasSubstr("\x1b"))));
    const Outcome failed = complete(with_trouble("nan"));
    EXPECT_EQ(failed.status, 1);
    EXPECT_THAT(failed.error, HasSubstr("sampler 'trouble' failed: it returned a logit that is not a number"));
}

TEST_F(PluginTrouble, AFileMayHaveAnotherNameThanItsSampler) {
    fs::create_directories(home());
    const std::string renamed = home() + "/x.so", two = kBad + "/bad_two.so";
    fs::copy_file(kTrouble, renamed);
    const Outcome outcome = chat("/plugin load " + renamed + " zz=1\n/plugin load " + renamed + " at=7\n/plugin load " +
                                 two + "\n/plugin load " + two + " second\n");
    EXPECT_THAT(outcome.error,
                AllOf(HasSubstr("sampler 'trouble' has no parameter 'zz'; it has 'deed', 'at'"),
                      HasSubstr("1   trouble       deed = \"none\", at = 7"),
                      HasSubstr(two + " holds the samplers first, second; write /plugin load " + two + " NAME"),
                      HasSubstr("1   second")));
    EXPECT_THAT(run(call({"plugin", "show", "--load", two})).out,
                AllOf(HasSubstr("first\n  One of two."), HasSubstr("second\n")));
    // What has a slash is a file, whatever its name ends with.
    const std::string bare = home() + "/bare", text = write_scratch("notes", "no plugin");
    fs::copy_file(kTrouble, bare);
    EXPECT_THAT(run(call({"plugin", "show", bare})).out, HasSubstr("looks like a sampler plugin"));
    EXPECT_THAT(run(call({"plugin", "show", "--load", bare})).out, HasSubstr("trouble\n"));
    for (const std::string& path : {text, text + ".none"}) {
        const Outcome refused = run(call({"plugin", "show", path}));
        EXPECT_EQ(refused.status, 1);
        EXPECT_THAT(refused.error, HasSubstr("foresay: plugin '" + path + "' cannot be loaded: "));
    }
}

class TroubleAtATerminal : public TmuxTerminal {
protected:
    void SetUp() override {
        TmuxTerminal::SetUp();
        if (!IsSkipped()) fs::remove_all(state() + "/foresay");
    }
};

#ifndef FORESAY_SANITIZED
TEST_F(TroubleAtATerminal, ACrashIsNamedOnALineOfItsOwnAndTheTerminalIsGivenBack) {
    const std::string config =
        write_scratch("trouble.toml", "extends = \"" + source("configs/python-coder.toml") +
                                          "\"\n[sampling]\nchain = [\"trouble\"]\n"
                                          "[[plugin]]\nname = \"trouble\"\npath = \"" +
                                          kTrouble + "\"\n[plugin.options]\ndeed = \"segfault\"\n");
    start("-n 6 " + config + "; echo was $?; stty -a", "", kWide);
    wait_for("trouble.toml names a plugin outside the plugin path:");
    type("y Enter");
    wait_for("lists the commands");
    type("'x = 1' Enter");
    expect_screen(
        AllOf(ContainsRegex("\nforesay: sampler 'trouble' of plugin"), HasSubstr("was 139"), ContainsRegex(" icanon")));
}
#endif

TEST_F(TroubleAtATerminal, TwoInterruptsEndAHang) {
    start("-n 6; echo was $?; stty -a", "", kWide);
    wait_for("lists the commands");
    type("'/plugin load " + kTrouble + " deed=hang' Enter");
    wait_for("1   trouble");
    type("'x = 1' Enter");
    wait_for("<hangs>");
    type("C-c");
    wait_for("press Ctrl-C again to end the program");
    type("C-c");
    expect_screen(AllOf(ContainsRegex("\nforesay: sampler 'trouble' of plugin"), HasSubstr("does not return"),
                        ContainsRegex("\nforesay: ended while sampler"), HasSubstr("was 130"),
                        ContainsRegex(" icanon")));
}

// While `foresay plugin dev` works on it, which its file X.so.dev says.
TEST_F(TroubleAtATerminal, APluginThatWasBuiltAgainIsLoadedBeforeTheNextEntry) {
    const std::string library = write_scratch("dev.so", ""), marker = write_scratch("dev.so.dev", "");
    fs::copy_file(kTrouble, library, fs::copy_options::overwrite_existing);
    const auto build_again = [&] { std::ofstream(library, std::ios::binary | std::ios::app) << "x"; };
    start("-n 4", "", kWide);
    wait_for("lists the commands");
    type("'/plugin load " + library + " deed=none' Enter");
    wait_for("1   trouble");
    type("'x = 1' Enter");
    wait_for_answers(1);
    EXPECT_THAT(screen(), Not(HasSubstr("Built again")));
    build_again();
    type("'/retry 0' Enter");
    wait_for_answers(2);
    EXPECT_THAT(screen(), HasSubstr("Built again and loaded: trouble. /retry 0 repeats the last answer with the same "
                                    "noise, so that only the code differs."));
    std::ofstream(library, std::ios::binary) << "no library";
    type("/retry Enter");
    wait_for("the code from before goes on");
    wait_for_answers(3);
    // Without the marker, nothing is loaded unasked.
    fs::remove(marker);
    fs::copy_file(kTrouble, library, fs::copy_options::overwrite_existing);
    type("/retry Enter");
    wait_for_answers(4);
    EXPECT_THAT(screen(), Not(ContainsRegex("Built again(.|\n)*Built again")));
}

TEST_F(TroubleAtATerminal, ReloadRunsTheCodeThatTheFileHasNow) {
    const std::string library = write_scratch("again.so", "");
    fs::copy_file(kTrouble, library, fs::copy_options::overwrite_existing);
    start("-n 4", "", kWide);
    wait_for("lists the commands");
    type("'/plugin load " + library + "' Enter");
    wait_for("1   trouble");
    type("'x = 1' Enter");
    wait_for_answers(1);
    fs::copy_file(kBad + "/trouble_again.so", library, fs::copy_options::overwrite_existing);
    type("/retry Enter");
    wait_for_answers(2);
    type("'/plugin reload nothing' Enter");
    wait_for("no plugin nothing is loaded; /plugin lists them");
    EXPECT_THAT(screen(), Not(HasSubstr("the new code"))) << "nothing is loaded unasked";
    // The last answer has another branch, so no seed alone repeats it.
    type("'/plugin reload trouble' Enter");
    wait_for("1   trouble", 2);
    EXPECT_THAT(screen(), Not(HasSubstr("the same noise")));
    type("'/retry 0' Enter");
    wait_for("sampler 'trouble' failed: this is the new code");
}

}  // namespace
}  // namespace foresay::testing
