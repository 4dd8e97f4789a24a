#include "core/models/model_source.h"

#include <algorithm>
#include <charconv>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"
#include "base/lower_case.h"
#include "core/models/architecture.h"
#include "core/models/encodings.h"
#include "core/models/kept_on_a_device.h"
#include "core/models/op_maker.h"
#include "core/models/parallel_rows.h"
#include "core/models/plausible.h"
#include "core/models/read_config.h"
#include "core/models/scratch.h"
#include "core/models/synthetic_source.h"
#include "core/weights/formats/formats.h"
#include "core/weights/gguf.h"
#include "core/weights/model_file.h"
#include "core/weights/mxfp4.h"
#include "core/weights/quote.h"
#include "core/weights/safetensors.h"
#include "kernels/quant/narrow_codes.h"
#include "kernels/quant/packed_panels.h"
#include "kernels/quant/packing.h"

namespace foresay::core {
namespace {

using kernels::TensorView;

std::string shape_text(std::int64_t rows, std::int64_t cols) {
    return std::to_string(rows) + " x " + std::to_string(cols);
}

std::string text(const std::vector<std::int64_t>& shape) {
    std::string all;
    for (const std::int64_t size : shape) all += (all.empty() ? "" : " x ") + std::to_string(size);
    return all;
}

// A tensor of a file that holds one of ours, or more.
struct Stored {
    const TensorInfo* info = nullptr;       // null: the file has none
    const TensorInfo* exponents = nullptr;  // of MXFP4 codes in safetensors
    const StoredMatrix* matrix = nullptr;   // stored as several tensors, of which `info` is one
    HfForm form = HfForm::whole;
    bool transposed = false;
    bool all_experts = false;  // one matrix per expert
    std::string name;          // that the file has or should have
};

// The number after `prefix`, or -1: "blk.12.attn_q.weight" after "blk." is 12.
std::int32_t number_after(std::string_view name, std::string_view prefix) {
    if (!name.starts_with(prefix)) return -1;
    std::int32_t number = -1;
    std::from_chars(name.data() + prefix.size(), name.data() + name.size(), number);
    return number;
}

// Row i becomes row order[i], cycle by cycle. Each thread has some bytes of all rows.
void put_rows_in_order(std::byte* rows, std::int64_t row_bytes, std::span<const std::int32_t> order) {
    constexpr std::int64_t kPart = 64;
    parallel_rows((row_bytes + kPart - 1) / kPart, [=](std::int64_t first, std::int64_t last) {
        const std::int64_t begin = kPart * first;
        const auto count =
            static_cast<std::size_t>(std::max<std::int64_t>(0, std::min(kPart * last, row_bytes) - begin));
        const auto part = [&](std::size_t row) { return rows + static_cast<std::int64_t>(row) * row_bytes + begin; };
        std::vector<std::byte> kept(count);
        std::vector<std::uint8_t> done(order.size());
        for (std::size_t start = 0; start < order.size(); ++start) {
            if (done[start] != 0) continue;
            std::memcpy(kept.data(), part(start), count);
            std::size_t at = start;
            for (;;) {
                done[at] = 1;
                const auto from = static_cast<std::size_t>(order[at]);
                if (from == start) break;
                std::memcpy(part(at), part(from), count);
                at = from;
            }
            std::memcpy(part(at), kept.data(), count);
        }
    });
}

constexpr const char* kOtherShape = "; the file is damaged or contradicts its configuration, get it again";

// A source whose tensors are in a file. Looks up names, checks shapes, and takes matrices apart that a file stores
// together.
class FileSource : public ModelSource {
public:
    TensorView tensor(const TensorName& name, TensorShape shape) final {
        if (name.is_head() && config_.tied_head) return tensor({.part = "token_embd"}, shape);
        const Stored stored = find(name);
        if (stored.info == nullptr) table().get(stored.name);  // throws: it is missing
        used_.insert(stored.info->name);
        if (stays(name)) tables_of_rows_.insert(stored.info->name);
        if (stored.exponents != nullptr) used_.insert(stored.exponents->name);
        if (stored.matrix != nullptr) {
            for (const TensorInfo* part : stored.matrix->parts()) used_.insert(part->name);
            return matrix_rows(name, stored, shape);
        }
        return take(name, stored, shape);
    }
    bool has(const TensorName& name) const final { return find(name).info != nullptr; }
    void release() final {
        scratch_.reset();
        joined_.clear();
    }
    void finish() final { scratch_.give_back(); }

