// The weights of a small model inflated to a larger shape, tensor by tensor. core/models/inflation.h defines where each
// weight goes; this file quantises them. The embedding table is copied from the small model's file and keeps its
// quantisation type: a decode step reads only one row of it.

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/inflation.h"
#include "core/models/op_maker.h"
#include "core/models/parallel_rows.h"
#include "core/models/random_blocks.h"
#include "core/models/shapes.h"
#include "core/models/synthetic_source.h"

namespace foresay::core {
namespace {

using kernels::QuantType;
using kernels::TensorView;

// Seeds each row separately, so that threads can fill rows in any order.
Random random_of(const TensorName& name, std::int64_t row) {
    std::uint64_t x = seed_of(name) ^ static_cast<std::uint64_t>(row) << 20;
    for (int i = 0; i < 2; ++i) {
        x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9u + 0x9e3779b97f4a7c15u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    }
    return Random(x ^ x >> 31);
}

// Writes rows of one matrix; one per thread.
class RowWriter {
public:
    RowWriter(QuantType quant_type, std::int64_t cols) : quant_type_(quant_type), cols_(cols) {}

    void random(Random random, std::byte* out) { fill_random(quant_type_, {out, bytes(cols_)}, deviation(), random); }

    // Writes `source` times `factor` into the segments of `columns`; all other columns contribute nothing. An empty
    // source: no column contributes.
    void write(const InflatedColumns& columns, std::span<const float> source, float factor, Random random,
               std::byte* out) {
        const std::int64_t block = kernels::info(quant_type_).block_elements;
        const std::size_t most = source.empty() ? 0 : parts();
        const std::int64_t used = block > 1 ? (end(columns, most) + block - 1) / block * block : cols_;
        const std::span<std::byte> quantized(out, bytes(used));
        values_.assign(static_cast<std::size_t>(used), 0.0f);
        sum_.assign(source.size(), 0.0f);
        dequantized_.resize(static_cast<std::size_t>(used));
        for (std::size_t part = 0; part < most; ++part) {
            // A part is what the previous parts' rounding left over. In some quantisation types parts share blocks, so
            // every pass quantises all parts again.
            for (const auto& segment : columns.segments) {
                if (part >= segment.copies.size()) continue;
                for (std::int64_t i = 0; i < segment.count; ++i) {
                    const std::size_t from = at(segment.source + i);
                    value(segment.copies[part] + i) = factor * source[from] - sum_[from];
                }
            }
            kernels::quantize_row(quant_type_, values_, quantized);
            kernels::dequantize_row({quant_type_, 1, used, out}, 0, dequantized_);
            add_up(columns, part + 1);
        }
        if (block == 1) {
            cancel(columns, most, random);
            kernels::quantize_row(quant_type_, values_, quantized);
            return;
        }
        scramble_zero_scaled(quant_type_, quantized, random);
        fill_zero_scaled(quant_type_, {out + quantized.size(), bytes(cols_) - quantized.size()}, random);
    }

private:
    static std::size_t at(std::int64_t column) { return static_cast<std::size_t>(column); }
    float& value(std::int64_t column) { return values_[at(column)]; }
    std::size_t bytes(std::int64_t cols) const {
        return static_cast<std::size_t>(kernels::row_bytes(quant_type_, cols));
    }
    // Parts per weight: enough that the remaining error is below other rounding errors.
    std::size_t parts() const { return quant_type_ == QuantType::f32 ? 1 : quant_type_ == QuantType::f16 ? 2 : 3; }

    // One past the last column of the first `parts` copies.
    static std::int64_t end(const InflatedColumns& columns, std::size_t parts) {
        std::int64_t end = 0;
        for (const auto& segment : columns.segments) {
            for (std::size_t part = 0; part < std::min(parts, segment.copies.size()); ++part) {
                end = std::max(end, segment.copies[part] + segment.count);
            }
        }
        return end;
    }

    // Sums the first `parts` copies of each weight, as quantised, into sum_.
    void add_up(const InflatedColumns& columns, std::size_t parts) {
        for (const auto& segment : columns.segments) {
            for (std::int64_t i = 0; i < segment.count; ++i) {
                float sum = 0.0f;
                for (std::size_t part = 0; part < std::min(parts, segment.copies.size()); ++part) {
                    sum += dequantized_[at(segment.copies[part] + i)];
                }
                sum_[at(segment.source + i)] = sum;
            }
        }
    }

