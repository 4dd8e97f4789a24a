// What comes before and after the decode kernels of linked ranks (rank_link.h): two small kernels a forward.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "kernels/cuda/decode/link_failure.h"
#include "kernels/cuda/decode/rank_link.cuh"

namespace foresay::kernels::cuda {
namespace {

constexpr int kThreads = 256, kMostBlocks = 64;

int blocks_for(std::int32_t floats) { return std::clamp((floats + kThreads - 1) / kThreads, 1, kMostBlocks); }

// Never kNotReady, whatever the file of the model has in its embedding.
__device__ float as_word(float x) { return not_ready(x) ? __int_as_float(0x7fffffff) : x; }

// Each block waits for the peers, and then stores its share of x.
__global__ void begin(LinkTable* link, float* words, LinkedStream rows, bool embeds) {
    const int thread = static_cast<int>(threadIdx.x);
    if (blockIdx.x == 0 && thread == 0) {
        const std::uint64_t deadline = global_time() + kLinkPatience;
        asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(&link->deadline), "l"(deadline) : "memory");
    }
    if (thread < link->peers) {
        const std::uint64_t end = global_time() + kLinkPatience;
        for (;;) {
            std::uint32_t ready;
            asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(ready) : "l"(&link->ready[thread]) : "memory");
            if (static_cast<std::int32_t>(ready - link->launches) >= 0) break;
            if (global_time() < end) continue;
            atomicOr(&link->failed, kGaveUp | 2u << thread);
            break;
        }
    }
    __syncthreads();
    if (!embeds) return;
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x) * kThreads + thread; i < rows.floats;
         i += static_cast<std::int32_t>(gridDim.x) * kThreads) {
        store_to_all(link, words + rows.first_at + i, as_word(rows.x[i]));
    }
}

// Each word is read, if it is one of the last x, and reset by the same thread. The last block tells the peers.
__global__ void finish(LinkTable* link, float* words, LinkedStream rows, std::int32_t floats) {
    const int thread = static_cast<int>(threadIdx.x);
    std::uint32_t looks = 0;
    for (std::int32_t i = static_cast<std::int32_t>(blockIdx.x) * kThreads + thread; i < floats;
         i += static_cast<std::int32_t>(gridDim.x) * kThreads) {
        const std::int32_t of_x = i - rows.last_at;
        if (of_x >= 0 && of_x < rows.floats) {
            float word = load_flagged(words + i);
            while (not_ready(word) && !gives_up(link, looks)) word = load_flagged(words + i);
            rows.x[of_x] = word;
        }
        __stcg(reinterpret_cast<std::uint32_t*>(words + i), kNotReady);
    }
    __threadfence_system();
    __syncthreads();
    if (thread != 0) return;
    if (atomicAdd(&link->departures, 1u) != gridDim.x - 1) return;
    __threadfence_system();
    link->departures = 0;
    const std::uint32_t launches = ++link->launches;
    for (std::int32_t p = 0; p < link->peers; ++p) {
        asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(link->ready_at[p]), "r"(launches) : "memory");
    }
}

}  // namespace

RankLink::RankLink() : words_(kLinkFloats), table_(1), failed_(1) {
    cuda_check(cudaMemset(words_.data(), 0xff, words_.bytes()), "cannot clear memory");
    *failed_.data() = 0;
}

void RankLink::connect(std::span<RankLink* const> ranks) {
    check(ranks.size() <= kMostPeers + 1, "so many ranks can be linked");
    for (std::size_t r = 0; r < ranks.size(); ++r) {
        LinkTable table;
        for (std::size_t peer = 0; peer < ranks.size(); ++peer) {
            if (peer == r) continue;
            const auto p = static_cast<std::size_t>(table.peers++);
            table.to_peer[p] =
                reinterpret_cast<const char*>(ranks[peer]->words()) - reinterpret_cast<const char*>(ranks[r]->words());
            table.ready_at[p] = ranks[peer]->table()->ready + (r < peer ? r : r - 1);
        }
        const DeviceScope scope(ranks[r]->table_.device());
        cuda_check(cudaMemcpy(ranks[r]->table(), &table, sizeof table, cudaMemcpyHostToDevice), "cannot link devices");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
    }
}

// The tables know no peers: begin_linked(), finish_linked() and the decode kernels then store on their device alone.
bool RankLink::connect_through_host(std::span<RankLink* const> ranks) {
    const auto mail = std::make_shared<MappedBuffer<MailPacket>>(std::size_t{kMailSlots} * kPacketsOfSlot);
    std::memset(mail->data(), 0, mail->bytes());
    for (RankLink* const rank : ranks) {
        const DeviceScope scope(rank->table_.device());
        LinkTable table;
        void* at = nullptr;
        if (cudaHostGetDevicePointer(&at, mail->data(), 0) != cudaSuccess) {
            cudaGetLastError();  // else the next launch would report it
            return false;
        }
        table.mail = static_cast<MailPacket*>(at);
        cuda_check(cudaMemcpy(rank->table(), &table, sizeof table, cudaMemcpyHostToDevice), "cannot link devices");
        cuda_check(cudaDeviceSynchronize(), "the device failed");
        rank->host_.reset(new HostWay{mail, Stream::urgent(), {}, {}});
    }
    return true;
}

void RankLink::ask(const Stream& stream) {
    cuda_check(
        cudaMemcpyAsync(failed_.data(), &table_.data()->failed, sizeof(std::uint32_t), cudaMemcpyDeviceToHost, stream),
        "cannot ask whether the devices have heard each other");
}

void begin_linked(const Stream& stream, const RankLink& link, const LinkedStream& rows, bool embeds) {
    begin<<<embeds ? blocks_for(rows.floats) : 1, kThreads, 0, stream>>>(link.table(), link.words(), rows, embeds);
    launched("begin_linked");
}

void finish_linked(const Stream& stream, const RankLink& link, const LinkedStream& rows, std::int32_t words) {
    finish<<<blocks_for(words), kThreads, 0, stream>>>(link.table(), link.words(), rows, words);
    launched("finish_linked");
}

}  // namespace foresay::kernels::cuda
