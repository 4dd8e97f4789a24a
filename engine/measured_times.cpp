#include "engine/measured_times.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <variant>

#include "base/error.h"
#include "core/models/encodings.h"
#include "core/models/op_maker.h"
#include "kernels/forward_op.h"
#include "kernels/host_threads.h"
#include "kernels/row_division.h"
#include "speculative/memory_estimate.h"

namespace foresay::engine {
namespace {

using std::int32_t;
using std::int64_t;
using Clock = std::chrono::steady_clock;

// So many bytes are far more than caches keep from one pass to the next.
constexpr int64_t kEnoughBytes = int64_t{512} << 20;
constexpr double kPrepareSeconds = 0.1, kRunSeconds = 0.1;
constexpr double kSlowSeconds = 2.0;  // of preparing the first kinds, as from a slow disk: then without the others
constexpr std::size_t kFewestPasses = 3, kMostPasses = 50;
constexpr std::size_t kMostKinds = 4;
constexpr double kLeastShare = 0.02;                        // what takes less of all bytes is not worth measuring
constexpr int64_t kHeadBytes = int64_t{64} << 20;           // of the LM head
constexpr int32_t kPosition = kernels::kPagePositions - 1;  // of the row, so that one page is enough

double since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

// Memory that is read between two passes, so that caches have nothing of the one when the next begins. It takes less
// time than preparing as many weights.
class OtherMemory {
public:
    OtherMemory(kernels::Ops& ops, int64_t bytes) : ops_(ops), pieces_(static_cast<int32_t>(bytes / kPiece)) {
        constexpr std::size_t kHugePage = std::size_t{2} << 20;
        memory_.reset(static_cast<std::uint64_t*>(std::aligned_alloc(kHugePage, size(pieces_) * kPiece)));
        if (memory_ == nullptr && pieces_ > 0) throw std::bad_alloc();  // what caches keep would be measured
        if (pieces_ > 0) madvise(memory_.get(), size(pieces_) * kPiece, MADV_HUGEPAGE);  // failure costs only time
        // Pages that were never written are all the same one.
        each([](std::uint64_t* words) { std::fill_n(words, kWords, std::uint64_t{1}); });
    }
    void read() {
        each([this](const std::uint64_t* words) {
            std::uint64_t sum = 0;
            for (std::size_t line = 0; line < kWords; line += 8) sum += words[line];
            sink_ += sum;
        });
    }

private:
    static constexpr std::size_t kPiece = std::size_t{2} << 20, kWords = kPiece / sizeof(std::uint64_t);
    struct Free {
        void operator()(std::uint64_t* memory) const { std::free(memory); }
    };
    static std::size_t size(int32_t count) { return static_cast<std::size_t>(count); }
    template <class Body>
    void each(const Body& body) {
        kernels::for_each_on_host(ops_, pieces_, [&](int32_t i) { body(memory_.get() + size(i) * kWords); });
    }

    kernels::Ops& ops_;
    int32_t pieces_;
    std::unique_ptr<std::uint64_t, Free> memory_;
    std::atomic<std::uint64_t> sink_ = 0;
};

// A source that makes or reads the tensors of one layer, or of the LM head, and has the others without data.
class OneLayer final : public core::ModelSource {
public:
    // experts: how many of a mixture's there are.
    OneLayer(core::ModelSource& source, int32_t layer, int32_t experts)
        : source_(source), layer_(layer), experts_(experts) {
        config_ = source.config();
        path_ = source.path();
    }
    kernels::TensorView tensor(const core::TensorName& name, core::TensorShape shape) override {
        const bool head = layer_ < 0 && (name.is_head() || name.part == "output_norm");
        const bool own = layer_ >= 0 && name.layer == layer_ && name.expert < experts_;
        if (head || own) return source_.tensor(name, shape);
        return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
    }
    bool has(const core::TensorName& name) const override { return source_.has(name); }
    std::span<const int32_t> input_order(const core::TensorName& name) const override {
        return name.layer == layer_ ? source_.input_order(name) : std::span<const int32_t>();
    }
    kernels::TensorView with_rows_in(std::span<const int32_t> order, kernels::TensorView view) override {
        return source_.with_rows_in(order, view);
    }
    void release() override { source_.release(); }
    int64_t weight_bytes() override { return source_.weight_bytes(); }

private:
    core::ModelSource& source_;
    int32_t layer_, experts_;
};

// The mixture with its first experts alone.
kernels::MoeSpec fewer_experts(const kernels::MoeSpec& all, int32_t count) {
    const kernels::Part first{0, count};
    kernels::MoeSpec spec = all;
    spec.shape.experts = count;
    for (auto* matrices : {&spec.gate, &spec.up, &spec.down}) matrices->resize(static_cast<std::size_t>(count));
    for (auto* rows : {&spec.gate_bias, &spec.up_bias, &spec.down_bias}) *rows = kernels::rows_of(*rows, first);
    spec.router.weight = kernels::rows_of(spec.router.weight, first);
    for (auto* values : {&spec.router.bias, &spec.router.choice_bias, &spec.router.factor}) {
        *values = kernels::values_of(*values, first);
    }
    spec.router.groups = spec.router.groups_used = 1;
    return spec;
}

constexpr int32_t kHead = -1;  // in place of a kind or a layer

// A layer of this kind, or a part of the LM head.
struct Piece {
    struct Op {
        kernels::ForwardOp op;
        int32_t kv;
        std::unique_ptr<kernels::PreparedOp> prepared;
    };
    int32_t kind = kHead;
    std::vector<Op> ops;
};

class Probe {
public:
    Probe(kernels::Ops& ops, core::ModelSource& source, const core::ModelBytes& bytes)
        : ops_(ops), source_(source), bytes_(bytes), shape_(source.config().shape) {
        const int64_t head_bytes_of_row = std::max<int64_t>(1, bytes.head / std::max(shape_.vocab, 1));
        head_rows_ = static_cast<int32_t>(std::min<int64_t>(shape_.vocab, kHeadBytes / head_bytes_of_row));
        shape_.vocab = head_rows_ = std::max(head_rows_, std::min(shape_.vocab, kernels::kRowUnit));
        // No more than a row uses: the row is the same in every pass, so others would not be read.
        shape_.experts = std::min(shape_.experts, std::max(shape_.experts_used, 2));
    }

