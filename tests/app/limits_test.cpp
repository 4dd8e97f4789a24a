// No full disk, limit or signal ends a command before its answer, or loses what was said before.
//
// Each series prints one line with its number of runs. The whole matrix is the label slow; the ordinary run takes the
// commands that write (FORESAY_LIMITS=all chooses all).
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "app/journal/journal.h"
#include "core/text/tokenizer.h"
#include "tests/app/program.h"
#include "tests/app/tmux_terminal.h"

namespace foresay::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Arguments = std::vector<std::string>;

bool everything() {
    const char* stated = std::getenv("FORESAY_LIMITS");
    return stated != nullptr && std::string(stated) == "all";
}

constexpr const char* kEntry = "def f(x):";
const std::string kLine = std::string(kEntry) + "\n";  // what an entry adds to a document

std::string expected_answer() {
    static const std::string answer = run({"complete", "-p", kLine, "-n", "10"}).out;
    return answer;
}

// What is run under each condition, and what it must print whatever happens to its files.
struct Case {
    Arguments arguments;
    std::string input = {};
    std::string out = {};  // a part of standard output
    bool writes = false;   // to the state folder
};

std::vector<Case> cases() {
    std::vector<Case> all = {
        {{"complete", "-p", kLine, "-n", "10"}, "", expected_answer(), true},
        {{"chat", "--lines", "-n", "10"}, kLine, expected_answer(), true},
        {{"chat", "--lines", "-n", "10", "--session", "new"}, kLine, expected_answer(), true},
        {{"chat", "--lines", "-n", "10", "--session", "old"}, "/clear\n" + kLine, expected_answer(), true},
        {{"chat", "--lines", "-n", "10", "--continue"}, "/clear\n" + kLine, expected_answer(), true},
        {{"chat", "--lines", "-n", "10"}, kLine + "/save copy\n", expected_answer(), true},
        {{"session", "replay", "old"}, "", "the same", true},
        {{"session", "list"}},
        {{"session", "show", "old"}, "", "> "},
        {{"config", "check", source("configs/python-coder.toml")}, "", ": ok"},
        {{"config", "show"}, "", "[sampling]"},
        {{"plugin", "list"}, "", "wordlist"},
        {{"plugin", "show", "wordlist"}, "", "forbid"},
        {{"tokenize", "--model", source("models/python-coder/target-q4_k_m.gguf")}, kLine},
    };
    if (!everything()) std::erase_if(all, [](const Case& one) { return !one.writes; });
    return all;
}

// A state folder with one saved session, "old".
fs::path make_state(const std::string& name, bool with_session = true) {
    const fs::path state = scratch() / name;
    fs::remove_all(state);
    fs::create_directories(state / "foresay" / "sessions");
    if (with_session) {
        static const std::string saved = [] {
            const fs::path first = scratch() / "first";
            Call call;
            call.arguments = {"chat", "--lines", "-n", "10", "--session", "old"};
            call.input = "import os\n";
            call.environment = {{"XDG_STATE_HOME", first.string()}};
            EXPECT_EQ(run(call).status, 0);
            std::ifstream stream(first / "foresay" / "sessions" / "old.session", std::ios::binary);
            return std::string{std::istreambuf_iterator<char>(stream), {}};
        }();
        std::ofstream(state / "foresay" / "sessions" / "old.session", std::ios::binary) << saved;
    }
    return state;
}

std::string joined(const Arguments& arguments) {
    std::string all;
    for (const std::string& argument : arguments) all += argument + " ";
    return all;
}

// Runs every case; `prepare` makes the condition in the child. What the state folder had before is still readable.
void run_all(const std::string& condition, const fs::path& state, const std::function<void()>& prepare,
             bool has_session = true) {
    int runs = 0;
    for (const Case& one : cases()) {
        const bool needs_session =
            std::find(one.arguments.begin(), one.arguments.end(), "old") != one.arguments.end() ||
            one.arguments.back() == "--continue";
        if (needs_session && !has_session) continue;
        Call call;
        call.arguments = one.arguments;
        call.input = one.input;
        call.environment = {{"XDG_STATE_HOME", state.string()}};
        call.in_child = prepare;
        const Outcome outcome = run(call);
        ++runs;
        const std::string what = condition + ": " + joined(one.arguments) + "\n" + outcome.error;
        EXPECT_LT(outcome.status, 2) << what;
        EXPECT_THAT(outcome.out, HasSubstr(one.out)) << what;
        // One line for what cannot be kept, and one for /save, whose target cannot be written either.
        EXPECT_LE(std::count(outcome.error.begin(), outcome.error.end(), '\n'), 3) << what;
        if (outcome.status != 0) {
            EXPECT_THAT(outcome.error, AnyOf(HasSubstr("cannot "), HasSubstr("no folder"))) << what;
        }
        if (has_session && fs::exists(state / "foresay")) {
            EXPECT_NO_THROW(app::read_session(state / "foresay" / "sessions" / "old.session")) << what;
        }
    }
    std::printf("%s: %d runs\n", condition.c_str(), runs);
}

