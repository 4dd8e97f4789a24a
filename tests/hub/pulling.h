// tests/hub/pulling.h: a cache in a folder of its own, a hub on this machine, and an observer that remembers.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "hub/cache.h"
#include "hub/http.h"
#include "hub/pull.h"
#include "tests/hub/hub_server.h"

namespace foresay::hub {

inline std::string contents(const std::filesystem::path& path) {
    std::ifstream stream(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(stream), {}};
}

// Bytes that no part repeats.
inline std::string noise(std::size_t size, std::uint64_t seed = 1) {
    std::string out(size, '\0');
    for (char& c : out) {
        seed = seed * 6364136223846793005u + 1442695040888963407u;
        c = static_cast<char>(seed >> 56);
    }
    return out;
}

class Remembering : public Observer {
public:
    void plan(const ModelFiles&, const std::string&, std::int64_t missing) override { planned = missing; }
    void progress(std::int64_t done, std::int64_t all) override {
        here = done;
        of = all;
        if (on_progress) on_progress(done);
    }
    void note(const std::string& sentence) override { notes.push_back(sentence); }
    bool cancelled() override { return cancel; }

    std::int64_t planned = -1, here = 0, of = 0;
    std::vector<std::string> notes;
    bool cancel = false;
    std::function<void(std::int64_t)> on_progress;
};

class Pulling : public ::testing::Test {
protected:
    static constexpr const char* kRepo = "ann/tiny-GGUF";

    void SetUp() override {
        if (const std::string why = missing_libcurl(); !why.empty()) GTEST_SKIP() << why;
        for (const char* name : {"http_proxy", "https_proxy", "all_proxy"}) ::unsetenv(name);
        std::string name = (std::filesystem::temp_directory_path() / "foresay-hub-XXXXXX").string();
        ASSERT_NE(::mkdtemp(name.data()), nullptr);
        folder_ = name;
        settings_.endpoint = server_.url();
        settings_.cache = folder_ / "hub";
        settings_.segment = 64 << 10;
        settings_.connections = 4;
        settings_.tries = 3;
        settings_.backoff = std::chrono::milliseconds(5);
        settings_.stall_timeout = std::chrono::seconds(1);
    }
    void TearDown() override {
        std::error_code ignored;
        if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
    }

    // One GGUF file of `size` bytes; nothing here reads it as one.
    void put(std::size_t size, const std::string& path = "tiny-Q4_0.gguf") {
        content_ = noise(size);
        commit_ = server_.put(kRepo, {{path, content_}, {"README.md", "# tiny\n", false}});
        oid_ = testing::sha256_of(content_);
    }
    PulledModel pull(const std::string& name = kRepo) { return hub::pull(settings_, parse_model_name(name), seen_); }
    // The sentence that a pull fails with.
    std::string refusal(const std::string& name = kRepo) {
        try {
            pull(name);
        } catch (const Error& problem) {
            return problem.what();
        }
        ADD_FAILURE() << "it was pulled";
        return "";
    }
    Cache cache() const { return Cache(settings_.cache); }
    // Nothing that is not complete and right is to be seen: no snapshot, no revision, no blob.
    void expect_nothing_visible(const std::string& repo = kRepo) const {
        EXPECT_THAT(cache().commits(repo), ::testing::IsEmpty());
        EXPECT_THAT(cache().refs(repo), ::testing::IsEmpty());
        EXPECT_FALSE(find_model(cache(), parse_model_name(repo)));
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator(cache().repo_folder(repo) / "blobs", ignored)) {
            EXPECT_EQ(entry.path().extension(), ".incomplete") << entry.path();
            // What is there is a beginning of the file, which any program can continue.
            EXPECT_TRUE(content_.starts_with(contents(entry.path()))) << entry.path();
        }
    }
    // Requests for contents, at the hub or the storage.
    std::vector<testing::ServedRequest> content_requests() const {
        std::vector<testing::ServedRequest> found;
        for (const testing::ServedRequest& request : server_.requests()) {
            if (request.storage || request.target.find("/resolve/") != std::string::npos) found.push_back(request);
        }
        return found;
    }

    testing::HubServer server_;
    std::filesystem::path folder_;
    Settings settings_;
    Remembering seen_;
    std::string content_, commit_, oid_;
};

}  // namespace foresay::hub
