// Opens cuBLASLt at run time. A library that lacks one of the functions is closed again, and the next name is tried.
// Without any, prefill rows run through the decode kernels: slower, but correct.

#include "kernels/cuda/prefill/cublaslt.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>

#include "kernels/cuda/device/device.h"
#include "kernels/cuda_info.h"

namespace foresay::kernels::cuda {
namespace {

// Versions whose calls and constants are those of the header, newest first; by the loader's search path, then in the
// folder where the toolkit is installed by default. Add a version only after comparing its header: types come from
// <cublasLt.h> of the build, and the loader checks names only.
constexpr const char* kNames[] = {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12",
                                  "/usr/local/cuda/lib64/libcublasLt.so.12"};

template <class Function>
bool find(void* library, const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(library, name));
    return function != nullptr;
}

// Fills the table; false as soon as a function is missing.
bool fill(void* library, CublasLt& t) {
    return find(library, "cublasLtGetVersion", t.version) && find(library, "cublasLtCreate", t.create) &&
           find(library, "cublasLtMatmul", t.matmul) && find(library, "cublasLtMatmulAlgoGetHeuristic", t.heuristic) &&
           find(library, "cublasLtMatmulAlgoConfigGetAttribute", t.algo_get) &&
           find(library, "cublasLtMatmulDescCreate", t.desc_create) &&
           find(library, "cublasLtMatmulDescDestroy", t.desc_destroy) &&
           find(library, "cublasLtMatmulDescSetAttribute", t.desc_set) &&
           find(library, "cublasLtMatrixLayoutCreate", t.layout_create) &&
           find(library, "cublasLtMatrixLayoutDestroy", t.layout_destroy) &&
           find(library, "cublasLtMatrixLayoutSetAttribute", t.layout_set) &&
           find(library, "cublasLtMatmulPreferenceCreate", t.preference_create) &&
           find(library, "cublasLtMatmulPreferenceDestroy", t.preference_destroy) &&
           find(library, "cublasLtMatmulPreferenceSetAttribute", t.preference_set);
}

}  // namespace

// Opened once per process and never closed; handles and algorithms refer to it.
const CublasLt* cublaslt() {
    static const CublasLt* const table = []() -> const CublasLt* {
        if (std::getenv("FORESAY_NO_CUBLASLT") != nullptr) return nullptr;
        static CublasLt filled;
        for (const char* name : kNames) {
            void* library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
            if (library == nullptr) continue;
            if (fill(library, filled)) return &filled;
            dlclose(library);
        }
        return nullptr;
    }();
    return table;
}

// One per device, never destroyed. A failure is remembered as null, so that it is not tried for every shape.
cublasLtHandle_t cublaslt_handle() {
    static std::mutex mutex;
    static std::map<int, cublasLtHandle_t> handles;
    const CublasLt* library = cublaslt();
    if (library == nullptr) return nullptr;
    int device = 0;
    cuda_check(cudaGetDevice(&device), "cannot ask for the current device");
    const std::lock_guard lock(mutex);
    const auto [place, added] = handles.try_emplace(device, nullptr);
    if (added && library->create(&place->second) != CUBLAS_STATUS_SUCCESS) place->second = nullptr;
    return place->second;
}

}  // namespace foresay::kernels::cuda

namespace foresay::kernels {

std::size_t cublaslt_version() {
    const cuda::CublasLt* const library = cuda::cublaslt();
    return library != nullptr ? library->version() : 0;
}

}  // namespace foresay::kernels
