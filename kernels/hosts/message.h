// kernels/hosts/message.h: what rank 0 asks of the other hosts, as bytes.
//
// Layout:   a message is a block of kBlock bytes: a Header, then what its kind has. What does not fit follows in a
//           second piece. Numbers are as in memory (little-endian on every host that runs foresay). Rows, logits and
//           pages are no part of a message and come after it; both sides know their size from it.
//           Rank 0 sends requests, one at a time to each rank; a rank answers each one but those that say otherwise.
//             ping                  seconds; no answer: rank 0 is there, and will be heard again within so many
//             end                   -> nothing, and the rank ends
//             hello                 program version -> program version, devices: Device each
//             bandwidth             device -> bytes per second
//             free_memory           device -> bytes
//             kv_bytes              device, KvShape, pages, format -> bytes
//             workspace_bytes       device, ModelShape, rows, logit rows -> bytes
//             expanded_kv_bytes     device, KvShape, pages, format -> bytes
//             load                  what the engine says (engine/hosts/) -> nothing: the rank begins to load
//             load_status           -> LoadStatus
//             allocate_kv           device, KvShape, pages, format -> id, bytes
//             allocate_workspace    device, ModelShape, rows, logit rows -> id, bytes
//             free_kv, free_workspace  id; no answer
//             copy_page             id, from, to -> nothing
//             read_page             id, page, size -> nothing, then the page
//             write_page            id, page, size, then the page -> nothing
//             forward               Forward, then the rows it has -> nothing, then the logits it asks for
//             read_rows             workspace -> nothing, then the rows
//             echo                  size, then so many bytes -> nothing, then the same bytes
// Errors:   MessageReader throws Error for bytes that are no such message. It checks lengths, not meaning.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/error.h"
#include "kernels/forward_op.h"
#include "kernels/ops.h"

namespace foresay::kernels {

// To be raised when a message changes. The block, and where the header has this number, must stay as they are, so that
// ranks of two versions can tell.
inline constexpr std::uint32_t kHostProtocol = 2;
inline constexpr std::size_t kBlock = 8192;

enum class MessageKind : std::uint16_t {
    ping,
    end,
    hello,
    bandwidth,
    free_memory,
    kv_bytes,
    workspace_bytes,
    expanded_kv_bytes,
    load,
    load_status,
    allocate_kv,
    allocate_workspace,
    free_kv,
    free_workspace,
    copy_page,
    read_page,
    write_page,
    forward,
    read_rows,
    echo,
    done,    // an answer
    failed,  // an answer: a sentence
};

struct MessageHeader {
    std::uint32_t magic = 0x59534f46;  // "FOSY"
    std::uint32_t protocol = kHostProtocol;
    MessageKind kind = MessageKind::ping;
    std::uint16_t reserved = 0;
    std::uint32_t size = 0;      // bytes after the header
    std::uint64_t checksum = 0;  // of them
};

// FNV-1a, 64 bits.
inline std::uint64_t message_checksum(std::span<const std::byte> bytes) {
    std::uint64_t sum = 0xcbf29ce484222325u;
    for (const std::byte byte : bytes) sum = (sum ^ static_cast<std::uint64_t>(byte)) * 0x100000001b3u;
    return sum;
}

class Message {
public:
    explicit Message(MessageKind kind = MessageKind::done) : kind_(kind) {}

    template <class T>
    Message& put(const T& value) {
        static_assert(std::is_trivially_copyable_v<T>);
        return put_bytes(std::as_bytes(std::span(&value, 1)));
    }
    template <class T>
    Message& put_list(std::span<const T> values) {
        static_assert(std::is_trivially_copyable_v<T>);
        put(static_cast<std::uint32_t>(values.size()));
        return put_bytes(std::as_bytes(values));
    }
    // As they are, without a count.
    Message& put_bytes(std::span<const std::byte> bytes) {
        const std::size_t at = body_.size();
        body_.resize(at + bytes.size());
        if (!bytes.empty()) std::memcpy(body_.data() + at, bytes.data(), bytes.size());
        return *this;
    }
    Message& put_text(std::string_view text) { return put_list(std::span<const char>(text.data(), text.size())); }

    MessageKind kind() const { return kind_; }
    std::span<const std::byte> body() const { return body_; }
    void clear(MessageKind kind) {
        kind_ = kind;
        body_.clear();
    }

private:
    MessageKind kind_;
    std::vector<std::byte> body_;
};

class MessageReader {
public:
    explicit MessageReader(std::span<const std::byte> bytes) : rest_(bytes) {}

    template <class T>
    T get() {
        static_assert(std::is_trivially_copyable_v<T>);
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    template <class T>
    void get_list(std::vector<T>& values) {
        const std::size_t count = get<std::uint32_t>();
        if (count > rest_.size() / sizeof(T)) throw damaged();
        values.resize(count);
        if (count > 0) std::memcpy(values.data(), take(count * sizeof(T)).data(), count * sizeof(T));
    }
    std::string get_text() {
        std::vector<char> text;
        get_list(text);
        return {text.begin(), text.end()};
    }
    std::span<const std::byte> rest() const { return rest_; }

    static Error damaged() { return Error("a message between two hosts is damaged"); }

private:
    std::span<const std::byte> take(std::size_t size) {
        if (size > rest_.size()) throw damaged();
        const auto piece = rest_.first(size);
        rest_ = rest_.subspan(size);
        return piece;
    }

    std::span<const std::byte> rest_;
};

// A device of another host, in its answer to hello. Its name and detail follow as texts.
struct RemoteDeviceFacts {
    std::int32_t threads = 1;
    std::int32_t prefill_rows = 0;
    bool makes_random_weights = false;
    bool reads_weights_once = false;
};

struct LoadStatus {
    bool done = false;
    std::int64_t done_bytes = 0, all_bytes = 0;
};

// A call of an op in a forward, in the order of the calls.
struct RemoteStep {
    ForwardOp call = ForwardOp::embed;
    std::uint8_t reserved[3] = {};
    std::int32_t layer = 0;  // of the cache
    std::int32_t op = 0;     // among those that the device has prepared
};

// The beginning of a forward message. Lists follow: RemoteStep; where `begins`, Row, of each sequence its length
// (std::int32_t) and its pages, and the logit rows.
struct ForwardHead {
    std::int32_t workspace = 0, kv = -1;  // ids; -1: no cache
    std::int32_t rows = 0;
    RowClass row_class = RowClass::decode;
    bool tree = false;
    bool begins = false;    // a batch; else the last one goes on
    bool has_rows = false;  // the residual stream, [rows, D], comes after the message
};

// Describes the rows and logits that come after a message.
inline std::size_t float_bytes(std::int64_t values) { return static_cast<std::size_t>(values) * sizeof(float); }

inline void put_shape(Message& message, const KvShape& shape) {
    message.put_list(std::span<const KvLayer>(shape.layers));
}
inline KvShape get_kv_shape(MessageReader& reader) {
    KvShape shape;
    reader.get_list(shape.layers);
    return shape;
}

}  // namespace foresay::kernels