    core::RowTimes run() {
        prepare();
        // The head alone says too little of layers.
        if (std::ranges::all_of(pieces_, [](const Piece& piece) { return piece.kind == kHead; })) return {};
        std::vector<std::vector<double>> seconds = time();
        std::vector<double> of_kinds(kinds_.size());
        for (std::size_t kind = 0; kind < kinds_.size(); ++kind) of_kinds[kind] = median(seconds[kind]);
        const double head = median(seconds.back()) * source_.config().shape.vocab / head_rows_;
        return core::row_times(bytes_, of_kinds, head);
    }

private:
    static double median(std::vector<double>& values) {
        if (values.empty()) return 0.0;
        const auto middle = values.begin() + std::ssize(values) / 2;
        std::ranges::nth_element(values, middle);
        return *middle;
    }

    void prepare() {
        const auto layers = static_cast<int32_t>(bytes_.layers.size());
        for (int32_t i = 0; i < layers; ++i) {
            const auto kind = static_cast<std::size_t>(bytes_.kinds[static_cast<std::size_t>(i)]);
            kinds_.resize(std::max(kinds_.size(), kind + 1));
            kinds_[kind].push_back(i);
        }
        const auto all = static_cast<double>(core::read_bytes(bytes_, 0, layers));
        const auto read = [&](int32_t kind) {
            const std::vector<int32_t>& alike = kinds_[static_cast<std::size_t>(kind)];
            return bytes_.read[static_cast<std::size_t>(alike.front())] * std::ssize(alike);
        };
        std::vector<int32_t> chosen(kinds_.size());
        std::iota(chosen.begin(), chosen.end(), 0);
        std::ranges::stable_sort(chosen, std::ranges::greater(), read);
        while (chosen.size() > 1 && (chosen.size() > kMostKinds || read(chosen.back()) < kLeastShare * all)) {
            chosen.pop_back();
        }
        const int64_t free = speculative::available_memory();
        const int64_t enough = std::min({kEnoughBytes, free / 8, static_cast<int64_t>(all)});
        const Clock::time_point start = Clock::now();
        int64_t taken = 0;
        const auto settle = [&] {
            // Each processor core has a part of the caches.
            const int64_t most =
                std::clamp(ops_.describe().threads * (int64_t{16} << 20), kEnoughBytes / 2, 4 * kEnoughBytes);
            if (taken < enough) between_.emplace(ops_, std::min(most, free / 8));
        };
        const auto fits = [&](int64_t bytes) { return taken + bytes <= free / 4; };
        if (static_cast<double>(bytes_.head) >= kLeastShare * all && fits(std::min(bytes_.head, kHeadBytes))) {
            taken += add(kHead, kHead);
        }
        // Each kind once, and then again until there is enough.
        bool begun = false;
        for (std::size_t round = 0;; ++round) {
            for (const int32_t kind : chosen) {
                const bool ends = round == 0 ? begun && since(start) >= kSlowSeconds
                                             : taken >= enough || since(start) >= kPrepareSeconds;
                const std::vector<int32_t>& alike = kinds_[static_cast<std::size_t>(kind)];
                const int32_t layer = alike[round % alike.size()];
                if (ends || !fits(bytes_.read[static_cast<std::size_t>(layer)])) return settle();
                taken += add(kind, layer);
                begun = true;
            }
        }
    }