    std::int64_t weight_bytes() final {
        std::int64_t bytes = 0;
        std::set<std::string_view> counted;
        for (const auto& [name, matrix] : matrices()) {
            if (!used_.contains(matrix->parts().front()->name)) continue;
            bytes += matrix->rows() * matrix->packed_row_bytes();
            for (const TensorInfo* part : matrix->parts()) counted.insert(part->name);
        }
        for (const TensorInfo& tensor : table().list()) {
            if (used_.contains(tensor.name) && !counted.contains(tensor.name)) bytes += packed_bytes(tensor);
        }
        return bytes;
    }
    std::int64_t narrowed_bytes() const {
        std::int64_t bytes = 0;
        for (const auto& [name, matrix] : matrices()) {
            if (used_.contains(matrix->parts().front()->name)) bytes += narrowed_bytes(*matrix);
        }
        for (const TensorInfo& tensor : table().list()) {
            if (used_.contains(tensor.name)) bytes += narrowed_bytes(tensor);
        }
        return bytes;
    }
    std::int64_t expanded_bytes() final {
        std::int64_t bytes = 0;
        visit_on_a_device([&](auto, const OnDevice& there) { bytes += there.more; });
        return bytes;
    }
    std::vector<UnpackedMatrices> unpacked_on_a_device() {
        std::vector<UnpackedMatrices> all;
        visit_on_a_device([&](std::string_view name, const OnDevice& there) {
            if (there.reason == nullptr) return;
            auto one = std::ranges::find(all, there.reason, &UnpackedMatrices::reason);
            if (one == all.end()) {
                all.push_back({.reason = there.reason, .example = std::string(name)});
                one = all.end() - 1;
            }
            one->matrices += 1;
            one->bytes += there.bytes;
        });
        return all;
    }
    std::vector<Encoding> encodings() {
        std::map<std::pair<std::string, std::string>, Encoding> sums;
        const auto add = [&](const std::string& name, const std::string& kept, std::int64_t values, std::int64_t stored,
                             std::int64_t bytes, std::int64_t host) {
            Encoding& sum = sums[{name, kept}];
            sum.name = name;
            sum.kept = kept;
            sum.matrices += 1;
            sum.values += values;
            sum.stored_bytes += stored;
            sum.kept_bytes += bytes;
            sum.host_bytes += host;
        };
        std::set<std::string_view> parts;
        for (const auto& [name, matrix] : matrices()) {
            if (!used_.contains(matrix->parts().front()->name)) continue;
            const std::int64_t bytes = matrix->rows() * matrix->packed_row_bytes();
            add(matrix->encoding(), std::string(kernels::info(matrix->packed()).name), matrix->rows() * matrix->cols(),
                matrix->stored_bytes(), bytes, bytes - narrowed_bytes(*matrix));
            for (const TensorInfo* part : matrix->parts()) parts.insert(part->name);
        }
        for (const TensorInfo& tensor : table().list()) {
            if (!used_.contains(tensor.name) || parts.contains(tensor.name)) continue;
            const std::string kept =
                tensor.stored != nullptr ? std::string(kernels::info(tensor.stored->packed).name) : "";
            if (tensor.name.ends_with("_blocks")) {
                add("MXFP4", kept, 2 * tensor.elements(), tensor.bytes, tensor.bytes, tensor.bytes);
            } else if (tensor.name.ends_with("_scales")) {  // of those blocks
                sums[{"MXFP4", ""}].stored_bytes += tensor.bytes;
                sums[{"MXFP4", ""}].kept_bytes += tensor.bytes;
                sums[{"MXFP4", ""}].host_bytes += tensor.bytes;
            } else {
                const std::int64_t bytes = packed_bytes(tensor);
                add(tensor.type, kept, tensor.elements(), tensor.bytes, bytes, bytes - narrowed_bytes(tensor));
            }
        }
        std::vector<Encoding> all;
        for (auto& [key, sum] : sums) all.push_back(std::move(sum));
        std::ranges::stable_sort(all, std::ranges::greater(), &Encoding::stored_bytes);
        return all;
    }
    TensorView kept_view(const TensorName& name, TensorShape shape) {
        if (const Stored stored = find(name); stored.matrix != nullptr) {
            return {stored.matrix->packed(), shape.rows, shape.cols, nullptr, stored.matrix->packing()};
        }
        const bool dry = std::exchange(dry_, true);  // reads nothing
        const TensorView view = tensor(name, shape);
        dry_ = dry;
        return view;
    }
    std::span<const std::int32_t> input_order(const TensorName& name) const final {
        const Stored stored = find(name);
        const kernels::Packing* const packing = stored.matrix != nullptr ? stored.matrix->packing() : nullptr;
        return packing != nullptr ? std::span<const std::int32_t>(packing->order) : std::span<const std::int32_t>();
    }
    TensorView with_rows_in(std::span<const std::int32_t> order, TensorView view) final {
        const std::int64_t row_bytes = view.row_bytes();
        std::byte* rows = scratch_.writable(view.data);
        if (rows == nullptr) {  // in the mapped file
            rows = scratch_.take(view.bytes());
            std::memcpy(rows, view.data, static_cast<std::size_t>(view.bytes()));
        }
        put_rows_in_order(rows, row_bytes, order);
        view.data = rows;
        return view;
    }
    std::int64_t embedding_bytes() final {
        return kept_view({.part = "token_embd"}, {config_.shape.vocab, config_.shape.d_model}).bytes();
    }
    std::int64_t per_layer_table_bytes() final {
        const Stored stored = find({.part = "per_layer_token_embd"});
        return stored.info != nullptr && used_.contains(stored.info->name) ? packed_bytes(*stored.info) : 0;
    }

protected:
    virtual const TensorTable& table() const = 0;
    virtual Stored find(const TensorName& name) const = 0;
    // Matrices that are stored as several tensors, by the name without ".weight".
    virtual const Matrices& matrices() const {
        static const Matrices none;
        return none;
    }
    // Whether the tensor may be left unread; then `note` may tell the user so.
    virtual bool ignorable(const TensorInfo& tensor, std::string& note) const = 0;

