#include "tests/kernels/tiny_model.h"

#include <algorithm>
#include <cctype>
#include <map>

#include "kernels/cpu/isa_select.h"

namespace foresay::test {

using namespace kernels;

TinyConfig smallest(QuantType quant_type) {
    TinyConfig config;
    config.linear(quant_type);
    config.shape.layers = 1;
    if (is_float(quant_type)) {
        config.shape = {.layers = 2, .d_model = 45, .heads = 6, .kv_heads = 2, .head_dim = 20, .d_ff = 37, .vocab = 53};
    } else if (is_k_quant(quant_type)) {
        config.shape = {
            .layers = 1, .d_model = 256, .heads = 8, .kv_heads = 2, .head_dim = 32, .d_ff = 256, .vocab = 40};
    } else {
        config.shape = {
            .layers = 2, .d_model = 96, .heads = 4, .kv_heads = 2, .head_dim = 24, .d_ff = 160, .vocab = 53};
    }
    return config;
}

ModelShape runnable(ModelShape shape, const std::string& backend) {
    if (backend != "cuda") return shape;
    // A device reads inputs four at a time.
    for (std::int32_t* width : {&shape.d_model, &shape.head_dim, &shape.d_ff}) *width = (*width + 3) / 4 * 4;
    return shape;
}

TinyConfig smallest(QuantType quant_type, const std::string& backend) {
    TinyConfig config = smallest(quant_type);
    config.shape = runnable(config.shape, backend);
    return config;
}

TinyModel::TinyModel(const TinyConfig& config) : config_(config) {
    const ModelShape& s = config.shape;
    const std::int64_t q = static_cast<std::int64_t>(s.heads) * s.head_dim;
    const std::int64_t kv = static_cast<std::int64_t>(s.kv_heads) * s.head_dim;
    Random random(config.seed);
    // Norm weights near one, or near zero where one is added.
    const auto norm = [&](std::int64_t n) {
        return Tensor::random(random, config.vectors, 1, n, 0.2f, config.plus_one ? 0.0f : 1.0f);
    };
    const auto bias = [&](std::int64_t n) { return Tensor::random(random, config.vectors, 1, n, 0.5f); };
    table_ = Tensor::random(random, config.table, s.vocab, s.d_model, 1.0f);
    for (std::int32_t l = 0; l < s.layers; ++l) {
        Layer& layer = layers_.emplace_back();
        const bool more = (config.more_layers >> l & 1) != 0;
        layer.attention_norm = norm(s.d_model);
        layer.q = Tensor::random(random, config.q, q, s.d_model);
        layer.k = Tensor::random(random, config.k, kv, s.d_model);
        layer.v = Tensor::random(random, more ? config.more : config.v, kv, s.d_model);
        layer.o = Tensor::random(random, config.o, s.d_model, q);
        layer.mlp_norm = norm(s.d_model);
        layer.gate = Tensor::random(random, config.gate, s.d_ff, s.d_model);
        layer.up = Tensor::random(random, config.up, s.d_ff, s.d_model);
        layer.down = Tensor::random(random, more ? config.more : config.down, s.d_model, s.d_ff);
        if (config.biases) {
            layer.q_bias = bias(q);
            layer.k_bias = bias(kv);
            layer.v_bias = bias(kv);
            layer.o_bias = bias(s.d_model);
        }
        if (config.head_norms) {
            layer.q_norm = norm(s.head_dim);
            layer.k_norm = norm(s.head_dim);
        }
        if (config.post_norms) {
            layer.attention_post_norm = norm(s.d_model);
            layer.mlp_post_norm = norm(s.d_model);
        }
    }
    final_norm_ = norm(s.d_model);
    head_ = Tensor::random(random, config.head, s.vocab, s.d_model);
    const std::int32_t dims = config.rope_dims > 0 ? config.rope_dims : s.head_dim;
    for (std::int32_t i = 0; i < dims / 2; ++i)
        inverse_frequency_.push_back(static_cast<float>(std::pow(100.0, -2.0 * i / dims)));
}

NormSpec TinyModel::norm(const Tensor& weight) const { return {weight.view(), 1e-5f, config_.plus_one}; }

EmbedSpec TinyModel::embed() const { return {table_.view(), config_.embed_scale}; }

AttentionInSpec TinyModel::attention_in(std::int32_t layer) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    AttentionInSpec spec;
    spec.shape = config_.shape;
    spec.norm = norm(l.attention_norm);
    spec.q = l.q.view();
    spec.k = l.k.view();
    spec.v = l.v.view();
    spec.q_bias = l.q_bias.view();
    spec.k_bias = l.k_bias.view();
    spec.v_bias = l.v_bias.view();
    spec.q_norm = norm(l.q_norm);
    spec.k_norm = norm(l.k_norm);
    spec.rope = {config_.pairs, inverse_frequency_, config_.attention_factor};
    return spec;
}

AttendSpec TinyModel::attend(std::int32_t layer) const {
    return {config_.shape, 1.0f / std::sqrt(static_cast<float>(config_.shape.head_dim)),
            layer % 2 == 0 ? config_.window : 0, config_.score_cap};
}

AttentionOutSpec TinyModel::attention_out(std::int32_t layer) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return {config_.shape, l.o.view(), l.o_bias.view(), norm(l.attention_post_norm)};
}