void limit_files(rlim_t bytes) {
    const rlimit limit{bytes, RLIM_INFINITY};
    ::setrlimit(RLIMIT_FSIZE, &limit);
}

// ------------------------------------------------------------------------------------------------------ limits, disks

TEST(Limits, NoFileMayGrow) {
    for (const rlim_t bytes : {0, 100, 4096}) {
        run_all("files of at most " + std::to_string(bytes) + " bytes", make_state("limited"),
                [bytes] { limit_files(bytes); });
    }
}

TEST(Limits, TheStateFolderIsAFile) {
    const fs::path state = scratch() / "state_is_a_file";
    std::ofstream(state) << "x";
    run_all("the state folder is a file", state, {}, false);
}

TEST(Limits, ThereIsNoHome) {
    run_all(
        "no home", "/nowhere",
        [] {
            ::unsetenv("HOME");
            ::setenv("XDG_STATE_HOME", "/proc/nowhere", 1);
        },
        false);
    for (const Arguments& arguments :
         {Arguments{"chat", "--lines", "-n", "10"}, {"complete", "-p", kLine, "-n", "10"}}) {
        Call call;
        call.arguments = arguments;
        call.input = kLine;
        call.in_child = [] {
            ::unsetenv("HOME");
            ::setenv("XDG_STATE_HOME", "", 1);
        };
        call.environment = {{"XDG_STATE_HOME", ""}};
        EXPECT_THAT(run(call).out, HasSubstr(expected_answer()));
    }
}

// Folders that cannot be written: as another user when this one is root, who can write everywhere.
TEST(Limits, TheStateFolderIsReadOnly) {
    const fs::path state = make_state("read_only");
    const bool root = ::geteuid() == 0;
    constexpr uid_t kAnotherUser = 65534;
    const auto become_another_user = [root] {
        if (!root) return;
        if (::setgroups(0, nullptr) != 0 || ::setgid(kAnotherUser) != 0 || ::setuid(kAnotherUser) != 0) ::_exit(126);
    };
    const pid_t child = ::fork();
    if (child == 0) {
        become_another_user();
        ::_exit(::access(FORESAY_PROGRAM, X_OK) == 0 && ::access(source("configs/python-coder.toml").c_str(), R_OK) == 0
                    ? 0
                    : 1);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) GTEST_SKIP() << "another user cannot run the program where it was built";
    for (const auto& entry : fs::recursive_directory_iterator(state)) {
        fs::permissions(entry.path(), entry.is_directory() ? fs::perms(0555) : fs::perms(0444));
    }
    run_all("a read-only state folder", state, become_another_user);
    fs::permissions(state / "foresay" / "sessions", fs::perms(0755));
    fs::permissions(state / "foresay", fs::perms(0755));
}

// A full file system, mounted where only the child sees it.
TEST(Limits, TheDiskIsFull) {
    const fs::path state = scratch() / "full_disk";
    fs::create_directories(state);
    make_state("for_full_disk");
    static std::array<char, 512> mount_point{}, saved{};
    std::strncpy(mount_point.data(), state.c_str(), mount_point.size() - 1);
    std::strncpy(saved.data(), (scratch() / "for_full_disk" / "foresay" / "sessions" / "old.session").c_str(),
                 saved.size() - 1);
    const auto fill = [] {
        if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
            ::mount("none", mount_point.data(), "tmpfs", 0, "size=64k") != 0 || ::chdir(mount_point.data()) != 0) {
            ::_exit(126);
        }
        ::mkdir("foresay", 0700);
        ::mkdir("foresay/sessions", 0700);
        std::array<char, 4096> page{};
        const int from = ::open(saved.data(), O_RDONLY);
        const int to = ::open("foresay/sessions/old.session", O_WRONLY | O_CREAT, 0600);
        const ssize_t got = ::read(from, page.data(), page.size());
        if (got <= 0 || got == static_cast<ssize_t>(page.size()) || ::write(to, page.data(), got) != got) ::_exit(126);
        ::close(to);
        const int filler = ::open("filler", O_WRONLY | O_CREAT, 0600);
        while (::write(filler, page.data(), page.size()) > 0) {
        }
        ::close(filler);
        if (::chdir("/") != 0) ::_exit(126);
    };
    const pid_t child = ::fork();
    if (child == 0) {
        fill();
        ::_exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    if (status != 0) GTEST_SKIP() << "mounting a tmpfs needs root";
    run_all("a full disk", state, fill);
}

