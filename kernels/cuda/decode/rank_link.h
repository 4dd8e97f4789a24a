// kernels/cuda/decode/rank_link.h: what makes the decode kernels of several GPUs, each with a part of every layer, one
// forward: memory of each for flagged words, into which all of them store. Where GPUs do not reach each other's memory
// the words pass through that of the host.
//
// Terms:    a rank is a GPU with its part (kernels/divided_ops.h), its peers are the others.
// Data flow of a forward, per rank, on its stream:
//
//   begin_linked   waits until the peers have reset their words; the rank with the embedding stores x in all ranks
//   decode kernel  as on one GPU, but what its epilogues and its attention pass on goes to all ranks (LinkedArgs), at
//                  the place that it has in the whole row. Each rank looks at its own memory and finds the others'
//                  words there
//   finish_linked  takes x after the last layer out of the words, resets all of them, and tells the peers
//
// Through host memory the three store on their own device alone, and know no peers. On a stream of its own runs
//
//   forward_words  sends the words that this rank makes, and stores those of the others, as they come (link_mail.h). It
//                  has two multiprocessors and more, which the decode kernel leaves to it
//
// Reset:    words are kNotReady again before a peer stores the next ones. Between launches that is what begin_linked
//           waits for. Within one it follows from the data: a rank resets the words of layer l before it makes any of
//           layer l + 2 (gemv.h, kFlaggedBuffers), and a peer needs those before it makes words of layer l + 3, the
//           next to lie in the same buffer. What is sent through host memory is read again by the sender, before the
//           peers can depend on it, and so before its reset.
// Waits:    all of them end at LinkTable::deadline; the launch then goes on with what there is and sets `failed`. Then
//           every later one does, because words may still be on their way, until the link is mended (link_repair.h).
// Order:    stores to a peer are relaxed and at the scope of the system. Each word carries its own flag, so none has to
//           be ordered after another one; only `ready` is stored with a release.
// Threads:  as kernels/ops.h. Kernels of all ranks must be launched before any is waited for.
// Errors:   the constructor and connect*() throw Error when there is no memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "kernels/cuda/decode/link_mail.h"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

inline constexpr int kMostPeers = 7;
inline constexpr std::size_t kLinkFloats = std::size_t{6} << 20;  // of flagged words, as much as GemvScratch has
inline constexpr std::uint64_t kLinkPatience = 2'000'000'000;     // ns that a launch may wait, all waits together

// In the memory of its rank. Peers in the order of the ranks, without the own one.
struct LinkTable {
    std::int32_t peers = 0;
    std::int64_t to_peer[kMostPeers] = {};     // bytes from a word of this rank to the same word of the peer
    std::uint32_t* ready_at[kMostPeers] = {};  // in the peer's memory: its `ready` of this rank
    std::uint32_t ready[kMostPeers] = {};      // launches after which the peer has reset its words
    std::uint32_t launches = 0;                // that have ended here
    std::uint32_t departures = 0;              // CTAs of finish_linked that have ended
    std::uint32_t failed = 0;                  // kGaveUp and more (link_failure.h); 0: no wait has ended in vain
    std::uint64_t deadline = 0;                // of the launch, by globaltimer
    // Through host memory.
    MailPacket* mail = nullptr;   // kMailSlots of them
    std::uint32_t handed = 0;     // hand-overs of the launches that have ended here
    std::uint32_t forwarded = 0;  // CTAs of forward_words that have ended
};

// A rank's end of the link.
class RankLink {
public:
    RankLink();
    // Makes ends of the same model, each made on its own device, know each other. They have peer access.
    static void connect(std::span<RankLink* const> ranks);
    // The same for ranks on devices without peer access. False: a device does not reach the host's memory.
    static bool connect_through_host(std::span<RankLink* const> ranks);

    bool through_host() const { return host_ != nullptr; }
    // Of so many multiprocessors those that the decode kernel must leave free in a forward of `rows` rows.
    int processors_kept(int processors, std::int32_t rows) const {
        return through_host() ? 2 * forwarder_pairs(processors, rows) : 0;
    }
    // Through host memory: enqueues forward_words, to run beside what is enqueued on the stream from now on, and lets
    // the stream wait for its end. `processors`: of the device, or of the rank's part of it.
    void start_forwarders(const Stream& stream, const MailRoute& route, int processors) const;
    void await_forwarders(const Stream& stream) const;
    float* words() const { return words_.data(); }
    LinkTable* table() const { return table_.data(); }
    // Enqueues a copy of LinkTable::failed to the host, after what is enqueued.
    void ask(const Stream& stream);
    // What the last copy that has arrived says.
    bool failed() const { return *failed_.data() != 0; }

private:
    // For a rank whose words pass through host memory.
    struct HostWay {
        std::shared_ptr<MappedBuffer<MailPacket>> mail;  // of all ranks
        Stream stream;
        Event begun, ended;  // on the stream of the rank, and on that of the forwarders
    };

    DeviceBuffer<float> words_;
    DeviceBuffer<LinkTable> table_;
    PinnedBuffer<std::uint32_t> failed_;
    std::unique_ptr<HostWay> host_;
};

// The residual stream of a forward: `floats` of it, and where they lie among the words before the first layer and after
// the last one.
struct LinkedStream {
    float* x = nullptr;
    std::int32_t floats = 0;
    std::int32_t first_at = 0, last_at = 0;
};
// `embeds`: this rank has x, and the others do not.
void begin_linked(const Stream& stream, const RankLink& link, const LinkedStream& rows, bool embeds);
// `words`: floats of all buffers, which are reset.
void finish_linked(const Stream& stream, const RankLink& link, const LinkedStream& rows, std::int32_t words);

}  // namespace foresay::kernels::cuda