    // Float types have no scale to set to zero. There, columns with equal inputs get weights that cancel in pairs; an
    // odd copy is zero.
    void cancel(const InflatedColumns& columns, std::size_t parts, Random& random) {
        const auto pair = [&](std::int64_t first, std::int64_t second) {
            value(first) = 1.7f * deviation() * random.uniform();
            value(second) = -value(first);
        };
        for (const auto& [first, second] : columns.equal) pair(first, second);
        for (const auto& segment : columns.segments) {
            for (std::size_t copy = parts; copy + 1 < segment.copies.size(); copy += 2) {
                for (std::int64_t i = 0; i < segment.count; ++i) {
                    pair(segment.copies[copy] + i, segment.copies[copy + 1] + i);
                }
            }
        }
    }

    float deviation() const { return 1.0f / std::sqrt(static_cast<float>(cols_)); }

    QuantType quant_type_;
    std::int64_t cols_;
    std::vector<float> values_, dequantized_, sum_;
};

class InflatedSource final : public SyntheticSource {
public:
    InflatedSource(std::unique_ptr<ModelSource> small, const Inflation& inflation, QuantType quant_type, QuantType head)
        : SyntheticSource(inflation.large(), quant_type, head,
                          small->path() + " inflated to " + inflation.large().name + " in " +
                              std::string(kernels::info(quant_type).name)),
          small_(std::move(small)),
          inflation_(inflation) {
        config_.name = small_->config().name + " inflated to " + inflation.large().name;
        const TensorView table = small_tensor({.part = "token_embd"});
        table_ = table.packing != nullptr ? QuantType::f32 : table.quant_type;
    }

    const GgufFile* gguf() const override { return small_->gguf(); }
    void finish() override { small_->finish(); }
    std::filesystem::path folder() const override { return small_->folder(); }

private:
    QuantType quant_type_of(const TensorName& name, TensorShape shape) const override {
        return name.is_table() ? table_ : SyntheticSource::quant_type_of(name, shape);
    }

    // The small model's tensor of this name.
    TensorView small_tensor(const TensorName& name) {
        for (const TensorUse& use : small_tensors_) {
            if (use.name.layer == name.layer && use.name.part == name.part && use.name.kind == name.kind) {
                return small_->tensor(name, use.shape);
            }
        }
        check(false, "a tensor that a small model does not have");
        return {};
    }

    void fill(const TensorName& name, TensorShape shape, std::vector<std::byte>& data) override {
        const bool extra = name.layer >= inflation_.small().shape.layers;
        if (is_vector(name, shape)) {
            fill_vector(name, extra, data);
        } else if (name.is_table()) {
            fill_embedding(data);
        } else if (writes_stream(name)) {
            fill_writer(name, shape, extra ? TensorView{} : small_tensor(name), data);
        } else {
            fill_reader(name, shape, extra ? TensorView{} : small_tensor(name), data);
        }
        small_->release();
    }

    // Norms: those of the small model, repeated for each copy of its residual stream. Biases are 0: it has none.
    void fill_vector(const TensorName& name, bool extra, std::vector<std::byte>& data) {
        std::vector<float> values(data.size() / sizeof(float));
        const bool norm = is_norm(name);
        if (norm && extra) values.assign(values.size(), 1.0f);
        if (norm && !extra) {
            const TensorView view = small_tensor(name);
            const std::size_t width = static_cast<std::size_t>(view.cols);
            for (std::size_t at = 0; at < values.size(); at += width) {
                kernels::dequantize_row(view, 0, std::span(values).subspan(at, width));
            }
        }
        std::memcpy(data.data(), values.data(), data.size());
    }

    // Tokens beyond the small model's vocabulary repeat its rows, because a benchmark may feed any token.
    void fill_embedding(std::vector<std::byte>& data) {
        const TensorView view = small_tensor({.part = "token_embd"});
        const std::size_t bytes = static_cast<std::size_t>(view.bytes() / view.rows);
        std::byte* out = data.data();
        if (view.packing != nullptr) return fill_decoded(view, data);
        for (std::int64_t row = 0; row < config_.shape.vocab; ++row) {
            const std::byte* from = view.data + static_cast<std::size_t>(row % view.rows) * bytes;
            for (std::int32_t copy = 0; copy < inflation_.copies(); ++copy, out += bytes) std::memcpy(out, from, bytes);
        }
    }