// The limit comes while the program runs: the answers come all the same, and the file holds whole turns.
TEST(Limits, ALimitThatComesLater) {
    const fs::path state = make_state("later", false);
    const std::string session = "later";
    const auto conversation = [&](bool limited) {
        Call call;
        call.arguments = {"chat", "--lines", "-n", "60", "--session", limited ? "limited" : "free"};
        call.input = "def f(x):\nimport os\nx = 1\n";
        call.environment = {{"XDG_STATE_HOME", state.string()}};
        if (limited) {
            call.on_output = [](pid_t pid) {
                const rlimit limit{3000, RLIM_INFINITY};
                ::prlimit(pid, RLIMIT_FSIZE, &limit, nullptr);
            };
        }
        return run(call);
    };
    const Outcome free = conversation(false), limited = conversation(true);
    EXPECT_EQ(free.status, 0) << free.error;
    EXPECT_EQ(limited.out, free.out);
    EXPECT_EQ(limited.status, 1);
    EXPECT_THAT(limited.error, AllOf(HasSubstr("cannot save the conversation"), HasSubstr("File too large")));
    const fs::path file = state / "foresay" / "sessions" / "limited.session";
    EXPECT_LE(fs::file_size(file), 3000u);
    const app::SavedSession saved = app::read_session(file);
    EXPECT_FALSE(saved.cut_off);
    EXPECT_FALSE(saved.tree.nodes().empty()) << "what fits is kept, token by token";
    const Outcome replayed = run({"session", "replay", file.string()});
    EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.error;
}

TEST(Limits, StreamsThatAreClosedOrFull) {
    int runs = 0;
    const auto go = [&](const Arguments& arguments, const std::function<void()>& prepare) {
        Call call;
        call.arguments = arguments;
        call.input = kLine;
        call.in_child = prepare;
        ++runs;
        return run(call);
    };
    const auto full = [](int stream) { return [stream] { ::dup2(::open("/dev/full", O_WRONLY), stream); }; };
    const auto closed = [](int stream) { return [stream] { ::close(stream); }; };
    for (const int stream : {STDOUT_FILENO, STDERR_FILENO}) {
        for (const auto& prepare : {std::function<void()>(full(stream)), std::function<void()>(closed(stream))}) {
            const Outcome complete = go({"complete", "-p", kLine, "-n", "10"}, prepare);
            const Outcome chat = go({"chat", "--lines", "-n", "10", "--session", "streams"}, prepare);
            EXPECT_EQ(complete.status, stream == STDOUT_FILENO ? 1 : 0) << complete.error;
            EXPECT_EQ(chat.status, stream == STDOUT_FILENO ? 1 : 0) << chat.error;
            if (stream == STDOUT_FILENO) {
                EXPECT_THAT(chat.error, HasSubstr("cannot write to standard output"));
            } else {
                EXPECT_THAT(complete.out, HasSubstr(expected_answer()));
            }
        }
    }
    EXPECT_EQ(go({"chat", "--lines", "-n", "10", "--session", "streams"}, closed(STDIN_FILENO)).status, 1);
    EXPECT_EQ(go({"chat", "--lines", "-n", "10", "--session", "streams"},
                 [] {
                     ::close(STDIN_FILENO);
                     ::close(STDOUT_FILENO);
                     ::close(STDERR_FILENO);
                 })
                  .status,
              1);
    // Nothing was printed into the session, and the entries whose answers could not be shown are in it.
    const fs::path file = scratch() / "foresay" / "sessions" / "streams.session";
    const app::SavedSession saved = app::read_session(file);
    EXPECT_EQ(saved.tree.nodes().size(), 4u);
    for (const app::TurnTree::Node& node : saved.tree.nodes()) {
        EXPECT_THAT(node.turn.said, AnyOf(kLine, "\n" + kLine));
    }
    std::printf("closed and full streams: %d runs\n", runs);
}

// ------------------------------------------------------------------------------------------------------------ signals

struct Kept {
    std::size_t turns = 0;
    std::string said, answer;
    bool unfinished = false;
};

