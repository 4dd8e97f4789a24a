// Writes the seeds of gguf_fuzz, safetensors_fuzz, formats_fuzz, families_fuzz and page_file_fuzz that are binary, or
// made by code, below the folder given: the committed corpus comes from `fuzz_corpus tests/fuzz/corpus`. With the
// folder of FORESAY_GOLDENS as well, files that other tools have written become seeds, too, for long runs.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>

#include "core/cache/page_file.h"
#include "kernels/quant/stored_type.h"
#include "tests/support/gguf_of_folder.h"
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

// Two rows of a block in every type of files that is rearranged for the kernels, of bytes that look random.
std::string stored_types_gguf() {
    GgufImageBuilder b;
    std::uint32_t state = 1;
    for (const foresay::kernels::StoredType& type : foresay::kernels::stored_types()) {
        std::string bytes(static_cast<std::size_t>(2 * type.block_bytes), '\0');
        for (char& byte : bytes) byte = static_cast<char>((state = state * 1664525u + 1013904223u) >> 24);
        b.tensor(type.name, {static_cast<std::uint64_t>(type.block_elements), 2}, type.ggml_type, bytes);
    }
    return b.build();
}

// The length of the configuration, the configuration, the tensors.
std::string folder_seed(const std::string& config, const std::string& tensors) {
    return raw(static_cast<std::uint32_t>(config.size())) + config + tensors;
}
std::string folder_seed(const foresay::core::testing::FolderImage& image) {
    return folder_seed(image.config, image.file());
}

std::string read(const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// The folders and files of FORESAY_GOLDENS, which the formats' own tools have written, as far as a fuzzer can carry
// them.
void write_goldens(const std::filesystem::path& root, const std::filesystem::path& goldens) {
    constexpr std::uintmax_t kMost = std::uintmax_t{2} << 20;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(goldens)) {
        const std::filesystem::path& path = entry.path();
        if (!entry.is_regular_file() || entry.file_size() > kMost) continue;
        const std::string name = path.parent_path().filename().string() + "-" + path.filename().string();
        if (path.extension() == ".gguf") write(root / "gguf" / name, read(path));
        if (path.extension() != ".safetensors" || path.filename() == "decoded.safetensors") continue;
        write(root / "safetensors" / name, read(path));
        write(root / "formats" / name, folder_seed(read(path.parent_path() / "config.json"), read(path)));
    }
}

void write_pages(const std::filesystem::path& file, std::int32_t rows, std::int64_t bytes) {
    foresay::core::PageFileHeader header{.page_bytes = bytes,
                                         .fingerprint = foresay::core::page_hash("a model"),
                                         .parent = {1, 2},
                                         .tokens = {},
                                         .decode_rows = {}};
    for (std::int32_t i = 0; i < rows; ++i) header.tokens.push_back(100 + i);
    for (std::int32_t i = 0; i < rows; i += 64) header.decode_rows.push_back(~std::uint64_t{0} << i % 7);
    std::filesystem::create_directories(file.parent_path());
    std::vector<std::byte> page(static_cast<std::size_t>(bytes));
    foresay::core::write_page_file(file, header, [&](std::size_t index) {
        page[0] = static_cast<std::byte>(index);
        return std::span<const std::byte>(page);
    });
}

// The keys of a tokenizer, with a token for each kind that it has.
std::string tokenizer_gguf(const std::string& model) {
    const bool scores = model == "llama" || model == "t5";
    GgufImageBuilder b;
    b.text("general.architecture", "llama").text("tokenizer.ggml.model", model);
    b.texts("tokenizer.ggml.tokens", {"<unk>", "<s>", "</s>", "<0x20>", "a", "b", "ab", "\xe2\x96\x81", "I'm", "1"});
    b.array<std::int32_t>("tokenizer.ggml.token_type", GgufType::i32, {2, 3, 3, 6, 1, 1, 1, 1, 4, 1});
    if (scores) {
        b.array<float>("tokenizer.ggml.scores", GgufType::f32, {0, 0, 0, 0, -1, -2, -3, -4, -5, -6});
        b.scalar<std::uint32_t>("tokenizer.ggml.unknown_token_id", GgufType::u32, 0);
        b.scalar<std::uint8_t>("tokenizer.ggml.add_space_prefix", GgufType::boolean, 1);
    } else {
        b.text("tokenizer.ggml.pre", model == "gemma4" ? "gemma4" : "llama-bpe");
        b.texts("tokenizer.ggml.merges", {"a b"});
    }
    b.scalar<std::uint32_t>("tokenizer.ggml.bos_token_id", GgufType::u32, 1);
    b.scalar<std::uint32_t>("tokenizer.ggml.eos_token_id", GgufType::u32, 2);
    b.scalar<std::uint8_t>("tokenizer.ggml.add_bos_token", GgufType::boolean, 1);
    b.text("tokenizer.chat_template", "{{ bos_token }}{{ messages[0].content }}");
    return b.build();
}

// The configurations of tests/golden/families as they are, and as the keys of GGUF files.
void write_families(const std::filesystem::path& folder) {
    namespace fs = std::filesystem;
    for (const auto& entry : fs::directory_iterator(fs::path(FORESAY_SOURCE_DIR) / "tests/golden/families")) {
        const nlohmann::json config = foresay::test::read_json(entry.path());
        const std::string name = entry.path().stem();
        write(folder / (name + ".json"), config.dump());
        if (name != "phi3") write(folder / (name + ".gguf"), gguf_image(foresay::test::gguf_keys(config)));
    }
    for (const char* model : {"gpt2", "llama", "t5", "gemma4"}) {
        write(folder / ("tokenizer-" + std::string(model) + ".gguf"), tokenizer_gguf(model));
    }
}

}  // namespace

int main(int argc, char** argv) {
    using namespace foresay::core::testing;
    if (argc != 2 && argc != 3) {
        std::fprintf(stderr, "usage: fuzz_corpus FOLDER [GOLDENS]\n");
        return 2;
    }
    const std::filesystem::path root = argv[1];
    if (argc == 3) write_goldens(root, argv[2]);
    write_pages(root / "page_file/one-page", 64, 24);
    write_pages(root / "page_file/part-of-a-page", 3, 8);
    write_pages(root / "page_file/conversation", 150, 16);
    write_families(root / "families");
    write(root / "gguf/every-type-v3.gguf", sample_gguf(3));
    write(root / "gguf/every-type-v2.gguf", sample_gguf(2));
    write(root / "gguf/empty.gguf", GgufImageBuilder().build());
    write(root / "gguf/aligned.gguf", aligned_gguf());
    write(root / "gguf/quant_types.gguf", quant_types_gguf());
    write(root / "gguf/stored_types.gguf", stored_types_gguf());
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
