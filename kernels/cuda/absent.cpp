// Stands in for the CUDA backend in a build without it, so that callers need no #ifdef. The message of make_cuda_ops()
// is that of kernels/cuda/cuda_ops.cpp with this build's reason.
#include "base/error.h"
#include "kernels/cuda_info.h"
#include "kernels/hosts/link_device.h"
#include "kernels/ops.h"

namespace foresay::kernels {

std::vector<CudaDevice> cuda_devices(std::string* why) {
    if (why != nullptr) *why = "this build has no CUDA backend";
    return {};
}

CudaVersions cuda_versions() { return {}; }

std::size_t cublaslt_version() { return 0; }

bool cuda_peer_access(std::int32_t, std::int32_t) { return false; }

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions& options) {
    throw Error("cuda:" + std::to_string(options.device) +
                " cannot be used: this build has no CUDA backend; use --device cpu, or build where nvcc is found");
}

std::unique_ptr<LinkDevice> make_cuda_link_device(std::int32_t device) {
    make_cuda_ops({device});
    return nullptr;
}

}  // namespace foresay::kernels
