// The decode kernels of packed rows (packed.cuh), all packings in one: a launch has up to 8 rows.
#include "kernels/cuda/decode/gemv_launch.cuh"
#include "kernels/cuda/decode/packed.cuh"

namespace foresay::kernels::cuda {

template <>
void launch_gemv_as<QuantType::packed>(const GemvArgs<kManySteps>& many, int processors, bool overlap,
                                       cudaStream_t stream) {
    const bool codes = std::any_of(many.attends, many.attends + many.attend_count,
                                   [](const AttendCall& call) { return call.layout.format == KvFormat::q8; }) ||
                       std::any_of(many.ops, many.ops + many.op_count,
                                   [](const GemvOp& op) { return op.epilogue.kind == Epilogue::attention_in_new_kv; });
    const auto launch = [&](const auto& args) {
        if (codes) {
            launch_gemv_kernel<QuantType::packed, 1, KvFormat::q8>(args, processors, overlap, stream);
        } else {
            launch_gemv_kernel<QuantType::packed, 1, KvFormat::f16>(args, processors, overlap, stream);
        }
    };
    const bool adds =
        std::any_of(many.ops, many.ops + many.op_count, [](const GemvOp& op) { return op.kind == OpKind::add_rows; });
    if (many.steps > kFewSteps || many.attend_count > 0 || adds) {
        launch(many);
    } else {
        launch(few_steps(many));
    }
}

}  // namespace foresay::kernels::cuda
