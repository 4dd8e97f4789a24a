// tests/weights/safetensors_image.h: small safetensors images, honest or lying, for tests and seed corpora.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

namespace foresay::core::testing {

inline std::string safetensors_image(std::string_view header, std::string_view data) {
    const std::uint64_t length = header.size();
    std::string out(sizeof(length), '\0');
    std::memcpy(out.data(), &length, sizeof(length));
    out += header;
    return out += data;
}

inline constexpr std::string_view kSampleHeader = R"({"__metadata__":{"format":"pt"},)"
                                                  R"("matrix":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                                                  R"("half":{"dtype":"F16","shape":[2,1,2],"data_offsets":[24,32]},)"
                                                  R"("brain":{"dtype":"BF16","shape":[3],"data_offsets":[32,38]},)"
                                                  R"("scalar":{"dtype":"F32","shape":[],"data_offsets":[38,42]},)"
                                                  R"("ids":{"dtype":"I64","shape":[1],"data_offsets":[42,50]},)"
                                                  R"("odd":{"dtype":"X9","shape":[5],"data_offsets":[50,53]},)"
                                                  R"("hollow":{"dtype":"F32","shape":[0,4],"data_offsets":[53,53]}}  )";

inline std::string sample_safetensors() {
    std::string data(53, '\0');
    const float values[6] = {0.0f, 1.0f, 2.0f, 3.0f, 4.0f, 5.0f};
    std::memcpy(data.data(), values, sizeof(values));
    const std::uint16_t half[4] = {0x3c00, 0x4000, 0x4200, 0x4400};  // 1, 2, 3, 4
    std::memcpy(data.data() + 24, half, sizeof(half));
    const std::uint16_t brain[3] = {0x3f80, 0xc020, 0x0000};  // 1, -2.5, 0
    std::memcpy(data.data() + 32, brain, sizeof(brain));
    const float scalar = 7.0f;
    std::memcpy(data.data() + 38, &scalar, sizeof(scalar));
    return safetensors_image(kSampleHeader, data);
}

}  // namespace foresay::core::testing
