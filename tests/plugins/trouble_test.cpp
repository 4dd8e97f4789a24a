// Plugins that crash, end the program or are running when it is killed: who is named, and what the next start does.

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <functional>
#include <span>
#include <thread>

#include "plugins/host/crash_marker.h"
#include "plugins/host/crash_watch.h"
#include "plugins/host/plugin_host.h"
#include "samplers/chain.h"
#include "samplers/plugin_call.h"
#include "tests/plugins/support.h"
#include "tests/samplers/support.h"

namespace foresay::plugins {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

namespace fs = std::filesystem;

const fs::path kBad = FORESAY_BAD_FOLDER;
const fs::path kGood = FORESAY_PLUGIN_FOLDER;
const std::string kTrouble = fs::canonical(kBad / "trouble.so").string();

struct Ended {
    int status = 0;  // as of waitpid()
    std::string error;
    bool by(int signal) const { return WIFSIGNALED(status) && WTERMSIG(status) == signal; }
    bool with(int code) const { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
};

// Runs `body` in a child process: how it ends, and what it writes to standard error. Status 77: it returned.
Ended in_child(const std::function<void()>& body) {
    std::array<int, 2> ends{};
    if (::pipe(ends.data()) != 0) throw Error("no pipe");
    const pid_t child = ::fork();
    if (child < 0) throw Error("cannot fork");
    if (child == 0) {
        ::dup2(ends[1], STDERR_FILENO);
        ::close(ends[0]);
        ::close(ends[1]);
        const rlimit none{};
        ::setrlimit(RLIMIT_CORE, &none);
        ::alarm(60);  // should a plugin hang after all
        body();
        ::_exit(77);
    }
    ::close(ends[1]);
    Ended ended;
    std::array<char, 4096> chunk{};
    for (ssize_t got = 0; (got = ::read(ends[0], chunk.data(), chunk.size())) > 0;) {
        ended.error.append(chunk.data(), static_cast<std::size_t>(got));
    }
    ::close(ends[0]);
    ::waitpid(child, &ended.status, 0);
    return ended;
}

void nothing() {}

// One token with trouble.so, whose deed comes at once.
void sample(const PluginOptions& options, const std::string& deed, bool watch = true) {
    if (watch) watch_for_crashes(nothing);
    const samplers::LetterVocabulary vocabulary(10);
    PluginHost host(options);
    samplers::Chain chain({{"wordlist", {}, host.load("wordlist", kGood / "wordlist.so")},
                           {"trouble", {{"deed", deed}}, host.load("trouble", kTrouble)}},
                          vocabulary);
    chain.begin(0, 0, {});
    std::vector<float> row(10, 0.0f);
    chain.decide(row);
}

PluginOptions options_in(const OwnFolder& folder) { return {{kBad, kGood}, folder.path() / "state" / "plugins"}; }

std::vector<std::string> files_in(const OwnFolder& folder) {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder.path() / "state")) names.push_back(entry.path().filename());
    return names;
}

#ifndef FORESAY_SANITIZED  // sanitizers report these crashes themselves
TEST(PluginTrouble, ACrashIsNamedAtOnceAndItsBuildBarred) {
    struct Case {
        const char* deed;
        int signal;
        std::string where, how;
    };
    const Case cases[] = {
        {"segfault", SIGSEGV, "in process()", "segmentation fault"},
        {"bus", SIGBUS, "in process()", "bus error"},
        {"illegal", SIGILL, "in process()", "illegal instruction"},
        {"divide", SIGFPE, "in process()", "arithmetic error"},
        {"abort", SIGABRT, "in process()", "abort"},
        {"overflow", SIGSEGV, "in process()", "stack overflow"},
        {"crash_in_create", SIGSEGV, "in create()", "segmentation fault"},
        {"throw_in_destroy", SIGABRT, "in destroy()",
         "an exception left a function that must not throw: thrown on ? purpose"},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.deed);
        const OwnFolder state;
        const PluginOptions options = options_in(state);
        const Ended ended = in_child([&] { sample(options, c.deed); });
        EXPECT_TRUE(ended.by(c.signal)) << ended.status;
        const std::string what = "crashed " + c.where + ": " + c.how;
        EXPECT_EQ(ended.error, "foresay: sampler 'trouble' of plugin '" + kTrouble + "' " + what +
                                   "; this build of it is not loaded again until `foresay plugin free trouble` allows "
                                   "it\n");
        for (int start = 0; start < 2; ++start) {  // the second one reads the list
            PluginHost host(options);
            EXPECT_THAT(host.notices(), IsEmpty());
            ASSERT_THAT(host.bars(), SizeIs(1));
            EXPECT_EQ(host.bars()[0].reason, "its sampler 'trouble' " + what);
            EXPECT_EQ(host.bars()[0].path, kTrouble);
            EXPECT_THAT(error_of([&] { host.load("trouble"); }),
                        AllOf(StartsWith("plugin '" + kTrouble + "' is barred since 20"),
                              HasSubstr(": its sampler 'trouble' " + what +
                                        "; build it again, or allow this build "
                                        "with `foresay plugin free trouble`")));
            EXPECT_EQ(error_of([&] { host.load("wordlist"); }), "no error") << "it was loaded, but not running";
        }
    }
}

