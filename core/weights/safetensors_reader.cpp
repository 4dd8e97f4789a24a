#include "core/weights/safetensors_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/error.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

using kernels::QuantType;
using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "safetensors is little-endian");

constexpr std::size_t kMaxTensors = 1'000'000;
constexpr std::size_t kMaxDimensions = 16;

struct Dtype {
    const char* name;
    int bits;
    std::optional<QuantType> quant_type;
};

const Dtype kDtypes[] = {
    {"F32", 32, QuantType::f32},      {"F16", 16, QuantType::f16},  {"BF16", 16, QuantType::bf16},
    {"F64", 64, std::nullopt},        {"C64", 64, std::nullopt},    {"I64", 64, std::nullopt},
    {"U64", 64, std::nullopt},        {"I32", 32, std::nullopt},    {"U32", 32, std::nullopt},
    {"I16", 16, std::nullopt},        {"U16", 16, std::nullopt},    {"I8", 8, std::nullopt},
    {"U8", 8, std::nullopt},          {"BOOL", 8, std::nullopt},    {"F8_E5M2", 8, std::nullopt},
    {"F8_E4M3", 8, std::nullopt},     {"F8_E8M0", 8, std::nullopt}, {"F8_E4M3FNUZ", 8, std::nullopt},
    {"F8_E5M2FNUZ", 8, std::nullopt}, {"F6_E2M3", 6, std::nullopt}, {"F6_E3M2", 6, std::nullopt},
    {"F4", 4, std::nullopt},
};

// Base of the two SAX handlers: tracks the nesting, rejects what neither format contains, and keeps the first
// complaint. A handler returns false to stop the parser.
class Events : public nlohmann::json_sax<json> {
public:
    const std::string& complaint() const { return complaint_; }

    bool null() override { return unexpected("null"); }
    bool boolean(bool) override { return unexpected("a boolean"); }
    bool number_float(number_float_t, const string_t&) override { return unexpected("a fraction"); }
    bool number_integer(number_integer_t) override { return unexpected("a negative number"); }
    bool number_unsigned(number_unsigned_t) override { return unexpected("a number"); }
    bool string(string_t&) override { return unexpected("a string"); }
    bool binary(binary_t&) override { return unexpected("binary data"); }
    bool start_array(std::size_t) override { return unexpected("an array"); }
    bool end_array() override { return true; }

    bool parse_error(std::size_t position, const std::string&, const json::exception&) override {
        return complain("is not valid JSON at byte " + std::to_string(position));
    }

protected:
    bool complain(std::string text) {
        if (complaint_.empty()) complaint_ = std::move(text);
        return false;
    }
    bool unexpected(const char* what) { return complain(std::string("has ") + what + " where none belongs"); }

private:
    std::string complaint_;
};

// {name: {"dtype": "F32", "shape": [2, 3], "data_offsets": [0, 24]}, ..., "__metadata__": {text: text}}
class HeaderEvents : public Events {
public:
    std::vector<TensorInfo> tensors;

    bool start_object(std::size_t) override {
        if (list_ != nullptr || depth_ == 2) return unexpected("an object");
        ++depth_;
        return true;
    }
    bool end_object() override {
        --depth_;
        return depth_ != 1 || in_metadata_ || finish_tensor();
    }
    bool key(string_t& name) override {
        if (depth_ == 1) return begin_tensor(name);
        if (in_metadata_) return true;
        const auto first = [&](bool& seen) { return !std::exchange(seen, true) || complain(twice(name)); };
        field_ = Field::other;
        if (name == "dtype") field_ = Field::dtype;
        if (name == "shape") field_ = Field::shape;
        if (name == "data_offsets") field_ = Field::offsets;
        if (field_ == Field::other)
            return complain("gives tensor " + quote(tensor_.name) + " an unknown field " + quote(name));
        return first(seen_[static_cast<int>(field_)]);
    }
    bool string(string_t& text) override {
        if (depth_ == 2 && in_metadata_) return true;
        if (depth_ != 2 || field_ != Field::dtype) return unexpected("a string");
        tensor_.type = text.substr(0, 32);
        return true;
    }
    bool start_array(std::size_t) override {
        const bool belongs = depth_ == 2 && !in_metadata_ && list_ == nullptr && field_ != Field::dtype;
        if (!belongs) return unexpected("an array");
        list_ = field_ == Field::shape ? &tensor_.shape : &offsets_;
        return true;
    }
    bool end_array() override {
        list_ = nullptr;
        return true;
    }
    bool number_unsigned(number_unsigned_t number) override {
        if (list_ == nullptr) return unexpected("a number");
        if (number > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()) ||
            list_->size() == kMaxDimensions) {
            return complain("gives tensor " + quote(tensor_.name) + " an impossible size");
        }
        list_->push_back(static_cast<std::int64_t>(number));
        return true;
    }

