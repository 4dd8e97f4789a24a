// kernels/host_device.h: marks small functions that host and device share, such as dequantising one weight.
//
// FORESAY_HOST_DEVICE expands to the CUDA qualifiers under nvcc and to nothing elsewhere, so that host and
// kernels compile the same header.
#pragma once

#ifdef __CUDACC__
#define FORESAY_HOST_DEVICE __host__ __device__
#else
#define FORESAY_HOST_DEVICE
#endif
