// tests/weights/gguf_image.h: builds small GGUF images byte by byte, honest or lying, for tests and seed corpora.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/gguf.h"

namespace foresay::core::testing {

class GgufImageBuilder {
public:
    explicit GgufImageBuilder(std::uint32_t version = 3) : version_(version) {}

    template <class T>
    GgufImageBuilder& scalar(std::string_view key, GgufType type, T value) {
        begin(key, type);
        append(entries_, value);
        return *this;
    }
    GgufImageBuilder& text(std::string_view key, std::string_view value) {
        begin(key, GgufType::string);
        append_string(entries_, value);
        return *this;
    }
    GgufImageBuilder& texts(std::string_view key, const std::vector<std::string>& values) {
        begin_array(key, GgufType::string, values.size());
        for (const std::string& value : values) append_string(entries_, value);
        return *this;
    }
    template <class T>
    GgufImageBuilder& array(std::string_view key, GgufType element, const std::vector<T>& values) {
        begin_array(key, element, values.size());
        for (T value : values) append(entries_, value);
        return *this;
    }
    // Any bytes as the value, for lies.
    GgufImageBuilder& raw_entry(std::string_view key, std::uint32_t type, std::string_view bytes) {
        append_string(entries_, key);
        append(entries_, type);
        entries_.append(bytes);
        ++entry_count;
        return *this;
    }
    // `dimensions` as in the file, contiguous one first. `data` is appended, aligned; offset -1: where the data goes.
    GgufImageBuilder& tensor(std::string_view name, const std::vector<std::uint64_t>& dimensions, std::uint32_t type,
                             std::string_view data, std::uint64_t offset = ~std::uint64_t{0}) {
        data_.resize((data_.size() + alignment - 1) / alignment * alignment);
        append_string(tensors_, name);
        append(tensors_, static_cast<std::uint32_t>(dimensions.size()));
        for (std::uint64_t size : dimensions) append(tensors_, size);
        append(tensors_, type);
        append(tensors_, offset == ~std::uint64_t{0} ? std::uint64_t{data_.size()} : offset);
        data_.append(data);
        ++tensor_count;
        return *this;
    }

    std::string build() const {
        std::string out = "GGUF";
        append(out, version_);
        append(out, tensor_count);
        append(out, entry_count);
        out += entries_ + tensors_;
        if (!data_.empty()) out.resize((out.size() + alignment - 1) / alignment * alignment);
        return out + data_;
    }

    std::uint64_t tensor_count = 0;  // what the header will say; change them to lie
    std::uint64_t entry_count = 0;
    std::size_t alignment = 32;  // of the data; add general.alignment yourself when it is not 32

private:
    template <class T>
    static void append(std::string& out, T value) {
        char bytes[sizeof(T)];
        std::memcpy(bytes, &value, sizeof(T));
        out.append(bytes, sizeof(T));
    }
    static void append_string(std::string& out, std::string_view value) {
        append(out, std::uint64_t{value.size()});
        out.append(value);
    }
    void begin(std::string_view key, GgufType type) {
        append_string(entries_, key);
        append(entries_, static_cast<std::uint32_t>(type));
        ++entry_count;
    }
    void begin_array(std::string_view key, GgufType element, std::size_t count) {
        begin(key, GgufType::array);
        append(entries_, static_cast<std::uint32_t>(element));
        append(entries_, std::uint64_t{count});
    }

    std::uint32_t version_;
    std::string entries_, tensors_, data_;
};

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text.data(), text.size()));
}

// The little-endian bytes of `value`.
template <class T>
std::string raw(T value) {
    std::string out(sizeof(T), '\0');
    std::memcpy(out.data(), &value, sizeof(T));
    return out;
}

// A tiny file with every kind of value and several tensor types.
inline std::string sample_gguf(std::uint32_t version = 3) {
    GgufImageBuilder b(version);
    b.text("general.architecture", "llama").text("empty", "");
    b.scalar<std::uint8_t>("u8", GgufType::u8, 200).scalar<std::int8_t>("i8", GgufType::i8, -100);
    b.scalar<std::uint16_t>("u16", GgufType::u16, 60000).scalar<std::int16_t>("i16", GgufType::i16, -30000);
    b.scalar<std::uint32_t>("u32", GgufType::u32, 4000000000u).scalar<std::int32_t>("i32", GgufType::i32, -2000000000);
    b.scalar<std::uint64_t>("u64", GgufType::u64, ~std::uint64_t{0}).scalar<std::int64_t>("i64", GgufType::i64, -5);
    b.scalar<float>("f32", GgufType::f32, 1e-5f).scalar<double>("f64", GgufType::f64, 2.5);
    b.scalar<std::uint8_t>("yes", GgufType::boolean, 1).scalar<std::uint8_t>("no", GgufType::boolean, 0);
    b.scalar<std::uint8_t>("maybe", GgufType::boolean, 2);
    b.texts("tokens", {"a", "", "bcd", "\xc4\xa0x"}).texts("no tokens", {});
    b.array<float>("scores", GgufType::f32, {0.5f, -1.0f}).array<std::int32_t>("types", GgufType::i32, {1, 3, -6});
    b.array<std::uint8_t>("flags", GgufType::boolean, {1, 0, 1});
    b.tensor("vector", {3}, 0, raw(1.0f) + raw(2.0f) + raw(-3.0f));
    b.tensor("matrix", {2, 3}, 0, raw(0.f) + raw(1.f) + raw(2.f) + raw(3.f) + raw(4.f) + raw(5.f));
    b.tensor("cube", {2, 3, 2}, 1, std::string(24, '\x3c'));
    b.tensor("codes", {32, 2}, 8, std::string(68, '\x01'));
    b.tensor("exotic", {256}, 16, std::string(66, '\x07'));
    b.tensor("unknown", {7, 5}, 97, "");
    b.tensor("hollow", {0, 4}, 0, "");
    return b.build();
}

}  // namespace foresay::core::testing