private:
    enum class Field { dtype, shape, offsets, other };

    static std::string twice(const std::string& field) { return "has " + quote(field) + " twice in one tensor"; }

    bool begin_tensor(const std::string& name) {
        in_metadata_ = name == "__metadata__";
        tensor_ = {};
        tensor_.name = name;
        offsets_.clear();
        std::fill(std::begin(seen_), std::end(seen_), false);
        return tensors.size() < kMaxTensors || complain("lists more than a million tensors");
    }
    bool finish_tensor() {
        const bool complete = seen_[0] && seen_[1] && seen_[2] && offsets_.size() == 2;
        if (!complete)
            return complain("does not give dtype, shape and two data_offsets of tensor " + quote(tensor_.name));
        tensor_.offset = offsets_[0];
        tensor_.bytes = offsets_[1] - offsets_[0];
        if (tensor_.bytes < 0) return complain("has reversed data_offsets for tensor " + quote(tensor_.name));
        tensors.push_back(std::move(tensor_));
        return true;
    }

    int depth_ = 0;
    bool in_metadata_ = false;
    bool seen_[3] = {};
    Field field_ = Field::other;
    TensorInfo tensor_;
    std::vector<std::int64_t> offsets_;
    std::vector<std::int64_t>* list_ = nullptr;  // the array being filled
};

// {"weight_map": {tensor: shard, ...}, anything else}
class IndexEvents : public Events {
public:
    std::map<std::string, std::string> shards;
    bool has_map = false;

    bool null() override { return skipped() || unexpected("null"); }
    bool boolean(bool) override { return skipped() || unexpected("a boolean"); }
    bool number_float(number_float_t, const string_t&) override { return skipped() || unexpected("a number"); }
    bool number_integer(number_integer_t) override { return skipped() || unexpected("a number"); }
    bool number_unsigned(number_unsigned_t) override { return skipped() || unexpected("a number"); }
    bool start_array(std::size_t) override { return (depth_ > 0 && skipped() && deeper()) || unexpected("an array"); }
    bool end_array() override {
        --depth_;
        return true;
    }
    bool start_object(std::size_t) override {
        if (in_map_ && depth_ == 2) return unexpected("an object");
        return deeper();
    }
    bool end_object() override {
        if (--depth_ == 1) in_map_ = false;
        return true;
    }
    bool key(string_t& name) override {
        if (depth_ == 1) {
            in_map_ = name == "weight_map";
            has_map = has_map || in_map_;
        }
        tensor_ = name;
        return true;
    }
    bool string(string_t& shard) override {
        if (skipped()) return true;
        if (depth_ != 2) return unexpected("a string");
        if (shards.size() == kMaxTensors) return complain("lists more than a million tensors");
        return shards.emplace(tensor_, shard).second || complain("lists tensor " + quote(tensor_) + " twice");
    }

private:
    static constexpr int kDeepest = 16;
    bool skipped() const { return depth_ > 0 && !in_map_; }
    bool deeper() { return ++depth_ <= kDeepest || complain("nests too deeply"); }

    int depth_ = 0;
    bool in_map_ = false;
    std::string tensor_;
};

[[noreturn]] void fail(const std::string& path, const std::string& what) {
    throw Error(path + ": " + what + "; the file is damaged or incomplete, get it again");
}

