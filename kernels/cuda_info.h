// kernels/cuda_info.h: what a report about a machine says of CUDA, besides kernels/ops.h's list of devices.
//
// Errors:   none. In a build without the CUDA backend there are no versions, and no access.
#pragma once

#include <cstddef>
#include <cstdint>

namespace foresay::kernels {

// As CUDA counts: 1000 * major + 10 * minor; 13000 is 13.0. 0: none.
struct CudaVersions {
    int driver = 0;   // the newest that the installed driver supports
    int runtime = 0;  // what this program was built with
};
CudaVersions cuda_versions();

// That of the library which multiplies the rows of prompts, as it counts: 130100 is 13.1.0. 0: it is not found, or not
// wanted (FORESAY_NO_CUBLASLT in the environment), and these rows take the decode kernels.
std::size_t cublaslt_version();

// Whether kernels on device `from` can read the memory of device `to` (indices of CudaDevice) without the host. None
// can with FORESAY_NO_PEER_ACCESS in the environment.
bool cuda_peer_access(std::int32_t from, std::int32_t to);

}  // namespace foresay::kernels
