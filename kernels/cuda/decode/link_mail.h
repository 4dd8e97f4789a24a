// kernels/cuda/decode/link_mail.h: how the words of linked ranks (rank_link.h) pass through host memory, where GPUs do
// not reach each other's: which words a rank hands over in a forward, in which order, and where they lie on the way.
//
// Layout:   page-locked host memory that all ranks read and write, kMailSlots slots of packets. Hand-over n, counted
//           from the first forward of the link, has slot n % kMailSlots. There a row is as wide as on the devices: the
//           packet of values p and p + 1 of the rows together is packet p / 2, for all ranks.
// Packets:  {value, tag, value, tag}. Each half is one access of eight bytes: with the tag of hand-over n it has the
//           value of hand-over n. No order between halves is needed, and nothing in host memory is ever reset. A tag
//           comes again after 2^32 hand-overs.
// Slots:    a slot may be written again when all ranks have read it. A rank that has a word of hand-over n to send has
//           read all of n - 1; who sent that had read all of n - 2. The x that a forward begins with is read from
//           nowhere, so the rank with the embedding, and what follows from x there, are one further. So three slots are
//           enough; there is one more.
// Threads:  plain C++, for the host and for kernels (host_link.cu).
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/host_device.h"

namespace foresay::kernels::cuda {

inline constexpr std::uint32_t kMailSlots = 4;        // a power of two, so that counting may overflow
inline constexpr std::int32_t kMailFloats = 1 << 20;  // of a slot
inline constexpr std::int32_t kPacketsOfSlot = kMailFloats / 2;
inline constexpr std::int32_t kHandOversOfLayer = 4;
inline constexpr std::int32_t kLinkBuffers = 3;  // kFlaggedBuffers

// CTAs that send the words of a rank, and as many receive those of the others. One keeps as many packets in flight as a
// row needs, and each takes a multiprocessor from the decode kernel.
constexpr std::int32_t forwarder_pairs(std::int32_t processors, std::int32_t rows) {
    return rows <= 1 ? 1 : std::clamp(processors / 32, 1, 4);
}

struct MailPacket {
    float first;
    std::uint32_t first_tag;
    float second;
    std::uint32_t second_tag;
};
static_assert(sizeof(MailPacket) == 16);

// Values of rows `width` wide, of which this rank makes `count` from `first` on, and the others the rest. All even.
// `at`: floats from the first word of all buffers to the first value of row 0.
struct HandOver {
    std::int32_t at = 0, width = 0, first = 0, count = 0;

    FORESAY_HOST_DEVICE bool fits(std::int32_t rows) const {
        return (at | width | first | count) % 2 == 0 && count > 0 && count < width && width <= kMailFloats / rows;
    }
    // Packets that this rank sends, and receives.
    FORESAY_HOST_DEVICE std::int32_t sent(std::int32_t rows) const { return rows * (count / 2); }
    FORESAY_HOST_DEVICE std::int32_t received(std::int32_t rows) const { return rows * ((width - count) / 2); }
    // Which value of all rows together packet i of those begins with.
    FORESAY_HOST_DEVICE std::int32_t sent_value(std::int32_t i) const {
        const std::int32_t row = i / (count / 2);
        return row * width + first + 2 * (i - row * (count / 2));
    }
    FORESAY_HOST_DEVICE std::int32_t received_value(std::int32_t i) const {
        const std::int32_t each = (width - count) / 2, row = i / each, value = 2 * (i - row * each);
        return row * width + value + (value < first ? 0 : count);
    }
    bool operator==(const HandOver&) const = default;
};

// The hand-overs of a rank in a forward: x before the first layer, which the rank with the embedding has, and then four
// a layer.
struct MailRoute {
    std::int32_t rows = 0, layers = 0, buffer_floats = 0;
    bool embeds = false;  // this rank has x, and the others do not
    // In the order in which they are made: what heads have attended; x after the attention, or its branch; ff; x after
    // the MLP, or its branch. `at` is that of buffer 0; layer l has buffer l % kLinkBuffers.
    HandOver layer[kHandOversOfLayer];
    HandOver x;  // before the first layer. `count` is of no meaning.

    FORESAY_HOST_DEVICE std::int32_t hand_overs() const { return 1 + kHandOversOfLayer * layers; }
    FORESAY_HOST_DEVICE HandOver hand_over(std::int32_t n) const {
        if (n == 0) return {x.at, x.width, 0, embeds ? x.width : 0};
        const std::int32_t l = (n - 1) / kHandOversOfLayer;
        HandOver over = layer[n - 1 - l * kHandOversOfLayer];
        over.at += l % kLinkBuffers * buffer_floats;
        return over;
    }
    // Whether all of it has room and is whole packets.
    bool fits() const {
        for (const HandOver& over : layer) {
            if (!over.fits(rows)) return false;
        }
        return layers > 0 && buffer_floats % 2 == 0 && x.at % 2 == 0 && x.width % 2 == 0 &&
               x.width <= kMailFloats / rows;
    }
};

// `n`: of all forwards of the link. Memory that was never written has tag 0.
FORESAY_HOST_DEVICE inline std::uint32_t mail_tag(std::uint32_t n) { return n + 1; }
FORESAY_HOST_DEVICE inline std::int64_t mail_slot(std::uint32_t n) {
    return static_cast<std::int64_t>(n % kMailSlots) * kPacketsOfSlot;
}

}  // namespace foresay::kernels::cuda
