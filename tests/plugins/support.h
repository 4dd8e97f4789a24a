// tests/plugins/support.h: a scratch folder, files as bytes, and the message of an error.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "tests/support/error_of.h"

namespace foresay::plugins {

class OwnFolder {
public:
    OwnFolder() {
        std::string name = (std::filesystem::temp_directory_path() / "foresay_plugins_XXXXXX").string();
        if (::mkdtemp(name.data()) == nullptr) throw Error("no temporary folder");
        path_ = name;
    }
    ~OwnFolder() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    const std::filesystem::path& path() const { return path_; }

private:
    std::filesystem::path path_;
};

inline std::string read_file(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline void write_file(const std::filesystem::path& path, const std::string& bytes) {
    std::ofstream(path, std::ios::binary) << bytes;
}

using test::error_of;

}  // namespace foresay::plugins
