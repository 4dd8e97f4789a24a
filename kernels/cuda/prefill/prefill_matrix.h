// kernels/cuda/prefill/prefill_matrix.h: a stack of weights times prefill rows: dequantise, convert, multiply,
// epilogue.
//
// Data flow of run(), all on one stream, each step a kernel:
//
//   for each slab of the stack:
//     panels --> plain float16 or float32 rows of weights in the workspace      (dequantize.h)
//     x --> float16 rows, norm weight multiplied in, scale per row              (rows.h, once per stack)
//     weights times x --> float32 sums in the workspace                         (gemm.h)
//   for each part of the stack: sums --> bias, rope, activation, residual       (rows.h)
//
// A slab is as many packed rows as have room in the workspace as plain weights. Slabs follow from the shape alone, and
// so do the algorithms of their products.
//
// Law 1:    every step treats a row by itself, and only products that passed the check of gemm.h are used.
// Threads:  run() enqueues.
// Cost:     the constructor looks its products up (the first of a shape are tried) and reads the scales of the weights.
//           run() dequantises all weights, whatever the number of rows: about four times their bytes of traffic. The
//           slab that the run() before has left of the same matrix is not dequantised again.
// Errors:   the constructor throws Error when there is no memory to check a product.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/cuda/decode/gemv.h"
#include "kernels/cuda/prefill/gemm.h"
#include "kernels/cuda/weights/panels.h"

namespace foresay::kernels::cuda {

struct LinearCall;

inline constexpr std::int64_t kSlabBytes = std::int64_t{256} << 20;  // of plain weights, at most

// The stack of which a backend has a part (kernels/layer_share.h): its packed rows, and which of them is the first of
// the part. None: the stack is whole.
struct WholeStack {
    std::int64_t rows = 0, first = 0;
};

class PrefillMatrix {
public:
    PrefillMatrix() = default;
    // A part has the slabs and the products of the whole stack, so that its sums have the same bits. Throws Error where
    // a part of such a product has others.
    explicit PrefillMatrix(const Panels& panels, WholeStack whole = {});

    // Whether run() can do a call: prefill rows, memory for them, and products that keep law 1.
    bool takes(const LinearCall& call) const;
    // All but the LM head. `op` and `step` say what is multiplied; of `epilogue` all but first_row and rows. Where
    // `reader` alone reads the rows, mlp_in leaves them in the workspace in the form that the reader multiplies, and
    // epilogue.out is not written.
    void run(const Panels& panels, const LinearCall& call, const GemvOp& op, const GemvStep& step,
             EpilogueArgs epilogue, const PrefillMatrix* reader = nullptr) const;

private:
    // Panels of one part within a slab.
    struct Piece {
        std::size_t part;
        std::int32_t first_panel, panels;
        std::int64_t slab_row;
    };
    struct Slab {
        const PrefillGemm* product;
        GemmType kind;
        std::int64_t first_row, rows;  // packed, with what pads the parts
        std::vector<Piece> pieces;
    };
    void cut(const Panels& panels, std::size_t begin, std::size_t end, std::int64_t first_row, WholeStack whole);
    bool leaves_halves_for(const PrefillMatrix* reader) const;
    void dequantise(const Panels& panels, const Slab& slab, cudaStream_t stream, std::byte* to) const;

    bool usable_ = false;
    std::uint64_t id_ = 0;                  // its own
    std::int64_t inputs_ = 0, padded_ = 0;  // per row; as the panels have them
    std::int64_t rows_ = 0;                 // packed, with what pads the parts
    const std::uint16_t* order_ = nullptr;  // of the inputs, on the device; null: as they come
    int shift_ = 0;                         // float16 weights are 2^shift_ times what they stand for
    std::vector<Slab> slabs_;
};

}  // namespace foresay::kernels::cuda