TEST(PluginTrouble, TheBarIsOfTheBuildAndNotOfTheFile) {
    const OwnFolder state, own;
    const PluginOptions options = options_in(state);
    const fs::path file = own.path() / "mine.so";
    fs::copy_file(kTrouble, file);
    EXPECT_TRUE(in_child([&] { sample(options, "segfault"); }).by(SIGSEGV));
    const std::string contents = read_file(file);
    {
        const PluginHost host(options);
        EXPECT_TRUE(host.bar("trouble")) << "on the plugin path";
        EXPECT_TRUE(host.bar("", file)) << "a copy is the same build";
        EXPECT_FALSE(host.bar("wordlist"));
        EXPECT_FALSE(host.bar("no_such"));
    }
    write_file(file, contents + "rebuilt");
    PluginHost host(options);
    EXPECT_EQ(error_of([&] { host.load("trouble", file); }), "no error");
    const auto files = host.scan();
    EXPECT_EQ(std::count_if(files.begin(), files.end(), [](const PluginFile& f) { return f.bar.has_value(); }), 1);
    // Freeing one leaves the others.
    in_child([&] {
        CrashMarker marker(options.marker, true);
        mark_crash({"", "in process()", "mine", "mine", marker.counter(file, {1, 2})}, "abort");
        ::kill(::getpid(), SIGKILL);
    });
    EXPECT_THAT(PluginHost(options).bars(), SizeIs(2));
    PluginHost running(options);  // a conversation meanwhile
    EXPECT_NE(error_of([&] { running.load("trouble"); }), "no error");
    EXPECT_THAT(host.free([](const Bar& bar) { return bar.path.stem() == "no_such"; }), IsEmpty());
    PluginHost freeing(options);
    EXPECT_THAT(freeing.free([](const Bar& bar) { return bar.path.stem() == "trouble"; }), SizeIs(1));
    EXPECT_EQ(error_of([&] { running.load("trouble"); }), "no error");
    EXPECT_THAT(PluginHost(options).bars(), SizeIs(1));
    // A crash elsewhere does not take a plugin from a conversation in which it runs.
    EXPECT_TRUE(in_child([&] { sample(options, "segfault"); }).by(SIGSEGV));
    PluginHost next(options);
    EXPECT_NE(error_of([&] { next.load("trouble"); }), "no error");
    EXPECT_EQ(error_of([&] { running.load("trouble"); }), "no error");
}

TEST(PluginTrouble, EndingTheProgramIsAnErrorThatNamesThePlugin) {
    const std::pair<const char*, const char*> cases[] = {
        {"exit", "in process()"}, {"quick_exit", "in process()"}, {"exit_in_create", "in create()"}};
    for (const auto& [deed, where] : cases) {
        SCOPED_TRACE(deed);
        const OwnFolder state;
        const PluginOptions options = options_in(state);
        const Ended ended = in_child([&, name = deed] { sample(options, name); });
        EXPECT_TRUE(ended.with(1)) << ended.status;
        EXPECT_EQ(ended.error, "foresay: sampler 'trouble' of plugin '" + kTrouble + "' called exit() " + where +
                                   ", which ends the program\n");
        EXPECT_THAT(files_in(state), IsEmpty()) << "the user knows already";
        EXPECT_EQ(error_of([&] { PluginHost(options).load("trouble"); }), "no error");
    }
}

// A marker whose file shrinks, as on a disk that fails, must not be worse than none.
TEST(PluginTrouble, AMarkerThatIsLostIsGivenUp) {
    const OwnFolder state;
    const Ended ended = in_child([&] {
        watch_for_crashes(nothing);
        CrashMarker marker(state.path() / "plugins", true);
        std::atomic<std::uint32_t>* running = marker.counter("/some/plugin.so", {});
        for (const auto& entry : fs::directory_iterator(state.path())) fs::resize_file(entry.path(), 0);
        running->fetch_add(1);
    });
    EXPECT_TRUE(ended.with(77)) << ended.status << ended.error;
}

