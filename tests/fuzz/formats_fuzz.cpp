// Any bytes as the config.json and the safetensors of a quantised folder: refused with an Error, or every matrix can be
// read and packed. The first four bytes say how long the configuration is.

#include "core/weights/formats/formats.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>

#include "base/error.h"
#include "core/weights/safetensors.h"
#include "tests/weights/exercise.h"

namespace {

using namespace foresay;

void read(const core::StoredMatrix& matrix) {
    // No header makes a matrix of more numbers than eight for each byte of its codes.
    check(matrix.rows() * matrix.cols() <= 8 * matrix.stored_bytes(), "a matrix that its tensors cannot hold");
    kernels::TensorView view{matrix.packed(), matrix.rows(), matrix.cols(), nullptr, matrix.packing()};
    std::vector<std::byte> bytes(static_cast<std::size_t>(view.bytes()));
    matrix.pack({.first = 0, .count = matrix.rows()}, bytes.data());
    view.data = bytes.data();
    std::vector<float> row(static_cast<std::size_t>(matrix.cols())), packed(row.size());
    for (std::int64_t r = 0; r < matrix.rows(); ++r) {
        matrix.values(r, row);
        kernels::dequantize_row(view, r, packed);
        for (std::size_t i = 0; i < row.size(); ++i) {
            const bool none = row[i] != row[i] && packed[i] != packed[i];
            check(none || row[i] == packed[i] || !(row[i] - row[i] == 0.0f), "packing has changed a number");
        }
    }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    std::uint32_t length = 0;
    if (size < sizeof length) return 0;
    std::memcpy(&length, data, sizeof length);
    const std::span<const std::uint8_t> rest(data + sizeof length, size - sizeof length);
    if (length > rest.size()) return 0;
    const std::string_view config(reinterpret_cast<const char*>(rest.data()), length);
    core::testing::succeeds([&] {
        const auto dir =
            core::SafetensorsDir::from_memory(config, std::as_bytes(rest.subspan(length)), "fuzz.safetensors");
        for (const auto& [name, matrix] : core::open_matrices(dir)) read(*matrix);
    });
    return 0;
}
