// Files that would block a reader are refused at once; pipes that a shell passes are read.
#include "core/config/input_file.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "core/config/config.h"

namespace foresay::core {
namespace {

namespace fs = std::filesystem;

using ::testing::HasSubstr;

class InputFileTest : public ::testing::Test {
protected:
    InputFileTest() : folder_(fs::temp_directory_path() / ("foresay_input_" + std::to_string(::getpid()))) {
        fs::create_directories(folder_);
    }
    ~InputFileTest() override { fs::remove_all(folder_); }

    static std::string contents(const fs::path& path) {
        const InputFile file(path);
        if (!file.problem().empty()) return "problem: " + file.problem();
        std::array<char, 64> chunk{};
        const ssize_t got = ::read(file.descriptor(), chunk.data(), chunk.size());
        return {chunk.data(), static_cast<std::size_t>(std::max<ssize_t>(got, 0))};
    }

    fs::path folder_;
};

TEST_F(InputFileTest, RegularFilesAreRead) {
    std::ofstream(folder_ / "a") << "text";
    EXPECT_EQ(contents(folder_ / "a"), "text");
    fs::create_symlink(folder_ / "a", folder_ / "link");
    EXPECT_EQ(contents(folder_ / "link"), "text");
    EXPECT_EQ(contents(folder_ / "none"), "problem: No such file or directory");
}

TEST_F(InputFileTest, WhatBlocksIsRefused) {
    ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(contents(folder_ / "pipe"), "problem: it is a named pipe, not a file");
    EXPECT_EQ(contents(folder_), "problem: it is a folder, not a file");
    EXPECT_EQ(contents("/dev/zero"), "problem: it is a device, not a file");
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, (folder_ / "socket").c_str(), sizeof address.sun_path - 1);
    ASSERT_EQ(::bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(contents(folder_ / "socket"), "problem: it is a socket, not a file");
    ::close(socket);
    try {
        read_config_file(folder_ / "pipe");
        ADD_FAILURE() << "read";
    } catch (const Error& problem) {
        EXPECT_THAT(problem.what(), HasSubstr("pipe: cannot read the configuration: it is a named pipe, not a file"));
    }
}

TEST_F(InputFileTest, APipeOfThisProcessIsRead) {
    std::array<int, 2> ends{};
    ASSERT_EQ(::pipe(ends.data()), 0);
    ASSERT_EQ(::write(ends[1], "x = 1\n", 6), 6);
    ::close(ends[1]);  // a shell's <(command) may have ended before it is read
    const std::string name = "/dev/fd/" + std::to_string(ends[0]);
    EXPECT_EQ(read_config_file(name).text, "x = 1\n");
    EXPECT_EQ(read_config_file(name).directory, fs::current_path());
    ::close(ends[0]);
}

}  // namespace
}  // namespace foresay::core
