// What a path holds, and what a user is told when it holds no model.

#include "core/weights/model_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "core/weights/mapped_file.h"
#include "core/weights/safetensors.h"
#include "tests/weights/expect_error.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/safetensors_image.h"
#include "tests/weights/temporary_directory.h"

namespace foresay::core {
namespace {

using testing::expect_error;
using testing::TemporaryDirectory;

TEST(ModelFile, RecognisesModels) {
    TemporaryDirectory directory;
    EXPECT_EQ(detect_model_format(directory.write("odd-name.bin", testing::sample_gguf())), ModelFormat::gguf);
    directory.write("config.json", "{}");
    const auto weights = directory.write("model.safetensors", testing::sample_safetensors());
    EXPECT_EQ(detect_model_format(directory.path()), ModelFormat::safetensors);
    EXPECT_EQ(detect_model_format(weights), ModelFormat::safetensors);
    expect_error([&] { SafetensorsDir::open(directory.path() / "odd-name.bin"); }, "a GGUF file, not a directory");
}

// As tools for quantised models leave them, without an index.
TEST(ModelFile, FindsWeightsOfOtherNames) {
    TemporaryDirectory directory;
    directory.write("config.json", "{}");
    const auto names = [&] {
        std::vector<std::string> all;
        for (const auto& file : safetensors_files(directory.path())) all.push_back(file.filename().string());
        return all;
    };
    using ::testing::ElementsAre;
    const std::string image = testing::sample_safetensors();
    directory.write("gptq_model-4bit-128g.safetensors", image);
    EXPECT_THAT(names(), ElementsAre("gptq_model-4bit-128g.safetensors"));
    EXPECT_EQ(detect_model_format(directory.path()), ModelFormat::safetensors);
    EXPECT_TRUE(SafetensorsDir::open(directory.path()).tensors().has("matrix"));
    directory.write("output-00002-of-00002.safetensors", testing::safetensors_image("{}", ""));
    expect_error([&] { names(); }, "the part output-00001-of-00002.safetensors is missing");
    directory.write("output-00001-of-00002.safetensors", image);
    EXPECT_THAT(names(), ElementsAre("output-00001-of-00002.safetensors", "output-00002-of-00002.safetensors"));
    EXPECT_TRUE(SafetensorsDir::open(directory.path()).tensors().has("matrix"));
    directory.write("other-00001-of-00001.safetensors", image);
    expect_error([&] { detect_model_format(directory.path()); }, "more than one set of weights");
    directory.write("output.safetensors", image);
    EXPECT_THAT(names(), ElementsAre("output.safetensors"));
}

TEST(ModelFile, SaysWhatAFileIsInstead) {
    TemporaryDirectory directory;
    const auto refused = [&](const std::filesystem::path& path, const char* part) {
        expect_error([&] { detect_model_format(path); }, path.string());
        expect_error([&] { detect_model_format(path); }, part);
    };
    refused(directory.path() / "absent.gguf", "no such file or directory");
    refused(directory.write("empty.gguf", ""), "the file is empty");
    refused(directory.write("broken.gguf", "XGUF"), "does not begin with 'GGUF'");
    refused(directory.write("pointer.gguf", "version https://git-lfs.github.com/spec/v1\n"), "a Git LFS pointer");
    refused(directory.write("pytorch_model.bin", "PK\x03\x04"), "which foresay does not read");
    refused(directory.write("model.pt", "PK\x03\x04"), "which foresay does not read");
    refused(directory.write("notes.txt", "hello"), "neither a GGUF file nor a directory");
    refused(directory.write("alone.safetensors", testing::sample_safetensors()), "no config.json lies beside the file");
}

TEST(ModelFile, SaysWhatADirectoryLacks) {
    TemporaryDirectory directory;
    const auto refused = [&](const char* part) { expect_error([&] { detect_model_format(directory.path()); }, part); };
    refused("the directory holds no model");
    directory.write("pytorch_model.bin", "PK\x03\x04");
    refused("the weights are in a PyTorch file (pytorch_model.bin)");
    std::filesystem::remove(directory.path() / "pytorch_model.bin");
    directory.write("config.json", "{}");
    refused("has a config.json but no model.safetensors");
    directory.write("a.gguf", "GGUF");
    refused((directory.path() / "a.gguf").string().c_str());
    std::filesystem::remove(directory.path() / "a.gguf");
    std::filesystem::remove(directory.path() / "config.json");
    directory.write("model.safetensors", testing::sample_safetensors());
    refused("the directory has no config.json");
}

TEST(MappedFile, MapsBytesAndRefusesWhatIsNoFile) {
    TemporaryDirectory directory;
    const MappedFile file(directory.write("data", "hello"));
    ASSERT_EQ(file.bytes().size(), 5u);
    EXPECT_EQ(file.bytes()[4], std::byte{'o'});
    EXPECT_TRUE(MappedFile(directory.write("nothing", "")).bytes().empty());
    expect_error([&] { MappedFile(directory.path() / "absent"); }, "cannot open the file: No such file or directory");
    expect_error([&] { MappedFile(directory.path()); }, "not a regular file");
    const auto pipe = directory.path() / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    expect_error([&] { MappedFile{pipe}; }, "not a regular file");  // and does not wait for a writer
}

TEST(MappedFile, MovesWithoutUnmapping) {
    TemporaryDirectory directory;
    MappedFile first(directory.write("data", "hello"));
    const std::byte* address = first.bytes().data();
    MappedFile second(std::move(first));
    EXPECT_EQ(second.bytes().data(), address);
    MappedFile third;
    third = std::move(second);
    EXPECT_EQ(third.bytes().data(), address);
    EXPECT_EQ(third.bytes()[0], std::byte{'h'});
}

}  // namespace
}  // namespace foresay::core