    // What both formats do once the configuration has been read. `vocab` 0: the number of rows of the embedding table.
    void finish(std::int32_t vocab) {
        const Stored table_of = find({.part = "token_embd"});
        if (table_of.info == nullptr) table().get(table_of.name);  // throws: it is missing
        if (table_of.matrix == nullptr) table().check_usable(*table_of.info);
        const std::int64_t rows = table_of.matrix != nullptr ? table_of.matrix->rows() : rows_of(*table_of.info);
        if (rows > 1 << 24) {
            throw Error(path_ + ": the tensor " + table_of.info->name + " has " + std::to_string(rows) +
                        " rows, which is not a possible vocabulary size");
        }
        if (vocab > 0) check_vocab_size(vocab, rows, path_, "vocab_size");
        config_.shape.vocab = vocab > 0 ? vocab : static_cast<std::int32_t>(rows);
        check_config(config_, path_);
        config_.file_type = main_type();
        take_stock();
    }

    // Whether a tensor belongs to a layer after the model's own.
    bool beyond(std::int32_t layer, std::string& note) const {
        if (layer < config_.shape.layers || layer >= config_.shape.layers + config_.extra_layers) return false;
        note = "the layers for multi-token prediction are not used";
        return true;
    }

private:
    static Kept kept_of(const StoredMatrix& matrix) {
        const kernels::Packing* const packing = matrix.packing();
        return {packing, packing != nullptr ? packing->plain : matrix.packed()};
    }
    Kept kept_of(const TensorInfo& tensor) const {
        if (tensor.stored == nullptr) return {nullptr, tensor.quant_type.value_or(kernels::QuantType::f32)};
        const kernels::Packing* const packing = tensor.stored->packing;
        if (packing == nullptr) return {nullptr, tensor.stored->packed};
        return {packing, factors_of(tensor) != nullptr ? kernels::QuantType::f32 : packing->plain};
    }

    // What a device has of a matrix.
    struct OnDevice {
        std::int64_t bytes = 0;
        std::int64_t more = 0;         // than the host has packed
        const char* reason = nullptr;  // why it is float32 there; null: it is not, or was
    };

    // Devices have panels for packed rows, but keep tables as Packing::plain. Calls body(name, OnDevice)
    // for each matrix that they may keep otherwise than the host.
    template <class Body>
    void visit_on_a_device(const Body& body) {
        const UnlikeOnADevice unlike =
            unlike_on_a_device(config_, [&](const TensorName& name) { return kept_matrix(name); });
        const auto visit = [&](std::string_view name, const Kept& kept, std::int64_t rows, std::int64_t cols,
                               std::int64_t packed) {
            std::int64_t row = 0;
            const auto found = unlike.find(name);
            const bool table = tables_of_rows_.contains(name);
            if (found != unlike.end() && found->second.pair) {
                row = kernels::packed_panel_row_bytes(*found->second.pair, cols);
            } else if (kept.packing != nullptr && found == unlike.end() && !table) {
                row = kernels::packed_panel_row_bytes(*kept.packing, cols);
            }
            OnDevice there;
            if (row == 0) {
                const kernels::QuantType type = found != unlike.end() ? found->second.type : kept.plain;
                row = kernels::row_bytes(type, cols);
                if (type == kernels::QuantType::f32 && 4 * rows * cols > packed) {
                    there.reason = found != unlike.end() ? found->second.reason
                                   : table               ? "devices unpack embedding tables"
                                                         : kTooManyWidths;
                }
            }
            there.bytes = rows * row, there.more = there.bytes - packed;
            body(name, there);
        };
        std::set<std::string_view> parts;
        for (const auto& [name, matrix] : matrices()) {
            const std::string& part = matrix->parts().front()->name;
            if (!used_.contains(part)) continue;
            visit(part, kept_of(*matrix), matrix->rows(), matrix->cols(), matrix->rows() * matrix->packed_row_bytes());
            for (const TensorInfo* one : matrix->parts()) parts.insert(one->name);
        }
        for (const TensorInfo& tensor : table().list()) {
            if (!used_.contains(tensor.name) || parts.contains(tensor.name)) continue;
            const bool changes = tensor.stored != nullptr && tensor.stored->packing != nullptr;
            if (!changes && !unlike.contains(tensor.name)) continue;
            const std::int64_t cols = tensor.shape.back();
            visit(tensor.name, kept_of(tensor), tensor.elements() / cols, cols, packed_bytes(tensor));
        }
    }

