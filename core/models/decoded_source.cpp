// The weights of another source, dequantised to float32. Lossless, and the backend does not quantise activations for
// them, as it does for quantised weights.

#include <cstring>

#include "core/models/parallel_rows.h"
#include "core/models/synthetic_source.h"

namespace foresay::core {
namespace {

using kernels::QuantType;

class DequantizedSource final : public SyntheticSource {
public:
    explicit DequantizedSource(std::unique_ptr<ModelSource> source)
        : SyntheticSource(source->config(), QuantType::f32, QuantType::f32, source->path() + " in float32"),
          source_(std::move(source)) {}

    const GgufFile* gguf() const override { return source_->gguf(); }
    std::filesystem::path folder() const override { return source_->folder(); }
    void finish() override { source_->finish(); }

private:
    void fill(const TensorName& name, TensorShape shape, std::vector<std::byte>& data) override {
        const kernels::TensorView view = source_->tensor(name, shape);
        parallel_rows(view.rows, [&](std::int64_t begin, std::int64_t end) {
            std::vector<float> row(static_cast<std::size_t>(view.cols));
            const std::size_t bytes = row.size() * sizeof(float);
            for (std::int64_t r = begin; r < end; ++r) {
                kernels::dequantize_row(view, r, row);
                std::memcpy(data.data() + static_cast<std::size_t>(r) * bytes, row.data(), bytes);
            }
        });
        source_->release();
    }

    std::unique_ptr<ModelSource> source_;
};

}  // namespace

std::unique_ptr<ModelSource> ModelSource::decoded(std::unique_ptr<ModelSource> source) {
    return std::make_unique<DequantizedSource>(std::move(source));
}

}  // namespace foresay::core
