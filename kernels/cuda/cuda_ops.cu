#include "base/error.h"
#include "kernels/cuda/device.h"
#include "kernels/ops.h"

namespace foresay::kernels {

std::unique_ptr<Ops> make_cuda_ops(const CudaOptions&) {
    throw Error("the CUDA backend of this build cannot run models yet; use --device cpu");
}

}  // namespace foresay::kernels
