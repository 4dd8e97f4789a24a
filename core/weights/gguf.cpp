#include "core/weights/gguf.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "core/weights/gguf_reader.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

constexpr std::int64_t kMaxParts = 1000;

std::int64_t split_count(const GgufImage& image) {
    const GgufEntry* entry = image.find("split.count");
    std::int64_t count = 1;
    if (entry != nullptr && !read_int(entry->type, entry->payload, 0, count)) count = 1;
    return count;
}

// The path of part `part` (from 1) of the split file to which `path` belongs; empty if `path` is not named like a part.
std::filesystem::path part_path(const std::filesystem::path& path, std::int64_t part, std::int64_t count) {
    char total[32];
    std::snprintf(total, sizeof(total), "-of-%05lld.gguf", static_cast<long long>(count));
    const std::string name = path.filename().string();
    const std::size_t tail = std::strlen(total) + 6;  // "-00001" before the total
    const bool split_name = name.size() >= tail && name.ends_with(total) && name[name.size() - tail] == '-';
    if (!split_name) return {};
    char number[32];
    std::snprintf(number, sizeof(number), "-%05lld", static_cast<long long>(part));
    return path.parent_path() / (name.substr(0, name.size() - tail) + number + total);
}

std::string number_text(double value) {
    char text[32];
    std::snprintf(text, sizeof(text), "%.9g", value);
    return text;
}

std::string_view characters(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Removes a string from the front of `payload` and returns it. The reader has checked the lengths.
std::string_view next_string(std::span<const std::byte>& payload) {
    std::uint64_t length;
    std::memcpy(&length, payload.data(), sizeof(length));
    const std::string_view text = characters(payload.subspan(sizeof(length), static_cast<std::size_t>(length)));
    payload = payload.subspan(sizeof(length) + text.size());
    return text;
}

std::string scalar_text(GgufType type, std::span<const std::byte> payload, std::size_t index) {
    if (type == GgufType::boolean) return payload[index] != std::byte{0} ? "true" : "false";
    std::int64_t integer = 0;
    if (read_int(type, payload, index, integer)) return std::to_string(integer);
    if (type == GgufType::u64) return std::to_string(static_cast<std::uint64_t>(integer));
    double number = 0.0;
    return read_number(type, payload, index, number) ? number_text(number) : std::string();
}

}  // namespace

std::string_view name(GgufType type) {
    constexpr std::string_view names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                          "bool", "string", "array", "u64", "i64", "f64"};
    return names[static_cast<std::uint32_t>(type)];
}

GgufFile GgufFile::open(const std::filesystem::path& path) {
    GgufFile file;
    file.path_ = path.string();
    file.tensors_ = TensorTable(file.path_);
    MappedFile mapping(path);
    GgufImage image = read_gguf(mapping.bytes(), file.path_, path.filename().string());
    const std::int64_t count = split_count(image);
    if (count <= 1) {
        file.parts_.push_back(std::move(mapping));
        file.take(std::move(image), true);
    } else {
        file.open_parts(path, count);
    }
    file.tensors_.seal();
    return file;
}

void GgufFile::open_parts(const std::filesystem::path& path, std::int64_t count) {
    if (count > kMaxParts) throw Error(path_ + ": split.count is " + std::to_string(count) + "; the file is damaged");
    for (std::int64_t part = 1; part <= count; ++part) {
        const std::filesystem::path part_file = part_path(path, part, count);
        if (part_file.empty()) {
            throw Error(
                path_ + ": one of " + std::to_string(count) +
                " parts of a split model, but not named like one (NAME-00001-of-00003.gguf); restore the parts' "
                "names and keep them in one directory");
        }
        MappedFile mapping(part_file);
        GgufImage image = read_gguf(mapping.bytes(), part_file.string(), part_file.filename().string());
        const GgufEntry* number = image.find("split.no");
        std::int64_t stated = -1;
        if (number != nullptr) read_int(number->type, number->payload, 0, stated);
        if (stated != part - 1 || split_count(image) != count) {
            throw Error(part_file.string() + ": not part " + std::to_string(part) + " of " + std::to_string(count) +
                        " of the same model by its own metadata; get the parts again");
        }
        parts_.push_back(std::move(mapping));
        take(std::move(image), part == 1);
    }
}

void GgufFile::take(GgufImage&& image, bool with_metadata) {
    for (TensorInfo& tensor : image.tensors) tensors_.add(std::move(tensor));
    if (!with_metadata) return;
    version_ = image.version;
    entries_ = std::move(image.entries);
    by_key_ = std::move(image.by_key);
}

GgufFile GgufFile::from_memory(std::span<const std::byte> bytes, std::string path) {
    GgufFile file;
    file.path_ = std::move(path);
    file.tensors_ = TensorTable(file.path_);
    GgufImage image = read_gguf(bytes, file.path_, file.path_);
    if (split_count(image) > 1) throw Error(file.path_ + ": one part of a split model; open it from its directory");
    file.take(std::move(image), true);
    file.tensors_.seal();
    return file;
}

const GgufEntry* GgufFile::find(std::string_view key) const {
    const auto found = std::lower_bound(by_key_.begin(), by_key_.end(), key,
                                        [this](std::uint32_t i, std::string_view k) { return entries_[i].key < k; });
    return found != by_key_.end() && entries_[*found].key == key ? &entries_[*found] : nullptr;
}

