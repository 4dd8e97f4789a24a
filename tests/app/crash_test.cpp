// SIGKILL and SIGTERM at random moments: no turn is lost, and of the answer that was being generated SIGTERM costs
// nothing that was shown, SIGKILL what came since it was last saved.
//
// What the program prints on standard error after a turn proves that the turn was saved before: at least that many
// turns must be in the file.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "app/journal/journal.h"
#include "core/text/tokenizer.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 16;

fs::path sessions() { return foresay::testing::scratch() / "foresay" / "sessions"; }
fs::path file_of(const std::string& name) { return sessions() / (name + ".session"); }

std::string bytes_of(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// The input of each run: turns, each followed by a command that prints, with retries, undos and copies among them.
std::string script() {
    std::string lines;
    for (int i = 0; i < kTurns; ++i) {
        lines += i % 2 == 0 ? "def name" + std::to_string(i) + "(x):\n" : "/retry\n";
        lines += "/branch\n/save! copy\n";
    }
    return lines;
}

// Starts the program on `name`, kills it after `delay`; what it had said on standard error by then.
std::string run_and_kill(const std::string& name, std::chrono::microseconds delay, bool* ended = nullptr) {
    const fs::path in = foresay::testing::write_scratch("script.txt", script());
    const fs::path error = foresay::testing::scratch() / "error.txt";
    fs::remove(error);  // a program that is killed at once has printed nothing
    const pid_t child = ::fork();
    if (child == 0) {
        ::setenv("XDG_STATE_HOME", foresay::testing::scratch().c_str(), 1);
        ::setenv("XDG_CONFIG_HOME", foresay::testing::scratch().c_str(), 1);
        ::setenv("XDG_CONFIG_DIRS", foresay::testing::scratch().c_str(), 1);
        ::dup2(::open(in.c_str(), O_RDONLY), STDIN_FILENO);
        ::dup2(::open("/dev/null", O_WRONLY), STDOUT_FILENO);
        ::dup2(::open(error.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
        ::execl(FORESAY_PROGRAM, FORESAY_PROGRAM, "chat", "--lines", "--session", name.c_str(), "-n", "10", "--context",
                "2048", "--set", "plugin=[]", "--set", "sampling.chain=[\"top_k\",\"temperature\"]",
                static_cast<char*>(nullptr));
        ::_exit(127);
    }
    const auto end = Clock::now() + delay;
    int status = 0;
    bool done = false;
    while (!done && Clock::now() < end) {
        std::this_thread::sleep_for(std::min<Clock::duration>(end - Clock::now(), std::chrono::milliseconds(1)));
        done = ::waitpid(child, &status, WNOHANG) == child;
    }
    if (!done) {
        ::kill(child, SIGKILL);
        ::waitpid(child, &status, 0);
    }
    if (ended != nullptr) *ended = done && WIFEXITED(status) && WEXITSTATUS(status) == 0;
    return bytes_of(error);
}

std::size_t count(const std::string& text, const std::string& part) {
    std::size_t found = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++found;
    return found;
}

// The turns of a session, none when there is no file.
std::vector<TurnTree::Node> turns_of(const std::string& name, bool* cut_off = nullptr) {
    std::error_code ignored;
    if (!fs::exists(file_of(name), ignored)) return {};
    const SavedSession session = read_session(file_of(name));
    if (cut_off != nullptr) *cut_off = session.cut_off;
    return session.tree.nodes();
}

bool begins_with(const std::vector<TurnTree::Node>& longer, const std::vector<TurnTree::Node>& shorter) {
    return longer.size() >= shorter.size() &&
           std::equal(shorter.begin(), shorter.end(), longer.begin(), [](const auto& a, const auto& b) {
               return a.parent == b.parent && a.turn.input == b.turn.input && a.turn.answer == b.turn.answer &&
                      a.turn.seed == b.turn.seed && a.turn.branch == b.turn.branch;
           });
}

int kills_wanted(int otherwise) {
    const char* stated = std::getenv("FORESAY_CRASH_KILLS");
    return stated != nullptr ? std::atoi(stated) : otherwise;
}

// Ends long answers at random moments by `number`.
void end_answers(int number, int runs) {
    const core::Tokenizer tokenizer =
        core::Tokenizer::open(foresay::testing::source("models/python-coder/target-q4_k_m.gguf"));
    std::mt19937 random(static_cast<unsigned>(number));
    std::string name;
    std::size_t before = 0;
    int in_the_middle = 0, nothing_lost = 0;
    std::size_t most_lost = 0, lost = 0;
    for (int i = 0; i < runs; ++i) {
        // Every fourth run begins a file; the others go on with it, after an answer that was cut off.
        if (i % 4 == 0) {
            name = "answers-" + std::to_string(number) + "-" + std::to_string(i);
            before = 0;
        }
        foresay::testing::Call call;
        call.arguments = {"chat",
                          "--lines",
                          "--session",
                          name,
                          "-n",
                          "400",
                          "--context",
                          "2048",
                          "--threads",
                          "1",
                          "--speculation",
                          "off",
                          "--set",
                          "plugin=[]",
                          "--set",
                          "sampling.chain=[\"temperature\"]",
                          "--seed",
                          std::to_string(i)};
        const std::string entry = "def name" + std::to_string(i) + "(x):";
        call.input = entry + "\n";
        call.hold_input = true;
        const std::chrono::microseconds delay(std::uniform_int_distribution<int>(0, 100'000)(random));
        call.on_output = [number, delay](pid_t pid) {
            std::this_thread::sleep_for(delay);
            ::kill(pid, number);
        };
        const auto outcome = foresay::testing::run(call);
        ASSERT_EQ(outcome.status, 128 + number) << outcome.error;
        SavedSession session;
        ASSERT_NO_THROW(session = read_session(file_of(name))) << "run " << i;
        const auto& nodes = session.tree.nodes();
        ASSERT_EQ(nodes.size(), before + 1) << "run " << i << " lost a turn";
        before = nodes.size();
        const Turn& last = nodes.back().turn;
        EXPECT_TRUE(last.said == entry + "\n" || last.said == "\n" + entry + "\n") << "run " << i << " lost the entry";
        const std::string answer = tokenizer.decode(last.answer);
        if (number == SIGTERM) {
            EXPECT_EQ(answer + "\n", outcome.out) << "run " << i;
            EXPECT_FALSE(session.unfinished.has_value());
        } else if (session.unfinished) {
            // A token is recorded before it is shown: the file may also have more than the screen.
            ASSERT_TRUE(outcome.out.starts_with(answer) || answer.starts_with(outcome.out)) << "run " << i;
            const std::size_t missing = outcome.out.size() - std::min(outcome.out.size(), answer.size());
            lost += missing;
            most_lost = std::max(most_lost, missing);
            nothing_lost += missing == 0 ? 1 : 0;
        }
        in_the_middle += last.finish == Turn::Finish::cancelled ? 1 : 0;
        if (i % 16 != 0) continue;
        const auto replayed = foresay::testing::run({"session", "replay", file_of(name).string()});
        EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.error;
    }
    EXPECT_GT(in_the_middle, 0);
    std::printf(
        "%d times signal %d, %d in the middle of an answer; lost characters: %zu on average, %zu at most, none "
        "%d times\n",
        runs, number, in_the_middle, lost / static_cast<std::size_t>(runs), most_lost, nothing_lost);
}

TEST(Crash, TerminatingKeepsAllThatWasShown) { end_answers(SIGTERM, kills_wanted(20)); }

TEST(Crash, KillingKeepsTheEntryAndMostOfTheAnswer) { end_answers(SIGKILL, kills_wanted(20)); }

TEST(Crash, KillingLosesAtMostTheTurnInTheMaking) {
    const int kills = kills_wanted(8);
    // How long a run takes on this machine, so that the kills are spread over it.
    bool ended = false;
    const auto start = Clock::now();
    run_and_kill("measure", std::chrono::seconds(60), &ended);
    ASSERT_TRUE(ended) << bytes_of(foresay::testing::scratch() / "error.txt");
    const auto whole = std::chrono::duration_cast<std::chrono::microseconds>(Clock::now() - start);
    ASSERT_EQ(turns_of("measure").size(), static_cast<std::size_t>(kTurns));

    std::mt19937 random(static_cast<unsigned>(kills));
    std::string name = "begin-0";
    int lost_lines = 0, in_the_middle = 0;
    for (int i = 0; i < kills; ++i) {
        // Files are created again and again, because a crash may also hit their creation.
        if (i % 4 == 0) name = "begin-" + std::to_string(i);
        const std::vector<TurnTree::Node> before = turns_of(name);
        const std::string copy_before = bytes_of(file_of("copy"));
        const std::string said = run_and_kill(
            name, std::chrono::microseconds(std::uniform_int_distribution<long>(0, whole.count())(random)));
        // A line of /branch begins with a star; it is printed after the turn before it was saved.
        const std::size_t confirmed = count(said, "\n* ") + (said.starts_with("* ") ? 1 : 0);
        bool cut_off = false;
        std::vector<TurnTree::Node> after;
        ASSERT_NO_THROW(after = turns_of(name, &cut_off)) << "kill " << i;
        lost_lines += cut_off ? 1 : 0;
        in_the_middle += confirmed > 0 && confirmed < static_cast<std::size_t>(kTurns) ? 1 : 0;
        EXPECT_TRUE(begins_with(after, before)) << "kill " << i << " changed what was saved before";
        EXPECT_GE(after.size(), before.size() + confirmed) << "kill " << i << " lost a turn: " << said;
        EXPECT_LE(after.size(), before.size() + static_cast<std::size_t>(kTurns));
        std::error_code ignored;
        if (fs::exists(file_of("copy"), ignored)) {
            ASSERT_FALSE(read_session(file_of("copy")).cut_off) << "kill " << i << " left half a copy";
        } else {
            EXPECT_TRUE(copy_before.empty()) << "kill " << i << " lost the copy";
        }
    }
    std::printf("%d kills over %.1f s each: %d between turns, %d lines cut off\n", kills,
                static_cast<double>(whole.count()) / 1e6, in_the_middle, lost_lines);
    // The last one continues, and every turn of it can be generated again.
    run_and_kill(name, std::chrono::seconds(60), &ended);
    EXPECT_TRUE(ended) << bytes_of(foresay::testing::scratch() / "error.txt");
    const auto replayed = foresay::testing::run({"session", "replay", file_of(name).string()});
    EXPECT_EQ(replayed.status, 0) << replayed.out << replayed.error;
    // Temporary files that a crash left are deleted when a session without a name begins.
    for (const auto& entry : fs::directory_iterator(sessions())) {
        const std::string left = entry.path().filename().string();
        EXPECT_TRUE(left.ends_with(".session") || left.ends_with(".tmp")) << left;
    }
}

}  // namespace
}  // namespace foresay::app
