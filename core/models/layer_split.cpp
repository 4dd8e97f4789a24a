#include "core/models/layer_split.h"

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "core/models/encodings.h"
#include "core/models/model_source.h"
#include "core/models/op_maker.h"

namespace foresay::core {
namespace {

std::string gib(std::int64_t bytes) {
    const std::int64_t tenths = (bytes * 10 + (std::int64_t{1} << 29)) >> 30;
    if (tenths >= 10) return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10) + " GiB";
    return std::to_string((bytes + (1 << 19)) >> 20) + " MiB";
}

std::string of_layers(std::int64_t count) { return std::to_string(count) + (count == 1 ? " layer" : " layers"); }

std::int64_t sum(const std::vector<std::int64_t>& values, std::int32_t begin, std::int32_t end) {
    return std::accumulate(values.begin() + begin, values.begin() + end, std::int64_t{0});
}

// Asks a source for what its tensors take, each once, and for nothing else.
class Scales final : public ModelSource {
public:
    explicit Scales(ModelSource& source) : source_(source) {
        config_ = source.config();
        path_ = source.path();
        bytes.layers.resize(static_cast<std::size_t>(config_.shape.layers));
        bytes.read = bytes.layers;
        stored_.resize(bytes.layers.size());
    }

    kernels::TensorView tensor(const TensorName& name, TensorShape shape) override {
        const std::string key = name.text() + " " + std::to_string(name.expert);
        const bool table = name.is_table() || name.part == "per_layer_token_embd";
        const bool again = table || (name.is_head() && config_.tied_head) || !seen_.insert(key).second;
        if (!again) add(name, kept_view(source_, name, shape));
        return {kernels::QuantType::f32, shape.rows, shape.cols, nullptr};
    }
    bool has(const TensorName& name) const override { return source_.has(name); }
    std::int64_t weight_bytes() override { return source_.weight_bytes(); }

    // Numbers kinds of layers in the order in which they come.
    void number_kinds() {
        std::map<std::vector<Stored>, std::int32_t> known;
        for (std::vector<Stored>& layer : stored_) {
            const auto next = static_cast<std::int32_t>(known.size());
            bytes.kinds.push_back(known.emplace(std::move(layer), next).first->second);
        }
    }

    ModelBytes bytes;

private:
    // A tensor of a layer: its name, shape, type, and the bytes of a row, which differ by packing.
    using Stored = std::tuple<std::string, std::int64_t, std::int64_t, kernels::QuantType, std::int64_t>;

    void add(const TensorName& name, const kernels::TensorView& view) {
        const std::int64_t own = view.bytes();
        if (name.layer < 0) {
            (name.part.starts_with("per_layer") ? bytes.everywhere : bytes.head) += own;
            return;
        }
        const auto layer = static_cast<std::size_t>(name.layer);
        bytes.layers[layer] += own;
        // The experts of a layer are alike: a row reads the first K of E as well as any others.
        if (name.expert >= config_.experts.used) return;
        bytes.read[layer] += own;
        stored_[layer].emplace_back(name.part, view.rows, view.cols, view.quant_type, view.row_bytes());
    }

    ModelSource& source_;
    std::set<std::string> seen_;
    std::vector<std::vector<Stored>> stored_;  // by layer
};

}  // namespace

std::int64_t read_bytes(const ModelBytes& model, std::int32_t begin, std::int32_t end) {
    if (begin == end) return 0;
    return sum(model.read.empty() ? model.layers : model.read, begin, end) +
           (end == std::ssize(model.layers) ? model.head : 0);
}