Kept kept(const std::string& session) {
    const fs::path file = scratch() / "foresay" / "sessions" / (session + ".session");
    if (!fs::exists(file)) return {};
    const app::SavedSession saved = app::read_session(file);
    static const core::Tokenizer tokenizer = core::Tokenizer::open(source("models/python-coder/target-q4_k_m.gguf"));
    const app::Turn& last = saved.tree.nodes().back().turn;
    return {saved.tree.nodes().size(), last.said, tokenizer.decode(last.answer), saved.unfinished.has_value()};
}

Call long_answer(const std::string& session) {
    Call call;
    call.arguments = {"chat", "--lines", "-n", "1500", "--threads", "1", "--speculation", "off", "--session", session};
    call.input = kLine;
    call.hold_input = true;
    return call;
}

// A signal in the middle of an answer: what was shown is what is kept.
TEST(Signals, InTheMiddleOfAnAnswer) {
    int runs = 0;
    for (const int number : {SIGTERM, SIGHUP, SIGXCPU, SIGINT}) {
        Call call = long_answer("middle" + std::to_string(number));
        call.on_output = [number](pid_t pid) { ::kill(pid, number); };
        const Outcome outcome = run(call);
        ++runs;
        EXPECT_EQ(outcome.status, 128 + number) << outcome.error;
        const Kept session = kept("middle" + std::to_string(number));
        EXPECT_EQ(session.turns, 1u);
        EXPECT_EQ(session.said, kLine);
        EXPECT_EQ(session.answer + "\n", outcome.out);
        EXPECT_FALSE(session.unfinished);
    }
    // These leave no time to finish; what was saved while the answer was generated stays.
    for (const int number : {SIGKILL, SIGQUIT, SIGUSR1}) {
        Call call = long_answer("middle" + std::to_string(number));
        call.on_output = [number](pid_t pid) { ::kill(pid, number); };
        const Outcome outcome = run(call);
        ++runs;
        EXPECT_EQ(outcome.status, 128 + number);
        const Kept session = kept("middle" + std::to_string(number));
        EXPECT_EQ(session.said, kLine);
        EXPECT_TRUE(session.unfinished);
        EXPECT_TRUE(outcome.out.starts_with(session.answer)) << session.answer;
    }
    // Two Ctrl-C end the program at once.
    Call call = long_answer("twice");
    call.on_output = [](pid_t pid) {
        ::kill(pid, SIGSTOP);
        ::kill(pid, SIGINT);
        ::kill(pid, SIGCONT);
        ::kill(pid, SIGINT);
    };
    EXPECT_EQ(run(call).status, 130);
    EXPECT_EQ(kept("twice").said, kLine);
    // A window that closes sends more than one signal.
    call = long_answer("several");
    call.on_output = [](pid_t pid) {
        for (const int number : {SIGHUP, SIGHUP, SIGTERM, SIGCONT, SIGHUP}) ::kill(pid, number);
    };
    const Outcome several = run(call);
    EXPECT_THAT(several.status, AnyOf(128 + SIGHUP, 128 + SIGTERM));  // whichever is delivered first
    EXPECT_EQ(kept("several").answer + "\n", several.out);
    // A stopped program goes on.
    call = long_answer("stopped");
    call.arguments[3] = "100";
    call.hold_input = false;
    call.on_output = [](pid_t pid) {
        ::kill(pid, SIGSTOP);
        ::kill(pid, SIGCONT);
    };
    EXPECT_EQ(run(call).status, 0);
    // nohup: SIGHUP is ignored, and stays so.
    call = long_answer("nohup");
    call.arguments[3] = "100";
    call.hold_input = false;
    call.in_child = [] { ::signal(SIGHUP, SIG_IGN); };
    call.on_output = [](pid_t pid) { ::kill(pid, SIGHUP); };
    EXPECT_EQ(run(call).status, 0);
    std::printf("signals in the middle of an answer: %d runs\n", runs + 4);
}

TEST(Signals, AtThePrompt) {
    int runs = 0;
    for (const int number : {SIGTERM, SIGHUP, SIGINT, SIGKILL}) {
        Call call;
        const std::string session = "prompt" + std::to_string(number);
        call.arguments = {"chat", "--lines", "-n", "5", "--session", session};
        call.input = kLine + "/nonsense\n";  // reported once the answer is saved
        call.hold_input = true;
        call.on_error = [number](pid_t pid) { ::kill(pid, number); };
        const Outcome outcome = run(call);
        ++runs;
        EXPECT_EQ(outcome.status, 128 + number) << outcome.error;
        const Kept saved = kept(session);
        EXPECT_EQ(saved.answer + "\n", outcome.out);
        EXPECT_FALSE(saved.unfinished);
    }
    std::printf("signals at the prompt: %d runs\n", runs);
}

