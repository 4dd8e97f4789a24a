// moe: the sum of a row's chosen experts, by ascending id, each times its weight.

#include "kernels/reference/reference_ops.h"
#include "kernels/routing.h"

namespace foresay::kernels::reference {
namespace {

struct Moe : PreparedOp {
    Norm norm, router_norm, post_norm;
    Matrix router;
    RoutingRules rules;
    std::vector<Matrix> gate, up, down;
    Floats gate_bias, up_bias, down_bias;
    Activation activation;
    float limit, scale, stream_scale;
    bool keep_branch;

    explicit Moe(const MoeSpec& s)
        : norm(s.norm),
          router_norm(s.router.norm),
          post_norm(s.post_norm),
          router(s.router.weight),
          rules(s.router, s.shape),
          gate(s.gate.begin(), s.gate.end()),
          up(s.up.begin(), s.up.end()),
          down(s.down.begin(), s.down.end()),
          gate_bias(dequantize(s.gate_bias)),
          up_bias(dequantize(s.up_bias)),
          down_bias(dequantize(s.down_bias)),
          activation(s.activation),
          limit(s.limit),
          scale(s.scale),
          stream_scale(s.stream_scale),
          keep_branch(s.keep_branch) {}

    // y += the expert's row of `biases`.
    static void add_bias(Floats& y, const Floats& biases, std::size_t expert) {
        if (!biases.empty()) add(y.data(), biases.data() + expert * y.size(), static_cast<int64_t>(y.size()));
    }

    // y[D] = expert(x[D])
    void apply(std::size_t expert, const float* x, Floats& y) const {
        Floats inner(static_cast<std::size_t>(gate[expert].outputs)), other(inner.size());
        gate[expert].apply(x, inner.data());
        up[expert].apply(x, other.data());
        add_bias(inner, gate_bias, expert);
        add_bias(other, up_bias, expert);
        for (std::size_t i = 0; i < inner.size(); ++i) inner[i] = gated(activation, limit, inner[i], &other[i]);
        down[expert].apply(inner.data(), y.data());
        add_bias(y, down_bias, expert);
    }
};

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const MoeSpec& spec) { return make<Moe>(spec); }

void ReferenceOps::moe(const PreparedOp& prepared, Workspace& workspace) {
    const auto& op = static_cast<const Moe&>(prepared);
    auto& a = self(workspace);
    const auto width = static_cast<std::size_t>(a.shape.d_model);
    Floats input(width), scores(static_cast<std::size_t>(op.rules.experts)), scratch(op.rules.scratch()), y(width);
    std::vector<ExpertChoice> chosen(static_cast<std::size_t>(op.rules.used));
    std::vector<double> sum(width);
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        float* const x = row(a.x, t, a.shape.d_model);
        op.router.apply(
            op.router_norm.empty() ? normed(op.norm, x, input.data()) : normed(op.router_norm, x, input.data()),
            scores.data());
        op.rules.route(scores, scratch, chosen);
        const float* const read = normed(op.norm, x, input.data());
        sum.assign(width, 0.0);
        for (const ExpertChoice& one : chosen) {
            op.apply(static_cast<std::size_t>(one.expert), read, y);
            for (std::size_t i = 0; i < width; ++i) sum[i] += static_cast<double>(one.weight) * y[i];
        }
        for (std::size_t i = 0; i < width; ++i) y[i] = static_cast<float>(sum[i]);
        if (!op.post_norm.empty()) op.post_norm.apply(y.data(), y.data());
        if (op.keep_branch) {
            std::copy(y.begin(), y.end(), row(a.branch, t, a.shape.d_model));
        } else {
            add_scaled(x, y.data(), a.shape.d_model, op.scale, op.stream_scale);
        }
    }
}

}  // namespace foresay::kernels::reference
