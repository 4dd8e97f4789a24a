// kernels/cuda/decode/gemv_launch.cuh: the launch of the decode kernel of one quantisation type. Each gemv_<type>.cu is
// one line that instantiates it, so that types compile side by side.
//
// Mixes:    launches of several types are kernels of their own (gemv_mix.cu), for whole forwards only.
// Variants: NT 1 or 2 (rows up to 8 or 16), cache in f16 or codes, few steps or a whole forward: eight kernels of each
//           type. Apart, because registers decide: the kernel has one CTA per multiprocessor, and code for a case that
//           a launch does not have would still cost registers in all of it. The bits do not depend on the variant.
// Overlap:  with `overlap` the kernel is a programmatic dependent of the one before it on the stream (linear.h).
#pragma once

#include <algorithm>

#include "kernels/cuda/decode/gemv.cuh"
#include "kernels/cuda/device/device.h"

namespace foresay::kernels::cuda {

template <QuantType E, int NT, KvFormat kFormat, bool kMixes = false, class Args>
void launch_gemv_kernel(const Args& args, int processors, bool overlap, cudaStream_t stream) {
    const auto kernel = gemv<E, NT, kFormat, Args, kMixes>;
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, args.plan.shared_bytes),
               "cannot have the shared memory");
    // Kernels overlap on a multiprocessor only when they agree on how its memory is divided.
    cuda_check(
        cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout, cudaSharedmemCarveoutMaxShared),
        "cannot choose the division of memory");
    cudaLaunchAttribute attribute = {};
    attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attribute.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t config = {};
    config.gridDim = dim3(static_cast<unsigned>(processors));
    config.blockDim = dim3(gemv_threads(E));
    config.dynamicSmemBytes = static_cast<std::size_t>(args.plan.shared_bytes);
    config.stream = stream;
    config.attrs = &attribute;
    config.numAttrs = overlap ? 1 : 0;
    launch_check(cudaLaunchKernelEx(&config, kernel, args), "cannot launch gemv");
}

// Whether anything in a launch reads or makes codes of a cache: an attention over a cache of codes, or projections
// whose K and V wait for that attention. A forward has one cache, so a launch never has both kinds.
inline bool has_cache_codes(const GemvArgs<kManySteps>& many) {
    return std::any_of(many.attends, many.attends + many.attend_count,
                       [](const AttendCall& call) { return call.layout.format == KvFormat::q8; }) ||
           std::any_of(many.ops, many.ops + many.op_count,
                       [](const GemvOp& op) { return op.epilogue.kind == Epilogue::attention_in_new_kv; });
}

// Calls launch(format, args) with the form of the parameters and the format of the cache that this launch needs.
template <class Launch>
void choose_gemv_form(const GemvArgs<kManySteps>& many, Launch launch) {
    const bool codes = has_cache_codes(many);
    const auto launch_for = [&](const auto& args) {
        if (codes) {
            launch(std::integral_constant<KvFormat, KvFormat::q8>(), args);
        } else {
            launch(std::integral_constant<KvFormat, KvFormat::f16>(), args);
        }
    };
    // Parameters travel with each launch: a few KiB with few steps, 32 KiB with many.
    const bool adds =
        std::any_of(many.ops, many.ops + many.op_count, [](const GemvOp& op) { return op.kind == OpKind::add_rows; });
    if (many.steps > kFewSteps || many.attend_count > 0 || adds) {
        launch_for(many);
    } else {
        launch_for(few_steps(many));
    }
}

template <QuantType E>
void launch_gemv_as(const GemvArgs<kManySteps>& many, int processors, bool overlap, cudaStream_t stream) {
    choose_gemv_form(many, [&](auto format, const auto& args) {
        if (args.rows > 8) {
            launch_gemv_kernel<E, 2, format>(args, processors, overlap, stream);
        } else {
            launch_gemv_kernel<E, 1, format>(args, processors, overlap, stream);
        }
    });
}

}  // namespace foresay::kernels::cuda