TEST(Signals, OtherCommandsEndAtOnce) {
    int runs = 0;
    for (const int number : {SIGTERM, SIGHUP, SIGINT}) {
        Call call;
        call.arguments = {"complete", "-p", kLine, "-n", "1500", "--threads", "1", "--speculation", "off"};
        call.on_output = [number](pid_t pid) { ::kill(pid, number); };
        EXPECT_EQ(run(call).status, 128 + number);
        ++runs;
    }
    std::printf("signals to complete: %d runs\n", runs);
}

// An alarm that was set before the program was executed ends it, as `perl -e 'alarm 9; exec @ARGV'` expects.
TEST(Signals, AnAlarmOfAnotherEndsTheProgram) {
    Call call = long_answer("alarm");
    call.on_output = [](pid_t pid) { ::kill(pid, SIGALRM); };
    EXPECT_EQ(run(call).status, 128 + SIGALRM);
    EXPECT_EQ(kept("alarm").said, kLine);
}

// No signal blames a plugin that was running.
TEST(Signals, APluginIsNotBlamed) {
    Call call = long_answer("blame");
    call.on_output = [](pid_t pid) { ::kill(pid, SIGTERM); };
    run(call);
    call = {};
    call.arguments = {"chat", "--lines", "-n", "5", "--session", "blame"};
    call.input = "x = 1\n";
    call.environment = {{"FORESAY_LOG", "warn"}};
    EXPECT_THAT(run(call).error, Not(HasSubstr("was running when")));
}

using LimitsAtATerminal = TmuxTerminal;

TEST_F(LimitsAtATerminal, TheHistoryIsSaidOnceAndTheSessionAfterEachTurn) {
    start("-n 5", "prlimit --fsize=0", 200);
    wait_for("lists the commands");
    type("'def f1(x):' Enter");
    wait_for("File too large", 2);
    type("'def f2(x):' Enter");
    wait_for("File too large", 3);
    wait_for_answers(2);
    const std::string shown = screen();
    EXPECT_THAT(shown, AllOf(HasSubstr("the history is not kept: cannot write " + state() + "/foresay/history"),
                             HasSubstr("foresay: cannot write " + state() + "/foresay/sessions/")));
    EXPECT_EQ(shown.find("the history is not kept"), shown.rfind("the history is not kept"));
    // It lasts as long as the program.
    type("Up");
    wait_for("> def f2(x):", 2);
}

using SignalsAtATerminal = TmuxTerminal;

TEST_F(SignalsAtATerminal, ClosingTheWindowKeepsTheAnswer) {
    start("-n 1500 --threads 1 --speculation off --session window");
    wait_for("lists the commands");
    type("'def f(x):' Enter");
    wait_for("return");
    stop();  // kills the terminal, as closing its window does
    const fs::path file = fs::path(state()) / "foresay" / "sessions" / "window.session";
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (app::read_session(file).unfinished && std::chrono::steady_clock::now() < end) {
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    const app::SavedSession saved = app::read_session(file);
    EXPECT_FALSE(saved.unfinished.has_value()) << "the program did not end by itself";
    ASSERT_EQ(saved.tree.nodes().size(), 1u);
    EXPECT_EQ(saved.tree.turn(0).said, kLine);
    EXPECT_EQ(saved.tree.turn(0).finish, app::Turn::Finish::cancelled);
    EXPECT_FALSE(saved.tree.turn(0).answer.empty());
}

TEST_F(SignalsAtATerminal, TheTerminalIsRestored) {
    for (const std::string number : {"TERM", "HUP", "QUIT"}) {
        start("-n 1500 --threads 1 --speculation off --session restored" + number);
        wait_for("lists the commands");
        type("'def f(x):' Enter");
        wait_for("return");
        signal(number);
        wait_for("status " + std::to_string(number == "TERM"  ? 128 + SIGTERM
                                            : number == "HUP" ? 128 + SIGHUP
                                                              : 128 + SIGQUIT));
        EXPECT_THAT(modes(), AllOf(Not(HasSubstr("-icanon")), Not(HasSubstr("-echo ")))) << number;
        const fs::path file = fs::path(state()) / "foresay" / "sessions" / ("restored" + number + ".session");
        EXPECT_EQ(app::read_session(file).unfinished.has_value(), number == "QUIT");
    }
}

}  // namespace
}  // namespace foresay::testing