    std::optional<KeptMatrix> kept_matrix(const TensorName& name) const {
        const Stored stored = find(name);
        if (stored.info == nullptr || stored.exponents != nullptr) return std::nullopt;
        const bool alone = stored.matrix == nullptr;
        return KeptMatrix{stored.info->name, alone ? kept_of(*stored.info) : kept_of(*stored.matrix),
                          alone ? stored.info->shape.back() : stored.matrix->cols()};
    }

    static std::int64_t rows_of(const TensorInfo& info) {
        return info.shape.empty() ? 1 : info.elements() / info.shape.back();
    }
    // Bytes as the kernels have it, or as a type of files is packed for them.
    std::int64_t packed_bytes(const TensorInfo& info) const {
        return info.stored != nullptr ? info.stored->packed_bytes(info.elements()) : info.bytes;
    }

    // What the panels of the CPU take less than packed_bytes(). A table has none, but as the head.
    bool has_panels(const std::string& name) const { return config_.tied_head || !tables_of_rows_.contains(name); }
    std::int64_t narrowed_bytes(const TensorInfo& info) const {
        if (info.stored == nullptr || info.stored->packing != nullptr || !has_panels(info.name)) return 0;
        const std::int64_t elements = info.elements();
        return packed_bytes(info) - kernels::narrow_bytes(info.stored->packed, codes_of(*info.stored), elements);
    }
    std::int64_t narrowed_bytes(const StoredMatrix& matrix) const {
        if (matrix.packing() != nullptr || !has_panels(matrix.parts().front()->name)) return 0;
        const std::int64_t own = matrix.packed_row_bytes();
        return matrix.rows() * (own - kernels::narrow_bytes(matrix.packed(), matrix.code_range(), matrix.cols()));
    }

    // Asks for every tensor once, without reading any. Throws Error for one that is missing, has another shape, or is
    // in the file and not known.
    void take_stock() {
        dry_ = true;
        const OpMaker::Sink ignore = [](const PlacedOp&) {};
        OpMaker(*this, {.context = config_.context_length, .check_weights = false}, ignore).run();
        dry_ = false;
        for (const TensorInfo& tensor : table().list()) {
            std::string note;
            if (used_.contains(tensor.name)) continue;
            if (!ignorable(tensor, note)) {
                throw Error(path_ + ": the tensor " + quote(tensor.name) + " is not known for the architecture " +
                            config_.architecture + "; use a newer foresay");
            }
            if (!note.empty() && std::ranges::find(config_.notes, note) == config_.notes.end()) {
                config_.notes.push_back(note);
            }
        }
    }

    [[noreturn]] void wrong_shape(const Stored& stored, const std::string& wanted) const {
        throw Error(path_ + ": the tensor " + stored.info->name + " should be " + wanted + " but is " +
                    text(stored.info->shape) + kOtherShape);
    }

