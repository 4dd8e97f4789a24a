// Lists of checksums, and the check of models against them.
#include "core/weights/checksums.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <iterator>

#include "tests/weights/expect_error.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::core {
namespace {

using ::testing::ElementsAre;
using testing::expect_error;
using testing::TemporaryDirectory;

namespace fs = std::filesystem;

std::string hash(std::string_view text) { return xxh128(std::as_bytes(std::span(text.data(), text.size()))); }

std::string read(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Digests that `xxhsum -H2` of xxHash 0.8 prints.
TEST(Xxh128, IsWhatXxhsumPrints) {
    EXPECT_EQ(hash(""), "99aa06d3014798d86001c324468d497f");
    EXPECT_EQ(hash("abc"), "06b05ab6733a618578af5f94892f3950");
    std::int64_t seen = 0, calls = 0;
    const std::string large((std::size_t{16} << 20) + 5, 'x');
    const std::string digits = xxh128(std::as_bytes(std::span(large.data(), large.size())), [&](std::int64_t bytes) {
        seen += bytes;
        ++calls;
    });
    EXPECT_EQ(seen, static_cast<std::int64_t>(large.size()));
    EXPECT_EQ(calls, 2);
    EXPECT_EQ(digits, hash(large));
}

TEST(Lists, AreReadAsSha256sumWritesThem) {
    const TemporaryDirectory folder;
    const std::string digest(64, 'a');
    for (const std::string& line : {digest + "  m.gguf", digest + " *m.gguf", digest + "  ./m.gguf\r",
                                    "# a remark\nnonsense\n\n" + std::string(64, 'b') + "  other\n" + digest +
                                        "  m.gguf\n" + std::string(64, 'c') + "  m.gguf"}) {
        folder.write("SHA256SUMS", line + "\n");
        const auto known = listed_digest(folder.path() / "m.gguf", kSha256List, kSha256Digits);
        ASSERT_TRUE(known) << line;
        EXPECT_EQ(known->digits, digest) << line;
        EXPECT_EQ(known->list, folder.path() / "SHA256SUMS");
    }
    folder.write("SHA256SUMS", std::string(64, 'A') + "  m.gguf\n");
    EXPECT_EQ(listed_digest(folder.path() / "m.gguf", kSha256List, kSha256Digits)->digits, digest);
    EXPECT_FALSE(listed_digest(folder.path() / "x.gguf", kSha256List, kSha256Digits));
    EXPECT_FALSE(listed_digest(folder.path() / "m.gguf", kXxh128List, kXxh128Digits));
    folder.write("SHA256SUMS", "abc  m.gguf\n");
    expect_error([&] { listed_digest(folder.path() / "m.gguf", kSha256List, kSha256Digits); },
                 "has 3 digits instead of 64");
    folder.write("SHA256SUMS", std::string(static_cast<std::size_t>(kMaxListBytes) + 1, '\n'));
    expect_error([&] { listed_digest(folder.path() / "m.gguf", kSha256List, kSha256Digits); }, "larger than");
    // A list that would block is refused.
    fs::remove(folder.path() / "SHA256SUMS");
    ASSERT_EQ(::mkfifo((folder.path() / "SHA256SUMS").c_str(), 0600), 0);
    expect_error([&] { listed_digest(folder.path() / "m.gguf", kSha256List, kSha256Digits); }, "not a regular file");
}

TEST(Lists, BesideTheFileThatALinkLeadsTo) {
    const TemporaryDirectory folder;
    fs::create_directories(folder.path() / "kept");
    folder.write("kept/m.gguf", "x");
    folder.write("kept/XXH128SUMS", hash("x") + "  m.gguf\n");
    fs::create_symlink(folder.path() / "kept/m.gguf", folder.path() / "mine.gguf");
    const auto known = listed_digest(folder.path() / "mine.gguf", kXxh128List, kXxh128Digits);
    ASSERT_TRUE(known);
    EXPECT_EQ(known->digits, hash("x"));
}

TEST(ModelFiles, ArePartsAndDirectories) {
    const TemporaryDirectory folder;
    const auto names = [](const std::vector<fs::path>& files) {
        std::vector<std::string> out;
        for (const fs::path& file : files) out.push_back(file.filename());
        return out;
    };
    EXPECT_THAT(names(model_files(folder.path() / "m.gguf")), ElementsAre("m.gguf"));
    EXPECT_THAT(names(model_files(folder.path() / "m-00002-of-00003.gguf")),
                ElementsAre("m-00001-of-00003.gguf", "m-00002-of-00003.gguf", "m-00003-of-00003.gguf"));
    EXPECT_THAT(names(model_files(folder.path() / "m-0000x-of-00003.gguf")), ElementsAre("m-0000x-of-00003.gguf"));
    for (const char* name : {"b.safetensors", "config.json", "README.md"}) folder.write(name, "");
    EXPECT_THAT(names(model_files(folder.path())), ElementsAre("b.safetensors", "config.json"));
}

TEST(Check, FindsEveryFlippedBit) {
    const TemporaryDirectory folder;
    std::string bytes(100'000, '\0');
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<char>(i * 2654435761u >> 13);
    const fs::path file = folder.write("m.gguf", bytes);
    EXPECT_FALSE(check_listed_files(file, "")) << "nothing is listed";
    folder.write("XXH128SUMS", hash(bytes) + "  m.gguf\n");
    EXPECT_TRUE(check_listed_files(file, ""));
    for (const std::size_t bit : {std::size_t{0}, std::size_t{7}, std::size_t{400'003}, bytes.size() * 8 - 1}) {
        std::string damaged = bytes;
        damaged[bit / 8] = static_cast<char>(damaged[bit / 8] ^ (1 << bit % 8));
        folder.write("m.gguf", damaged);
        expect_error([&] { check_listed_files(file, ", or this"); }, "m.gguf: damaged or changed, because");
        expect_error([&] { check_listed_files(file, ", or this"); }, "git checkout");
        expect_error([&] { check_listed_files(file, ", or this"); }, ", or this");
    }
    folder.write("m.gguf", bytes.substr(1));
    expect_error([&] { check_listed_files(file, ""); }, "XXH128SUMS");
}

TEST(Check, ReportsProgressAndCanBeCancelled) {
    const TemporaryDirectory folder;
    const fs::path file = folder.write("m.gguf", "weights");
    folder.write("XXH128SUMS", hash("weights") + "  m.gguf\n");
    std::int64_t last = 0, total = 0;
    check_listed_files(file, "", [&](std::int64_t done, std::int64_t all) { last = done, total = all; });
    EXPECT_EQ(last, 7);
    EXPECT_EQ(total, 7);
    expect_error([&] { check_listed_files(file, "", [](auto, auto) { throw Error("cancelled"); }); }, "cancelled");
}

// The bundled pair is what its lists say. tests/app checks the SHA-256.
TEST(Bundled, IsListed) {
    const fs::path folder = fs::path(FORESAY_SOURCE_DIR) / "models" / "python-coder";
    for (const char* name : {"target-q4_k_m.gguf", "draft-q8_0.gguf"}) {
        EXPECT_TRUE(check_listed_files(folder / name, "")) << name;
        EXPECT_TRUE(listed_digest(folder / name, kSha256List, kSha256Digits)) << name;
        EXPECT_EQ(hash(read(folder / name)), listed_digest(folder / name, kXxh128List, kXxh128Digits)->digits);
    }
}

}  // namespace
}  // namespace foresay::core
