#include "kernels/cuda/decode/link_repair.h"

#include <vector>

#include "base/error.h"
#include "kernels/cuda/decode/link_failure.h"

namespace foresay::kernels::cuda {

std::uint32_t late_ranks(const LinkEnd& end, std::int32_t own) {
    const ContextScope scope(*end.device);
    std::uint32_t failed = 0;
    cuda_check(cudaMemcpy(&failed, &end.link->table()->failed, sizeof failed, cudaMemcpyDeviceToHost),
               "cannot ask which devices have been late");
    return late_ranks(failed, own);
}

// Nothing is written before all have ended: a forwarder of one rank may outlive the stream that waits for it, and no
// store to a peer is on its way once the kernel that made it has ended.
void mend(std::span<const LinkEnd> ranks) {
    for (const LinkEnd& end : ranks) {
        const ContextScope scope(*end.device);
        cuda_check(cudaDeviceSynchronize(), "the device failed");
    }
    std::vector<RankLink*> links;
    for (const LinkEnd& end : ranks) {
        const ContextScope scope(*end.device);
        cuda_check(cudaMemset(end.link->words(), 0xff, kLinkFloats * sizeof(float)), "cannot clear memory");
        links.push_back(end.link);
    }
    // Tables as at the start, and packets that no rank has sent. Graphs know where the tables are, and no more.
    if (!links.front()->through_host()) {
        RankLink::connect(links);
    } else if (!RankLink::connect_through_host(links)) {
        throw Error("a GPU does not reach the host's memory any more");
    }
    for (const LinkEnd& end : ranks) {
        const ContextScope scope(*end.device);
        end.link->ask(end.device->stream());
        end.device->stream().wait();
    }
}

}  // namespace foresay::kernels::cuda
