// Any bytes as a GGUF file: open or Error, and everything that an opened file offers can be used.

#include "core/weights/gguf.h"

#include <cstddef>
#include <cstdint>
#include <span>

#include "tests/weights/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::core;
    testing::succeeds(
        [&] { testing::exercise(GgufFile::from_memory(std::as_bytes(std::span(data, size)), "fuzz.gguf")); });
    return 0;
}