    // The same in float32, of a table whose rows do not repeat themselves as they lie.
    void fill_decoded(const TensorView& view, std::vector<std::byte>& data) {
        std::vector<float> values(static_cast<std::size_t>(view.cols));
        const std::size_t bytes = values.size() * sizeof(float);
        std::byte* out = data.data();
        for (std::int64_t row = 0; row < config_.shape.vocab; ++row) {
            kernels::dequantize_row(view, row % view.rows, values);
            for (std::int32_t copy = 0; copy < inflation_.copies(); ++copy, out += bytes) {
                std::memcpy(out, values.data(), bytes);
            }
        }
    }

    void fill_reader(const TensorName& name, TensorShape shape, const TensorView& view, std::vector<std::byte>& data) {
        const std::size_t bytes = data.size() / static_cast<std::size_t>(shape.rows);
        parallel_rows(shape.rows, [&](std::int64_t begin, std::int64_t end) {
            RowWriter writer(quant_type_of(name, shape), shape.cols);
            std::vector<float> source(static_cast<std::size_t>(view.cols));
            for (std::int64_t r = begin; r < end; ++r) {
                std::byte* out = data.data() + static_cast<std::size_t>(r) * bytes;
                const InflatedRow row = inflation_.row(name, r);
                switch (row.kind) {
                    case InflatedRow::Kind::random:
                        writer.random(random_of(name, row.row), out);
                        break;
                    case InflatedRow::Kind::zero:
                        writer.write(inflation_.reader(), {}, 0.0f, random_of(name, r), out);
                        break;
                    case InflatedRow::Kind::small:
                        kernels::dequantize_row(view, row.row, source);
                        writer.write(inflation_.reader(), source, row.factor, random_of(name, r), out);
                        break;
                }
            }
        });
    }

    // Makes the rows of the first copy of the residual stream and repeats them for each other copy. `view` is empty in
    // a layer that the small model does not have.
    void fill_writer(const TensorName& name, TensorShape shape, const TensorView& view, std::vector<std::byte>& data) {
        const std::size_t bytes = data.size() / static_cast<std::size_t>(shape.rows);
        const std::int64_t rows = inflation_.small().shape.d_model;
        parallel_rows(rows, [&](std::int64_t begin, std::int64_t end) {
            RowWriter writer(quant_type_of(name, shape), shape.cols);
            std::vector<float> source(static_cast<std::size_t>(view.cols));
            for (std::int64_t r = begin; r < end; ++r) {
                if (!view.empty()) kernels::dequantize_row(view, r, source);
                writer.write(inflation_.writer(name), source, 1.0f, random_of(name, r),
                             data.data() + static_cast<std::size_t>(r) * bytes);
            }
            const std::byte* first = data.data() + static_cast<std::size_t>(begin) * bytes;
            const std::size_t size = static_cast<std::size_t>(end - begin) * bytes;
            for (std::int64_t copy = begin + rows; copy < shape.rows; copy += rows) {
                std::memcpy(data.data() + static_cast<std::size_t>(copy) * bytes, first, size);
            }
        });
    }

    std::unique_ptr<ModelSource> small_;
    std::vector<TensorUse> small_tensors_ = tensors_of(small_->config());
    Inflation inflation_;
    QuantType table_ = QuantType::f32;
};

}  // namespace

std::unique_ptr<ModelSource> ModelSource::inflate(std::unique_ptr<ModelSource> small, const ModelConfig& shape,
                                                  QuantType quant_type, QuantType head) {
    const Inflation inflation(small->config(), shape, small->path());
    return std::make_unique<InflatedSource>(std::move(small), inflation, quant_type, head);
}

std::unique_ptr<ModelSource> ModelSource::inflate(std::unique_ptr<ModelSource> small, std::string_view shape,
                                                  QuantType quant_type, std::optional<QuantType> head) {
    const ModelConfig config = published_shape(shape);
    const QuantType stored = head.value_or(head_quant_type(quant_type, config.shape.d_model));
    return inflate(std::move(small), config, quant_type, stored);
}

}  // namespace foresay::core