    TensorView take(const TensorName& name, const Stored& stored, TensorShape shape) {
        const TensorInfo& info = *stored.info;
        const bool split = stored.exponents != nullptr;  // MXFP4 of safetensors
        if (stored.form != HfForm::whole && name.kind == "bias") return part_of_rows(stored, shape);
        if (info.stored != nullptr) table().check_usable(info);
        if (!stored.all_experts && !split && info.stored == nullptr && stored.form == HfForm::whole) {
            const TensorView view = table().get(info.name);
            if (view.rows != shape.rows || view.cols != shape.cols) {
                throw Error(path_ + ": the tensor " + info.name + " should be " + shape_text(shape.rows, shape.cols) +
                            " but is " + shape_text(view.rows, view.cols) + kOtherShape);
            }
            return view;
        }
        // One matrix of several, or of a tensor that has to be decoded or packed.
        const std::int64_t matrices = stored.all_experts ? name.experts : 1;
        const std::int64_t parts = stored.form == HfForm::whole ? 1 : 2;
        std::vector<std::int64_t> wanted = {shape.rows * parts, shape.cols};
        if (stored.transposed) std::swap(wanted[0], wanted[1]);
        if (stored.all_experts) wanted.insert(wanted.begin(), matrices);
        if (split) {
            wanted.back() /= kMxfp4Values;
            if (shape.cols % kMxfp4Values != 0 || stored.exponents->shape != wanted) {
                throw Error(path_ + ": the tensor " + stored.exponents->name + " should be " + text(wanted) +
                            " but is " + text(stored.exponents->shape));
            }
            wanted.push_back(kMxfp4Bytes);
        }
        if (info.shape != wanted) wrong_shape(stored, text(wanted));
        const std::int64_t expert = std::max(name.expert, 0), rows = shape.rows * parts;
        const bool interleaved = stored.form == HfForm::even_rows || stored.form == HfForm::odd_rows;
        const bool second = stored.form == HfForm::second_half || stored.form == HfForm::odd_rows;
        const std::int64_t first = expert * rows + (second ? (interleaved ? 1 : shape.rows) : 0);
        const std::int64_t step = interleaved ? 2 : 1;
        if (split) return joined_rows(stored, first, step, shape);
        if (info.stored != nullptr) return packed_rows(info, first, step, shape, stays(name));
        if (stored.transposed) return transposed_rows(stored, expert, first - expert * rows, step, shape);
        const TensorView all = table().get(info.name);
        if (!interleaved) return core::rows_of(all, first, shape.rows);
        const std::int64_t row_bytes = kernels::row_bytes(all.quant_type, all.cols);
        std::byte* const out = scratch(shape.rows * row_bytes);
        for (std::int64_t r = 0; r < shape.rows && out != nullptr; ++r) {
            std::memcpy(out + r * row_bytes, all.data + (first + r * step) * row_bytes,
                        static_cast<std::size_t>(row_bytes));
        }
        return {all.quant_type, shape.rows, shape.cols, out};
    }

    // A matrix of several tensors, or the half of its rows that a file stores together with another.
    TensorView matrix_rows(const TensorName& name, const Stored& stored, TensorShape shape) {
        const StoredMatrix& matrix = *stored.matrix;
        const std::int64_t parts = stored.form == HfForm::whole ? 1 : 2, rows = shape.rows * parts;
        constexpr std::int64_t kPadding = 32;
        const bool fits = matrix.rows() == rows ||
                          (matrix.padded() && matrix.rows() > rows && matrix.rows() - rows < kPadding && parts == 1);
        if (!fits || matrix.cols() != shape.cols || stored.transposed || stored.all_experts) {
            throw Error(path_ + ": the matrix of " + stored.info->name + " should be " + shape_text(rows, shape.cols) +
                        " but is " + shape_text(matrix.rows(), matrix.cols()) + kOtherShape);
        }
        if (dry_) return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
        TensorView view{matrix.packed(), shape.rows, shape.cols, nullptr, matrix.packing()};
        const auto [out, filled] = scratch_.place(stays(name), stored.info->name, view.bytes());
        if (!filled) {
            const bool interleaved = stored.form == HfForm::even_rows || stored.form == HfForm::odd_rows;
            const bool second = stored.form == HfForm::second_half || stored.form == HfForm::odd_rows;
            matrix.pack({.first = second ? (interleaved ? 1 : shape.rows) : 0,
                         .step = interleaved ? 2 : 1,
                         .count = shape.rows},
                        out);
        }
        view.data = out;
        return view;
    }

    // Biases of gate and up in one tensor: of each row one half, or every second value.
    TensorView part_of_rows(const Stored& stored, TensorShape shape) {
        const TensorView all = table().get(stored.info->name);
        if (all.rows != shape.rows || all.cols != 2 * shape.cols) {
            wrong_shape(stored, shape_text(shape.rows, 2 * shape.cols));
        }
        const bool interleaved = stored.form == HfForm::even_rows || stored.form == HfForm::odd_rows;
        const bool second = stored.form == HfForm::second_half || stored.form == HfForm::odd_rows;
        auto* const out = reinterpret_cast<float*>(scratch(shape.rows * shape.cols * std::int64_t{sizeof(float)}));
        std::vector<float> row(static_cast<std::size_t>(all.cols));
        for (std::int64_t r = 0; r < shape.rows && out != nullptr; ++r) {
            kernels::dequantize_row(all, r, row);
            for (std::int64_t c = 0; c < shape.cols; ++c) {
                const std::int64_t from = interleaved ? 2 * c + (second ? 1 : 0) : c + (second ? shape.cols : 0);
                out[r * shape.cols + c] = row[static_cast<std::size_t>(from)];
            }
        }
        return {kernels::QuantType::f32, shape.rows, shape.cols, reinterpret_cast<const std::byte*>(out)};
    }

    TensorView joined_rows(const Stored& stored, std::int64_t first, std::int64_t step, TensorShape shape) {
        if (dry_) return {kernels::QuantType::mxfp4, shape.rows, shape.cols, nullptr};
        return join_mxfp4(stored.info->data, stored.exponents->data, first, step, shape.rows, shape.cols,
                          joined_.emplace_back());
    }

