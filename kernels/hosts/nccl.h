// kernels/hosts/nccl.h: the few functions of NCCL that layers on several hosts need, from a library that is opened at
// run time. The declarations are our own, of NCCL's documented C interface, so that a program built without NCCL can
// use it.
//
// Life:     the library stays open until the process ends: it keeps threads of its own.
// Threads:  any; those of one communicator by one caller at a time.
// Errors:   open() throws Error (no library, one that lacks a function or is too old). The functions return a result.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace foresay::kernels {

struct NcclComm;  // opaque

struct NcclId {
    char bytes[128];
};

// ncclResult_t; others count as errors.
inline constexpr int kNcclSuccess = 0, kNcclRemoteError = 6, kNcclInProgress = 7;

// ncclConfig_t as of 2.14, which later versions accept: what it lacks gets their defaults.
struct NcclConfig {
    std::size_t size = sizeof(NcclConfig);
    unsigned magic = 0xcafebeef;
    unsigned version = 21400;
    int blocking = 0;  // calls return at once, with kNcclInProgress; async_error() says when they are done
};

struct Nccl {
    // The library that FORESAY_NCCL names, else libnccl.so.2 where the loader finds it. Before that, NCCL_NVLS_ENABLE
    // is set to 0: NVLink multicast is never used.
    static const Nccl& open();

    int (*get_version)(int* version) = nullptr;
    int (*get_unique_id)(NcclId* id) = nullptr;
    int (*comm_init)(NcclComm** comm, int size, NcclId id, int rank, NcclConfig* config) = nullptr;
    int (*send)(const void* from, std::size_t count, int type, int peer, NcclComm* comm, void* stream) = nullptr;
    int (*receive)(void* to, std::size_t count, int type, int peer, NcclComm* comm, void* stream) = nullptr;
    int (*async_error)(NcclComm* comm, int* result) = nullptr;
    int (*comm_abort)(NcclComm* comm) = nullptr;
    const char* (*error_string)(int result) = nullptr;

    std::string path;          // of the library
    std::string version;       // "2.27.3"
    bool host_memory = false;  // it moves memory of the host; NCCL itself moves that of GPUs
};

}  // namespace foresay::kernels