RowTimes row_times(const ModelBytes& model, std::span<const double> of_kinds, double head) {
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    const auto kind_of = [&](std::int32_t i) {
        return static_cast<std::size_t>(model.kinds[static_cast<std::size_t>(i)]);
    };
    const auto read = [&](std::int32_t i) {  // without the head
        const std::int64_t both = read_bytes(model, i, i + 1);
        return static_cast<double>(i + 1 == layers ? both - model.head : both);
    };
    double measured = 0.0, seconds = head;
    if (head > 0.0) measured += static_cast<double>(model.head);
    for (std::int32_t i = 0; i < layers; ++i) {
        if (of_kinds[kind_of(i)] <= 0.0) continue;
        measured += read(i);
        seconds += of_kinds[kind_of(i)];
    }
    if (measured <= 0.0 || seconds <= 0.0) return {};
    const double of_byte = seconds / measured;
    RowTimes times{.head = head > 0.0 ? head : static_cast<double>(model.head) * of_byte};
    for (std::int32_t i = 0; i < layers; ++i) {
        const double own = of_kinds[kind_of(i)];
        times.layers.push_back(own > 0.0 ? own : read(i) * of_byte);
    }
    return times;
}

double row_seconds(const ModelBytes& model, const DeviceRoom& room, std::int32_t begin, std::int32_t end) {
    if (room.times.layers.empty()) return static_cast<double>(read_bytes(model, begin, end)) / room.bytes_per_second;
    if (begin == end) return 0.0;
    const std::vector<double>& layers = room.times.layers;
    return std::accumulate(layers.begin() + begin, layers.begin() + end, 0.0) +
           (end == std::ssize(layers) ? room.times.head : 0.0);
}

bool can_cut(const ModelConfig& config, std::int32_t layer) {
    std::int32_t before = 0;  // layers of the KV cache that the first ones have
    for (std::int32_t i = 0; i < config.shape.layers; ++i) {
        const LayerConfig own = layer_config(config, i);
        if (i < layer && own.own_kv) ++before;
        if (i >= layer && !own.own_kv && own.kv < before) return false;
    }
    return true;
}

void check_split(const LayerSplit& split, const ModelConfig& config, std::size_t devices) {
    if (split.size() != devices) {
        throw Error("layers are given for " + std::to_string(split.size()) + " of " + std::to_string(devices) +
                    " devices; name a number for each");
    }
    std::int64_t cut = 0;
    for (const std::int32_t count : split) {
        if (count < 0) throw Error("a device cannot have " + of_layers(count) + "; name 0 or more");
        if (cut > 0 && cut < config.shape.layers && !can_cut(config, static_cast<std::int32_t>(cut))) {
            throw Error("the model cannot be divided before its layer " + std::to_string(cut) +
                        ", because a later one reads the keys of an earlier one; choose other numbers of layers");
        }
        cut += count;
    }
    if (cut != config.shape.layers) {
        throw Error("the devices are given " + of_layers(cut) + " together, and the model has " +
                    std::to_string(config.shape.layers) + "; choose numbers that add up to that");
    }
}

std::vector<std::int32_t> devices_of(const LayerSplit& split) {
    std::vector<std::int32_t> devices;
    for (std::size_t d = 0; d < split.size(); ++d) {
        devices.insert(devices.end(), static_cast<std::size_t>(split[d]), static_cast<std::int32_t>(d));
    }
    return devices;
}

ModelBytes model_bytes(ModelSource& source) {
    const ModelConfig& config = source.config();
    Scales scales(source);
    const OpMaker::Sink ignore = [](const PlacedOp&) {};
    OpMaker(scales, {.context = config.context_length, .check_weights = false}, ignore).run();
    scales.number_kinds();
    ModelBytes bytes = std::move(scales.bytes);
    bytes.embedding = source.embedding_bytes();
    if (config.tied_head) bytes.head += bytes.embedding;
    bytes.everywhere += source.per_layer_table_bytes();
    bytes.expanded = source.expanded_bytes();
    return bytes;
}

std::int64_t device_bytes(const ModelBytes& model, const DeviceRoom& room, std::int32_t begin, std::int32_t end) {
    if (begin == end) return 0;
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    std::int64_t bytes = sum(model.layers, begin, end) + sum(room.kv, begin, end) + room.workspace;
    if (end == layers) bytes += model.head;
    if (room.maps_tables) return bytes;
    if (begin == 0) bytes += model.embedding;
    return bytes + model.everywhere + model.expanded * (end - begin) / layers;
}

