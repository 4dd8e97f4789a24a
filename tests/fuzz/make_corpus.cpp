// Writes the seeds of gguf_fuzz, safetensors_fuzz and formats_fuzz that are binary, or made by code, below the folder
// given: the committed corpus comes from `fuzz_corpus tests/fuzz/corpus`.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/weights/folder_image.h"
#include "tests/weights/gguf_image.h"
#include "tests/weights/safetensors_image.h"

namespace {

using foresay::core::GgufType;
using foresay::core::testing::GgufImageBuilder;
using foresay::core::testing::raw;

void write(const std::filesystem::path& file, std::string_view bytes) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
}

std::string aligned_gguf() {
    GgufImageBuilder b;
    b.alignment = 64;
    b.scalar<std::uint32_t>("general.alignment", GgufType::u32, 64);
    b.tensor("a", {1}, 0, raw(1.0f)).tensor("b", {256, 2}, 12, std::string(288, '\x11'));
    return b.build();
}

std::string quant_types_gguf() {
    GgufImageBuilder b;
    b.tensor("q4_0", {32}, 2, std::string(18, '\x21')).tensor("q5_k", {256}, 13, std::string(176, '\x21'));
    b.tensor("q6_k", {256}, 14, std::string(210, '\x21')).tensor("bf16", {2}, 30, "abcd");
    return b.build();
}

// The length of the configuration, the configuration, the tensors.
std::string folder_seed(const foresay::core::testing::FolderImage& image) {
    return raw(static_cast<std::uint32_t>(image.config.size())) + image.config + image.file();
}

}  // namespace

int main(int argc, char** argv) {
    using namespace foresay::core::testing;
    if (argc != 2) {
        std::fprintf(stderr, "usage: fuzz_corpus FOLDER\n");
        return 2;
    }
    const std::filesystem::path root = argv[1];
    write(root / "gguf/every-type-v3.gguf", sample_gguf(3));
    write(root / "gguf/every-type-v2.gguf", sample_gguf(2));
    write(root / "gguf/empty.gguf", GgufImageBuilder().build());
    write(root / "gguf/aligned.gguf", aligned_gguf());
    write(root / "gguf/quant_types.gguf", quant_types_gguf());
    write(root / "safetensors/every-type.safetensors", sample_safetensors());
    write(root / "safetensors/empty.safetensors", safetensors_image("{}", ""));
    write(root / "formats/gptq", folder_seed(gptq_image()));
    write(root / "formats/gptq-3", folder_seed(gptq_image(3)));
    write(root / "formats/awq", folder_seed(awq_image()));
    write(root / "formats/packed", folder_seed(packed_image()));
    write(root / "formats/int8", folder_seed(int8_image()));
    write(root / "formats/fp8", folder_seed(fp8_image()));
    write(root / "formats/nvfp4", folder_seed(nvfp4_image()));
    write(root / "formats/mxfp4", folder_seed(mxfp4_image()));
    write(root / "formats/mlx", folder_seed(mlx_image()));
    write(root / "formats/exl2", folder_seed(exl2_image()));
    return 0;
}
