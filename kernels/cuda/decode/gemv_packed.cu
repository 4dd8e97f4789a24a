// The decode kernels of packed rows (packed.cuh), all packings in one: a launch has up to 8 rows.
#include "kernels/cuda/decode/gemv_launch.cuh"
#include "kernels/cuda/decode/packed.cuh"

namespace foresay::kernels::cuda {

template <>
void launch_gemv_as<QuantType::packed>(const GemvArgs<kManySteps>& many, int processors, bool overlap,
                                       cudaStream_t stream) {
    choose_gemv_form(many, [&](auto format, const auto& args) {
        launch_gemv_kernel<QuantType::packed, 1, format>(args, processors, overlap, stream);
    });
}

}  // namespace foresay::kernels::cuda
