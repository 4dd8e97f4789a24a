// attention_in: q, k, v = projections of [norm](x) + bias; q and k are normed and rotated per attention head; k and v
// are written to the KV cache.

#include <algorithm>
#include <cmath>

#include "kernels/kv/list.h"
#include "kernels/kv/low_bits.h"
#include "kernels/kv_format.h"
#include "kernels/reference/reference_ops.h"

namespace foresay::kernels::reference {
namespace {

struct AttentionIn : PreparedOp {
    ModelShape shape;
    Norm norm, q_norm, k_norm, v_norm;
    Matrix q, k, v;
    Floats q_bias, k_bias, v_bias, inverse_frequency;
    RopePairs pairs;
    float attention_factor;
    bool whole_norms;
    QueryTemperature temperature;

    explicit AttentionIn(const AttentionInSpec& s)
        : shape(s.shape),
          norm(s.norm),
          q_norm(s.q_norm),
          k_norm(s.k_norm),
          v_norm(s.v_norm),
          q(s.q),
          k(s.k),
          v(s.v),
          q_bias(dequantize(s.q_bias)),
          k_bias(dequantize(s.k_bias)),
          v_bias(dequantize(s.v_bias)),
          inverse_frequency(s.rope.inverse_frequency.begin(), s.rope.inverse_frequency.end()),
          pairs(s.rope.pairs),
          attention_factor(s.rope.attention_factor),
          whole_norms(s.whole_norms),
          temperature(s.temperature) {}

    // Rope: rotates pair i of the head by position * inverse_frequency[i].
    void rotate(int32_t position, float* head) const {
        if (pairs == RopePairs::none) return;
        const std::size_t half = inverse_frequency.size();
        for (std::size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(position) * inverse_frequency[i];
            const double c = std::cos(angle) * attention_factor, s = std::sin(angle) * attention_factor;
            float& a = pairs == RopePairs::adjacent ? head[2 * i] : head[i];
            float& b = pairs == RopePairs::adjacent ? head[2 * i + 1] : head[i + half];
            const double x = a, y = b;
            a = static_cast<float>(x * c - y * s);
            b = static_cast<float>(x * s + y * c);
        }
    }

    // Norms `heads` attention heads, each on its own or all of them as one vector.
    void norm_heads(const Norm& head_norm, float* x, int32_t heads) const {
        if (head_norm.empty()) return;
        const auto width = static_cast<std::size_t>(shape.head_dim);
        if (whole_norms && &head_norm != &v_norm) return head_norm.apply(x, x);
        for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
            head_norm.apply(x + h * width, x + h * width, head_norm.weight.size() > width ? h * width : 0, width);
        }
    }

    void rotate_heads(int32_t position, float* x, int32_t heads) const {
        for (int32_t h = 0; h < heads; ++h) rotate(position, x + h * shape.head_dim);
    }

    void finish_queries(int32_t position, float* q) const {
        norm_heads(q_norm, q, shape.heads);
        rotate_heads(position, q, shape.heads);
        const float factor = query_factor(temperature, position);
        for (int64_t i = 0; i < this->q.outputs; ++i) q[i] *= factor;
    }
};

// Rounds each attention head's key or value to what the cache can hold. What is rotated is rotated back at once, so
// that attention needs to know nothing of it.
void round_to_codes(Floats& x, int32_t head_dim, KvType type) {
    if (type == KvType::f16) return;
    const auto width = static_cast<std::size_t>(head_dim);
    const int bits = kv_bits(type);
    for (std::size_t head = 0; head < x.size(); head += width) {
        if (is_rotated(type)) {
            const auto begin = x.begin() + static_cast<std::ptrdiff_t>(head), end = begin + head_dim;
            rotate_for_cache(&*begin, head_dim);
            const float extreme = kv_extreme(*std::max_element(begin, end), *std::min_element(begin, end));
            const float scale = kv_low_scale(extreme, bits), zero = static_cast<float>(kv_code_zero(bits));
            for (auto i = begin; i != end; ++i) {
                *i = (static_cast<float>(kv_low_code(*i, scale, bits)) - zero) * (extreme / -zero);
            }
            rotate_for_cache(&*begin, head_dim);
            continue;
        }
        float largest = 0;
        for (std::size_t i = head; i < head + width; ++i) largest = std::max(largest, std::abs(x[i]));
        const float scale = kv_code_scale(largest);
        for (std::size_t i = head; i < head + width; ++i) x[i] = kv_code(x[i], scale) * (largest / kLargestKvCode);
    }
}

}  // namespace

std::unique_ptr<PreparedOp> ReferenceOps::prepare(const AttentionInSpec& spec) { return make<AttentionIn>(spec); }

void ReferenceOps::attention_in(const PreparedOp& prepared, Workspace& workspace, KvPages& pages, int32_t layer) {
    const auto& op = static_cast<const AttentionIn&>(prepared);
    auto& a = self(workspace);
    auto& kv = static_cast<ReferenceKv&>(pages);
    Floats k(static_cast<std::size_t>(op.k.outputs)), v(k.size());
    for (std::size_t t = 0; t < a.batch.rows.size(); ++t) {
        const Row& r = a.batch.rows[t];
        const float* x = normed(op.norm, row(a.x, t, op.shape.d_model), a.scratch.data());
        float* q = row(a.q, t, op.q.outputs);
        op.q.apply(x, q);
        add(q, op.q_bias);
        op.finish_queries(r.position, q);
        if (op.k.outputs == 0) continue;
        op.k.apply(x, k.data());
        op.v.apply(x, v.data());
        add(k.data(), op.k_bias);
        add(v.data(), op.v_bias);
        op.norm_heads(op.k_norm, k.data(), op.shape.kv_heads);
        op.norm_heads(op.v_norm, v.data(), op.shape.kv_heads);
        op.rotate_heads(r.position, k.data(), op.shape.kv_heads);
        round_to_codes(k, op.shape.head_dim, key_type(kv.format));
        round_to_codes(v, op.shape.head_dim, value_type(kv.format));
        const int32_t cell = r.cell < 0 ? r.position : r.cell;
        const int32_t page = a.batch.sequences[r.sequence].pages[cell / kPagePositions];
        const int64_t at = kv.offset(layer, page, cell % kPagePositions, 0);
        std::copy(k.begin(), k.end(), kv.k[static_cast<std::size_t>(layer)].begin() + at);
        std::copy(v.begin(), v.end(), kv.v[static_cast<std::size_t>(layer)].begin() + at);
    }
}

}  // namespace foresay::kernels::reference
