// core/models/inflation.h: a small Llama model embedded in the shape of a large one, so that the large model computes
// the function of the small one and yet reads and multiplies all of its weights: which row and column of the large
// model's matrices is which of the small one's. core/models/inflated_source.cpp makes the weights.
//
// Layout:   small widths d, h, hkv, dh, f; large ones D = r d, H, Hkv, Dh = t dh, F. Everything that the small model
//           computes with is there several times, with equal values: the residual stream r times, attended heads,
//           feed-forward units. A matrix has the small one's weights in the columns of the first of these copies, what
//           their quantisation type left over in those of the second, and what is left over of both in those of the
//           third, if there is one. Its other columns count for nothing. Matrices that write the residual stream have
//           the same rows for every copy. Query head i of small key-value head j is slot i, i + h / hkv, ... of large
//           key-value heads j, j + hkv, ... Feed-forward unit i is unit i, i + f, i + 2 f. Rope pair i of a head is
//           pair t i, which turns at the same frequency; Q is zero in the others and is multiplied by sqrt(t), since
//           the large model divides scores by sqrt(Dh). The other dimensions of K and V repeat those, so that what is
//           rounded together has one size. Heads, units, layers and tokens beyond that are random, and O and down are
//           zero for them. Heads and units that are random come in equal pairs, for quantisation types in which a
//           weight counts for nothing only where another one takes it away again.
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

// What a row of a matrix that reads is.
struct InflatedRow {
    enum class Kind : std::uint8_t { small, zero, random };
    Kind kind = Kind::random;
    std::int64_t row = 0;  // small: the small matrix's row; random: rows of the same number are the same
    float factor = 1.0f;   // small: multiplies its weights
};

// What the columns of a row are.
struct InflatedColumns {
    struct Segment {
        std::int64_t source = 0;  // first column in the small matrix
        std::int64_t count = 0;
        std::vector<std::int64_t> copies;  // first columns of each copy; two or more
    };
    std::vector<Segment> segments;
    // Other columns that have equal inputs. They and all the rest count for nothing.
    std::vector<std::pair<std::int32_t, std::int32_t>> equal;
};

class Inflation {
public:
    // `path` names the small model in messages.
    Inflation(const ModelConfig& small, const ModelConfig& shape, const std::string& path);

    const ModelConfig& small() const { return small_; }
    const ModelConfig& large() const { return large_; }
    std::int32_t copies() const { return copies_; }
    // Factors of the large model's rope pairs from those of the small one's.
    std::vector<float> rope_factors(const std::vector<float>& small) const;

    // Row `row` of Q, K, V, gate, up or the head.
    InflatedRow row(TensorRole role, std::int32_t layer, std::int64_t row) const;
    // Its columns.
    const InflatedColumns& reader() const { return reader_; }
    // Columns of the rows of O or down.
    const InflatedColumns& writer(TensorRole role, std::int32_t layer) const;

private:
    bool in_small(std::int32_t layer) const { return layer < small_.shape.layers; }
    InflatedRow query_row(std::int32_t layer, std::int64_t row) const;
    InflatedRow key_value_row(TensorRole role, std::int32_t layer, std::int64_t row) const;
    void plan_columns();

    ModelConfig small_, large_;
    std::int32_t copies_ = 0;                 // r
    std::int32_t stretch_ = 0;                // t
    std::int32_t group_ = 0;                  // query heads of a small key-value head
    std::int32_t slots_ = 0;                  // of a large one
    std::int32_t used_slots_ = 0;             // of these, the ones that have small query heads
    std::int32_t used_kv_heads_ = 0;          // large key-value heads that are small ones
    std::int64_t used_units_ = 0;             // large feed-forward units that are small ones
    std::vector<std::int32_t> key_dims_;      // of each dimension of a large head: the small one that it is
    std::vector<bool> turns_alike_;           // whether its rope pair turns as the small one does
    InflatedColumns reader_, out_, down_;     // D, H Dh, F columns
    InflatedColumns extra_out_, extra_down_;  // in layers that the small model does not have
};

}  // namespace foresay::core
