// The products of experts in BF16 (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::bf16>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
