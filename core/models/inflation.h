// core/models/inflation.h: embeds a small Llama model in the shape of a large one. The large model computes the
// function of the small one, and still reads and multiplies all of its own weights. This header maps rows and columns
// of the large matrices to those of the small ones; core/models/inflated_source.cpp writes the weights.
//
// Layout:   small sizes are d, h, hkv, dh, f; large ones D = r d, H, Hkv, Dh = t dh, F.
//           Copies: the values of the small model appear several times, all equal: the residual stream r times, and
//           likewise attention heads and feed-forward units.
//           Columns (matrix inputs): the columns of the first copy hold the small model's weights, those of the second
//           copy the error of quantising the first, those of the third, if there is one, the remaining error. The other
//           columns contribute nothing. Matrices that write the residual stream have the same rows for every copy.
//           Heads: query head i of small key-value head j is slot i, i + h / hkv, ... of large key-value heads j,
//           j + hkv, ... Feed-forward unit i is unit i, i + f, i + 2 f.
//           Rope: pair i of a head becomes pair t i, which rotates at the same frequency. Q is zero in the other pairs,
//           and is multiplied by sqrt(t), since the large model divides scores by sqrt(Dh). The other dimensions of K
//           and V repeat the used ones, so that values quantised together have similar magnitudes.
//           The rest: further heads, units, layers and tokens are random, and O and down are zero for them. Random
//           heads and units come in equal pairs, because float types have no zero scale: there, the weights of a pair
//           cancel.
// Threads:  any; immutable.
// Errors:   the constructor throws Error in one sentence when the shape cannot hold the model.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/models/model_config.h"
#include "core/models/model_source.h"

namespace foresay::core {

// The contents of a row of a matrix that reads the residual stream.
struct InflatedRow {
    enum class Kind : std::uint8_t { small, zero, random };
    Kind kind = Kind::random;
    std::int64_t row = 0;  // small: the small matrix's row; random: rows with the same number are equal
    float factor = 1.0f;   // small: multiplies its weights
};

// The contents of the columns of a row.
struct InflatedColumns {
    struct Segment {
        std::int64_t source = 0;  // first column in the small matrix
        std::int64_t count = 0;
        std::vector<std::int64_t> copies;  // first columns of each copy; two or more
    };
    std::vector<Segment> segments;
    // Pairs of other columns with equal inputs. These, and all remaining columns, must contribute nothing.
    std::vector<std::pair<std::int32_t, std::int32_t>> equal;
};

// Whether the matrix writes the residual stream: O and down. All others read it.
inline bool writes_stream(const TensorName& name) { return name.part == "attn_output" || name.part == "ffn_down"; }

class Inflation {
public:
    // `path` names the small model in messages.
    Inflation(const ModelConfig& small, const ModelConfig& shape, const std::string& path);

    const ModelConfig& small() const { return small_; }
    const ModelConfig& large() const { return large_; }
    std::int32_t copies() const { return copies_; }

    // Row `row` of Q, K, V, gate, up or the LM head.
    InflatedRow row(const TensorName& name, std::int64_t row) const;
    // The columns of such a row.
    const InflatedColumns& reader() const { return reader_; }
    // The columns of a row of O or down.
    const InflatedColumns& writer(const TensorName& name) const;

private:
    bool in_small(std::int32_t layer) const { return layer < small_.shape.layers; }
    InflatedRow query_row(std::int32_t layer, std::int64_t row) const;
    InflatedRow key_value_row(bool key, std::int32_t layer, std::int64_t row) const;
    void plan_columns();

    ModelConfig small_, large_;
    std::int32_t copies_ = 0;                 // r
    std::int32_t stretch_ = 0;                // t
    std::int32_t group_ = 0;                  // query heads per key-value head of the small model
    std::int32_t slots_ = 0;                  // the same of the large model
    std::int32_t used_slots_ = 0;             // slots that hold small query heads
    std::int32_t used_kv_heads_ = 0;          // large key-value heads that hold small ones
    std::int64_t used_units_ = 0;             // large feed-forward units that hold small ones
    std::vector<std::int32_t> key_dims_;      // dimension of a large head -> the small dimension that it holds
    std::vector<bool> same_frequency_;        // of each such dimension: its rope pair rotates as in the small model
    InflatedColumns reader_, out_, down_;     // D, H Dh, F columns
    InflatedColumns extra_out_, extra_down_;  // in layers that the small model does not have
};

}  // namespace foresay::core
