// kernels/cuda/prefill/cublaslt.h: the functions of cuBLASLt that the backend calls, found when the program runs.
//
// The library is not part of the CUDA runtime, and not every machine has it. So it is opened by name, and the same
// program runs with and without it.
//
// Threads:  any; the table is made once.
// Cost:     the first call opens the library and makes a handle, tens of milliseconds.
// Errors:   none: without the library, where it does not start, or where FORESAY_NO_CUBLASLT is set in the environment,
//           there is no table.
#pragma once

#include <cublasLt.h>

namespace foresay::kernels::cuda {

struct CublasLt {
    decltype(&cublasLtGetVersion) version = nullptr;
    decltype(&cublasLtCreate) create = nullptr;
    decltype(&cublasLtMatmul) matmul = nullptr;
    decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = nullptr;
    decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get = nullptr;
    decltype(&cublasLtMatmulDescCreate) desc_create = nullptr;
    decltype(&cublasLtMatmulDescDestroy) desc_destroy = nullptr;
    decltype(&cublasLtMatmulDescSetAttribute) desc_set = nullptr;
    decltype(&cublasLtMatrixLayoutCreate) layout_create = nullptr;
    decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = nullptr;
    decltype(&cublasLtMatrixLayoutSetAttribute) layout_set = nullptr;
    decltype(&cublasLtMatmulPreferenceCreate) preference_create = nullptr;
    decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = nullptr;
    decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = nullptr;
};

// The table, or null.
const CublasLt* cublaslt();
// A handle of the current device, kept for the whole program; null without the library.
cublasLtHandle_t cublaslt_handle();

}  // namespace foresay::kernels::cuda