MlpInSpec TinyModel::mlp_in(std::int32_t layer) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return {config_.shape, norm(l.mlp_norm), l.gate.view(), l.up.view(),
            config_.gelu ? Activation::gelu_tanh : Activation::silu};
}

MlpOutSpec TinyModel::mlp_out(std::int32_t layer) const {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    return {config_.shape, l.down.view(), norm(l.mlp_post_norm)};
}

LmHeadSpec TinyModel::head() const {
    return {config_.shape, norm(final_norm_), head_.view(), config_.logit_scale, config_.logit_cap};
}

TinyRun::TinyRun(const TinyModel& model, Ops& ops, std::int32_t pages, std::int32_t max_rows) : ops_(&ops) {
    embed_ = ops.prepare(model.embed());
    for (std::int32_t l = 0; l < model.shape().layers; ++l) {
        layers_.push_back({ops.prepare(model.attention_in(l)), ops.prepare(model.attend(l)),
                           ops.prepare(model.attention_out(l)), ops.prepare(model.mlp_in(l)),
                           ops.prepare(model.mlp_out(l))});
    }
    head_ = ops.prepare(model.head());
    kv_ = ops.allocate_kv(model.shape(), pages, model.config().kv_format);
    act_ = ops.allocate_workspace(model.shape(), max_rows, max_rows);
}

void TinyRun::keep(std::int32_t layer) {
    ops_->attention_in(*layers_[static_cast<std::size_t>(layer)].attention_in, *act_, *kv_, layer);
}

void TinyRun::attention(std::int32_t layer) {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    ops_->attention_in(*l.attention_in, *act_, *kv_, layer);
    ops_->attend(*l.attend, *act_, *kv_, layer);
    ops_->attention_out(*l.attention_out, *act_);
}

void TinyRun::mlp(std::int32_t layer) {
    const Layer& l = layers_[static_cast<std::size_t>(layer)];
    ops_->mlp_in(*l.mlp_in, *act_);
    ops_->mlp_out(*l.mlp_out, *act_);
}

void TinyRun::forward(const Batch& batch) {
    begin(batch);
    embed();
    for (std::int32_t l = 0; l < static_cast<std::int32_t>(layers_.size()); ++l) {
        attention(l);
        mlp(l);
    }
    lm_head();
}

std::vector<float> TinyRun::residual(std::int32_t row) const {
    const auto values = ops_->residual(*act_, row);
    return {values.begin(), values.end()};
}

std::vector<float> TinyRun::logits(std::int32_t row) const {
    const auto values = ops_->logits(*act_, row);
    return {values.begin(), values.end()};
}

std::vector<RowResult> feed(TinyRun& run, Sequence& sequence, std::span<const std::int32_t> tokens,
                            const std::vector<std::size_t>& widths, RowClass row_class) {
    std::vector<RowResult> results;
    for (std::size_t call = 0; !tokens.empty(); ++call) {
        const auto width =
            static_cast<std::int32_t>(std::min(widths[std::min(call, widths.size() - 1)], tokens.size()));
        std::vector<Row> rows;
        for (std::int32_t i = 0; i < width; ++i)
            rows.push_back({TokenRef::id(tokens[static_cast<std::size_t>(i)]), sequence.length + i});
        const std::vector<std::int32_t> logit_rows = counting(width);
        const SequenceView view = {sequence.pages, sequence.length};
        run.forward({row_class, false, rows, {&view, 1}, logit_rows});
        for (std::int32_t i = 0; i < width; ++i) results.push_back({run.residual(i), run.logits(i)});
        sequence.length += width;
        tokens = tokens.subspan(static_cast<std::size_t>(width));
    }
    return results;
}

std::vector<std::int32_t> random_tokens(unsigned seed, std::size_t count, std::int32_t vocab) {
    Random random(seed);
    std::vector<std::int32_t> tokens(count);
    for (std::int32_t& token : tokens) token = static_cast<std::int32_t>(random() % static_cast<unsigned>(vocab));
    return tokens;
}

std::vector<std::int32_t> counting(std::int32_t count, std::int32_t first) {
    std::vector<std::int32_t> numbers;
    for (std::int32_t i = 0; i < count; ++i) numbers.push_back(first + i);
    return numbers;
}

Ops& cpu_ops(const std::string& isa, int threads) {
    static std::map<std::pair<std::string, int>, std::unique_ptr<Ops>> made;
    std::unique_ptr<Ops>& ops = made[{isa, threads}];
    if (!ops) ops = make_cpu_ops({.threads = threads, .isa = isa});
    return *ops;
}

Ops& reference_ops() {
    static const std::unique_ptr<Ops> ops = make_reference_ops();
    return *ops;
}

Ops& cuda_ops() {
    static const std::unique_ptr<Ops> ops = make_cuda_ops({});
    return *ops;
}

const std::string& no_cuda() {
    static const std::string reason = [] {
        std::string why;
        return cuda_devices(&why).empty() ? why : std::string();
    }();
    return reason;
}

Ops& backend_ops(const std::string& name, int threads) {
    if (name == "reference") return reference_ops();
    return name == "cuda" ? cuda_ops() : cpu_ops(name, threads);
}

std::vector<std::string> fast_backends() {
    std::vector<std::string> names = cpu::usable_isas();
#ifdef FORESAY_HAVE_CUDA
    names.push_back("cuda");
#endif
    return names;
}

std::string test_name(std::string text) {
    for (char& c : text) {
        if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
    }
    return text;
}

}  // namespace foresay::test
