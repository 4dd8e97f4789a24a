// Writing files whole or not at all: what is refused, what is kept, and what a signal at any moment leaves.
#include "app/edits/target_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>
#include <thread>

#include "base/error.h"
#include "tests/app/program.h"

namespace foresay::app {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

std::string bytes_of(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}
mode_t mode_of(const fs::path& path) {
    struct stat status {};
    ::stat(path.c_str(), &status);
    return status.st_mode & 07777;
}

// A working folder, and a folder beside it that is outside.
class TargetFileTest : public ::testing::Test {
protected:
    void SetUp() override {
        before_ = fs::current_path();
        const fs::path root = testing::scratch() / ::testing::UnitTest::GetInstance()->current_test_info()->name();
        outside_ = root / "outside";
        inside_ = root / "inside";
        fs::create_directories(inside_ / "sub");
        fs::create_directories(outside_);
        fs::current_path(inside_);
        ::setenv("XDG_STATE_HOME", (root / "state").c_str(), 1);
    }
    void TearDown() override { fs::current_path(before_); }

    static void put(const fs::path& path, const std::string& bytes) { std::ofstream(path, std::ios::binary) << bytes; }
    static std::string refusal(const std::string& name, const TargetRules& rules = {}) {
        try {
            read_target(name, rules);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "accepted";
    }
    std::size_t files() const {
        return static_cast<std::size_t>(std::distance(fs::recursive_directory_iterator(inside_), {}));
    }

    fs::path before_, inside_, outside_;
};

TEST_F(TargetFileTest, ReplacesAndCreates) {
    put("a.txt", "old\n");
    ::chmod("a.txt", 0640);
    const std::size_t count = files();
    replace_target(read_target("a.txt", {}), "new\n");
    EXPECT_EQ(bytes_of("a.txt"), "new\n");
    EXPECT_EQ(mode_of("a.txt"), 0640u);
    EXPECT_EQ(files(), count) << "nothing is left over";
    const TargetFile fresh = read_target("sub/b.txt", {});
    EXPECT_FALSE(fresh.exists);
    replace_target(fresh, "b\n");
    EXPECT_EQ(bytes_of("sub/b.txt"), "b\n");
    const mode_t mask = ::umask(0);
    ::umask(mask);
    EXPECT_EQ(mode_of("sub/b.txt"), 0666u & ~mask);
    EXPECT_EQ(files(), count + 1);
    remove_target(read_target("sub/b.txt", {}));
    EXPECT_EQ(files(), count);
    if (::getuid() == 0) {
        ASSERT_EQ(::chown("a.txt", 1234, 4321), 0);
        ::chmod("a.txt", 04750);
        replace_target(read_target("a.txt", {}), "newer\n");
        struct stat status {};
        ASSERT_EQ(::stat("a.txt", &status), 0);
        EXPECT_EQ(status.st_uid, 1234u);
        EXPECT_EQ(status.st_gid, 4321u);
        EXPECT_EQ(status.st_mode & 07777u, 04750u);
    }
}

TEST_F(TargetFileTest, RefusesWhatIsNoPlainFile) {
    fs::create_directory("folder");
    ASSERT_EQ(::mkfifo("pipe", 0600), 0);
    put("read-only", "x\n");
    ::chmod("read-only", 0444);
    put("two", "x\n");
    fs::create_hard_link("two", "names");
    put("zero", std::string("a\0b", 3));
    put("large", std::string(static_cast<std::size_t>(kMostFileBytes) + 1, 'x'));
    EXPECT_THAT(refusal("folder"), HasSubstr("folder is a folder"));
    EXPECT_THAT(refusal("folder/"), HasSubstr("is a folder"));
    EXPECT_THAT(refusal("."), HasSubstr("is a folder"));
    EXPECT_THAT(refusal("pipe"), HasSubstr("pipe is a FIFO"));
    EXPECT_THAT(refusal("/dev/null", {.outside = true}), HasSubstr("/dev/null is a device"));
    EXPECT_THAT(refusal("read-only"), HasSubstr("read-only is read-only; "));
    EXPECT_THAT(refusal("two"), HasSubstr("two has 2 names (hard links)"));
    EXPECT_THAT(refusal("zero"), HasSubstr("zero is not text"));
    EXPECT_THAT(refusal("large"), HasSubstr("larger than 16 MiB"));
    EXPECT_THAT(refusal("none/a.txt"), HasSubstr("there is no folder none; create it first"));
    EXPECT_THAT(refusal("none.txt", {.must_exist = true}), HasSubstr("there is no file none.txt"));
    EXPECT_THAT(refusal(""), HasSubstr("name a file"));
}

TEST_F(TargetFileTest, LinksAreFollowedInsideTheWorkingFolderOnly) {
    put("sub/real.txt", "x\n");
    put(outside_ / "far.txt", "far\n");
    fs::create_symlink("sub/real.txt", "link");
    fs::create_symlink(outside_ / "far.txt", "away");
    fs::create_symlink("nowhere", "dangling");
    fs::create_symlink("loop", "loop");
    fs::create_directory_symlink(outside_, "door");
    replace_target(read_target("link", {}), "y\n");
    EXPECT_TRUE(fs::is_symlink("link"));
    EXPECT_EQ(bytes_of("sub/real.txt"), "y\n");
    EXPECT_THAT(refusal("away"), HasSubstr("away is a symbolic link to "));
    EXPECT_THAT(refusal("away"), HasSubstr("outside the working folder; add --outside"));
    EXPECT_THAT(refusal("door/far.txt"), HasSubstr("outside the working folder"));
    EXPECT_THAT(refusal("../outside/far.txt"), HasSubstr("outside the working folder"));
    EXPECT_THAT(refusal((outside_ / "far.txt").string()), HasSubstr("outside the working folder"));
    EXPECT_THAT(refusal("../inside-not/x"), HasSubstr("there is no folder"));
    EXPECT_THAT(refusal("dangling"), HasSubstr("which does not exist"));
    EXPECT_THAT(refusal("loop"), HasSubstr("loop is a symbolic link"));
    EXPECT_EQ(refusal((inside_ / "sub" / "real.txt").string()), "accepted") << "a full path may be inside";
    replace_target(read_target("away", {.outside = true}), "changed\n");
    EXPECT_EQ(bytes_of(outside_ / "far.txt"), "changed\n");
}

TEST_F(TargetFileTest, NoticesWhatOthersDoMeanwhile) {
    put("a.txt", "old\n");
    const std::size_t count = files();
    const auto attempt = [&](const std::string& name, const std::function<void()>& meanwhile) -> std::string {
        try {
            replace_target(read_target(name, {}), "mine\n", meanwhile);
        } catch (const Error& problem) {
            return problem.what();
        }
        return "written";
    };
    EXPECT_THAT(attempt("a.txt", [] { put("a.txt", "theirs\n"); }), HasSubstr("was changed by another program"));
    EXPECT_EQ(bytes_of("a.txt"), "theirs\n");
    EXPECT_THAT(attempt("a.txt", [] { ::chmod("a.txt", 0400); }), HasSubstr("was changed by another program"));
    ::chmod("a.txt", 0600);
    EXPECT_THAT(attempt("new.txt", [] { put("new.txt", "theirs\n"); }), HasSubstr("was created by another program"));
    EXPECT_EQ(bytes_of("new.txt"), "theirs\n");
    fs::remove("new.txt");
    EXPECT_THAT(attempt("a.txt", [] { fs::remove("a.txt"); }), HasSubstr("was deleted by another program"));
    put("a.txt", "old\n");
    EXPECT_THAT(attempt("a.txt", [] { fs::remove("a.txt"), fs::create_directory("a.txt"); }), HasSubstr("is a folder"));
    fs::remove("a.txt");
    EXPECT_EQ(files() + 1, count) << "nothing is left over";
}

TEST_F(TargetFileTest, KeepsBackupsToItsOwnerAndNotTooMany) {
    put("a.txt", "old\n");
    const fs::path backup = keep_backup(read_target("a.txt", {}));
    EXPECT_EQ(bytes_of(backup), "old\n");
    EXPECT_EQ(mode_of(backup), 0600u);
    EXPECT_EQ(mode_of(backup.parent_path()), 0700u);
    fs::path last;
    for (std::size_t i = 0; i < kMostBackups + 5; ++i) last = keep_backup(read_target("a.txt", {}));
    EXPECT_TRUE(fs::exists(last));
    EXPECT_FALSE(fs::exists(backup));
    const auto kept = [&] { return std::distance(fs::directory_iterator(last.parent_path()), {}); };
    EXPECT_EQ(kept(), static_cast<std::ptrdiff_t>(kMostBackups));
    // The new one stays even if the clock was set back since the others were made.
    for (std::size_t i = 0; i < kMostBackups; ++i)
        put(last.parent_path() / ("99991231-235959-" + std::to_string(i)), "");
    last = keep_backup(read_target("a.txt", {}));
    EXPECT_EQ(bytes_of(last), "old\n");
    EXPECT_EQ(kept(), static_cast<std::ptrdiff_t>(kMostBackups));
}

// The disk is full, or nearly: here a limit on the size of files.
TEST_F(TargetFileTest, AWriteThatFailsLeavesTheOldFile) {
    put("a.txt", "old\n");
    const pid_t child = ::fork();
    if (child == 0) {
        ::signal(SIGXFSZ, SIG_IGN);
        const rlimit limit{1000, 1000};
        if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(2);
        try {
            replace_target(read_target("a.txt", {}), std::string(5000, 'x'));
        } catch (const Error& problem) {
            ::_exit(std::string(problem.what()).starts_with("cannot write a.txt: ") ? 0 : 3);
        }
        ::_exit(4);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(bytes_of("a.txt"), "old\n");
    EXPECT_EQ(files(), 2u) << "nothing is left over";
}

// A child writes two texts in turn until a signal ends it at a random moment.
TEST_F(TargetFileTest, ASignalLeavesTheOldOrTheNewFile) {
    const std::string one(300000, '1'), two(300000, '2');
    std::mt19937 random(3);
    int first = 0, second = 0;
    for (int round = 0; round < 45; ++round) {
        const int signal = std::array{SIGINT, SIGTERM, SIGHUP}[static_cast<std::size_t>(round % 3)];
        put("a.txt", one);
        int ready[2];
        ASSERT_EQ(::pipe(ready), 0);
        const pid_t child = ::fork();
        if (child == 0) {
            for (bool said = false;; said = true) {
                replace_target(read_target("a.txt", {}), two);
                if (!said && ::write(ready[1], "x", 1) != 1) ::_exit(2);
                replace_target(read_target("a.txt", {}), one);
            }
        }
        char byte = 0;
        ASSERT_EQ(::read(ready[0], &byte, 1), 1);
        std::this_thread::sleep_for(std::chrono::microseconds(random() % 8000));
        ::kill(child, signal);
        int status = 0;
        ::waitpid(child, &status, 0);
        ::close(ready[0]);
        ::close(ready[1]);
        ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == signal);
        const std::string left = bytes_of("a.txt");
        ASSERT_TRUE(left == one || left == two) << "a part was left in round " << round;
        ++(left == one ? first : second);
        ASSERT_EQ(files(), 2u) << "a temporary file was left in round " << round;
    }
    std::printf("%d times the one text, %d times the other\n", first, second);
}

}  // namespace
}  // namespace foresay::app