    // Returns the bytes that a row reads of it.
    int64_t add(int32_t kind, int32_t layer) {
        OneLayer one(source_, layer, shape_.experts);
        Piece piece{.kind = kind, .ops = {}};
        int64_t taken = 0;
        const core::OpMaker::Sink prepare = [&](const core::PlacedOp& placed) {
            const auto op = static_cast<kernels::ForwardOp>(placed.spec.index());
            const bool head = op == kernels::ForwardOp::lm_head;
            const bool first = op == kernels::ForwardOp::embed || op == kernels::ForwardOp::per_layer_embed;
            if (first || head != (layer == kHead) || (!head && placed.layer != layer)) return;
            std::unique_ptr<kernels::PreparedOp> prepared;
            if (const auto* moe = std::get_if<kernels::MoeSpec>(&placed.spec)) {
                prepared = ops_.prepare(fewer_experts(*moe, shape_.experts));
            } else if (const auto* whole = std::get_if<kernels::LmHeadSpec>(&placed.spec)) {
                prepared = ops_.prepare(kernels::part_of(*whole, {0, head_rows_}));
            } else {
                prepared = std::visit([&](const auto& spec) { return ops_.prepare(spec); }, placed.spec);
            }
            taken += static_cast<int64_t>(prepared->bytes_read(1));
            piece.ops.push_back({op, placed.kv, std::move(prepared)});
        };
        core::OpMaker(one, {.context = source_.config().context_length, .check_weights = false}, prepare).run();
        pieces_.push_back(std::move(piece));
        return taken;
    }

    // Of each kind and, as the last, of the head: what each pass took for one.
    std::vector<std::vector<double>> time() {
        std::vector<std::vector<double>> seconds(kinds_.size() + 1);
        std::vector<int> count(seconds.size());
        const auto place = [&](const Piece& piece) {
            return piece.kind == kHead ? kinds_.size() : static_cast<std::size_t>(piece.kind);
        };
        for (const Piece& piece : pieces_) ++count[place(piece)];

        const auto kv = ops_.allocate_kv(core::kv_shape(source_.config()), 1, kernels::KvFormat::f16);
        const auto workspace = ops_.allocate_workspace(shape_, 1, 1);
        const kernels::Row row{.token = kernels::TokenRef::id(0), .position = kPosition};
        const int32_t page = 0, logits = 0;
        const kernels::SequenceView sequence{.pages = {&page, 1}, .length = kPosition};
        const kernels::Batch batch{.row_class = kernels::RowClass::decode,
                                   .rows = {&row, 1},
                                   .sequences = {&sequence, 1},
                                   .logit_rows = {&logits, 1}};
        std::vector<float> x(static_cast<std::size_t>(shape_.d_model));
        for (std::size_t i = 0; i < x.size(); ++i) x[i] = static_cast<float>(i % 17) / 16.0f - 0.5f;

        Clock::time_point start;
        for (std::size_t pass = 0; pass <= kMostPasses; ++pass) {  // the first warms up
            if (pass == 1) start = Clock::now();
            if (pass > kFewestPasses && since(start) > kRunSeconds) break;
            std::vector<double> sums(seconds.size());
            if (between_) between_->read();
            ops_.begin(*workspace, batch);
            ops_.write_rows(*workspace, x);
            for (const Piece& piece : pieces_) {
                const Clock::time_point before = Clock::now();
                for (const Piece::Op& one : piece.ops) {
                    kernels::run_op(one.op, ops_, *one.prepared, *workspace, kv.get(), one.kv);
                }
                sums[place(piece)] += since(before);
            }
            for (std::size_t i = 0; i < sums.size() && pass > 0; ++i) {
                if (count[i] > 0) seconds[i].push_back(sums[i] / count[i]);
            }
        }
        return seconds;
    }

    kernels::Ops& ops_;
    core::ModelSource& source_;
    const core::ModelBytes& bytes_;
    kernels::ModelShape shape_;  // of the workspace
    int32_t head_rows_ = 0;
    std::vector<std::vector<int32_t>> kinds_;  // the layers of each
    std::vector<Piece> pieces_;
    std::optional<OtherMemory> between_;  // where the pieces are few
};

}  // namespace

core::RowTimes measured_times(kernels::Ops& ops, core::ModelSource& source, const core::ModelBytes& bytes) {
    static std::mutex mutex;
    static std::map<std::tuple<std::string, std::string, int, std::string, int64_t>, core::RowTimes> known;
    const kernels::BackendInfo info = ops.describe();
    const auto layers = static_cast<int32_t>(bytes.layers.size());
    const std::lock_guard lock(mutex);  // also so that two measurements do not share the cores that they measure
    core::RowTimes& times =
        known[{info.name, info.detail, info.threads, source.path(), core::read_bytes(bytes, 0, layers)}];
    if (std::ssize(times.layers) == layers) return times;
    try {
        times = Probe(ops, source, bytes).run();
    } catch (const Error&) {  // such as weights that loading refuses, which then says so: the bandwidth has to do
        times = {};
    } catch (const std::bad_alloc&) {
        times = {};
    }
    source.release();
    return times;
}

}  // namespace foresay::engine
