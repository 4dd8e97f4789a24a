#include "tests/models/backends.h"

#include <cstdlib>
#include <map>
#include <tuple>
#include <utility>

#include "core/models/layer_split.h"
#include "kernels/divided_ops.h"
#include "kernels/split_ops.h"
#include "tests/models/paced_ops.h"

namespace foresay::test {

const std::vector<Backend>& backends() {
    // Why these numbers; golden_test prints what is found:
    //   reference  sums in double precision: what is left is the golden forwards' own float32, and their decimals
    //   cpu        quantised weights meet int8 inputs, 0.5 % of noise in each op, which moves logits of the bundled
    //              pair by some tenths (0.38 at most). The tiny models are bfloat16, which meets float32, and keep keys
    //              and values as float16, 2.0e-4 of noise, which moves their logits by 0.05 % of the range; 0.1 % is
    //              allowed, and 0.2 % in the families, which have up to 0.12 %
    //   cuda       inputs are float16, and so are the weights that prefill rows meet: 2.8e-4 of noise in each op, 18
    //              times less than int8: 0.02 of a logit. In the tiny models the cache's noise is joined by that of six
    //              matrices, 0.13 % of the range: no 0.1 % there. Twice that is allowed
    static const std::vector<Backend> all = {
        {"reference", 1e-3, 1e-5, 1e-5, 1e-3, 12},
        {"cpu", 0.6, 1e-3, 2e-3, 0.1, 96},
#ifdef FORESAY_HAVE_CUDA
        {"cuda", 0.04, 2.5e-3, 2.5e-3, 0.01, 96},
#endif
    };
    return all;
}

const std::string& no_cuda() {
    static const std::string reason = [] {
        std::string why;
        return kernels::cuda_devices(&why).empty() ? why : std::string();
    }();
    return reason;
}

const Backend& paced_backend() {
    static const Backend paced = {"paced", 0.6, 1e-3, 2e-3, 0.1, 96};
    return paced;
}

const Backend& split_backend() {
    static const Backend split = {"split", 0.6, 1e-3, 2e-3, 0.1, 96};
    return split;
}

const Backend& divided_backend() {
    static const Backend divided = {"divided", 0.6, 1e-3, 2e-3, 0.1, 96};
    return divided;
}

const Backend& fast_backend() {
    const char* wanted = std::getenv("FORESAY_TEST_BACKEND");
    if (wanted != nullptr && wanted == paced_backend().name) return paced_backend();
    if (wanted != nullptr && wanted == split_backend().name) return split_backend();
    if (wanted != nullptr && wanted == divided_backend().name) return divided_backend();
    for (const Backend& backend : backends()) {
        if (backend.name == (wanted != nullptr ? wanted : "cpu")) return backend;
    }
    return backends().front();
}

namespace {

// Skips every test when the requested device is not there. An unknown backend name fails, so that no test runs on
// another backend than the one that was meant.
class DeviceCheck : public testing::Environment {
public:
    void SetUp() override {
        const char* wanted = std::getenv("FORESAY_TEST_BACKEND");
        if (wanted == nullptr) return;
        FORESAY_SKIP_WITHOUT_DEVICE(std::string(wanted));
        ASSERT_EQ(fast_backend().name, wanted) << "FORESAY_TEST_BACKEND names no backend";
    }
};
testing::Environment* const kDeviceCheck = testing::AddGlobalTestEnvironment(new DeviceCheck);

}  // namespace

kernels::Ops& Backend::ops() const {
    if (name == "reference") {
        static const std::unique_ptr<kernels::Ops> reference = kernels::make_reference_ops();
        return *reference;
    }
    if (name == "cuda") {
        static const std::unique_ptr<kernels::Ops> cuda = kernels::make_cuda_ops({});
        return *cuda;
    }
    if (name == "paced") {
        static const std::unique_ptr<kernels::Ops> paced = std::make_unique<PacedOps>(backends()[1].ops());
        return *paced;
    }
    if (name == "split") {
        const std::shared_ptr<kernels::Ops> host(std::shared_ptr<kernels::Ops>(), &backends()[1].ops());
        static const std::unique_ptr<kernels::Ops> split = std::make_unique<kernels::SplitOps>(std::vector{host, host});
        return *split;
    }
    if (name == "divided") {
        const std::shared_ptr<kernels::Ops> host(std::shared_ptr<kernels::Ops>(), &backends()[1].ops());
        static const std::unique_ptr<kernels::Ops> divided = std::make_unique<kernels::DividedOps>(
            std::vector{host, host}, kernels::DividedOptions{.names = {}, .shares = {1, 2}, .group_rows = 8});
        return *divided;
    }
    // FORESAY_TEST_THREADS=1 is kinder to a machine that runs other tests at the same time.
    const char* threads = std::getenv("FORESAY_TEST_THREADS");
    static const std::unique_ptr<kernels::Ops> cpu =
        kernels::make_cpu_ops({.threads = threads != nullptr ? std::atoi(threads) : 0});
    return *cpu;
}

std::string bundled_path(const std::string& which) {
    const std::string folder = std::string(FORESAY_SOURCE_DIR) + "/models/python-coder/";
    return folder + (which == "target" ? "target-q4_k_m.gguf" : "draft-q8_0.gguf");
}

std::shared_ptr<const core::Model> bundled(const Backend& backend, const std::string& which) {
    static std::vector<std::pair<std::string, std::shared_ptr<const core::Model>>> loaded;
    const std::string key = backend.name + "/" + which;
    for (const auto& [name, model] : loaded) {
        if (name == key) return model;
    }
    std::shared_ptr<core::ModelSource> source = core::ModelSource::open(bundled_path(which));
    if (backend.name == "split") {
        const std::int32_t layers = source->config().shape.layers;
        source->place_layers(core::devices_of({layers / 2, layers - layers / 2}));
    }
    if (backend.name == "divided") {
        source->place_layers(std::vector<std::int32_t>(static_cast<std::size_t>(source->config().shape.layers), -2));
    }
    loaded.emplace_back(key, core::Model::load(std::move(source), backend.ops()));
    return loaded.back().second;
}

std::shared_ptr<const core::Model> on_threads(const std::string& which, int threads, bool late) {
    static std::map<int, std::unique_ptr<kernels::Ops>> hosts, lates;
    static std::map<std::tuple<std::string, int, bool>, std::shared_ptr<const core::Model>> loaded;
    std::shared_ptr<const core::Model>& model = loaded[{which, threads, late}];
    if (model != nullptr) return model;
    std::unique_ptr<kernels::Ops>& host = hosts[threads];
    if (host == nullptr) host = kernels::make_cpu_ops({.threads = threads});
    kernels::Ops* ops = host.get();
    if (late) {
        if (lates[threads] == nullptr) lates[threads] = std::make_unique<PacedOps>(*host);
        ops = lates[threads].get();
    }
    return model = core::Model::load(core::ModelSource::open(bundled_path(which)), *ops);
}

core::ModelConfig small_config(bool biases, bool tied) {
    core::ModelConfig config;
    config.architecture = biases ? "qwen2" : "llama";
    config.name = "small";
    config.shape = {.layers = 2, .d_model = 256, .heads = 4, .kv_heads = 2, .head_dim = 64, .d_ff = 512, .vocab = 512};
    config.context_length = 512;
    config.norm_eps = 1e-5f;
    config.qkv_bias = biases;
    config.tied_head = tied;
    config.rope.pairs = biases ? kernels::RopePairs::half_split : kernels::RopePairs::adjacent;
    return config;
}

std::shared_ptr<const core::Model> random_model(const core::ModelConfig& config, kernels::QuantType quant_type,
                                                kernels::QuantType head, kernels::Ops& ops, std::uint64_t seed) {
    return core::Model::load(core::ModelSource::random(config, quant_type, head, seed), ops);
}

}  // namespace foresay::test
