// tests/models/backends.h: the backends that tests of models run on, and the bundled pair loaded on each, once.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/models/context.h"
#include "core/models/model.h"
#include "core/models/shapes.h"
#include "kernels/ops.h"

namespace foresay::test {

struct Backend {
    std::string name;
    double logit_tolerance = 0.0;  // of the bundled pair against the float32 golden logits
    double tiny_tolerance = 0.0;   // of the tiny models against theirs, as a share of the logits' range
    double range_tolerance = 0.0;  // likewise, of the families' models, and of steps after the first
    double op_tolerance = 0.0;     // of an op that reads quantised weights, against the reference
    std::size_t greedy_steps = 0;  // golden steps compared per prompt; the reference is slow

    kernels::Ops& ops() const;
};

const std::vector<Backend>& backends();

// Why there is no CUDA device to test on; empty when there is one.
const std::string& no_cuda();

// In SetUp() of a test that runs on a backend by name.
#define FORESAY_SKIP_WITHOUT_DEVICE(backend) \
    if ((backend) == "cuda" && !no_cuda().empty()) GTEST_SKIP() << "not run on CUDA: " << no_cuda()

// The host's backend, run asynchronously: sampling, chained steps and late reads take a device's code paths without a
// device.
const Backend& paced_backend();

// A list of two, both the host's, with half of the layers each (kernels/split_ops.h): must give the host's bytes.
const Backend& split_backend();

// Two ranks, both the host's, which divide each layer, the second with twice as much as the first (kernels/
// divided_ops.h): must give the host's bytes.
const Backend& divided_backend();

// The backend that long tests run on: FORESAY_TEST_BACKEND, else that of the host.
const Backend& fast_backend();

std::string bundled_path(const std::string& which);

// "target" or "draft" of the bundled pair.
std::shared_ptr<const core::Model> bundled(const Backend& backend, const std::string& which);

// "target" or "draft" of the bundled pair on a backend of the host with a number of threads of its own, or on one that
// runs late on top of it.
std::shared_ptr<const core::Model> on_threads(const std::string& which, int threads, bool late);

// A small random model in any architecture; widths are those of the smallest K block.
core::ModelConfig small_config(bool biases = false, bool tied = false);

std::shared_ptr<const core::Model> random_model(const core::ModelConfig& config, kernels::QuantType quant_type,
                                                kernels::QuantType head, kernels::Ops& ops, std::uint64_t seed = 1);

}  // namespace foresay::test