// Sets the quantisation type, and checks that shape and type match the number of bytes.
void check_shape(TensorInfo& tensor, const std::string& path) {
    std::int64_t elements = 1;
    const bool has_zero = std::find(tensor.shape.begin(), tensor.shape.end(), 0) != tensor.shape.end();
    if (has_zero) {
        tensor.shape.assign(tensor.shape.size(), 0);  // else a product could overflow before it reaches the zero
        elements = 0;
    }
    std::int64_t bits = 0;
    const auto known =
        std::find_if(std::begin(kDtypes), std::end(kDtypes), [&](const Dtype& d) { return d.name == tensor.type; });
    for (std::int64_t size : tensor.shape) {
        if (__builtin_mul_overflow(elements, size, &elements)) {
            fail(path, "tensor " + quote(tensor.name) + " has an impossible size");
        }
    }
    if (known == std::end(kDtypes)) {  // listed; TensorTable::get() rejects it
        tensor.type = quote(tensor.type);
        return;
    }
    tensor.quant_type = known->quant_type;
    if (__builtin_mul_overflow(elements, known->bits, &bits) || bits % 8 != 0 || bits / 8 != tensor.bytes) {
        fail(path, "tensor " + quote(tensor.name) + " occupies " + std::to_string(tensor.bytes) +
                       " bytes, which its shape and type do not explain");
    }
}

}  // namespace

std::vector<TensorInfo> read_safetensors(std::span<const std::byte> bytes, const std::string& path,
                                         const std::string& file) {
    if (bytes.empty()) throw Error(path + ": the file is empty; get it again");
    std::uint64_t length = 0;
    if (bytes.size() < sizeof(length)) fail(path, "the file ends inside its first number");
    std::memcpy(&length, bytes.data(), sizeof(length));
    const std::span<const std::byte> rest = bytes.subspan(sizeof(length));
    if (length > rest.size()) fail(path, "not a safetensors file, or it ends inside its header");
    if (length > kMaxSafetensorsHeader) fail(path, "a header of " + std::to_string(length) + " bytes is too long");
    const auto header = rest.first(static_cast<std::size_t>(length));
    const std::span<const std::byte> data = rest.subspan(header.size());
    const auto* text = reinterpret_cast<const char*>(header.data());
    if (header.empty() || text[0] != '{') fail(path, "not a safetensors file: no JSON header");

    HeaderEvents events;
    if (!json::sax_parse(text, text + header.size(), &events)) fail(path, "the header " + events.complaint());
    const auto data_start = static_cast<std::int64_t>(sizeof(length) + header.size());
    for (TensorInfo& tensor : events.tensors) {
        const auto available = static_cast<std::int64_t>(data.size());
        if (tensor.offset > available || tensor.bytes > available - tensor.offset) {
            fail(path, "the data of tensor " + quote(tensor.name) + " ends beyond the end of the file");
        }
        check_shape(tensor, path);
        tensor.data = data.data() + tensor.offset;
        tensor.offset += data_start;
        tensor.file = file;
    }
    return std::move(events.tensors);
}

std::map<std::string, std::string> read_safetensors_index(std::string_view text, const std::string& path) {
    if (text.size() > kMaxSafetensorsIndex)
        fail(path, "an index of " + std::to_string(text.size()) + " bytes is too long");
    IndexEvents events;
    if (!json::sax_parse(text.begin(), text.end(), &events)) fail(path, "the index " + events.complaint());
    if (!events.has_map || events.shards.empty()) fail(path, "the index has no 'weight_map'");
    for (const auto& [tensor, shard] : events.shards) {
        const bool plain = shard.find_first_of(std::string_view("/\\\0", 3)) == std::string::npos &&
                           shard.ends_with(".safetensors") && shard.size() <= 255;
        if (!plain) {
            fail(path, "tensor " + quote(tensor) + " lies in " + quote(shard) +
                           ", which is not the plain name of a .safetensors file in this directory");
        }
    }
    return std::move(events.shards);
}

}  // namespace foresay::core
