// Any bytes as a safetensors file, as the index of a sharded model, and as a JSON document of settings: read or Error,
// and everything that was read can be used. What families make of a config.json: families_fuzz.

#include "core/weights/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/weights/safetensors_reader.h"
#include "tests/weights/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    using namespace foresay::core;
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    testing::succeeds([&] {
        testing::exercise(SafetensorsDir::from_memory("{}", std::as_bytes(std::span(data, size)), "fuzz.safetensors"));
    });
    testing::succeeds([&] {
        for (const auto& [tensor, shard] : read_safetensors_index(text, "fuzz.index.json")) {
            foresay::check(shard.find('/') == std::string::npos, "a shard outside the directory");
        }
    });
    testing::succeeds([&] { testing::exercise(JsonConfig::parse(text, "fuzz.json")); });
    return 0;
}
