// kernels/cuda/prefill/gemm.h: matrix products of prefill rows by cuBLASLt, each with one pinned algorithm.
//
// Layout:   weights [outs, inputs] and x [rows, inputs], row-major without padding, both float16 or both float32; sums
//           [rows, stride] float32. outs is a multiple of 32, inputs of 64.
// Precision: float32 sums.
// Law 1:    the algorithm follows from the shape of the weights alone: of the first few that the library proposes for
//           kGemmRows rows, without split K, the one with the smallest tiles whose rows have the same bits alone and
//           among others. That is tried once per shape and device, on random numbers, at every width that kCheckedRows
//           names. An algorithm that fails is not used.
// Threads:  find() from any thread; run() enqueues.
// Cost:     the first find() of a shape computes a few products and takes memory of about the matrix and its sums.
// Errors:   find() throws Error when there is no memory; run() when the library refuses, which the check excludes.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

inline constexpr std::int32_t kGemmTile = 64;    // rows of a product are whole tiles; what fills them is ignored
inline constexpr std::int32_t kGemmRows = 2048;  // most rows of one product

constexpr std::int64_t padded_rows(std::int64_t rows) { return (rows + kGemmTile - 1) / kGemmTile * kGemmTile; }

enum class GemmType : std::uint8_t { half, single };

class PrefillGemm {
public:
    // The product of a shape on the current device; null: none keeps the law, or there is no library.
    static const PrefillGemm* find(GemmType kind, std::int64_t outs, std::int64_t inputs);
    // The product of the first `outs` of `whole` outputs, with the algorithm and the bits of the product of all; null
    // where there is none, also for all.
    static const PrefillGemm* find_part(GemmType kind, std::int64_t whole, std::int64_t outs, std::int64_t inputs);
    // What the library proposes for `rows` rows, best first.
    static std::vector<PrefillGemm> candidates(GemmType kind, std::int64_t outs, std::int64_t inputs,
                                               std::int32_t rows = kGemmRows);

    // sums[t][o] = scale * sum of weights[o][k] x[t][k], for whole tiles of rows.
    void run(cudaStream_t stream, const void* weights, const void* x, std::int32_t rows, float scale, float* sums,
             std::int64_t stride) const;
    // The same, false where the library refuses.
    bool try_run(cudaStream_t stream, const void* weights, const void* x, std::int32_t rows, float scale, float* sums,
                 std::int64_t stride) const;
    // Whether rows have the same bits at every width and place that is tried.
    bool keeps_law() const;
    std::string describe() const;

private:
    // Whether its sums have the bits of the first of those of `whole`.
    bool agrees_with(const PrefillGemm& whole) const;

    struct State;
    std::shared_ptr<const State> state_;
};

}  // namespace foresay::kernels::cuda
