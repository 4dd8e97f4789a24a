// The products of experts in Q8_0 (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::q8_0>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
