// core/config/input_file.h: opens a user's file for reading, and refuses at once what would block.
//
// Allowed:  regular files; and pipes and terminals that this process was given: /dev/stdin, /dev/fd/N and
//           /proc/self/fd/N, which is how shells pass <(command). Named pipes, sockets and devices are refused.
// Threads:  any; an object belongs to one thread.
#pragma once

#include <filesystem>
#include <string>

namespace foresay::core {

class InputFile {
public:
    // Check problem() before anything else.
    explicit InputFile(const std::filesystem::path& path);
    InputFile(const InputFile&) = delete;
    InputFile& operator=(const InputFile&) = delete;
    ~InputFile();

    // Why the file cannot be read, in one clause ("No such file or directory", "it is a named pipe, not a file"); empty
    // when it can.
    const std::string& problem() const { return problem_; }
    // -1 after a problem. Closed with this object.
    int descriptor() const { return descriptor_; }

private:
    int descriptor_ = -1;
    std::string problem_;
};

}  // namespace foresay::core
