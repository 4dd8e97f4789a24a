// The forwarders of linked ranks whose words pass through host memory (link_mail.h): a kernel beside the decode kernel,
// on multiprocessors that the decode kernel leaves to it. Half of its CTAs send what the rank makes, the others receive
// what the other ranks make. To the decode kernel it is one more reader of its words, and another writer of theirs.
//
// Reset:    words are reset when others of this rank depend on all of them, and on those of the other ranks that depend
//           on what was sent (rank_link.h). So the sender has read a word before it is reset, and a word arrives after
//           the one before it has been reset.
// Threads:  each goes through all hand-overs by itself, with its share of the packets of each; none waits for another
//           one. So how many there are changes nothing but who carries a packet.
// Loads:    many packets of a thread are in flight, because a load from host memory takes more than a microsecond, and
//           because words come out of order: the last of each CTA's come together, at the end of a step. While nothing
//           comes, few are looked at, by all CTAs together as few as by one: what is looked at in vain takes the way of
//           what comes.
#include "base/error.h"
#include "kernels/cuda/decode/link_mail.h"
#include "kernels/cuda/decode/rank_link.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 512;
constexpr int kAtOnce = 8;  // packets of a thread in flight: 12 take all registers, 16 spill
constexpr int kIdle = 4;    // while nothing comes, of a CTA alone

__device__ MailPacket load_packet(const MailPacket* from) {
    MailPacket packet;
    asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(reinterpret_cast<std::uint32_t&>(packet.first)), "=r"(packet.first_tag),
                   "=r"(reinterpret_cast<std::uint32_t&>(packet.second)), "=r"(packet.second_tag)
                 : "l"(from)
                 : "memory");
    return packet;
}
__device__ void store_packet(MailPacket* to, const float2& values, std::uint32_t tag) {
    asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %2};" ::"l"(to), "r"(__float_as_uint(values.x)),
                 "r"(tag), "r"(__float_as_uint(values.y))
                 : "memory");
}

// As gives_up(), with a limit of its own: the forwarders may run before begin_linked() has set that of the launch.
struct ForwarderPatience {
    LinkTable* link;
    std::uint64_t end = global_time() + kLinkPatience;
    std::uint32_t looks = 0;

    __device__ bool ends() {
        return (++looks & 255u) == 0 && wait_ends(link, [this] { return end; });
    }
};

// The threads of all CTAs that send, or of all that receive.
struct Crew {
    std::int32_t thread, threads;
};

// The lowest `count` bits that are set.
template <int count>
__device__ __forceinline__ std::uint32_t lowest(std::uint32_t of) {
    std::uint32_t rest = of;
#pragma unroll
    for (int i = 0; i < count; ++i) rest &= rest - 1;
    return of & ~rest;
}

// Packets 0 to count - 1, those of this thread of the crew: value_of(i) says which value packet i begins with,
// look(value, k) starts the load of one of the kAtOnce in flight, and pass(value, k) says whether it is through with
// it; else both are called again. False: patience has ended.
template <int kLooks, class ValueOf, class Look, class Pass>
__device__ __forceinline__ bool pass_all(std::int32_t count, Crew crew, ForwarderPatience& patience,
                                         const ValueOf& value_of, const Look& look, const Pass& pass) {
#pragma unroll 1
    for (std::int32_t from = crew.thread; from < count; from += kAtOnce * crew.threads) {
        std::int32_t value[kAtOnce];
        std::uint32_t left = 0;
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            if (from + k * crew.threads >= count) continue;
            value[k] = value_of(from + k * crew.threads);
            left |= 1u << k;
        }
        bool moves = false;
#pragma unroll 1
        for (;;) {
            const std::uint32_t seen = moves ? left : lowest<kLooks>(left), before = left;
            // So that addresses are computed again: kept, they would be spilled.
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) asm volatile("" : "+r"(value[k]));
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                if ((seen >> k & 1u) != 0) look(value[k], k);
            }
