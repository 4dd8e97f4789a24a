// Quantised folders as their own tools publish them: every matrix against what an independent reader decodes from it.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/weights/formats/formats.h"
#include "core/weights/safetensors.h"
#include "core/weights/safetensors_reader.h"
#include "tests/support/format_folders.h"
#include "tests/support/goldens.h"

namespace foresay::test {
namespace {

using core::StoredMatrix;
using nlohmann::json;
namespace fs = std::filesystem;

class FormatGoldens : public testing::TestWithParam<std::string> {
protected:
    void SetUp() override {
        FORESAY_SKIP_WITHOUT_GOLDENS();
        path_ = goldens_folder() / "formats" / GetParam();
        folder_ = std::make_unique<core::SafetensorsDir>(core::SafetensorsDir::open(path_));
        matrices_ = core::open_matrices(*folder_);
    }
    std::vector<float> row(const StoredMatrix& matrix, std::int64_t r) const {
        std::vector<float> values(static_cast<std::size_t>(matrix.cols()));
        matrix.values(r, values);
        return values;
    }
    // Two factors of float32 may be multiplied in either order; integers times a scale are exact.
    float tolerance() const {
        const std::string& name = GetParam();
        return name.find("fp4") != std::string::npos || name.find("fp8") != std::string::npos ? 0x1p-22f : 0.0f;
    }

    fs::path path_;
    std::unique_ptr<core::SafetensorsDir> folder_;
    core::Matrices matrices_;
};

// Sums over whole matrices, of which the third notices any exchange of places.
TEST_P(FormatGoldens, EveryMatrixHasItsSums) {
    const json checks = json::parse(std::ifstream(path_ / "golden.json"))["checks"];
    std::size_t compared = 0;
    for (const auto& [name, sums] : checks.items()) {
        const auto found = matrices_.find(name.substr(0, name.rfind(".weight")));
        ASSERT_NE(found, matrices_.end()) << name;
        const StoredMatrix& matrix = *found->second;
        ASSERT_GE(matrix.rows(), sums[0].get<std::int64_t>()) << name;
        ASSERT_EQ(matrix.cols(), sums[1].get<std::int64_t>()) << name;
        double sum = 0.0, size = 0.0, places = 0.0;
        for (std::int64_t i = 0; i < sums[0].get<std::int64_t>(); ++i) {
            const std::vector<float> values = row(matrix, i);
            for (std::int64_t j = 0; j < matrix.cols(); ++j) {
                const double w = values[static_cast<std::size_t>(j)];
                sum += w;
                size += std::abs(w);
                places += w * static_cast<double>((31 * i + 17 * j) % 101 - 50);
            }
        }
        EXPECT_NEAR(sum, sums[2].get<double>(), 1e-6 * size) << name;
        EXPECT_NEAR(size, sums[3].get<double>(), 1e-6 * size) << name;
        EXPECT_NEAR(places, sums[4].get<double>(), 5e-5 * size) << name;
        ++compared;
    }
    EXPECT_EQ(compared, matrices_.size()) << "a matrix of the folder has no sums";
}

// Rows number by number, and what the kernels get for them.
TEST_P(FormatGoldens, RowsAreEqual) {
    const fs::path file = path_ / "decoded.safetensors";
    const core::MappedFile mapping(file);
    std::size_t compared = 0;
    for (const core::TensorInfo& decoded : core::read_safetensors(mapping.bytes(), file.string(), "decoded")) {
        const bool last = decoded.name.ends_with(".last");
        if (!last && !decoded.name.ends_with(".first")) continue;
        const auto found = matrices_.find(decoded.name.substr(0, decoded.name.rfind(".weight.")));
        ASSERT_NE(found, matrices_.end()) << decoded.name;
        const StoredMatrix& matrix = *found->second;
        // The last two rows are those of the vocabulary, before what fills up a head.
        const std::int64_t rows = !matrix.padded() || decoded.name.find("lm_head") == std::string::npos
                                      ? matrix.rows()
                                      : folder_->config().get_int("vocab_size");
        const auto* wanted = reinterpret_cast<const float*>(decoded.data);
        for (std::int64_t r = 0; r < decoded.shape[0]; ++r) {
            const std::int64_t at = last ? rows - decoded.shape[0] + r : r;
            const std::vector<float> values = row(matrix, at);
            kernels::TensorView view{matrix.packed(), 1, matrix.cols(), nullptr, matrix.packing()};
            std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()));
            matrix.pack({.first = at, .count = 1}, bytes.data());
            view.data = bytes.data();
            std::vector<float> packed(values.size());
            kernels::dequantize_row(view, 0, packed);
            for (std::int64_t i = 0; i < matrix.cols(); ++i) {
                const float value = values[static_cast<std::size_t>(i)];
                float expected;
                std::memcpy(&expected, wanted + r * matrix.cols() + i, sizeof expected);
                ASSERT_LE(std::abs(value - expected), tolerance() * std::abs(expected))
                    << decoded.name << " row " << r << " input " << i;
                ASSERT_EQ(packed[static_cast<std::size_t>(i)], value) << decoded.name;
                ++compared;
            }
        }
    }
    EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Folders, FormatGoldens, testing::ValuesIn(kFormatFolders), [](const auto& info) {
    std::string name = info.param;
    for (char& c : name) {
        if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
    }
    return name;
});

}  // namespace
}  // namespace foresay::test
