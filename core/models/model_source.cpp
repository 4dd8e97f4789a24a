#include "core/models/model_source.h"

#include <array>
#include <optional>

#include "base/error.h"
#include "core/models/architecture.h"
#include "core/models/plausible.h"
#include "core/weights/gguf.h"
#include "core/weights/model_file.h"
#include "core/weights/safetensors.h"

namespace foresay::core {
namespace {

std::string shape_text(std::int64_t rows, std::int64_t cols) {
    return std::to_string(rows) + " x " + std::to_string(cols);
}

// A source whose tensors are in a file. Looks up names and checks shapes.
class FileSource : public ModelSource {
public:
    kernels::TensorView tensor(TensorRole role, std::int32_t layer) override {
        if (role == TensorRole::head && config_.tied_head) role = TensorRole::embedding;
        const std::string name = tensor_name(*names_, role, layer);
        const kernels::TensorView view = table().get(name);
        const TensorShape expected = tensor_shape(config_, role);
        if (view.rows != expected.rows || view.cols != expected.cols) {
            throw Error(path_ + ": the tensor " + name + " should be " + shape_text(expected.rows, expected.cols) +
                        " but is " + shape_text(view.rows, view.cols));
        }
        return view;
    }

    std::int64_t weight_bytes() override {
        std::int64_t bytes = 0;
        for (const TensorInfo& tensor : table().list()) bytes += tensor.bytes;
        return bytes;
    }

protected:
    virtual const TensorTable& table() const = 0;

    // What both formats do once the table is open. `vocab` 0: the number of rows of the embedding table.
    void finish(const TensorNames& names, std::int32_t vocab) {
        names_ = &names;
        const std::string name = tensor_name(names, TensorRole::embedding, 0);
        const kernels::TensorView embedding = table().get(name);
        if (embedding.rows <= 0 || embedding.rows > 1 << 24) {
            throw Error(path_ + ": the tensor " + name + " has " + std::to_string(embedding.rows) +
                        " rows, which is not a possible vocabulary size");
        }
        if (vocab > 0) check_vocab_size(vocab, embedding.rows, path_, "vocab_size");
        config_.shape.vocab = vocab > 0 ? vocab : static_cast<std::int32_t>(embedding.rows);
        check_config(config_, path_);
        config_.file_type = main_quant_type();
    }

private:
    // The quantisation type that holds the most values.
    std::string main_quant_type() const {
        std::array<std::int64_t, kernels::kQuantTypes> values{};
        for (const TensorInfo& tensor : table().list()) {
            if (tensor.quant_type) values[static_cast<std::size_t>(*tensor.quant_type)] += tensor.elements();
        }
        std::size_t best = 0;
        for (std::size_t i = 1; i < values.size(); ++i) {
            if (values[i] > values[best]) best = i;
        }
        return std::string(kernels::info(static_cast<kernels::QuantType>(best)).name);
    }

    const TensorNames* names_ = nullptr;
};

class GgufSource final : public FileSource {
public:
    explicit GgufSource(const std::filesystem::path& path) : file_(GgufFile::open(path)) {
        path_ = file_.path();
        const Architecture& architecture = architecture_for_gguf(file_.get_string("general.architecture"), path_);
        config_ = read_gguf_config(file_, architecture);
        finish(architecture.gguf_tensors, 0);
        const std::string vocab = std::string(file_.get_string("general.architecture")) + ".vocab_size";
        check_vocab_size(file_.get_int_or(vocab, config_.shape.vocab), config_.shape.vocab, path_, vocab);
        read_rope_factors();
    }
    const GgufFile* gguf() const override { return &file_; }

protected:
    const TensorTable& table() const override { return file_.tensors(); }

private:
    void read_rope_factors() {
        const kernels::TensorView view = file_.tensors().get_optional("rope_freqs.weight");
        if (view.empty()) return;
        if (view.rows != 1 || view.cols != config_.shape.head_dim / 2) {
            throw Error(path_ + ": the tensor rope_freqs.weight should be " +
                        shape_text(1, config_.shape.head_dim / 2) + " but is " + shape_text(view.rows, view.cols));
        }
        rope_factors_.resize(static_cast<std::size_t>(view.cols));
        kernels::dequantize_row(view, 0, rope_factors_);
        for (const float factor : rope_factors_) {
            plausible_positive(factor, path_, "a factor in the tensor rope_freqs.weight");
        }
    }

    GgufFile file_;
};

class SafetensorsSource final : public FileSource {
public:
    explicit SafetensorsSource(const std::filesystem::path& path) : dir_(SafetensorsDir::open(path)) {
        path_ = dir_.path();
        const JsonConfig& json = dir_.config();
        const std::vector<std::string> names = json.get_strings("architectures");
        if (names.empty()) throw Error(json.path() + ": 'architectures' is empty");
        const Architecture& architecture = architecture_for_hf(names.front(), json.path());
        config_ = read_hf_config(json, architecture);
        const std::int64_t vocab = json.get_int("vocab_size");
        if (vocab <= 0 || vocab > 1 << 24) {
            throw Error(json.path() + ": vocab_size is " + std::to_string(vocab) + ", which is out of range");
        }
        finish(architecture.hf_tensors, static_cast<std::int32_t>(vocab));
    }

    std::filesystem::path folder() const override { return dir_.directory(); }

protected:
    const TensorTable& table() const override { return dir_.tensors(); }

private:
    SafetensorsDir dir_;
};

}  // namespace

std::unique_ptr<ModelSource> ModelSource::open(const std::filesystem::path& path) {
    if (detect_model_format(path) == ModelFormat::gguf) return std::make_unique<GgufSource>(path);
    return std::make_unique<SafetensorsSource>(path);
}

}  // namespace foresay::core