const GgufEntry& GgufFile::require(std::string_view key) const {
    const GgufEntry* entry = find(key);
    if (entry == nullptr) {
        throw Error(path_ + ": metadata key " + quote(key) + " is missing; convert the model again with current tools");
    }
    return *entry;
}

void GgufFile::wrong_type(const GgufEntry& entry, std::string_view wanted) const {
    std::string is = std::string(name(entry.type));
    if (entry.type == GgufType::array) is += " of " + std::string(name(entry.element));
    throw Error(path_ + ": metadata key " + quote(entry.key) + " is " + describe(entry, 40) + " (" + is + "), not " +
                std::string(wanted) + "; convert the model again with current tools");
}

const GgufEntry& GgufFile::require_array(std::string_view key) const {
    const GgufEntry& entry = require(key);
    if (entry.type != GgufType::array) wrong_type(entry, "an array");
    return entry;
}

std::int64_t GgufFile::get_int(std::string_view key) const {
    const GgufEntry& entry = require(key);
    std::int64_t value = 0;
    if (!read_int(entry.type, entry.payload, 0, value)) wrong_type(entry, "an integer");
    return value;
}

double GgufFile::get_float(std::string_view key) const {
    const GgufEntry& entry = require(key);
    double value = 0.0;
    if (!read_number(entry.type, entry.payload, 0, value)) wrong_type(entry, "a number");
    return value;
}

bool GgufFile::get_bool(std::string_view key) const {
    const GgufEntry& entry = require(key);
    if (entry.type != GgufType::boolean || entry.payload[0] > std::byte{1}) wrong_type(entry, "a boolean");
    return entry.payload[0] != std::byte{0};
}

std::string_view GgufFile::get_string(std::string_view key) const {
    const GgufEntry& entry = require(key);
    if (entry.type != GgufType::string) wrong_type(entry, "a string");
    return characters(entry.payload);
}

std::int64_t GgufFile::get_int_or(std::string_view key, std::int64_t fallback) const {
    return has(key) ? get_int(key) : fallback;
}

double GgufFile::get_float_or(std::string_view key, double fallback) const {
    return has(key) ? get_float(key) : fallback;
}

bool GgufFile::get_bool_or(std::string_view key, bool fallback) const { return has(key) ? get_bool(key) : fallback; }

std::string_view GgufFile::get_string_or(std::string_view key, std::string_view fallback) const {
    return has(key) ? get_string(key) : fallback;
}

std::vector<std::string_view> GgufFile::get_strings(std::string_view key) const {
    const GgufEntry& entry = require_array(key);
    if (entry.element != GgufType::string) wrong_type(entry, "an array of strings");
    std::vector<std::string_view> strings;
    strings.reserve(static_cast<std::size_t>(entry.count));
    std::span<const std::byte> rest = entry.payload;
    for (std::uint64_t i = 0; i < entry.count; ++i) strings.push_back(next_string(rest));
    return strings;
}

std::vector<std::int64_t> GgufFile::get_ints(std::string_view key) const {
    const GgufEntry& entry = require_array(key);
    std::vector<std::int64_t> values(static_cast<std::size_t>(entry.count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (!read_int(entry.element, entry.payload, i, values[i])) wrong_type(entry, "an array of integers");
    }
    return values;
}

std::vector<float> GgufFile::get_floats(std::string_view key) const {
    const GgufEntry& entry = require_array(key);
    const bool floats = entry.element == GgufType::f32 || entry.element == GgufType::f64;
    if (!floats) wrong_type(entry, "an array of floats");
    std::vector<float> values(static_cast<std::size_t>(entry.count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        double value = 0.0;
        read_number(entry.element, entry.payload, i, value);
        values[i] = static_cast<float>(value);
    }
    return values;
}

std::vector<bool> GgufFile::get_bools(std::string_view key) const {
    const GgufEntry& entry = require_array(key);
    if (entry.element != GgufType::boolean) wrong_type(entry, "an array of booleans");
    std::vector<bool> values(static_cast<std::size_t>(entry.count));
    for (std::size_t i = 0; i < values.size(); ++i) {
        if (entry.payload[i] > std::byte{1}) wrong_type(entry, "an array of booleans");
        values[i] = entry.payload[i] != std::byte{0};
    }
    return values;
}

std::string GgufFile::describe(const GgufEntry& entry, std::size_t max_chars) const {
    if (entry.type == GgufType::string) return quote(characters(entry.payload), max_chars);
    if (entry.type != GgufType::array) return scalar_text(entry.type, entry.payload, 0);
    std::string text = "[";
    std::span<const std::byte> rest = entry.payload;
    for (std::uint64_t i = 0; i < entry.count; ++i) {
        if (i > 0) text += ", ";
        if (text.size() >= max_chars) {
            text += "... " + std::to_string(entry.count) + " in all";
            break;
        }
        const bool string = entry.element == GgufType::string;
        text += string ? quote(next_string(rest), max_chars)
                       : scalar_text(entry.element, entry.payload, static_cast<std::size_t>(i));
    }
    return text + "]";
}

}  // namespace foresay::core