    // Whether backends read the tensor where it lies as long as the model lives.
    static bool stays(const TensorName& name) { return name.is_table() || name.part == "per_layer_token_embd"; }

    // Rows first, first + step, ... in the type that the kernels have for them. Those of a table are packed once.
    TensorView packed_rows(const TensorInfo& info, std::int64_t first, std::int64_t step, TensorShape shape,
                           bool stays) {
        const kernels::StoredType& type = *info.stored;
        const TensorInfo* const factors = factors_of(info);
        if (factors != nullptr) used_.insert(factors->name);
        TensorView view{type.packed, shape.rows, shape.cols, nullptr, type.packing};
        if (dry_) return view;
        // One factor for the tensor, or one for each of its matrices.
        if (factors != nullptr) {
            const std::int64_t own = factors->elements() > 1 ? first / info.shape[1] : 0;
            packings_.push_back(*type.packing);
            packings_.back().factor = number_at(*factors, own);
            packings_.back().plain = kernels::QuantType::f32;
            view.packing = &packings_.back();
        }
        const auto [out, filled] = scratch_.place(stays, info.name, view.bytes());
        view.data = out;
        if (filled) return view;
        const std::int64_t from_bytes = type.stored_bytes(shape.cols);
        const std::int64_t to_bytes = view.row_bytes();
        parallel_rows(shape.rows, [&, out = out](std::int64_t begin, std::int64_t end) {
            for (std::int64_t r = begin; r < end; ++r) {
                type.pack(info.data + (first + r * step) * from_bytes, shape.cols / type.block_elements,
                          out + r * to_bytes);
            }
        });
        return view;
    }

    // Factors of float32 that a GGUF file keeps beside a tensor of NVFP4, for all of it or for each expert; null: none.
    const TensorInfo* factors_of(const TensorInfo& info) const {
        constexpr std::string_view kWeight = ".weight";
        if (info.type != "NVFP4" || !info.name.ends_with(kWeight)) return nullptr;
        const std::string stem = info.name.substr(0, info.name.size() - kWeight.size());
        const TensorInfo* const factors = table().find(stem + ".scale");
        if (factors == nullptr) return nullptr;
        const bool per_matrix = info.shape.size() == 3 && factors->elements() == info.shape[0];
        if (factors->type != "F32" || (factors->elements() != 1 && !per_matrix)) {
            throw Error(path_ + ": the tensor " + factors->name +
                        " should be one F32 number, or one for each expert, " + "but is " + factors->type + " " +
                        text(factors->shape));
        }
        return factors;
    }

    // Matrices stored [inputs, outputs], of single values.
    TensorView transposed_rows(const Stored& stored, std::int64_t expert, std::int64_t first, std::int64_t step,
                               TensorShape shape) {
        const TensorView all = table().get(stored.info->name);
        check(kernels::info(all.quant_type).block_elements == 1, "a transposed matrix of blocks");
        const std::int64_t size = kernels::info(all.quant_type).block_bytes;
        std::byte* const out = scratch(shape.rows * shape.cols * size);
        for (std::int64_t c = 0; c < shape.cols && out != nullptr; ++c) {
            const std::byte* const from = all.data + (expert * shape.cols + c) * all.cols * size;
            for (std::int64_t r = 0; r < shape.rows; ++r) {
                std::memcpy(out + (r * shape.cols + c) * size, from + (first + r * step) * size,
                            static_cast<std::size_t>(size));
            }
        }
        return {all.quant_type, shape.rows, shape.cols, out};
    }

    // Memory until release(); null while taking stock.
    std::byte* scratch(std::int64_t bytes) { return dry_ ? nullptr : scratch_.take(bytes); }

    // The type that holds the most values.
    std::string main_type() const {
        std::map<std::string, std::int64_t> values;
        for (const auto& [name, matrix] : matrices()) {
            values[lower_case(matrix->encoding())] += matrix->rows() * matrix->cols();
        }
        for (const TensorInfo& tensor : table().list()) {
            if (tensor.quant_type) values[std::string(kernels::info(*tensor.quant_type).name)] += tensor.elements();
            if (tensor.stored != nullptr) values[lower_case(tensor.stored->name)] += tensor.elements();
            // MXFP4 in safetensors: bytes of two codes.
            if (tensor.name.ends_with("_blocks")) values["mxfp4"] += 2 * tensor.elements();
        }
        return std::ranges::max_element(values, {}, [](const auto& one) { return one.second; })->first;
    }

