#include "core/weights/gguf_reader.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <numeric>

#include "base/error.h"
#include "core/weights/ggml_types.h"
#include "core/weights/quote.h"

namespace foresay::core {
namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is little-endian");

// Real files hold thousands. The limits bound what a hostile file can make the reader allocate.
constexpr std::uint64_t kMaxEntries = 1'000'000;
constexpr std::uint64_t kMaxTensors = 1'000'000;
constexpr std::uint32_t kMaxDimensions = 4;
constexpr std::uint64_t kDefaultAlignment = 32;
constexpr std::size_t kMinEntryBytes = 8 + 4 + 1;       // key length, type, smallest value
constexpr std::size_t kMinTensorBytes = 8 + 4 + 4 + 8;  // name length, dimension count, type, offset

template <class T>
T load(std::span<const std::byte> bytes, std::size_t index) {
    T value;
    std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
    return value;
}

class Reader {
public:
    Reader(std::span<const std::byte> bytes, const std::string& path) : bytes_(bytes), path_(path) {}

    GgufImage read(const std::string& file);

private:
    [[noreturn]] void fail(const std::string& what) const {
        throw Error(path_ + ": " + what + " (at byte " + std::to_string(position_) +
                    "); the file is damaged or incomplete, get it again");
    }

    std::size_t remaining() const { return bytes_.size() - position_; }

    std::span<const std::byte> take(std::uint64_t count, const char* what) {
        if (count > remaining()) fail(std::string("the file ends inside ") + what);
        const auto taken = bytes_.subspan(position_, static_cast<std::size_t>(count));
        position_ += static_cast<std::size_t>(count);
        return taken;
    }

    template <class T>
    T number(const char* what) {
        return load<T>(take(sizeof(T), what), 0);
    }

    std::string_view string(const char* what) {
        const auto length = number<std::uint64_t>(what);
        const auto characters = take(length, what);
        return {reinterpret_cast<const char*>(characters.data()), characters.size()};
    }

    void read_header(GgufImage& image, std::uint64_t& tensors, std::uint64_t& entries);
    GgufType value_type();
    GgufEntry read_entry();
    void read_array(GgufEntry& entry);
    void index_entries(GgufImage& image) const;
    std::uint64_t alignment(const GgufImage& image) const;
    TensorInfo read_tensor(const std::string& file);
    void set_bytes(TensorInfo& tensor, const GgmlType& type) const;
    void locate(std::vector<TensorInfo>& tensors, std::uint64_t alignment) const;

