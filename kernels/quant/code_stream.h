// kernels/quant/code_stream.h: codes of a few bits as bytes and as a stream of bits, eight of them in one word.
//
// Layout:   eight codes of B bits are B bytes of a stream, the first code in the lowest bits.
// Cost:     shifts and masks of whole words, which compilers turn into vectors where loops have constant widths.
// Threads:  any; everything here is a function of its arguments.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "base/error.h"
#include "kernels/quant/scale_form.h"

namespace foresay::kernels {

static_assert(std::endian::native == std::endian::little, "streams are read and written as words");

// Calls run() with the bits of a code as a constant, so that loops over codes are unrolled.
template <class Run>
void with_bits(int bits, const Run& run) {
    switch (bits) {
        case 2:
            return run(std::integral_constant<int, 2>());
        case 3:
            return run(std::integral_constant<int, 3>());
        case 4:
            return run(std::integral_constant<int, 4>());
        case 5:
            return run(std::integral_constant<int, 5>());
        case 6:
            return run(std::integral_constant<int, 6>());
        case 8:
            return run(std::integral_constant<int, 8>());
        default:
            bug("codes of a width that packed rows do not have");
    }
}

// The places of 1, 2 and 4 neighbouring codes in each 16, 32 and 64 bits.
template <int kBits>
inline constexpr std::uint64_t kOnes = 0x0001000100010001u * ((std::uint64_t{1} << kBits) - 1);
template <int kBits>
inline constexpr std::uint64_t kTwos = 0x0000000100000001u * ((std::uint64_t{1} << 2 * kBits) - 1);
template <int kBits>
inline constexpr std::uint64_t kFours = (std::uint64_t{1} << 4 * kBits) - 1;

// Eight bytes, each a code, as their stream. Up to four bits no code meets another on its way, so one mask will do.
template <int kBits>
constexpr std::uint64_t join_eight(std::uint64_t bytes) {
    constexpr std::uint64_t one = kOnes<kBits>, two = kTwos<kBits>, four = kFours<kBits>;
    std::uint64_t x = bytes;
    if constexpr (kBits <= 4) {
        x = (x | x >> (8 - kBits)) & (one | one << kBits);
        x = (x | x >> (16 - 2 * kBits)) & (two | two << 2 * kBits);
        return (x | x >> (32 - 4 * kBits)) & (four | four << 4 * kBits);
    }
    x = (x & one) | (x >> (8 - kBits) & one << kBits);
    x = (x & two) | (x >> (16 - 2 * kBits) & two << 2 * kBits);
    return (x & four) | (x >> (32 - 4 * kBits) & four << 4 * kBits);
}

// The reverse.
template <int kBits>
constexpr std::uint64_t split_eight(std::uint64_t stream) {
    constexpr std::uint64_t one = kOnes<kBits>, two = kTwos<kBits>, four = kFours<kBits>;
    std::uint64_t x = stream;
    if constexpr (kBits <= 4) {
        x = (x | x << (32 - 4 * kBits)) & (four | four << 32);
        x = (x | x << (16 - 2 * kBits)) & (two | two << 16);
        return (x | x << (8 - kBits)) & (one | one << 8);
    }
    x = (x & four) | (x << (32 - 4 * kBits) & four << 32);
    x = (x & two) | (x << (16 - 2 * kBits) & two << 16);
    return (x & one) | (x << (8 - kBits) & one << 8);
}
static_assert(join_eight<3>(0x0706050403020100u) == 0xfac688 && split_eight<3>(0xfac688) == 0x0706050403020100u);
static_assert(join_eight<5>(0x1f001f001f001f00u) == 0xf83e0f83e0u &&
              split_eight<5>(0xf83e0f83e0u) == 0x1f001f001f001f00u);

// The lowest kBytes bytes of a word. Not one memcpy(), which would go through memory for 3, 5 and 6 of them.
template <int kBytes>
std::uint64_t load_bytes(const std::byte* from) {
    if constexpr (kBytes == 1) return std::to_integer<std::uint64_t>(*from);
    if constexpr (kBytes == 3 || kBytes > 4) {
        constexpr int kFirst = kBytes > 4 ? 4 : 2;
        return load_bytes<kFirst>(from) | load_bytes<kBytes - kFirst>(from + kFirst) << (8 * kFirst);
    }
    std::conditional_t<kBytes == 4, std::uint32_t, std::uint16_t> word = 0;
    if constexpr (kBytes == 2 || kBytes == 4) std::memcpy(&word, from, sizeof word);
    return word;
}
template <int kBytes>
void store_bytes(std::byte* to, std::uint64_t word) {
    if constexpr (kBytes == 8 || kBytes == 4 || kBytes == 2 || kBytes == 1) {
        std::memcpy(to, &word, kBytes);
    } else {
        constexpr int kFirst = kBytes > 4 ? 4 : 2;
        store_bytes<kFirst>(to, word);
        store_bytes<kBytes - kFirst>(to + kFirst, word >> (8 * kFirst));
    }
}

// A group of 32 codes.
struct GroupBytes {
    std::uint64_t eights[kPackedGroup / 8];
};
// The low nibbles of 16 bytes, then the high ones.
inline GroupBytes split_nibbles(const std::uint8_t (&bytes)[16]) {
    constexpr std::uint64_t kLow = 0x0f0f0f0f0f0f0f0f;
    std::uint64_t pairs[2];
    std::memcpy(pairs, bytes, sizeof pairs);
    return {{pairs[0] & kLow, pairs[1] & kLow, pairs[0] >> 4 & kLow, pairs[1] >> 4 & kLow}};
}
// Bit j of a byte as byte j, 0 or 1.
constexpr std::uint64_t spread_bits(std::uint8_t bits) {
    constexpr std::uint64_t kOfEach = 0x8040201008040201, kMost = 0x7f7f7f7f7f7f7f7f, kLowest = 0x0101010101010101;
    return ((bits * kLowest & kOfEach) + kMost) >> 7 & kLowest;
}
static_assert(spread_bits(0xb1) == 0x0100010100000001u);

template <int kBits>
GroupBytes split_group(const std::byte* stream) {
    GroupBytes group;
    for (int e = 0; e < kPackedGroup / 8; ++e) group.eights[e] = load_bytes<kBits>(stream + e * kBits);
    for (std::uint64_t& eight : group.eights) eight = split_eight<kBits>(eight);
    return group;
}
// The same of a stream that lies in words which are no neighbours.
template <int kBits>
GroupBytes split_words(const std::uint32_t (&words)[kBits]) {
    constexpr std::uint64_t kMask = kBits == 8 ? ~std::uint64_t{0} : (std::uint64_t{1} << 8 * kBits % 64) - 1;
    GroupBytes group;
    for (int e = 0; e < kPackedGroup / 8; ++e) {
        const int bit = 8 * kBits * e, word = bit / 32, shift = bit % 32;
        std::uint64_t two = words[word];
        if (shift + 8 * kBits > 32) two |= std::uint64_t{words[word + 1]} << 32;
        group.eights[e] = two >> shift & kMask;
    }
    for (std::uint64_t& eight : group.eights) eight = split_eight<kBits>(eight);
    return group;
}
// The codes of the streams of 16 rows, of which words[w][r] is word w: out[32][16], each input's of all rows together.
template <int kBits>
void split_columns(const std::uint32_t (&words)[kBits][16], std::uint8_t* out) {
    constexpr std::uint32_t kMask = (1u << kBits) - 1u;
    for (int i = 0; i < kPackedGroup; ++i) {
        const int bit = kBits * i, word = bit / 32, shift = bit % 32;
        std::uint8_t codes[16];
        if (shift + kBits > 32) {
            for (int r = 0; r < 16; ++r) {
                codes[r] =
                    static_cast<std::uint8_t>((words[word][r] >> shift | words[word + 1][r] << (32 - shift)) & kMask);
            }
        } else {
            for (int r = 0; r < 16; ++r) codes[r] = static_cast<std::uint8_t>(words[word][r] >> shift & kMask);
        }
        std::memcpy(out + 16 * i, codes, sizeof codes);
    }
}
// Returns where the stream ends.
template <int kBits>
std::byte* put_group(std::byte* out, const GroupBytes& codes) {
    GroupBytes group = codes;
    for (std::uint64_t& eight : group.eights) eight = join_eight<kBits>(eight);
    for (const std::uint64_t eight : group.eights) {
        store_bytes<kBits>(out, eight);
        out += kBits;
    }
    return out;
}
template <int kBits>
std::byte* put_group(std::byte* out, const std::uint8_t (&codes)[kPackedGroup]) {
    GroupBytes group;
    std::memcpy(&group, codes, sizeof group);
    return put_group<kBits>(out, group);
}

}  // namespace foresay::kernels
