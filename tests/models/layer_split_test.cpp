// Which layers are on which device: pure functions, by cases computed by hand.
#include "core/models/layer_split.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "core/weights/gguf.h"
#include "tests/models/family_models.h"

namespace foresay::test {
namespace {

using core::DeviceRoom;
using core::LayerSplit;
using core::ModelBytes;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr std::int64_t kGib = std::int64_t{1} << 30;

core::ModelConfig plain(std::int32_t layers) {
    core::ModelConfig config = small_config();
    config.shape.layers = layers;
    return config;
}

// Ten layers of 2 GiB with 1 GiB of keys and values, a table of 1 GiB and a head of 3.
ModelBytes ten_layers() {
    return {.layers = std::vector<std::int64_t>(10, 2 * kGib), .embedding = kGib, .head = 3 * kGib};
}
DeviceRoom room(const std::string& name, std::int64_t gib, double speed, bool host = false) {
    return {.name = name,
            .memory = gib * kGib,
            .workspace = kGib,
            .kv = std::vector<std::int64_t>(10, kGib),
            .bytes_per_second = speed * static_cast<double>(kGib),
            .maps_tables = host};
}
LayerSplit choose(const std::vector<DeviceRoom>& rooms) {
    return core::choose_split(plain(10), ten_layers(), rooms, "the model");
}

template <class Call>
std::string error_of(const Call& call) {
    try {
        call();
    } catch (const Error& error) {
        return error.what();
    }
    return "";
}

TEST(LayerSplit, BytesOfADevice) {
    const ModelBytes model = ten_layers();
    const DeviceRoom gpu = room("cuda:0", 24, 100), cpu = room("cpu", 64, 10, true);
    EXPECT_EQ(core::device_bytes(model, gpu, 4, 4), 0);
    EXPECT_EQ(core::device_bytes(model, gpu, 0, 3), (3 * 3 + 1 + 1) * kGib);   // layers, workspace, table
    EXPECT_EQ(core::device_bytes(model, gpu, 3, 10), (7 * 3 + 1 + 3) * kGib);  // with the head
    EXPECT_EQ(core::device_bytes(model, cpu, 0, 3), (3 * 3 + 1) * kGib);       // the table stays in the file
    ModelBytes more = model;
    more.everywhere = kGib;
    more.expanded = 10 * kGib;
    EXPECT_EQ(core::device_bytes(more, gpu, 3, 5), (2 * 3 + 1 + 1 + 2) * kGib);
    EXPECT_EQ(core::device_bytes(more, cpu, 3, 5), (2 * 3 + 1) * kGib);
}

TEST(LayerSplit, TheFastDeviceHasWhatFits) {
    // 24 GiB: a workspace and the table leave 22 for layers of 3: seven of them.
    EXPECT_THAT(choose({room("cuda:0", 24, 100), room("cpu", 64, 10, true)}), ElementsAre(7, 3));
    // The last device has the head: a workspace and the head leave 20.
    EXPECT_THAT(choose({room("cpu", 64, 10, true), room("cuda:0", 24, 100)}), ElementsAre(4, 6));
    // All of it fits: 30 for the layers, and 5 besides.
    EXPECT_THAT(choose({room("cuda:0", 35, 100), room("cpu", 64, 10, true)}), ElementsAre(10, 0));
    EXPECT_THAT(choose({room("cuda:0", 34, 100), room("cpu", 64, 10, true)}), ElementsAre(9, 1));
    // Three, the fastest in the middle.
    EXPECT_THAT(choose({room("cpu", 64, 10, true), room("cuda:0", 10, 100), room("cuda:1", 10, 50)}),
                ElementsAre(5, 3, 2));
    // Equal ones: the earlier has more.
    EXPECT_THAT(choose({room("cuda:0", 24, 100), room("cuda:1", 24, 100)}), ElementsAre(7, 3));
    // The slow one must take what does not fit.
    EXPECT_THAT(choose({room("cpu", 7, 10, true), room("cuda:0", 30, 100)}), ElementsAre(2, 8));
}

TEST(LayerSplit, WhatDoesNotFitIsOneSentence) {
    const std::string why = error_of([] { choose({room("cuda:0", 12, 100), room("cpu", 12, 10, true)}); });
    EXPECT_THAT(why, HasSubstr("the model needs 34.0 GiB and working memory, and there are 12.0 GiB on cuda:0, "
                               "12.0 GiB on cpu; use a smaller model"));
    const std::vector<DeviceRoom> rooms = {room("cuda:0", 12, 100), room("cpu", 64, 10, true)};
    core::check_room(ten_layers(), rooms, {3, 7}, "the model");
    EXPECT_THAT(error_of([&] {
                    core::check_room(ten_layers(), rooms, {4, 6}, "the model");
                }),
                HasSubstr("4 layers of the model need 14.0 GiB on cuda:0, and 12.0 GiB are free there"));
}

// Layers of experts are large and quickly read: the slow device has those.
TEST(LayerSplit, ExpertsGoWhereReadingIsSlow) {
    ModelBytes model{.layers = {8 * kGib, 8 * kGib, 2 * kGib, 2 * kGib}, .read = {kGib, kGib, 2 * kGib, 2 * kGib}};
    const std::vector<DeviceRoom> rooms = {room("cpu", 64, 10, true), room("cuda:0", 10, 100)};
    EXPECT_THAT(core::choose_split(plain(4), model, rooms, "the model"), ElementsAre(2, 2));
    EXPECT_DOUBLE_EQ(core::predicted_seconds(model, rooms, {2, 2}), 2.0 / 10 + 4.0 / 100);
    EXPECT_EQ(core::device_bytes(model, rooms[0], 0, 2), (16 + 2 + 1) * kGib);
}

TEST(LayerSplit, PredictsTheSumOfAllReads) {
    const std::vector<DeviceRoom> rooms = {room("cuda:0", 24, 100), room("cpu", 64, 10, true)};
    EXPECT_DOUBLE_EQ(core::predicted_seconds(ten_layers(), rooms, {7, 3}), 14.0 / 100 + (6.0 + 3.0) / 10);
    EXPECT_DOUBLE_EQ(core::predicted_seconds(ten_layers(), rooms, {10, 0}), 23.0 / 100);
}

// Where the time of layers was measured, their bytes do not matter.
TEST(LayerSplit, PredictsFromMeasuredLayers) {
    std::vector<DeviceRoom> rooms = {room("cuda:0", 24, 100), room("cpu", 64, 10, true)};
    rooms[1].times = {.layers = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, .head = 0.5};
    EXPECT_DOUBLE_EQ(core::predicted_seconds(ten_layers(), rooms, {7, 3}), 14.0 / 100 + 8 + 9 + 10 + 0.5);
    EXPECT_DOUBLE_EQ(core::row_seconds(ten_layers(), rooms[1], 2, 4), 3 + 4);  // the head is after the last
    EXPECT_DOUBLE_EQ(core::row_seconds(ten_layers(), rooms[1], 10, 10), 0.0);
    // By bandwidth the processor is the faster one, by what its kernels reach it is not.
    rooms = {room("cuda:0", 24, 2), room("cpu", 64, 10, true)};
    EXPECT_THAT(choose(rooms), ElementsAre(0, 10));
    rooms[1].times = {.layers = std::vector<double>(10, 2.0), .head = 1.0};
    EXPECT_THAT(choose(rooms), ElementsAre(7, 3));
}

// A kind of layer, or the head, that was not measured is read as fast as the others.
TEST(LayerSplit, MeasuredKindsBecomeTheTimesOfLayers) {
    ModelBytes model{.layers = {100, 300, 100, 50}, .read = {100, 30, 100, 50}, .kinds = {0, 1, 0, 2}, .head = 20};
    const auto times = [&](const std::vector<double>& of_kinds, double head) {
        return core::row_times(model, of_kinds, head);
    };
    core::RowTimes all = times({2.0, 3.0, 0.5}, 0.25);
    EXPECT_THAT(all.layers, ElementsAre(2.0, 3.0, 2.0, 0.5));
    EXPECT_EQ(all.head, 0.25);
    // 230 bytes of kinds 0 and 1 in 2 + 3 + 2 seconds; kind 2 reads 50, the head 20.
    all = times({2.0, 3.0, 0.0}, 0.0);
    EXPECT_THAT(all.layers, ElementsAre(2.0, 3.0, 2.0, ::testing::DoubleEq(50 * 7.0 / 230)));
    EXPECT_DOUBLE_EQ(all.head, 20 * 7.0 / 230);
    all = times({0.0, 0.0, 0.0}, 0.5);
    EXPECT_THAT(all.layers, ElementsAre(2.5, 0.75, 2.5, 1.25));
    EXPECT_TRUE(times({0.0, 0.0, 0.0}, 0.0).layers.empty());
}

TEST(LayerSplit, GivenNumbersAreChecked) {
    const core::ModelConfig config = plain(10);
    core::check_split({4, 6}, config, 2);
    core::check_split({0, 10}, config, 2);
    EXPECT_THAT(error_of([&] {
                    core::check_split({4, 5}, config, 2);
                }),
                HasSubstr("given 9 layers together, and the model has 10"));
    EXPECT_THAT(error_of([&] { core::check_split({4, 3, 3}, config, 2); }), HasSubstr("for 3 of 2 devices"));
    EXPECT_THAT(error_of([&] { core::check_split({-1, 11}, config, 2); }), HasSubstr("0 or more"));
    EXPECT_THAT(core::devices_of({2, 0, 3}), ElementsAre(0, 0, 2, 2, 2));
}

// Layers that read the keys of earlier ones stay with them.
TEST(LayerSplit, SharedKeysAreNotCut) {
    core::ModelConfig config = plain(6);
    core::spell_out_layers(config);
    for (std::int32_t i = 4; i < 6; ++i) {
        config.layers[static_cast<std::size_t>(i)].own_kv = false;
        config.layers[static_cast<std::size_t>(i)].kv = i - 2;  // of layers 2 and 3
    }
    std::vector<bool> cuts;
    for (std::int32_t i = 0; i <= 6; ++i) cuts.push_back(core::can_cut(config, i));
    EXPECT_THAT(cuts, ElementsAre(true, true, true, false, false, false, true));
    EXPECT_THAT(error_of([&] {
                    core::check_split({3, 3}, config, 2);
                }),
                HasSubstr("cannot be divided before its layer 3"));
    ModelBytes model{.layers = std::vector<std::int64_t>(6, 2 * kGib)};
    std::vector<DeviceRoom> rooms = {room("cuda:0", 14, 100), room("cpu", 64, 10, true)};
    // Four would fit; two may be there.
    EXPECT_THAT(core::choose_split(config, model, rooms, "the model"), ElementsAre(2, 4));
}

TEST(LayerSplit, Text) {
    const std::vector<std::string> names = {"cuda:0", "cuda:1", "cpu"};
    EXPECT_EQ(core::split_text({20, 1, 11}, names), "layers 0-19 on cuda:0, 20 on cuda:1, 21-31 on cpu");
    EXPECT_EQ(core::split_text({0, 0, 1}, names), "layer 0 on cpu");
}

std::int64_t all_bytes(core::ModelSource& source, const ModelBytes& bytes) {
    std::int64_t all = bytes.head + bytes.everywhere;
    for (const std::int64_t layer : bytes.layers) all += layer;
    return all + (source.config().tied_head ? 0 : bytes.embedding);
}

// What a file holds, tensor by tensor: the layers of a Q4_K_M differ.
TEST(LayerSplit, BytesOfAModel) {
    const auto source = core::ModelSource::open(bundled_path("target"));
    const ModelBytes bytes = core::model_bytes(*source);
    ASSERT_EQ(std::ssize(bytes.layers), source->config().shape.layers);
    EXPECT_EQ(all_bytes(*source, bytes), source->weight_bytes());
    EXPECT_EQ(bytes.read, bytes.layers);
    std::vector<std::int64_t> stored(bytes.layers.size());
    for (const core::TensorInfo& tensor : source->gguf()->tensors().list()) {
        if (tensor.name.starts_with("blk.")) {
            stored[static_cast<std::size_t>(std::stoi(tensor.name.substr(4)))] += tensor.bytes;
        }
    }
    EXPECT_EQ(bytes.layers, stored);
    EXPECT_NE(std::ranges::min(stored), std::ranges::max(stored));
    EXPECT_THAT(bytes.kinds, testing::Contains(1)) << "which those of one encoding have not";
    for (std::size_t i = 0; i < stored.size(); ++i) {
        const auto first = std::ranges::find(bytes.kinds, bytes.kinds[i]) - bytes.kinds.begin();
        EXPECT_EQ(stored[i], stored[static_cast<std::size_t>(first)]) << i;
    }
}

// Two experts of four: a row reads half of what experts take, and all of the rest.
TEST(LayerSplit, BytesThatARowReads) {
    const auto q8 = kernels::QuantType::q8_0;
    for (const std::string& name : family_names()) {
        const auto source = core::ModelSource::random(config_of(family_json(name)), q8, q8);
        const ModelBytes bytes = core::model_bytes(*source);
        // A norm that two ops share is counted once here.
        EXPECT_LE(all_bytes(*source, bytes), source->weight_bytes()) << name;
        EXPECT_GE(all_bytes(*source, bytes), source->weight_bytes() * 99 / 100) << name;
        const core::ModelConfig& config = source->config();
        for (std::int32_t i = 0; i < config.shape.layers; ++i) {
            const auto at = static_cast<std::size_t>(i);
            const std::int64_t experts = core::layer_config(config, i).experts ? config.experts.count : 0;
            const std::int64_t each = 3 * config.experts.d_ff * config.shape.d_model * 34 / 32;
            EXPECT_EQ(bytes.layers[at] - bytes.read[at], experts == 0 ? 0 : (experts - config.experts.used) * each)
                << name << " layer " << i;
        }
    }
}

}  // namespace
}  // namespace foresay::test
