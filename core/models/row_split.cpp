#include "core/models/row_split.h"

#include <algorithm>
#include <numeric>
#include <set>
#include <utility>

#include "core/models/encodings.h"
#include "core/models/model_source.h"
#include "core/models/op_maker.h"
#include "kernels/quant/packed_panels.h"
#include "kernels/row_division.h"

namespace foresay::core {
namespace {

using kernels::Part;

// How a tensor is divided: not, on every device or the first one; or by what.
enum class Cut { everywhere, first, heads, rows, expert };

Cut cut_of(const TensorName& name) {
    if (name.expert >= 0) return Cut::expert;
    const std::string_view part = name.part;
    if (part.starts_with("per_layer") || part == "inp_gate" || part == "proj") return Cut::first;
    if (part == "attn_q" || part == "attn_k" || part == "attn_v" || part == "attn_qkv") return Cut::heads;
    if (name.is_head() || part == "attn_output") return Cut::rows;
    for (const std::string_view kind : {"ffn_gate", "ffn_up", "ffn_down"}) {
        if (part == kind || (part.starts_with(kind) && part.substr(kind.size()) == "_shexp")) return Cut::rows;
    }
    return part == "ffn_up_alone" ? Cut::rows : Cut::everywhere;
}

// Asks a source for what its tensors take, each once, and for nothing else.
class Parts final : public ModelSource {
public:
    Parts(ModelSource& source, std::span<const std::int32_t> shares) : source_(source), shares_(shares) {
        config_ = source.config();
        path_ = source.path();
        bytes.weights.resize(shares.size());
        bytes.read.resize(shares.size());
    }

    kernels::TensorView tensor(const TensorName& name, TensorShape shape) override {
        const std::string key = name.text() + " " + std::to_string(name.expert);
        const bool table = name.is_table() || name.part == "per_layer_token_embd";
        if (!table && seen_.insert(key).second) {
            const bool tied = name.is_head() && config_.tied_head;
            add(name, shape, tied ? source_.embedding_bytes() : kept_view(source_, name, shape).bytes());
        }
        return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
    }
    bool has(const TensorName& name) const override { return source_.has(name); }
    std::int64_t weight_bytes() override { return source_.weight_bytes(); }

    RowBytes bytes;

private:
    void add(const TensorName& name, TensorShape shape, std::int64_t all) {
        const Cut cut = cut_of(name);
        // A vector has its values where a matrix has rows.
        auto whole = static_cast<std::int32_t>(shape.rows == 1 ? shape.cols : shape.rows);
        std::int32_t unit = kernels::kRowUnit;
        if (cut == Cut::heads) {
            whole = layer_config(config_, name.layer).kv_heads;
            unit = 1;
        }
        if (cut == Cut::expert) {
            whole = config_.experts.count;
            unit = 1;
        }
        const std::vector<Part> parts = kernels::divide(whole, unit, shares_);
        for (std::size_t r = 0; r < parts.size(); ++r) {
            const Part part = parts[r];
            std::int64_t own = whole > 0 ? all * part.count / whole : 0;
            if (cut == Cut::everywhere || cut == Cut::first) own = cut == Cut::first && r > 0 ? 0 : all;
            if (cut == Cut::expert) own = name.expert >= part.first && name.expert < part.first + part.count ? all : 0;
            bytes.weights[r] += own;
            bytes.read[r] += cut == Cut::expert ? own * config_.experts.used / whole : own;
        }
    }

    ModelSource& source_;
    std::span<const std::int32_t> shares_;
    std::set<std::string> seen_;
};

// Asks a source for the types of what it has in its layers, and for nothing else.
class Types final : public ModelSource {
public:
    explicit Types(ModelSource& source) : source_(source) {
        config_ = source.config();
        path_ = source.path();
    }
    kernels::TensorView tensor(const TensorName& name, TensorShape shape) override {
        if (name.layer >= 0 && shape.rows > 1) {
            const kernels::TensorView view = kept_view(source_, name, shape);
            const bool packed = view.packing == nullptr || devices_keep_packed(*view.packing);
            types.insert(packed ? view.quant_type : view.packing->plain);
        }
        return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
    }
    bool has(const TensorName& name) const override { return source_.has(name); }
    std::int64_t weight_bytes() override { return source_.weight_bytes(); }

