#include "core/text/protobuf.h"

#include <bit>

#include "base/error.h"

namespace foresay::core {

void ProtobufReader::refuse(const std::string& what) const {
    throw Error(source_ + ": it is not a whole SentencePiece model: " + what + " at byte " + std::to_string(start_) +
                "; get the model's tokenizer.model again");
}

bool ProtobufReader::next() {
    start_ = at_;
    if (at_ == bytes_.size()) return false;
    const std::uint64_t tag = varint();
    if (tag >> 3 == 0 || tag >> 3 >= (std::uint64_t{1} << 29)) refuse("a field has no number");
    field_ = static_cast<std::uint32_t>(tag >> 3);
    wire_ = static_cast<Wire>(tag & 7);
    switch (wire_) {
        case Wire::varint:
            number_ = varint();
            return true;
        case Wire::fixed64:
            number_ = fixed(8);
            return true;
        case Wire::fixed32:
            number_ = fixed(4);
            return true;
        case Wire::bytes: {
            const std::uint64_t size = varint();
            if (size > bytes_.size() - at_) refuse("a field ends after the file");
            value_ = bytes_.substr(at_, static_cast<std::size_t>(size));
            at_ += value_.size();
            return true;
        }
    }
    refuse("a field has an unknown type");
}

std::uint64_t ProtobufReader::varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
        if (at_ == bytes_.size()) refuse("a number is cut off");
        const auto byte = static_cast<unsigned char>(bytes_[at_++]);
        value |= static_cast<std::uint64_t>(byte & 0x7F) << shift;
        if (byte < 0x80) return value;
    }
    refuse("a number is too long");
}

std::uint64_t ProtobufReader::fixed(std::size_t size) {
    if (size > bytes_.size() - at_) refuse("a number is cut off");
    std::uint64_t value = 0;
    for (std::size_t i = size; i-- > 0;) value = (value << 8) | static_cast<unsigned char>(bytes_[at_ + i]);
    at_ += size;
    return value;
}

void ProtobufReader::expect(Wire wire) const {
    if (wire_ != wire) refuse("field " + std::to_string(field_) + " has the wrong type");
}

std::string_view ProtobufReader::bytes() const {
    expect(Wire::bytes);
    return value_;
}

std::int64_t ProtobufReader::integer() const {
    expect(Wire::varint);
    return static_cast<std::int64_t>(number_);
}

float ProtobufReader::real() const {
    expect(Wire::fixed32);
    return std::bit_cast<float>(static_cast<std::uint32_t>(number_));
}

}  // namespace foresay::core
