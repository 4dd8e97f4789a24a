// tests/cuda_backend/device_runs.h: a small decoder that uses the grid-wide barriers, and the logits it computes.
#pragma once

#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <future>
#include <string>
#include <vector>

#include "tests/kernels/tiny_model.h"

namespace foresay::test {

// Several layers without head norms in one quantisation type: each decode forward is one launch of the persistent
// kernel.
inline TinyConfig fused_config(kernels::KvFormat format = kernels::KvFormat::f16) {
    TinyConfig config;
    config.linear(QuantType::q4_0);
    config.shape = {.layers = 6, .d_model = 512, .heads = 8, .kv_heads = 2, .head_dim = 64, .d_ff = 1024, .vocab = 320};
    config.biases = true;
    config.kv_format = format;
    return config;
}

// Logits of 40 prefill rows and then `steps` decode rows, one at a time, from the beginning of page 0.
inline std::vector<float> text_logits(TinyRun& run, std::int32_t vocab, std::size_t steps) {
    Sequence sequence{{0, 1, 2}};
    std::vector<float> all;
    const auto take = [&](const std::vector<RowResult>& rows) {
        for (const RowResult& row : rows) all.insert(all.end(), row.logits.begin(), row.logits.end());
    };
    take(feed(run, sequence, random_tokens(5, 40, vocab), {40}, kernels::RowClass::prefill));
    take(feed(run, sequence, random_tokens(6, steps, vocab), {1}));
    return all;
}

// Runs `body` in a thread of its own. A device that hangs cannot be interrupted, so the program ends then.
inline void within_a_minute(const char* what, const std::function<void()>& body) {
    std::future<void> done = std::async(std::launch::async, body);
    if (done.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
        std::fprintf(stderr, "FAILED: the device hangs: %s\n", what);
        std::_Exit(1);
    }
    done.get();
}

// Indices of the devices that this build can use.
inline std::vector<int> usable_devices() {
    std::vector<int> devices;
    for (const kernels::CudaDevice& device : kernels::cuda_devices()) devices.push_back(device.index);
    return devices;
}

#define SKIP_WITHOUT_CUDA() \
    if (!no_cuda().empty()) GTEST_SKIP() << "not run on CUDA: " << no_cuda()
// With FORESAY_TEST_ALL_DEVICES=1, for machines that have two, one device is a failure.
#define SKIP_WITHOUT_TWO_DEVICES()                                                                                \
    SKIP_WITHOUT_CUDA();                                                                                          \
    if (usable_devices().size() < 2) {                                                                            \
        ASSERT_EQ(std::getenv("FORESAY_TEST_ALL_DEVICES"), nullptr) << "two devices were promised, one is there"; \
        GTEST_SKIP() << "this machine has one CUDA device, the test wants two";                                   \
    }

}  // namespace foresay::test