    std::set<kernels::QuantType> types;

private:
    ModelSource& source_;
};

std::string of(std::int32_t part, std::int32_t whole, const std::string& what) {
    return std::to_string(part) + " of " + std::to_string(whole) + " " + what;
}

}  // namespace

RowBytes row_bytes(ModelSource& source, std::span<const std::int32_t> shares, std::int64_t expanded) {
    Parts parts(source, shares);
    const OpMaker::Sink check = [](const PlacedOp& placed) {
        if (const auto* in = std::get_if<kernels::AttentionInSpec>(&placed.spec)) kernels::check_divides(*in);
    };
    OpMaker(parts, {.context = source.config().context_length, .check_weights = false}, check).run();
    RowBytes bytes = std::move(parts.bytes);
    const std::int64_t all = std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
    for (std::size_t r = 0; r < shares.size(); ++r) bytes.weights[r] += expanded * shares[r] / all;
    bytes.tables = source.embedding_bytes() + source.per_layer_table_bytes();
    return bytes;
}

kernels::LinkFacts link_facts(ModelSource& source) {
    Types tensors(source);
    kernels::LinkFacts facts;
    facts.experts = source.config().experts.count > 0;
    facts.layer_embeddings = source.config().shape.per_layer > 0;
    const OpMaker::Sink look = [&](const PlacedOp& placed) {
        if (const auto* attend = std::get_if<kernels::AttendSpec>(&placed.spec))
            facts.soft_caps |= attend->soft_cap > 0;
        const auto* const in = std::get_if<kernels::AttentionInSpec>(&placed.spec);
        if (in != nullptr) facts.layer_norms |= in->norm.kind == kernels::NormKind::layer && !in->norm.empty();
    };
    OpMaker(tensors, {.context = source.config().context_length, .check_weights = false}, look).run();
    facts.types.assign(tensors.types.begin(), tensors.types.end());
    return facts;
}

std::vector<std::int32_t> choose_shares(std::span<const std::int64_t> memory, std::int64_t needed) {
    const std::int64_t each = needed / std::ssize(memory);
    std::vector<std::int32_t> shares(memory.size(), 1);
    if (std::ranges::min(memory) >= each || std::ranges::max(memory) <= 0) return shares;
    for (std::size_t d = 0; d < shares.size(); ++d) {
        shares[d] = static_cast<std::int32_t>(std::max<std::int64_t>(0, memory[d] >> 20));
    }
    return std::ranges::max(shares) > 0 ? shares : std::vector<std::int32_t>(memory.size(), 1);
}

std::string row_share_text(const ModelConfig& config, std::span<const std::int32_t> shares, std::size_t device) {
    const LayerConfig layer = layer_config(config, 0);
    const auto part = [&](std::int32_t whole, std::int32_t unit) {
        return kernels::divide(whole, unit, shares)[device].count;
    };
    std::string text = of(part(layer.kv_heads, 1), layer.kv_heads, "KV heads") + ", " +
                       of(part(config.shape.d_model, kernels::kRowUnit), config.shape.d_model, "rows of O and down");
    if (layer.d_ff > 0) {
        text += ", " + of(part(layer.d_ff, kernels::kRowUnit), layer.d_ff, "of gate and up");
    }
    if (config.experts.count > 0) {
        text += ", " + of(part(config.experts.count, 1), config.experts.count, "experts");
    }
    return text + ", " + of(part(config.shape.vocab, kernels::kRowUnit), config.shape.vocab, "of the LM head");
}

}  // namespace foresay::core
