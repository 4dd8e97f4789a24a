// The products of experts in MXFP4 (products.cuh).
#include "kernels/cuda/experts/products.cuh"

namespace foresay::kernels::cuda {
template void launch_products_as<QuantType::mxfp4>(cudaStream_t, const ProductsCall&);
}  // namespace foresay::kernels::cuda