TEST(PluginTrouble, ACrashInAThreadOfThePluginIsNamed) {
    const OwnFolder state;
    const Ended ended = in_child([&] { sample(options_in(state), "thread"); });
    EXPECT_TRUE(ended.by(SIGSEGV)) << ended.status;
    EXPECT_THAT(ended.error, StartsWith("foresay: plugin '" + kTrouble +
                                        "' crashed outside any call: segmentation fault; this build "));
    const PluginHost host(options_in(state));
    ASSERT_THAT(host.bars(), SizeIs(1));
    EXPECT_EQ(host.bars()[0].reason, "it crashed outside any call: segmentation fault");
}

// Threads of a program have small stacks, and a stack of its own for the handler.
TEST(PluginTrouble, AStackOverflowIsNamedOnAnyThread) {
    const OwnFolder state;
    const Ended ended = in_child([&] {
        watch_for_crashes(nothing);
        std::thread([&] { sample(options_in(state), "overflow", false); }).join();
    });
    EXPECT_TRUE(ended.by(SIGSEGV)) << ended.status;
    EXPECT_THAT(ended.error, HasSubstr("crashed in process(): stack overflow"));
}
#endif

TEST(PluginTrouble, WhatTheHandlersDoNotSeeIsOnlySaidAtTheNextStart) {
    for (const bool killed : {true, false}) {
        SCOPED_TRACE(killed);
        const OwnFolder state;
        const PluginOptions options = options_in(state);
        for (int time = 0; time < 3; ++time) {  // as often as one likes: a slow plugin is not a crash
            const Ended ended = in_child([&] {
                if (!killed) return sample(options, "_exit", false);
                PluginHost host(options);
                host.load("wordlist");
                host.load("trouble");
                CrashMarker marker(options.marker, true);
                marker.counter(kTrouble, {})->store(1);
                ::kill(::getpid(), SIGKILL);
            });
            EXPECT_TRUE(killed ? ended.by(SIGKILL) : ended.with(0)) << ended.status;
            PluginOptions looking = options;
            looking.runs = false;
            EXPECT_THAT(PluginHost(looking).notices(), IsEmpty()) << "kept for a program that runs plugins";
            PluginHost host(options);
            EXPECT_THAT(host.notices(),
                        ElementsAre("plugin '" + kTrouble +
                                    "' was running when foresay last ended without a word: it was killed, or the "
                                    "plugin ended it with _exit(); the plugin is loaded again"));
            EXPECT_EQ(error_of([&] { host.load("trouble"); }), "no error");
            EXPECT_THAT(PluginHost(options).notices(), IsEmpty()) << "once is enough";
        }
    }
}

TEST(PluginTrouble, AProcessToldToEndAccusesNoPlugin) {
    const OwnFolder state;
    for (int way = 0; way < 3; ++way) {
        in_child([&] {
            CrashMarker marker(state.path() / "plugins", true);
            marker.counter("/some/plugin.so", {})->store(1);
            if (way == 0) absolve_plugins();
            if (way == 1) end_running_plugin();
            if (way == 2) marker.counter("/some/plugin.so", {})->store(0);  // loaded, but not running
            ::kill(::getpid(), SIGKILL);
        });
        const CrashMarker marker(state.path() / "plugins", true);
        EXPECT_THAT(marker.notices(), IsEmpty()) << way;
        EXPECT_THAT(marker.barred().bars(), IsEmpty()) << way;
    }
}

TEST(PluginTrouble, MarkersOfLivingProcessesAreLeftAlone) {
    const OwnFolder state;
    const fs::path base = state.path() / "plugins";
    CrashMarker first(base, true);
    first.counter("/some/plugin.so", {})->store(1);
    {
        const CrashMarker second(base, true);
        EXPECT_THAT(second.notices(), IsEmpty());
        EXPECT_EQ(std::distance(fs::directory_iterator(state.path()), {}), 2);
    }
    EXPECT_EQ(std::distance(fs::directory_iterator(state.path()), {}), 1);
}

// Where nothing can be written: the plugins run, and one sentence says what is missing.
TEST(PluginTrouble, WithoutRoomForAMarkerPluginsRunAndASentenceSaysSo) {
    const OwnFolder state;
    struct Case {
        const char* name;
        std::int64_t limit;  // of file sizes; negative: none
        fs::path marker;
        const char* why;
    };
    const Case cases[] = {
        {"no file may grow", 0, state.path() / "a" / "plugins", "File too large"},
        {"only a small file", 4096, state.path() / "b" / "plugins", "File too large"},
        {"no folder can be made", -1, "/proc/foresay/plugins", "No such file or directory"},
    };
    for (const Case& c : cases) {
        SCOPED_TRACE(c.name);
        const Ended ended = in_child([&] {
            if (c.limit >= 0) {
                const rlimit limit{static_cast<rlim_t>(c.limit), static_cast<rlim_t>(c.limit)};
                ::setrlimit(RLIMIT_FSIZE, &limit);
            }
            const PluginOptions options{{kGood}, c.marker};
            PluginHost host(options);
            host.load("wordlist");
            for (const std::string& notice : host.notices()) ::dprintf(STDERR_FILENO, "%s\n", notice.c_str());
            if (!PluginHost(options).notices().empty()) ::_exit(1);  // once
        });
        EXPECT_TRUE(ended.with(77)) << ended.status;
        EXPECT_EQ(ended.error, "no crash marker can be kept in " + c.marker.parent_path().string() + ": " + c.why +
                                   "; a plugin that crashes is named, but loaded again at the next start\n");
    }
}