    std::set<std::string, std::less<>> used_;
    std::set<std::string, std::less<>> tables_of_rows_;  // of which a token reads a row
    Scratch scratch_;
    std::deque<std::vector<std::byte>> joined_;
    std::deque<kernels::Packing> packings_;  // with factors of their own
    bool dry_ = false;
};

class GgufSource final : public FileSource {
public:
    explicit GgufSource(const std::filesystem::path& path) : file_(GgufFile::open(path)) {
        path_ = file_.path();
        const Architecture& family = core::architecture_for_gguf(file_.get_string("general.architecture"), path_);
        Keys keys(file_, *this);
        config_ = read_config(keys, family);
        config_.name = file_.get_string_or("general.name", "");
        finish(0);
        const std::string vocab = std::string(file_.get_string("general.architecture")) + ".vocab_size";
        check_vocab_size(file_.get_int_or(vocab, config_.shape.vocab), config_.shape.vocab, path_, vocab);
    }
    const GgufFile* gguf() const override { return &file_; }

protected:
    const TensorTable& table() const override { return file_.tensors(); }

    Stored find(const TensorName& name) const override {
        Stored stored{.name = name.text()};
        stored.info = table().find(stored.name);
        stored.all_experts = name.expert >= 0;
        if (stored.info != nullptr || name.expert < 0) return stored;
        // Gate and up in one tensor; or, in the first files of Mixtral, a tensor per expert.
        const std::string layer = "blk." + std::to_string(name.layer) + ".";
        const TensorInfo* const both = table().find(layer + "ffn_gate_up_exps.weight");
        if (both != nullptr && (name.part == "ffn_gate_exps" || name.part == "ffn_up_exps")) {
            stored.info = both;
            stored.form = name.part == "ffn_gate_exps" ? HfForm::first_half : HfForm::second_half;
            return stored;
        }
        const std::string_view single = name.part.substr(0, name.part.size() - std::string_view("_exps").size());
        stored.info = table().find(layer + std::string(single) + "." + std::to_string(name.expert) + ".weight");
        stored.all_experts = stored.info == nullptr;
        return stored;
    }

    bool ignorable(const TensorInfo& tensor, std::string& note) const override {
        const std::string& name = tensor.name;
        // Rope factors have been read with the configuration.
        if (name.starts_with("rope_f") || name.ends_with(".input_scale")) return true;
        const std::int32_t layer = number_after(name, "blk.");
        if (layer >= 0 && beyond(layer, note)) return true;
        const bool shared = layer >= 0 && layer < config_.shape.layers && !layer_config(config_, layer).own_kv;
        return shared && (name.find(".attn_k") != std::string::npos || name.find(".attn_v") != std::string::npos);
    }

private:
    GgufFile file_;
};

class SafetensorsSource final : public FileSource {
public:
    explicit SafetensorsSource(const std::filesystem::path& path) : dir_(SafetensorsDir::open(path)) {
        path_ = dir_.path();
        const JsonConfig& json = dir_.config();
        const std::vector<std::string> names = json.get_strings("architectures");
        if (names.empty()) throw Error(json.path() + ": 'architectures' is empty");
        family_ = &architecture_for_hf(names.front(), json.path());
        matrices_ = open_matrices(dir_);
        find_prefix();
        Keys keys(json, *this);
        config_ = read_config(keys, *family_);
        config_.name = json.get_string_or("_name_or_path", "");
        const bool given = keys.has({}, "vocab_size");
        const std::int32_t vocab = given ? keys.count({}, "vocab_size") : 0;
        if ((given && vocab <= 0) || vocab > 1 << 24) {
            throw Error(json.path() + ": vocab_size is " + std::to_string(vocab) +
                        ", which is out of range; the file is damaged, get it again");
        }
        finish(vocab);
    }

    std::filesystem::path folder() const override { return dir_.directory(); }

protected:
    const TensorTable& table() const override { return dir_.tensors(); }
    const Matrices& matrices() const override { return matrices_; }

    Stored find(const TensorName& name) const override {
        const HfName known = hf_name(*family_, name.part, name.kind);
        Stored stored{.form = known.form, .transposed = known.transposed, .name = name.text()};
        if (known.hf.empty()) return stored;
        std::string own(known.hf);
        const bool exact = own.ends_with('!');
        if (exact) own.pop_back();
        if (const std::size_t place = own.find("{e}"); place != std::string::npos) {
            own.replace(place, 3, std::to_string(name.expert));
        } else {
            stored.all_experts = name.expert >= 0;
        }
        if (name.layer >= 0) own = "layers." + std::to_string(name.layer) + "." + own;
        stored.name = (name.is_head() ? head_prefix_ : prefix_) + own + (exact ? "" : "." + std::string(name.kind));
        if (!exact && name.kind == "weight") {
            const auto found = matrices_.find(std::string_view(stored.name).substr(0, stored.name.rfind('.')));
            if (found != matrices_.end()) {
                stored.matrix = found->second.get();
                stored.info = stored.matrix->parts().front();
                return stored;
            }
        }
        stored.info = table().find(stored.name);
        if (stored.info == nullptr && exact) {
            stored.info = table().find(stored.name + "_blocks");
            stored.exponents = table().find(stored.name + "_scales");
            if (stored.exponents == nullptr) stored.info = nullptr;
            stored.transposed = false;
        }
        return stored;
    }