#pragma unroll
            for (int k = 0; k < kAtOnce; ++k) {
                if ((seen >> k & 1u) != 0 && pass(value[k], k)) left &= ~(1u << k);
            }
            if (left == 0) break;
            if (patience.ends()) return false;
            moves = left != before;
        }
    }
    return true;
}

template <int kLooks>
__device__ __forceinline__ bool send(const HandOver& over, std::int32_t rows, const float* words, MailPacket* slot,
                                     std::uint32_t tag, Crew crew, ForwarderPatience& patience) {
    float2 values[kAtOnce];
    return pass_all<kLooks>(
        over.sent(rows), crew, patience, [&](std::int32_t i) { return over.sent_value(i); },
        [&](std::int32_t value, int k) { values[k] = load_flagged2(words + over.at + value); },
        [&](std::int32_t value, int k) {
            if (not_ready(values[k])) return false;
            store_packet(slot + value / 2, values[k], tag);
            return true;
        });
}

template <int kLooks>
__device__ __forceinline__ bool receive(const HandOver& over, std::int32_t rows, float* words, const MailPacket* slot,
                                        std::uint32_t tag, Crew crew, ForwarderPatience& patience) {
    MailPacket packets[kAtOnce];
    return pass_all<kLooks>(
        over.received(rows), crew, patience, [&](std::int32_t i) { return over.received_value(i); },
        [&](std::int32_t value, int k) { packets[k] = load_packet(slot + value / 2); },
        [&](std::int32_t value, int k) {
            if (packets[k].first_tag != tag || packets[k].second_tag != tag) return false;
            asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(words + over.at + value),
                         "f"(packets[k].first), "f"(packets[k].second)
                         : "memory");
            return true;
        });
}

// The first half of the CTAs sends. kLooks: packets of a thread that are looked at while nothing comes.
template <int kLooks>
__global__ void __launch_bounds__(kThreads, 1)
    forward_words(LinkTable* link, float* words, const __grid_constant__ MailRoute route) {
    const std::uint32_t before = __ldcg(&link->handed);
    ForwarderPatience patience{link};
    const std::int32_t pairs = static_cast<std::int32_t>(gridDim.x / 2), cta = static_cast<std::int32_t>(blockIdx.x);
    const bool sends = cta < pairs;
    const Crew crew = {(sends ? cta : cta - pairs) * kThreads + static_cast<std::int32_t>(threadIdx.x),
                       pairs * kThreads};
    bool goes_on = true;
#pragma unroll 1
    for (std::int32_t n = 0; goes_on && n < route.hand_overs(); ++n) {
        const HandOver over = route.hand_over(n);
        const std::uint32_t number = before + static_cast<std::uint32_t>(n);
        MailPacket* const slot = link->mail + mail_slot(number);
        goes_on = sends ? send<kLooks>(over, route.rows, words, slot, mail_tag(number), crew, patience)
                        : receive<kLooks>(over, route.rows, words, slot, mail_tag(number), crew, patience);
    }
    // The last CTA counts, when all have read where the count was.
    __syncthreads();
    if (threadIdx.x != 0 || atomicAdd(&link->forwarded, 1u) != gridDim.x - 1) return;
    link->forwarded = 0;
    link->handed = before + static_cast<std::uint32_t>(route.hand_overs());
}

}  // namespace

void RankLink::start_forwarders(const Stream& stream, const MailRoute& route, int processors) const {
    check(route.fits(), "a route that host memory has room for");
    host_->begun.record(stream);
    host_->begun.await_on(host_->stream);
    const int pairs = forwarder_pairs(processors, route.rows);
    const auto forwarders = pairs == 1 ? forward_words<kIdle> : forward_words<1>;
    forwarders<<<2 * pairs, kThreads, 0, host_->stream>>>(table_.data(), words_.data(), route);
    launched("forward_words");
}

void RankLink::await_forwarders(const Stream& stream) const {
    host_->ended.record(host_->stream);
    host_->ended.await_on(stream);
}

}  // namespace foresay::kernels::cuda