void check_room(const ModelBytes& model, std::span<const DeviceRoom> rooms, const LayerSplit& split,
                const std::string& what) {
    std::int32_t begin = 0;
    for (std::size_t d = 0; d < split.size(); ++d) {
        const std::int64_t needed = device_bytes(model, rooms[d], begin, begin + split[d]);
        if (needed > rooms[d].memory) {
            throw Error(of_layers(split[d]) + " of " + what + " need " + gib(needed) + " on " + rooms[d].name +
                        ", and " + gib(rooms[d].memory) +
                        " are free there; give it fewer layers, or use a shorter --context");
        }
        begin += split[d];
    }
}

LayerSplit choose_split(const ModelConfig& config, const ModelBytes& model, std::span<const DeviceRoom> rooms,
                        const std::string& what) {
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const auto layers = static_cast<std::int32_t>(model.layers.size());
    const auto ends = static_cast<std::size_t>(layers) + 1;
    const auto at = [](std::int32_t i) { return static_cast<std::size_t>(i); };
    // best[i]: the least time of the first i layers on the devices so far; begins[d][i]: where device d then begins.
    std::vector<double> best(ends, kNever);
    best[0] = 0.0;
    std::vector<std::vector<std::int32_t>> begins;
    for (const DeviceRoom& room : rooms) {
        std::vector<double> next(ends, kNever);
        std::vector<std::int32_t> begin_of(ends);
        for (std::int32_t end = 0; end <= layers; ++end) {
            if (!can_cut(config, end) || (room.end >= 0 && end != room.end)) continue;
            for (std::int32_t begin = end; begin >= 0; --begin) {
                if (best[at(begin)] == kNever) continue;
                if (device_bytes(model, room, begin, end) > room.memory) continue;
                const double time = best[at(begin)] + row_seconds(model, room, begin, end);
                if (next[at(end)] != kNever && time >= next[at(end)] * (1.0 - 1e-9)) continue;
                next[at(end)] = time;
                begin_of[at(end)] = begin;
            }
        }
        best = std::move(next);
        begins.push_back(std::move(begin_of));
    }
    if (best[at(layers)] == kNever) {
        std::int64_t needed = model.head + model.embedding;
        for (std::int32_t i = 0; i < layers; ++i) needed += model.layers[at(i)] + rooms.front().kv[at(i)];
        std::string have;
        for (const DeviceRoom& room : rooms) have += (have.empty() ? "" : ", ") + gib(room.memory) + " on " + room.name;
        throw Error(what + " needs " + gib(needed) + " and working memory, and there are " + have +
                    "; use a smaller model, a shorter --context or more devices");
    }
    LayerSplit split(rooms.size());
    std::int32_t end = layers;
    for (std::size_t d = rooms.size(); d-- > 0;) {
        const std::int32_t begin = begins[d][at(end)];
        split[d] = end - begin;
        end = begin;
    }
    return split;
}

double predicted_seconds(const ModelBytes& model, std::span<const DeviceRoom> rooms, const LayerSplit& split) {
    double time = 0.0;
    std::int32_t begin = 0;
    for (std::size_t d = 0; d < split.size(); ++d) {
        time += row_seconds(model, rooms[d], begin, begin + split[d]);
        begin += split[d];
    }
    return time;
}

std::string split_text(const LayerSplit& split, std::span<const std::string> names) {
    std::string text;
    std::int32_t begin = 0;
    for (std::size_t d = 0; d < split.size(); ++d) {
        if (split[d] == 0) continue;
        const std::int32_t last = begin + split[d] - 1;
        text += (text.empty() ? (split[d] == 1 ? "layer " : "layers ") : ", ") + std::to_string(begin) +
                (last > begin ? "-" + std::to_string(last) : "") + " on " + names[d];
        begin = last + 1;
    }
    return text;
}

}  // namespace foresay::core