    bool ignorable(const TensorInfo& tensor, std::string& note) const override {
        const std::string& name = tensor.name;
        if (name.ends_with("rotary_emb.inv_freq") || name.ends_with(".input_scale")) return true;
        if (name.ends_with(".k_scale") || name.ends_with(".v_scale")) {
            note = "the scales for a cache in eight bits are not used";
            return true;
        }
        // Tools for quantised models write biases of zero where the model has none.
        if (name.ends_with(".bias") && matrices_.contains(name.substr(0, name.rfind('.'))) && is_zero(tensor)) {
            return true;
        }
        const std::int32_t layer = number_after(name, prefix_ + "layers.");
        if (name.starts_with("mtp.") || name.starts_with(prefix_ + "mtp.")) {
            note = "the layers for multi-token prediction are not used";
            return true;
        }
        if (layer >= 0 && beyond(layer, note)) return true;
        if (layer >= 0 && layer < config_.shape.layers && !layer_config(config_, layer).own_kv) {
            const bool shared = name.find(".k_") != std::string::npos || name.find(".v_") != std::string::npos;
            if (shared) return true;
        }
        constexpr std::string_view kOthers[] = {"vision", "visual",       "multi_modal",
                                                "audio",  "embed_vision", "embed_audio"};
        std::string_view own = name;
        if (own.starts_with("model.")) own.remove_prefix(std::string_view("model.").size());
        if (std::ranges::none_of(kOthers, [&](std::string_view other) { return own.starts_with(other); })) return false;
        note = "the parts for images and sound are not used";
        return true;
    }

private:
    // Models with more than text keep the text model below a name of its own.
    void find_prefix() {
        for (const std::string_view prefix : {"model.", "language_model.model.", "model.language_model.", ""}) {
            prefix_ = prefix;
            if (table().has(prefix_ + "embed_tokens.weight")) break;
            prefix_ = "model.";
        }
        const std::string head = "language_model.lm_head";
        if (table().has(head + ".weight") || matrices_.contains(head)) head_prefix_ = "language_model.";
    }

    static bool is_zero(const TensorInfo& tensor) {
        return tensor.quant_type &&
               std::all_of(tensor.data, tensor.data + tensor.bytes, [](std::byte b) { return b == std::byte{0}; });
    }

    SafetensorsDir dir_;
    Matrices matrices_;
    const Architecture* family_ = nullptr;
    std::string prefix_, head_prefix_;
};

}  // namespace

std::string TensorName::text() const {
    std::string name = layer >= 0 ? "blk." + std::to_string(layer) + "." : std::string();
    return name + std::string(part) + "." + std::string(kind);
}

std::vector<Encoding> encodings_of(ModelSource& source) {
    auto* const file = dynamic_cast<FileSource*>(&source);
    return file != nullptr ? file->encodings() : std::vector<Encoding>();
}

TensorView kept_view(ModelSource& source, const TensorName& name, TensorShape shape) {
    if (auto* const file = dynamic_cast<FileSource*>(&source)) return file->kept_view(name, shape);
    if (const auto* const made = dynamic_cast<const SyntheticSource*>(&source)) return made->kept_view(name, shape);
    const TensorView view = source.tensor(name, shape);
    source.release();
    return view;
}

std::int64_t ModelSource::embedding_bytes() {
    return tensor({.part = "token_embd"}, {config_.shape.vocab, config_.shape.d_model}).bytes();
}

std::vector<UnpackedMatrices> unpacked_on_a_device(ModelSource& source) {
    auto* const file = dynamic_cast<FileSource*>(&source);
    return file != nullptr ? file->unpacked_on_a_device() : std::vector<UnpackedMatrices>();
}

std::int64_t narrowed_bytes(ModelSource& source) {
    auto* const file = dynamic_cast<FileSource*>(&source);
    return file != nullptr ? file->narrowed_bytes() : 0;
}

void ModelSource::place_layers(std::vector<std::int32_t> devices) {
    check(devices.size() == static_cast<std::size_t>(config_.shape.layers), "a backend for each layer");
    config_.shape.devices = 0;
    for (const std::int32_t device : devices) {
        config_.shape.devices |= device < 0 ? (1u << -device) - 1 : 1u << device;
    }
    config_.devices = std::move(devices);
}

std::unique_ptr<ModelSource> ModelSource::open(const std::filesystem::path& path) {
    if (detect_model_format(path) == ModelFormat::gguf) return std::make_unique<GgufSource>(path);
    return std::make_unique<SafetensorsSource>(path);
}

}  // namespace foresay::core