    std::span<const std::byte> bytes_;
    const std::string& path_;
    std::size_t position_ = 0;
};

GgufImage Reader::read(const std::string& file) {
    GgufImage image;
    std::uint64_t tensors = 0, entries = 0;
    read_header(image, tensors, entries);
    image.entries.reserve(static_cast<std::size_t>(entries));
    for (std::uint64_t i = 0; i < entries; ++i) image.entries.push_back(read_entry());
    index_entries(image);
    const std::uint64_t align = alignment(image);
    if (tensors > remaining() / kMinTensorBytes) {
        fail("the header promises " + std::to_string(tensors) + " tensors, more than the file can hold");
    }
    image.tensors.reserve(static_cast<std::size_t>(tensors));
    for (std::uint64_t i = 0; i < tensors; ++i) image.tensors.push_back(read_tensor(file));
    locate(image.tensors, align);
    return image;
}

void Reader::read_header(GgufImage& image, std::uint64_t& tensors, std::uint64_t& entries) {
    if (bytes_.empty()) throw Error(path_ + ": the file is empty; get it again");
    const bool magic = bytes_.size() >= 4 && std::memcmp(bytes_.data(), "GGUF", 4) == 0;
    if (!magic)
        throw Error(path_ + ": not a GGUF file (it does not begin with 'GGUF'); give the path of a .gguf model");
    position_ = 4;
    image.version = number<std::uint32_t>("the header");
    if (image.version != 0 && (image.version & 0xffffu) == 0) {
        throw Error(path_ + ": a big-endian GGUF file; convert it to little-endian");
    }
    if (image.version != 2 && image.version != 3) {
        throw Error(path_ + ": GGUF version " + std::to_string(image.version) +
                    " is not supported (2 and 3 are); convert the model again with current tools");
    }
    tensors = number<std::uint64_t>("the header");
    entries = number<std::uint64_t>("the header");
    if (tensors > kMaxTensors) fail("the header promises " + std::to_string(tensors) + " tensors");
    if (entries > kMaxEntries || entries > remaining() / kMinEntryBytes) {
        fail("the header promises " + std::to_string(entries) + " metadata entries, more than the file can hold");
    }
}

GgufType Reader::value_type() {
    const auto type = number<std::uint32_t>("a metadata entry");
    if (type > static_cast<std::uint32_t>(GgufType::f64))
        fail("metadata value of unknown type " + std::to_string(type));
    return static_cast<GgufType>(type);
}

GgufEntry Reader::read_entry() {
    GgufEntry entry;
    entry.key = string("a metadata key");
    if (entry.key.empty()) fail("metadata entry without a key");
    entry.type = value_type();
    if (entry.type == GgufType::array) {
        read_array(entry);
    } else if (entry.type == GgufType::string) {
        const std::string_view text = string("a metadata string");
        entry.payload = std::as_bytes(std::span(text.data(), text.size()));
    } else {
        entry.payload = take(scalar_bytes(entry.type), "a metadata value");
    }
    return entry;
}

void Reader::read_array(GgufEntry& entry) {
    entry.element = value_type();
    entry.count = number<std::uint64_t>("a metadata array");
    if (entry.element == GgufType::array)
        fail("metadata array " + quote(entry.key) + " nests arrays, which is not supported");
    const bool strings = entry.element == GgufType::string;
    const std::size_t smallest = strings ? sizeof(std::uint64_t) : scalar_bytes(entry.element);
    if (entry.count > remaining() / smallest) {
        fail("metadata array " + quote(entry.key) + " promises " + std::to_string(entry.count) +
             " elements, more than the file can hold");
    }
    const std::size_t begin = position_;
    if (strings) {
        for (std::uint64_t i = 0; i < entry.count; ++i) string("a metadata array of strings");
    } else {
        take(entry.count * smallest, "a metadata array");
    }
    entry.payload = bytes_.subspan(begin, position_ - begin);
}

void Reader::index_entries(GgufImage& image) const {
    image.by_key.resize(image.entries.size());
    std::iota(image.by_key.begin(), image.by_key.end(), 0u);
    const auto key = [&image](std::uint32_t i) { return image.entries[i].key; };
    std::sort(image.by_key.begin(), image.by_key.end(),
              [&](std::uint32_t a, std::uint32_t b) { return key(a) < key(b); });
    const auto twin = std::adjacent_find(image.by_key.begin(), image.by_key.end(),
                                         [&](std::uint32_t a, std::uint32_t b) { return key(a) == key(b); });
    if (twin != image.by_key.end()) fail("metadata key " + quote(key(*twin)) + " occurs twice");
}

std::uint64_t Reader::alignment(const GgufImage& image) const {
    const GgufEntry* entry = image.find("general.alignment");
    if (entry == nullptr) return kDefaultAlignment;
    std::int64_t value = 0;
    const bool valid = read_int(entry->type, entry->payload, 0, value) && value > 0 &&
                       value <= std::numeric_limits<std::uint32_t>::max() &&
                       std::has_single_bit(static_cast<std::uint64_t>(value));
    if (!valid) fail("general.alignment is not a power of two");
    return static_cast<std::uint64_t>(value);
}

TensorInfo Reader::read_tensor(const std::string& file) {
    TensorInfo tensor;
    tensor.name = string("a tensor name");
    tensor.file = file;
    const auto dimensions = number<std::uint32_t>("a tensor description");
    if (dimensions > kMaxDimensions) {
        fail("tensor " + quote(tensor.name) + " has " + std::to_string(dimensions) +
             " dimensions, at most 4 are possible");
    }
    std::int64_t elements = 1;
    for (std::uint32_t i = 0; i < dimensions; ++i) {
        const auto size = number<std::int64_t>("a tensor description");
        if (size < 0 || __builtin_mul_overflow(elements, size, &elements)) {
            fail("tensor " + quote(tensor.name) + " has an impossible size");
        }
        tensor.shape.push_back(size);
    }
    // A zero dimension could hide an overflow of the others. Make all zero, so that no later product overflows.
    if (elements == 0) tensor.shape.assign(tensor.shape.size(), 0);
    std::reverse(tensor.shape.begin(), tensor.shape.end());
    const GgmlType type = ggml_type(number<std::uint32_t>("a tensor description"));
    tensor.type = type.name;
    tensor.quant_type = type.quant_type;
    tensor.stored = type.stored;
    const auto offset = number<std::uint64_t>("a tensor description");
    if (offset > bytes_.size()) fail("tensor " + quote(tensor.name) + " begins beyond the end of the file");
    tensor.offset = static_cast<std::int64_t>(offset);
    set_bytes(tensor, type);
    return tensor;
}

void Reader::set_bytes(TensorInfo& tensor, const GgmlType& type) const {
    if (type.block_elements == 0) return;
    const std::int64_t cols = tensor.shape.empty() ? 1 : tensor.shape.back();
    if (cols % type.block_elements != 0) {
        fail("tensor " + quote(tensor.name) + " has rows of " + std::to_string(cols) + " values, not whole " +
             type.name + " blocks");
    }
    std::int64_t rows_bytes = 0;
    const std::int64_t rows = cols > 0 ? tensor.elements() / cols : 0;
    if (__builtin_mul_overflow(tensor.elements() / type.block_elements, type.block_bytes, &tensor.bytes) ||
        __builtin_mul_overflow(rows, type.row_bytes, &rows_bytes) ||
        __builtin_add_overflow(tensor.bytes, rows_bytes, &tensor.bytes)) {
        fail("tensor " + quote(tensor.name) + " has an impossible size");
    }
}

// Turns offsets from the start of the data into offsets in the file, and checks that the file holds the data.
void Reader::locate(std::vector<TensorInfo>& tensors, std::uint64_t alignment) const {
    if (tensors.empty()) return;  // a file of metadata alone may end before the aligned start of its data
    const std::uint64_t start = (position_ + alignment - 1) / alignment * alignment;
    if (start > bytes_.size()) fail("the file ends before its tensor data");
    const std::uint64_t available = bytes_.size() - start;
    for (TensorInfo& tensor : tensors) {
        const auto offset = static_cast<std::uint64_t>(tensor.offset);
        if (offset % alignment != 0) fail("tensor " + quote(tensor.name) + " is not aligned as general.alignment says");
        if (offset > available || static_cast<std::uint64_t>(tensor.bytes) > available - offset) {
            fail("the data of tensor " + quote(tensor.name) + " ends beyond the end of the file");
        }
        tensor.offset = static_cast<std::int64_t>(start + offset);
        tensor.data = bytes_.data() + start + offset;
    }
}

}  // namespace

