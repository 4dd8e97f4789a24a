// The products of experts in packed rows (products.cuh).
//
// Header:   of all experts of the stack, in shared memory. It says which run a block belongs to, and so its codes, its
//           bytes and its place; a warp jumps to the code of the block's kind, which all its lanes take.
// Factors:  an expert's own, for even and odd packed rows.

#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
namespace {

__device__ SharedHeader header_in_shared_memory(const std::uint8_t* from) {
    __shared__ uint4 words[SharedHeader::kWords];
    const SharedHeader header(shared_address(words));
    const auto i = static_cast<int>(threadIdx.x);
    for (int at = i; at < SharedHeader::kWords; at += static_cast<int>(blockDim.x)) {
        header.put(at, SharedHeader::word(from, at));
    }
    __syncthreads();
    return header;
}

}  // namespace

template <>
class ExpertBlocks<QuantType::packed> {
    using Unit = ExpertUnit<QuantType::packed>;

public:
    // By all threads of the CTA.
    __device__ explicit ExpertBlocks(const ProductsCall& c) : header_(header_in_shared_memory(c.packed.header)) {}
    static FORESAY_HOST_DEVICE int stage_bytes(const ProductsCall& c) { return c.packed.unit_bytes; }
    __device__ std::int64_t panel_bytes(const ProductsCall&) const { return header_.panel_bytes(); }
    __device__ int2 place(const ProductsCall& c, int unit) const {
        const int block = unit * Unit::kBlocks;
        return header_.place(block, min(block + Unit::kBlocks, c.blocks));
    }
    __device__ void begin(const ProductsCall& c, int expert, int lane) {
        factor_ = __ldg(c.packed.factors + 2 * expert + lane / 4 % 2);
    }
    template <bool kOneRow>
    __device__ __forceinline__ void multiply(const ProductsCall& c, std::uint32_t at, int unit,
                                             const ExpertOperand<QuantType::packed>& in, float (&sums)[2][1][4],
                                             int lane) {
        const PackedMatrix matrix{header_, header_.scales(), header_.minimum_is_zero(), factor_};
#pragma unroll 1
        for (int j = 0; j < Unit::kBlocks; ++j) {
            const int block = unit * Unit::kBlocks + j;
            if (block >= c.blocks) break;
            const PackedRun run = header_.run_with(block);
            visit_code_kind(run.kind, [&](auto kind) {
                multiply_packed<kind.value, kOneRow>(SharedBlock{at}, matrix, bytes_apart(run), run.zero, in, 2 * j,
                                                     lane, sums);
            });
            at += static_cast<std::uint32_t>(run.bytes());
        }
    }

private:
    SharedHeader header_;
    float factor_ = 1.0f;
};

template void launch_products_as<QuantType::packed>(cudaStream_t, const ProductsCall&);

}  // namespace foresay::kernels::cuda
