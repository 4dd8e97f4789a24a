// kernels/host_device.h: marks small functions that host and device share, such as the decode of one weight.
//
// FORESAY_HOST_DEVICE expands to the CUDA qualifiers under nvcc and to nothing elsewhere, so that the same header is
// the specification on the host and the code in a kernel.
#pragma once

#ifdef __CUDACC__
#define FORESAY_HOST_DEVICE __host__ __device__
#else
#define FORESAY_HOST_DEVICE
#endif
