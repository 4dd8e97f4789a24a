// The products of experts in Q6_K (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::q6_k>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
