// tests/kernels/tiny_model.h: a random decoder of a few small layers, described with the specs of kernels/ops.h, and
// the same decoder on a backend, run through Ops alone.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/ops.h"
#include "kernels/sampling.h"
#include "tests/kernels/tensors.h"

namespace foresay::test {

struct TinyConfig {
    kernels::ModelShape shape = {
        .layers = 2, .d_model = 64, .heads = 4, .kv_heads = 2, .head_dim = 16, .d_ff = 96, .vocab = 53};
    QuantType q = QuantType::f32, k = QuantType::f32, v = QuantType::f32, o = QuantType::f32;
    QuantType gate = QuantType::f32, up = QuantType::f32, down = QuantType::f32;
    QuantType head = QuantType::f32, table = QuantType::f32, vectors = QuantType::f32;  // vectors: norms and biases
    // v and down of the layers whose bits are set are in `more`, as published mixes of types have it.
    std::uint32_t more_layers = 0;
    QuantType more = QuantType::f32;
    kernels::RopePairs pairs = kernels::RopePairs::half_split;
    std::int32_t rope_dims = 0;  // 0: the whole head
    float attention_factor = 1.0f;
    bool biases = false, head_norms = false, post_norms = false, plus_one = false, gelu = false;
    std::int32_t window = 0;  // of every even layer
    kernels::KvFormat kv_format = kernels::KvFormat::f16;
    float score_cap = 0.0f, logit_cap = 0.0f, logit_scale = 1.0f, embed_scale = 1.0f;
    unsigned seed = 1;

    void linear(QuantType quant_type) { q = k = v = o = gate = up = down = head = quant_type; }
};

// The smallest shape that `quant_type` can have, with heads of `head_dim`; odd widths where the type allows them.
TinyConfig smallest(QuantType quant_type);
// The same, with widths that a backend cannot run rounded up.
TinyConfig smallest(QuantType quant_type, const std::string& backend);
kernels::ModelShape runnable(kernels::ModelShape shape, const std::string& backend);

class TinyModel {
public:
    explicit TinyModel(const TinyConfig& config);

    const TinyConfig& config() const { return config_; }
    const kernels::ModelShape& shape() const { return config_.shape; }

    kernels::EmbedSpec embed() const;
    kernels::AttentionInSpec attention_in(std::int32_t layer) const;
    kernels::AttendSpec attend(std::int32_t layer) const;
    kernels::AttentionOutSpec attention_out(std::int32_t layer) const;
    kernels::MlpInSpec mlp_in(std::int32_t layer) const;
    kernels::MlpOutSpec mlp_out(std::int32_t layer) const;
    kernels::LmHeadSpec head() const;

private:
    struct Layer {
        Tensor attention_norm, q, k, v, q_bias, k_bias, v_bias, q_norm, k_norm, o, o_bias, attention_post_norm;
        Tensor mlp_norm, gate, up, down, mlp_post_norm;
    };
    kernels::NormSpec norm(const Tensor& weight) const;

    TinyConfig config_;
    std::vector<Layer> layers_;
    std::vector<float> inverse_frequency_;
    Tensor table_, final_norm_, head_;
};

// A TinyModel on a backend, with cache and working memory. `pages` of cache, at most `max_rows` rows a forward.
class TinyRun {
public:
    TinyRun(const TinyModel& model, kernels::Ops& ops, std::int32_t pages, std::int32_t max_rows);

    void begin(const kernels::Batch& batch) { ops_->begin(*act_, batch); }
    void embed() { ops_->embed(*embed_, *act_); }
    void keep(std::int32_t layer);  // only stores the keys and values of the batch's rows
    void attention(std::int32_t layer);
    void mlp(std::int32_t layer);
    void lm_head() { ops_->lm_head(*head_, *act_); }
    void forward(const kernels::Batch& batch);

    std::vector<float> residual(std::int32_t row) const;
    std::vector<float> logits(std::int32_t row) const;
    kernels::Ops& ops() { return *ops_; }
    kernels::Workspace& workspace() { return *act_; }
    kernels::KvPages& kv() { return *kv_; }

private:
    struct Layer {
        std::unique_ptr<kernels::PreparedOp> attention_in, attend, attention_out, mlp_in, mlp_out;
    };
    kernels::Ops* ops_;
    std::unique_ptr<kernels::PreparedOp> embed_, head_;
    std::vector<Layer> layers_;
    std::unique_ptr<kernels::KvPages> kv_;
    std::unique_ptr<kernels::Workspace> act_;
};

// What a forward computes for one row.
struct RowResult {
    std::vector<float> residual, logits;
};

// A sequence's cache: its pages and how many positions it holds.
struct Sequence {
    std::vector<std::int32_t> pages;
    std::int32_t length = 0;
};

// Evaluates `tokens` at the end of `sequence` in forwards of the given widths (the last one repeats), every row with
// its logits, and returns what each row left.
std::vector<RowResult> feed(TinyRun& run, Sequence& sequence, std::span<const std::int32_t> tokens,
                            const std::vector<std::size_t>& widths,
                            kernels::RowClass row_class = kernels::RowClass::decode);

std::vector<std::int32_t> random_tokens(unsigned seed, std::size_t count, std::int32_t vocab);
// 0, 1, ..., count - 1
std::vector<std::int32_t> counting(std::int32_t count, std::int32_t first = 0);

// The CPU backend of an instruction set; kept for the whole program, so that threads are started once.
kernels::Ops& cpu_ops(const std::string& isa, int threads);
kernels::Ops& reference_ops();
// The first device; only where no_cuda() is empty.
kernels::Ops& cuda_ops();
// Why there is no CUDA device to test on; empty when there is one.
const std::string& no_cuda();

// The backend of that name: "reference", "cuda", or an instruction set of the CPU backend.
kernels::Ops& backend_ops(const std::string& name, int threads);
// The names of the backends that are compared with the reference: the instruction sets that this processor has and, in
// a build with CUDA, "cuda".
std::vector<std::string> fast_backends();

// In SetUp() of a test that runs on backends by name.
#define FORESAY_SKIP_WITHOUT_DEVICE(name) \
    if ((name) == "cuda" && !no_cuda().empty()) GTEST_SKIP() << "not run on CUDA: " << no_cuda()

// A name that GoogleTest accepts.
std::string test_name(std::string text);

}  // namespace foresay::test
