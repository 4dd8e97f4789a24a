// tests/weights/folder_image.h: folders of quantised safetensors in memory, honest or lying.
#pragma once

#include <cstdint>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/weights/safetensors.h"
#include "tests/weights/safetensors_image.h"

namespace foresay::core::testing {

struct ImageTensor {
    std::string type;
    std::vector<std::int64_t> shape;
    std::string bytes;
};

// A tensor of `values` as they are: words of 4 bytes, halves of 2, bytes.
template <class Value>
ImageTensor image_tensor(std::string type, std::vector<std::int64_t> shape, const std::vector<Value>& values) {
    std::string bytes(values.size() * sizeof(Value), '\0');
    std::memcpy(bytes.data(), values.data(), bytes.size());
    return {std::move(type), std::move(shape), std::move(bytes)};
}

// Has the memory that an opened folder looks into.
struct FolderImage {
    std::string config = "{}";
    std::map<std::string, ImageTensor> tensors;

    // The bytes of its one file.
    std::string file() const {
        std::string header = "{", data;
        for (const auto& [name, tensor] : tensors) {
            header += std::string(header.size() > 1 ? "," : "") + "\"" + name + R"(":{"dtype":")" + tensor.type +
                      R"(","shape":[)";
            for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
                header += (i > 0 ? "," : "") + std::to_string(tensor.shape[i]);
            }
            header += "],\"data_offsets\":[" + std::to_string(data.size()) + ",";
            data += tensor.bytes;
            header += std::to_string(data.size()) + "]}";
        }
        return safetensors_image(header + "}", data);
    }
    SafetensorsDir open() {
        image_ = file();
        return SafetensorsDir::from_memory(config, std::as_bytes(std::span(image_.data(), image_.size())), "folder");
    }

private:
    std::string image_;
};

// One module "m" of 32 outputs and 64 inputs in each format, with codes from SplitMix64: what readers accept.
inline std::vector<std::uint32_t> some_words(std::size_t count, std::uint64_t state) {
    std::vector<std::uint32_t> words(count);
    for (std::uint32_t& word : words) {
        std::uint64_t z = state += 0x9e3779b97f4a7c15u;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
        z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
        word = static_cast<std::uint32_t>((z ^ (z >> 31)) >> 32);
    }
    return words;
}

inline std::vector<std::uint16_t> halves(std::size_t count, std::uint16_t first = 0x2c00) {
    std::vector<std::uint16_t> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<std::uint16_t>(first + i % 512);
    return values;
}

inline constexpr std::int64_t kOut = 32, kIn = 64;

inline FolderImage gptq_image(int bits = 4, std::int64_t group = 32) {
    FolderImage image;
    image.config = R"({"quantization_config":{"quant_method":"gptq","bits":)" + std::to_string(bits) +
                   R"(,"group_size":)" + std::to_string(group) + "}}";
    const std::int64_t groups = kIn / group;
    const auto words = static_cast<std::size_t>(kIn * bits / 32 * kOut);
    image.tensors["m.qweight"] = image_tensor("I32", {kIn * bits / 32, kOut}, some_words(words, 1));
    image.tensors["m.qzeros"] = image_tensor("I32", {groups, kOut * bits / 32},
                                             some_words(static_cast<std::size_t>(groups * kOut * bits / 32), 2));
    image.tensors["m.scales"] = image_tensor("F16", {groups, kOut}, halves(static_cast<std::size_t>(groups * kOut)));
    std::vector<std::int32_t> order;
    for (std::int64_t i = 0; i < kIn; ++i) order.push_back(static_cast<std::int32_t>(i / group));
    image.tensors["m.g_idx"] = image_tensor("I32", {kIn}, order);
    return image;
}

inline FolderImage awq_image() {
    FolderImage image;
    image.config = R"({"quantization_config":{"quant_method":"awq","bits":4,"group_size":32,"version":"gemm"}})";
    image.tensors["m.qweight"] = image_tensor("I32", {kIn, kOut / 8}, some_words(kIn * kOut / 8, 3));
    image.tensors["m.qzeros"] = image_tensor("I32", {2, kOut / 8}, some_words(2 * kOut / 8, 4));
    image.tensors["m.scales"] = image_tensor("F16", {2, kOut}, halves(2 * kOut));
    return image;
}

inline constexpr const char* kCompressed = R"({"quantization_config":{"quant_method":"compressed-tensors"}})";

inline FolderImage packed_image() {
    FolderImage image;
    image.config = kCompressed;
    image.tensors["m.weight_packed"] = image_tensor("I32", {kOut, kIn / 8}, some_words(kOut * kIn / 8, 5));
    image.tensors["m.weight_zero_point"] = image_tensor("I32", {kOut / 8, 2}, some_words(kOut / 8 * 2, 6));
    image.tensors["m.weight_scale"] = image_tensor("F16", {kOut, 2}, halves(kOut * 2));
    image.tensors["m.weight_shape"] = image_tensor("I64", {2}, std::vector<std::int64_t>{kOut, kIn});
    return image;
}

inline FolderImage int8_image() {
    FolderImage image;
    image.config = kCompressed;
    image.tensors["m.weight"] = image_tensor("I8", {kOut, kIn}, some_words(kOut * kIn / 4, 7));
    image.tensors["m.weight_scale"] = image_tensor("F16", {kOut, 1}, halves(kOut));
    return image;
}

// Eight-bit floats without NaN.
inline std::vector<std::uint8_t> some_e4m3(std::size_t count, std::uint64_t state) {
    std::vector<std::uint8_t> bytes;
    for (const std::uint32_t word : some_words(count, state)) {
        const auto byte = static_cast<std::uint8_t>(word & 255u);
        bytes.push_back((byte & 0x7fu) == 0x7fu ? std::uint8_t{0} : byte);
    }
    return bytes;
}

inline FolderImage fp8_image() {
    FolderImage image;
    image.config = R"({"quantization_config":{"quant_method":"fp8","weight_block_size":[24,40]}})";
    image.tensors["m.weight"] = image_tensor("F8_E4M3", {kOut, kIn}, some_e4m3(kOut * kIn, 8));
    image.tensors["m.weight_scale_inv"] = image_tensor("F32", {2, 2}, std::vector<float>{0.5f, 0.3f, 2.0f, 1.7f});
    return image;
}

inline FolderImage nvfp4_image() {
    FolderImage image;
    image.config = kCompressed;
    image.tensors["m.weight_packed"] = image_tensor("U8", {kOut, kIn / 2}, some_words(kOut * kIn / 8, 9));
    image.tensors["m.weight_scale"] = image_tensor("F8_E4M3", {kOut, kIn / 16}, some_e4m3(kOut * kIn / 16, 10));
    image.tensors["m.weight_global_scale"] = image_tensor("F32", {1}, std::vector<float>{384.0f});
    return image;
}

inline FolderImage mxfp4_image() {
    FolderImage image;
    image.config = kCompressed;
    image.tensors["m.weight_packed"] = image_tensor("U8", {kOut, kIn / 2}, some_words(kOut * kIn / 8, 11));
    image.tensors["m.weight_scale"] =
        image_tensor("U8", {kOut, kIn / 32}, std::vector<std::uint8_t>(kOut * kIn / 32, 120));
    return image;
}

inline FolderImage mlx_image() {
    FolderImage image;
    image.config = R"({"quantization":{"group_size":32,"bits":4,"mode":"affine"}})";
    image.tensors["m.weight"] = image_tensor("U32", {kOut, kIn / 8}, some_words(kOut * kIn / 8, 12));
    image.tensors["m.scales"] = image_tensor("BF16", {kOut, 2}, halves(kOut * 2, 0x3c00));
    image.tensors["m.biases"] = image_tensor("BF16", {kOut, 2}, halves(kOut * 2, 0xbd00));
    return image;
}

// Two groups: 32 inputs in 4 bits, then 32 in 3; the order of inputs is reversed.
inline FolderImage exl2_image() {
    FolderImage image;
    image.config = R"({"quantization_config":{"quant_method":"exl2"}})";
    image.tensors["m.q_weight"] = image_tensor("I32", {7, kOut}, some_words(7 * kOut, 13));
    image.tensors["m.q_groups"] = image_tensor("I16", {4}, std::vector<std::uint16_t>{4, 0, 3, 4});
    image.tensors["m.q_scale"] = image_tensor("I32", {2, kOut / 8}, some_words(2 * kOut / 8, 14));
    image.tensors["m.q_scale_max"] = image_tensor("F16", {2}, std::vector<std::uint16_t>{0x3c00, 0x3555});
    std::vector<std::int32_t> place;
    for (std::int64_t i = 0; i < kIn; ++i) place.push_back(static_cast<std::int32_t>(kIn - 1 - i));
    image.tensors["m.q_invperm"] = image_tensor("I32", {kIn}, place);
    return image;
}

}  // namespace foresay::core::testing
