// core/weights/gguf.h: reader of GGUF model files, versions 2 and 3, over a memory mapping.
//
// Layout:   "GGUF", u32 version, u64 tensors, u64 metadata entries; the entries (key, u32 type, value); per tensor
//           name, u32 dimensions, u64 each (contiguous one first), u32 type, u64 offset; then, aligned to
//           `general.alignment` (32 by default), the data that offsets count from. Little-endian. Strings are u64
//           length and bytes.
// Life:     string views, tensor views and metadata entries point into the mapping and live as long as the object;
//           moving the object keeps them valid.
// Threads:  immutable after opening; any thread may read.
// Cost:     opening reads the metadata once and touches no tensor data.
// Errors:   the file is untrusted: every length, count, offset and alignment is checked before use, and the first
//           inconsistency throws Error. Typed access throws when a key is missing (the `_or` forms return the
//           fallback instead) or has another type; the message names file and key.
// Source:   the GGUF specification (ggml, docs/gguf.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/weights/mapped_file.h"
#include "core/weights/tensor_table.h"

namespace foresay::core {

enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

// "u8" .. "f64", "bool", "string", "array".
std::string_view name(GgufType type);

// One metadata entry in the file, already checked. `payload` is exactly the value: the elements of an array, the
// characters of a scalar string.
struct GgufEntry {
    std::string_view key;
    GgufType type = GgufType::u8;
    GgufType element = GgufType::u8;  // arrays only
    std::uint64_t count = 1;          // elements of an array, else 1
    std::span<const std::byte> payload;
};

struct GgufImage;

class GgufFile {
public:
    // Opens `path`. For one part of a split file (-00001-of-00003.gguf), opens all parts, which must be in its
    // directory.
    static GgufFile open(const std::filesystem::path& path);
    // Reads the file image `bytes`, which must outlive the object; `path` is named in errors.
    static GgufFile from_memory(std::span<const std::byte> bytes, std::string path);

    const std::string& path() const { return path_; }
    std::uint32_t version() const { return version_; }
    const TensorTable& tensors() const { return tensors_; }

    // ---- metadata, in file order
    std::span<const GgufEntry> metadata() const { return entries_; }
    const GgufEntry* find(std::string_view key) const;  // null when absent
    bool has(std::string_view key) const { return find(key) != nullptr; }

    // Integers of any width; an unsigned value above 2^63 - 1 is an error. get_float takes integers too.
    std::int64_t get_int(std::string_view key) const;
    double get_float(std::string_view key) const;
    bool get_bool(std::string_view key) const;
    std::string_view get_string(std::string_view key) const;
    std::int64_t get_int_or(std::string_view key, std::int64_t fallback) const;
    double get_float_or(std::string_view key, double fallback) const;
    bool get_bool_or(std::string_view key, bool fallback) const;
    std::string_view get_string_or(std::string_view key, std::string_view fallback) const;

    // Arrays. Strings stay in the mapping: 16 bytes per element, no character is copied.
    std::vector<std::string_view> get_strings(std::string_view key) const;
    std::vector<std::int64_t> get_ints(std::string_view key) const;
    std::vector<float> get_floats(std::string_view key) const;  // of f32 or f64
    std::vector<bool> get_bools(std::string_view key) const;

    // The value as one line for people, cut to about `max_chars`; arrays show their first elements.
    std::string describe(const GgufEntry& entry, std::size_t max_chars = 80) const;

private:
    GgufFile() = default;
    void open_parts(const std::filesystem::path& path, std::int64_t count);
    void take(GgufImage&& image, bool with_metadata);
    [[noreturn]] void wrong_type(const GgufEntry& entry, std::string_view wanted) const;
    const GgufEntry& require(std::string_view key) const;
    const GgufEntry& require_array(std::string_view key) const;

    std::string path_;
    std::uint32_t version_ = 0;
    std::vector<MappedFile> parts_;      // empty for from_memory
    std::vector<GgufEntry> entries_;     // of the first part
    std::vector<std::uint32_t> by_key_;  // indices into entries_, sorted by key
    TensorTable tensors_;
};

}  // namespace foresay::core