std::size_t scalar_bytes(GgufType type) {
    switch (type) {
        case GgufType::u8:
        case GgufType::i8:
        case GgufType::boolean:
            return 1;
        case GgufType::u16:
        case GgufType::i16:
            return 2;
        case GgufType::u32:
        case GgufType::i32:
        case GgufType::f32:
            return 4;
        case GgufType::u64:
        case GgufType::i64:
        case GgufType::f64:
            return 8;
        case GgufType::string:
        case GgufType::array:
            break;
    }
    return 0;
}

bool read_int(GgufType type, std::span<const std::byte> payload, std::size_t index, std::int64_t& out) {
    switch (type) {
        case GgufType::u8:
            out = load<std::uint8_t>(payload, index);
            return true;
        case GgufType::i8:
            out = load<std::int8_t>(payload, index);
            return true;
        case GgufType::u16:
            out = load<std::uint16_t>(payload, index);
            return true;
        case GgufType::i16:
            out = load<std::int16_t>(payload, index);
            return true;
        case GgufType::u32:
            out = load<std::uint32_t>(payload, index);
            return true;
        case GgufType::i32:
            out = load<std::int32_t>(payload, index);
            return true;
        case GgufType::i64:
            out = load<std::int64_t>(payload, index);
            return true;
        case GgufType::u64: {
            const auto value = load<std::uint64_t>(payload, index);
            out = static_cast<std::int64_t>(value);
            return value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
        }
        default:
            return false;
    }
}

bool read_number(GgufType type, std::span<const std::byte> payload, std::size_t index, double& out) {
    if (type == GgufType::f32) {
        out = load<float>(payload, index);
        return true;
    }
    if (type == GgufType::f64) {
        out = load<double>(payload, index);
        return true;
    }
    std::int64_t integer = 0;
    if (!read_int(type, payload, index, integer)) return false;
    out = static_cast<double>(integer);
    return true;
}

const GgufEntry* GgufImage::find(std::string_view key) const {
    const auto found = std::lower_bound(by_key.begin(), by_key.end(), key,
                                        [this](std::uint32_t i, std::string_view k) { return entries[i].key < k; });
    return found != by_key.end() && entries[*found].key == key ? &entries[*found] : nullptr;
}

GgufImage read_gguf(std::span<const std::byte> bytes, const std::string& path, const std::string& file) {
    return Reader(bytes, path).read(file);
}

}  // namespace foresay::core