#ifndef FORESAY_SANITIZED
TEST(PluginTrouble, WithoutAMarkerACrashIsNamedAllTheSame) {
    const Ended ended = in_child([] { sample({{kBad, kGood}, "/proc/foresay/plugins"}, "segfault"); });
    EXPECT_TRUE(ended.by(SIGSEGV)) << ended.status;
    EXPECT_EQ(ended.error,
              "foresay: sampler 'trouble' of plugin '" + kTrouble + "' crashed in process(): segmentation fault\n");
}
#endif

// The crash is in the marker, but the list cannot grow: the marker stays, and a later start bars the plugin.
TEST(PluginTrouble, ABarThatCannotBeWrittenIsKeptInTheMarker) {
    const OwnFolder state;
    const fs::path base = state.path() / "plugins";
    in_child([&] {
        CrashMarker marker(base, true);
        mark_crash({"", "in process()", "mine", "mine", marker.counter("/my/mine.so", {7, 8})}, "abort");
        ::kill(::getpid(), SIGKILL);
    });
    const Ended ended = in_child([&] {
        const rlimit limit{};
        ::setrlimit(RLIMIT_FSIZE, &limit);
        const CrashMarker marker(base, false);
        ::dprintf(STDERR_FILENO, "%zu %s", marker.barred().bars().size(), marker.notices().at(0).c_str());
    });
    EXPECT_EQ(ended.error, "1 the list of barred plugins cannot be written in " + state.path().string() +
                               ": File too large; a plugin that crashes is named, but loaded again at the next start");
    const CrashMarker marker(base, false);
    ASSERT_THAT(marker.barred().bars(), SizeIs(1));
    EXPECT_EQ(marker.barred().bars()[0].reason, "its sampler 'mine' crashed in process(): abort");
    EXPECT_EQ(marker.barred().bars()[0].build, (Build{7, 8}));
    EXPECT_EQ(std::distance(fs::directory_iterator(state.path()), {}), 1) << "only the list is left";
}

TEST(BarList, KeepsWhatItIsGiven) {
    const OwnFolder own;
    const fs::path file = own.path() / "barred";
    const Bar odd{{~std::uint64_t{0}, 1}, 1700000000, "why\tnot\n100%", "/a b\t%41\x7f/\xc3\xa4.so"};
    const Bar other{{1, 2}, 0, "", "/x.so"};
    {
        BarList list(file);
        EXPECT_EQ(list.add(odd), "");
        EXPECT_EQ(list.add(odd), "");                                                       // once
        write_file(file, read_file(file) + "no bar\n1\t2\n\t\t\t\t\nzz\t1\t1\tr\t/p\n12");  // and half a line
        EXPECT_EQ(list.add(other), "");
    }
    BarList list(file);
    ASSERT_THAT(list.bars(), SizeIs(2));
    EXPECT_EQ(list.bars()[0].reason, odd.reason);
    EXPECT_EQ(list.bars()[0].path, odd.path);
    EXPECT_EQ(list.bars()[0].since_s, odd.since_s);
    EXPECT_NE(list.find(odd.build), nullptr);
    EXPECT_EQ(list.find({1, 3}), nullptr);
    EXPECT_THAT(list.remove([](const Bar& bar) { return bar.build == Build{1, 2}; }), SizeIs(1));
    EXPECT_THAT(BarList(file).bars(), SizeIs(1));
    EXPECT_EQ(time_text(odd.since_s), "2023-11-14 22:13 UTC");
}

TEST(BarList, BuildsDifferByAnyByte) {
    std::string text(1000, 'x');
    const Build build = build_of(std::as_bytes(std::span(text)));
    // The check value of CRC-64/XZ, which is this polynomial, reflected.
    EXPECT_EQ(build_of(std::as_bytes(std::span("123456789", 9))).checksum, 0x995DC9BBDF1939FAu);
    for (std::size_t i = 0; i < text.size(); ++i) {
        text[i] ^= 1;
        EXPECT_NE(build_of(std::as_bytes(std::span(text))), build) << i;
        text[i] ^= 1;
    }
    EXPECT_EQ(build_of(std::as_bytes(std::span(text))), build);
}

}  // namespace
}  // namespace foresay::plugins
