// The products of experts in Q4_0 (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::q4_0>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
