#include "kernels/hosts/nccl.h"

#include <dlfcn.h>

#include <cstdlib>

#include "base/error.h"

namespace foresay::kernels {
namespace {

constexpr int kOldest = 21400;  // communicators that do not block

template <class Function>
void find(void* library, const char* name, Function& function, const std::string& path) {
    function = reinterpret_cast<Function>(::dlsym(library, name));
    if (function == nullptr) {
        throw Error(path + " has no " + name +
                    ", so it is no NCCL of version 2.14 or later; name one with FORESAY_NCCL");
    }
}

Nccl load() {
    // The program has one thread at this time.
    ::setenv("NCCL_NVLS_ENABLE", "0", 1);
    Nccl nccl;
    const char* const named = std::getenv("FORESAY_NCCL");
    nccl.path = named != nullptr && *named != '\0' ? named : "libnccl.so.2";
    void* const library = ::dlopen(nccl.path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char* const why = ::dlerror();
        throw Error("several hosts need NCCL, and it cannot be opened (" +
                    std::string(why != nullptr ? why : "unknown") +
                    "); install libnccl2, or name the library with FORESAY_NCCL=PATH");
    }
    find(library, "ncclGetVersion", nccl.get_version, nccl.path);
    find(library, "ncclGetUniqueId", nccl.get_unique_id, nccl.path);
    find(library, "ncclCommInitRankConfig", nccl.comm_init, nccl.path);
    find(library, "ncclSend", nccl.send, nccl.path);
    find(library, "ncclRecv", nccl.receive, nccl.path);
    find(library, "ncclCommGetAsyncError", nccl.async_error, nccl.path);
    find(library, "ncclCommAbort", nccl.comm_abort, nccl.path);
    find(library, "ncclGetErrorString", nccl.error_string, nccl.path);
    nccl.host_memory = ::dlsym(library, "foresay_nccl_moves_host_memory") != nullptr;
    int version = 0;
    if (nccl.get_version(&version) != kNcclSuccess || version < kOldest) {
        throw Error(nccl.path + " is NCCL " + std::to_string(version) + ", and 2.14 or later is needed");
    }
    nccl.version = std::to_string(version / 10000) + "." + std::to_string(version / 100 % 100) + "." +
                   std::to_string(version % 100);
    return nccl;
}

}  // namespace

const Nccl& Nccl::open() {
    static const Nccl nccl = load();
    return nccl;
}

}  // namespace foresay::kernels
