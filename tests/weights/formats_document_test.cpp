// docs/formats.md has the table of types and formats that the program reads.
#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "core/weights/formats/formats.h"
#include "core/weights/ggml_types.h"

namespace foresay::core {
namespace {

std::string document() {
    std::ifstream file(std::string(FORESAY_SOURCE_DIR) + "/docs/formats.md", std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// "4.5", "2.0625".
std::string bits(double per_block, double elements) {
    char text[32];
    std::snprintf(text, sizeof text, "%.6g", per_block * 8.0 / elements);
    return text;
}

std::string lower(std::string text) {
    for (char& c : text) c = static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c);
    return text;
}
std::string upper(std::string_view text) {
    std::string out(text);
    for (char& c : out) c = static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c);
    return out;
}

// The first cells of a type's row; who writes it follows.
std::string row_of(const GgmlType& type) {
    std::string row = "| " + type.name + " | " + bits(type.block_bytes, type.block_elements) + " | ";
    if (type.stored == nullptr) return row + "as it is | ";
    constexpr std::int64_t kValues = 256;
    const std::string name =
        type.stored->packing != nullptr ? "packed" : upper(kernels::info(type.stored->packed).name);
    return row + name + ", " + bits(static_cast<double>(type.stored->packed_bytes(kValues)), kValues) + " | ";
}

TEST(FormatsDocument, ListsTheTypesOfGguf) {
    const std::string text = document();
    std::set<std::string> names;
    for (std::uint32_t id = 0; id < 512; ++id) {
        const GgmlType type = ggml_type(id);
        if (!type.quant_type && type.stored == nullptr) continue;
        names.insert(lower(type.name));
        EXPECT_NE(text.find("\n" + row_of(type)), std::string::npos) << "docs/formats.md lacks " << row_of(type);
    }
    // And no other.
    const std::size_t begin = text.find("## GGUF");
    std::istringstream lines(text.substr(begin, text.find("\n## ", begin) - begin));
    std::size_t rows = 0;
    for (std::string line; std::getline(lines, line);) {
        if (!line.starts_with("| ") || line.starts_with("| type ")) continue;
        ++rows;
        EXPECT_TRUE(names.contains(lower(line.substr(2, line.find(" |", 2) - 2)))) << line;
    }
    EXPECT_EQ(rows, names.size());
}

TEST(FormatsDocument, ListsTheFormatsOfSafetensors) {
    const std::string text = document();
    const std::size_t begin = text.find("## safetensors");
    const std::string section = text.substr(begin, text.find("\n## ", begin) - begin);
    std::size_t rows = 0;
    for (std::size_t at = section.find("\n| "); at != std::string::npos; at = section.find("\n| ", at + 1)) ++rows;
    EXPECT_EQ(rows, matrix_formats().size() + 1) << "with the heading";
    for (const MatrixFormat& format : matrix_formats()) {
        const std::string row = "\n| " + std::string(format.name) + " | " + std::string(format.bits) + " | " +
                                std::string(format.written_by);
        EXPECT_NE(section.find(row), std::string::npos) << "docs/formats.md lacks " << row;
    }
    std::string plain = section;
    for (char& c : plain) c = c == '\n' ? ' ' : c;
    for (const RefusedMethod& refused : refused_methods()) {
        const std::string name(refused.name.substr(0, refused.name.find(" (")));
        EXPECT_NE(plain.find(name), std::string::npos) << "docs/formats.md does not say that " << name << " is refused";
    }
}

}  // namespace
}  // namespace foresay::core
