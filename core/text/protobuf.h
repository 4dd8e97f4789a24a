// core/text/protobuf.h: reads the wire format of protocol buffers, field by field.
//
// Life:     values are views of the bytes given.
// Threads:  one caller at a time.
// Cost:     allocates nothing.
// Errors:   the bytes are untrusted: whatever is cut off or malformed throws Error naming `source` and the place.
// Source:   "Encoding" of the protocol buffers documentation.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace foresay::core {

class ProtobufReader {
public:
    ProtobufReader(std::string_view bytes, const std::string& source) : bytes_(bytes), source_(source) {}

    // Reads the next field; false at the end.
    bool next();
    std::uint32_t field() const { return field_; }

    // The value of the field. Throw Error when it is of another type.
    std::string_view bytes() const;  // a string, bytes or a message
    std::int64_t integer() const;    // int32, int64, enum
    bool flag() const { return integer() != 0; }
    float real() const;

private:
    enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };
    [[noreturn]] void refuse(const std::string& what) const;
    void expect(Wire wire) const;
    std::uint64_t varint();
    std::uint64_t fixed(std::size_t size);

    std::string_view bytes_;
    const std::string& source_;
    std::size_t at_ = 0;
    std::size_t start_ = 0;  // of the field, for errors
    std::uint32_t field_ = 0;
    Wire wire_ = Wire::varint;
    std::uint64_t number_ = 0;
    std::string_view value_;
};

}  // namespace foresay::core
