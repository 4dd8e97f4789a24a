// Damaged plugin files: each is refused with a message or loads; none crashes or hangs the host.

#include <elf.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>
#include <fstream>
#include <random>
#include <span>
#include <vector>

#include "plugins/host/crash_watch.h"
#include "plugins/host/elf_check.h"
#include "plugins/host/plugin_host.h"
#include "samplers/sdk/sampler.h"
#include "tests/plugins/support.h"

namespace foresay::plugins {
namespace {

const std::filesystem::path kGood = std::filesystem::path(FORESAY_PLUGIN_FOLDER) / "wordlist.so";

std::string check(const std::string& bytes) {
    // A copy of exactly that size, so that a sanitizer sees any read beyond it.
    const std::vector<char> exact(bytes.begin(), bytes.end());
    return elf_problem(std::as_bytes(std::span(exact)), FORESAY_SAMPLER_ENTRY, sizeof(foresay_sampler_library));
}

TEST(HostilePlugin, TheGoodFilePasses) { EXPECT_EQ(check(read_file(kGood)), ""); }

TEST(HostilePlugin, NoElf) {
    EXPECT_EQ(check(""), "the file is empty");
    EXPECT_EQ(check("#!/bin/sh\necho hello\n"), "it is not a shared object (ELF) file");
    EXPECT_EQ(check(std::string("\x7f"
                                "ELF",
                                4)),
              "it is not a shared object (ELF) file");
    EXPECT_EQ(check(std::string(100000, '\0')), "it is not a shared object (ELF) file");
    EXPECT_NE(check(read_file("/proc/self/exe")), "");  // a program
}

TEST(HostilePlugin, OfAnotherMachine) {
    const std::string whole = read_file(kGood);
    std::string bytes = whole;
    bytes[EI_CLASS] = ELFCLASS32;
    EXPECT_EQ(check(bytes), "it was built for another kind of machine");
    bytes = whole;
    bytes[EI_DATA] = ELFDATA2MSB;
    EXPECT_EQ(check(bytes), "it was built for another kind of machine");
    bytes = whole;
    bytes[offsetof(Elf64_Ehdr, e_machine)] ^= 0x55;
    EXPECT_EQ(check(bytes), "it was built for another kind of machine");
    OwnFolder own;
    write_file(own.path() / "far.so", bytes);
    EXPECT_EQ(error_of([&] {
                  PluginHost({{own.path()}, {}}).load("far");
              }),
              "plugin '" + (own.path() / "far.so").string() +
                  "' cannot be loaded: it was built for another kind of "
                  "machine");
}

enum class Loading { loaded, refused, crashed, wrong };

void nothing() {}

// Loads wordlist from a file in a process of its own, which ends before a sampler of it is made. `crashed`: what had
// not crashed in the process that tries a library first did so here, and is barred from then on. `state` is a folder.
Loading load_apart(const std::filesystem::path& path, const std::filesystem::path& state) {
    const PluginOptions options{{}, state / "plugins"};
    const pid_t child = ::fork();
    if (child < 0) return Loading::wrong;
    if (child == 0) {
        const rlimit none{};
        ::setrlimit(RLIMIT_CORE, &none);
        ::alarm(60);
        ::dup2(::open("/dev/null", O_WRONLY), STDERR_FILENO);
        watch_for_crashes(nothing);
        Loading result = Loading::loaded;
        try {
            PluginHost host(options);
            host.load("wordlist", path);
        } catch (const Error& error) {
            const bool named = std::string(error.what()).find(path.string()) != std::string::npos;
            result = named ? Loading::refused : Loading::wrong;
        }
        ::_exit(static_cast<int>(result));
    }
    int status = 0;
    if (::waitpid(child, &status, 0) != child) return Loading::wrong;
    if (WIFEXITED(status)) return static_cast<Loading>(WEXITSTATUS(status));
    PluginHost next(options);
    const bool barred = next.bars().size() == 1 && next.bars()[0].path == path;
    return WTERMSIG(status) != SIGALRM && barred ? Loading::crashed : Loading::wrong;
}

TEST(HostilePlugin, EveryTruncationIsSeen) {
    const std::string whole = read_file(kGood);
    for (std::size_t size = 0; size < whole.size(); size += size < 4096 ? 1 : 997) {
        ASSERT_NE(check(whole.substr(0, size)), "") << size;
    }
    ASSERT_NE(check(whole.substr(0, whole.size() - 1)), "");
}

TEST(HostilePlugin, AnyDamagedHeaderIsReadSafely) {
    const std::string whole = read_file(kGood);
    std::mt19937 random(1);
    for (int round = 0; round < 20000; ++round) {
        std::string bytes = whole;
        const std::size_t from[] = {0, 64, bytes.size() - 3000};
        const std::size_t start = from[static_cast<std::size_t>(round) % 3];
        for (int flips = 0; flips < 3; ++flips) {
            bytes[std::min(bytes.size() - 1, start + random() % 3000)] ^= static_cast<char>(1u << (random() % 8));
        }
        check(bytes);  // must return
    }
}

// The whole way, dlopen included: the child process takes what the checks cannot see. Damage can do one thing there and
// another here, where addresses differ; such a crash is rare, named, and not repeated.
TEST(HostilePlugin, FlippedBitsDoNotHurtTheHost) {
    const std::string whole = read_file(kGood);
    std::mt19937 random(2);
    OwnFolder own;
    int refused = 0, crashed = 0;
#ifdef FORESAY_SANITIZED
    constexpr int kRounds = 20;
#else
    constexpr int kRounds = 200;
#endif
    for (int round = 0; round < kRounds; ++round) {
        std::string bytes = whole;
        // Headers and loader tables come first; damage there is what a loader trips over.
        const std::size_t region = round % 2 ? 6000 : bytes.size();
        for (int flips = 0; flips < 8; ++flips)
            bytes[64 + random() % (region - 64)] ^= static_cast<char>(1u << (random() % 8));
        const auto path = own.path() / ("wordlist" + std::to_string(round) + ".so");
        write_file(path, bytes);
        const Loading result = load_apart(path, own.path() / std::to_string(round));
        ASSERT_NE(result, Loading::wrong) << "round " << round;
        refused += result == Loading::refused;
        crashed += result == Loading::crashed;
        std::filesystem::remove(path);
    }
    EXPECT_GT(refused, kRounds / 10);
    EXPECT_LE(crashed, kRounds / 20);
}

TEST(HostilePlugin, OddFiles) {
    OwnFolder own;
    PluginHost host({{own.path()}, {}});
    std::filesystem::create_directory(own.path() / "folder.so");
    EXPECT_EQ(error_of([&] { host.load("folder"); }),
              "plugin '" + (own.path() / "folder.so").string() + "' cannot be loaded: it is not a regular file");
    ASSERT_EQ(::mkfifo((own.path() / "pipe.so").c_str(), 0600), 0);
    EXPECT_EQ(error_of([&] { host.load("pipe"); }),
              "plugin '" + (own.path() / "pipe.so").string() + "' cannot be loaded: it is not a regular file");
    write_file(own.path() / "empty.so", "");
    EXPECT_EQ(error_of([&] { host.load("empty"); }),
              "plugin '" + (own.path() / "empty.so").string() + "' cannot be loaded: the file is empty");
    ASSERT_EQ(::truncate((own.path() / "empty.so").c_str(), std::int64_t{1} << 40), 0);
    EXPECT_EQ(error_of([&] { host.load("empty"); }),
              "plugin '" + (own.path() / "empty.so").string() + "' cannot be loaded: it is larger than 256 MiB");
    EXPECT_EQ(host.scan().size(), 3u);
}

}  // namespace
}  // namespace foresay::plugins
