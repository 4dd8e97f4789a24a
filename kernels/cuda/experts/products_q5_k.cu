// The products of experts in Q5_K (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::q5_k>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
