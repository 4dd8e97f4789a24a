// A model whose layers are on two backends: where both are the host's, the bits of logits, keys and values are those of
// one, for every family, cut, width, type of the KV cache, and a device that runs late. A hand-over with a fault shows.

#include <gtest/gtest.h>

#include <algorithm>

#include "core/models/layer_split.h"
#include "kernels/kv_names.h"
#include "kernels/ops_decorator.h"
#include "kernels/split_ops.h"
#include "tests/laws/listed_backends.h"
#include "tests/models/late_ops.h"

namespace foresay::test {
namespace {

using kernels::RowClass;
using kernels::SplitOps;

SplitOps& two_hosts() {
    static SplitOps split({lent(host()), lent(host())});
    return split;
}

// The tiny models, two of them with more layers than in their goldens: one has a single layer, and the other can be cut
// only before its layers that share keys.
core::ModelConfig family_config(const std::string& name) {
    core::ModelConfig config = config_of(family_json(name));
    if (config.layers.empty()) config.shape.layers = std::max(config.shape.layers, 2);
    if (name != "gemma4-e") return config;
    config.layers.insert(config.layers.begin(), config.layers.front());
    for (std::size_t i = 1; i < config.layers.size(); ++i) ++config.layers[i].kv;
    ++config.shape.layers;
    return config;
}

std::shared_ptr<const core::Model> family(const std::string& name, kernels::Ops& ops, const core::LayerSplit& split) {
    const auto q8 = kernels::QuantType::q8_0;
    std::shared_ptr<core::ModelSource> source = core::ModelSource::random(family_config(name), q8, q8);
    if (!split.empty()) source->place_layers(core::devices_of(split));
    return core::Model::load(std::move(source), ops);
}

std::shared_ptr<const core::Model> pair_target(kernels::Ops& ops, const core::LayerSplit& split) {
    std::shared_ptr<core::ModelSource> source = core::ModelSource::open(bundled_path("target"));
    if (!split.empty()) source->place_layers(core::devices_of(split));
    return core::Model::load(std::move(source), ops);
}

core::LayerSplit cut_at(const core::ModelConfig& config, std::int32_t layer) {
    return {layer, config.shape.layers - layer};
}

class Families : public testing::TestWithParam<std::string> {};

TEST_P(Families, EveryCutGivesTheBytesOfOneBackend) {
    const auto whole = family(GetParam(), host(), {});
    const core::ModelConfig& config = whole->config();
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    int cuts = 0;
    for (std::int32_t layer = 0; layer <= config.shape.layers; ++layer) {
        if (!core::can_cut(config, layer)) continue;
        const bool inside = layer > 0 && layer < config.shape.layers;
        cuts += inside ? 1 : 0;
        const auto split = family(GetParam(), two_hosts(), cut_at(config, layer));
        EXPECT_TRUE(evaluate(split, RowClass::decode, {7, 1, 30, 2, 5, 1, 1, 64}) == expected) << "cut at " << layer;
        EXPECT_TRUE(evaluate(split, RowClass::prefill, {64}) == expected) << "cut at " << layer;
    }
    EXPECT_GT(cuts, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, Families, testing::ValuesIn(family_names()), [](const auto& info) {
    std::string name = info.param;
    std::ranges::replace(name, '-', '_');
    return name;
});

TEST(Split, EveryWidth) {
    const auto whole = family("qwen3", host(), {});
    const auto split = family("qwen3", two_hosts(), cut_at(whole->config(), 1));
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    for (std::size_t width = 1; width <= 64; ++width) {
        EXPECT_TRUE(evaluate(split, RowClass::decode, {width}) == expected) << width;
    }
    const auto pair = pair_target(host(), {});
    const auto pair_split = pair_target(two_hosts(), cut_at(pair->config(), 2));
    const Outcome of_pair = evaluate(pair, RowClass::decode, {1});
    for (const std::size_t width : {1, 5, 17, 64}) {
        EXPECT_TRUE(evaluate(pair_split, RowClass::decode, {width}) == of_pair) << width;
    }
}

// K-quants are those of the pair; packed rows and what else files store become these or are like them.
TEST(Split, EveryTypeOfWeights) {
    using kernels::QuantType;
    const core::ModelConfig config = family_config("qwen3");
    for (const QuantType type :
         {QuantType::f32, QuantType::f16, QuantType::bf16, QuantType::q4_0, QuantType::q8_0, QuantType::mxfp4}) {
        const auto load = [&](kernels::Ops& ops, const core::LayerSplit& split) {
            std::shared_ptr<core::ModelSource> source = core::ModelSource::random(config, type, type);
            if (!split.empty()) source->place_layers(core::devices_of(split));
            return core::Model::load(std::move(source), ops);
        };
        const auto whole = load(host(), {}), split = load(two_hosts(), cut_at(config, 1));
        for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
            EXPECT_TRUE(evaluate(split, row_class, {7, 1, 30, 2, 64}) == evaluate(whole, row_class, {1}))
                << kernels::info(type).name;
        }
    }
}

TEST(Split, EveryTypeOfTheCache) {
    const auto whole = pair_target(host(), {});
    const auto split = pair_target(two_hosts(), cut_at(whole->config(), 1));
    for (const kernels::KvFormat format : kernels::all_kv_formats()) {
        EXPECT_TRUE(evaluate(split, RowClass::decode, {5, 1, 33}, format) ==
                    evaluate(whole, RowClass::decode, {5, 1, 33}, format))
            << kernels::name(format);
    }
}

// Three of a list, one of them without layers.
TEST(Split, OfThree) {
    SplitOps three({lent(host()), lent(host()), lent(host())});
    const auto whole = pair_target(host(), {});
    const std::int32_t layers = whole->config().shape.layers;
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    for (const core::LayerSplit& split :
         {core::LayerSplit{1, 1, layers - 2}, core::LayerSplit{0, 1, layers - 1}, core::LayerSplit{2, 0, layers - 2},
          core::LayerSplit{0, 0, layers}, core::LayerSplit{layers, 0, 0}}) {
        EXPECT_TRUE(evaluate(pair_target(three, split), RowClass::decode, {9, 2, 30}) == expected);
    }
}

TEST(Split, TruncatedForkedAndRestoredTexts) {
    const auto whole = pair_target(host(), {});
    const auto split = pair_target(two_hosts(), cut_at(whole->config(), 2));
    EXPECT_TRUE(forked_and_restored(split) == forked_and_restored(whole));
}

// A token slot that one backend fills is a token that another one embeds.
TEST(Split, SlotsCross) {
    const auto whole = pair_target(host(), {});
    const auto split = pair_target(two_hosts(), cut_at(whole->config(), 2));
    EXPECT_EQ(slots_embedded(split), slots_embedded(whole));
}

// A device that runs as late as it may, before the host and after it.
TEST(Split, ADeviceThatRunsLate) {
    const auto whole = pair_target(host(), {});
    const Outcome expected = evaluate(whole, RowClass::decode, {1});
    LateOps late(host());
    for (const bool first : {true, false}) {
        SplitOps ops({first ? lent(late) : lent(host()), first ? lent(host()) : lent(late)});
        const auto split = pair_target(ops, cut_at(whole->config(), 2));
        EXPECT_TRUE(evaluate(split, RowClass::decode, {17, 1, 1, 40}) == expected);
        EXPECT_TRUE(evaluate(split, RowClass::prefill, {64}) == expected);
    }
}

// Each layer by its own backend: other bits than either alone, the same whatever the width, and moved by the cut.
TEST(Split, HostAndReference) {
    kernels::Ops& reference = backends()[0].ops();
    SplitOps ops({lent(host()), lent(reference)});
    const std::string name = "gemma3";
    const auto whole = family(name, host(), {});
    const core::ModelConfig& config = whole->config();
    ASSERT_GE(config.shape.layers, 2);
    const auto split = family(name, ops, cut_at(config, 1));
    const Outcome mixed = evaluate(split, RowClass::decode, {1});
    EXPECT_TRUE(evaluate(split, RowClass::decode, {64}) == mixed);
    EXPECT_TRUE(evaluate(split, RowClass::prefill, {13, 1, 50}) == mixed);
    EXPECT_NE(evaluate(whole, RowClass::decode, {64}).logits, mixed.logits);
    EXPECT_NE(evaluate(family(name, reference, {}), RowClass::decode, {64}).logits, mixed.logits);
    EXPECT_EQ(evaluate(family(name, ops, {config.shape.layers, 0}), RowClass::decode, {64}).logits,
              evaluate(whole, RowClass::decode, {64}).logits);
    EXPECT_EQ(evaluate(family(name, ops, {0, config.shape.layers}), RowClass::decode, {64}).logits,
              evaluate(family(name, reference, {}), RowClass::decode, {64}).logits);
}

#ifdef FORESAY_HAVE_CUDA
// Two halves of one device: the bits of the device. Each row class has its own there.
TEST(SplitOnADevice, cuda_and_cuda) {
    FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
    kernels::Ops& cuda = backends()[2].ops();
    SplitOps ops({lent(cuda), lent(cuda)});
    for (const std::string name : {"gemma3", "gemma4-e", "qwen3_moe", "gpt_oss"}) {
        const auto whole = family(name, cuda, {});
        for (std::int32_t layer = 0; layer <= whole->config().shape.layers; ++layer) {
            if (!core::can_cut(whole->config(), layer)) continue;
            const auto split = family(name, ops, cut_at(whole->config(), layer));
            for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
                EXPECT_EQ(evaluate(split, row_class, {7, 1, 30, 2, 5, 1, 1, 64}).logits,
                          evaluate(whole, row_class, {1}).logits)
                    << name << " cut at " << layer;
            }
        }
    }
}

// A device and the host, in either order: a row is a row.
TEST(SplitOnADevice, cuda_and_host) {
    FORESAY_SKIP_WITHOUT_DEVICE(std::string("cuda"));
    kernels::Ops& cuda = backends()[2].ops();
    for (const bool first : {true, false}) {
        SplitOps ops({first ? lent(cuda) : lent(host()), first ? lent(host()) : lent(cuda)});
        const auto whole = pair_target(host(), {});
        const auto split = pair_target(ops, cut_at(whole->config(), 2));
        for (const RowClass row_class : {RowClass::decode, RowClass::prefill}) {
            const Outcome one = evaluate(split, row_class, {1});
            EXPECT_NE(one.logits, evaluate(whole, row_class, {64}).logits);
            for (const std::size_t width : {2, 8, 17, 64}) {
                EXPECT_TRUE(evaluate(split, row_class, {width}) == one) << width;
            }
        }
    }
}
#endif

// ---------------------------------------------------------------------------------------------------------- faults

enum class Fault { none, last_row, one_value, page };

class Faulty final : public kernels::OpsDecorator {
public:
    Faulty(kernels::Ops& inner, Fault fault) : OpsDecorator(inner), fault_(fault) {}
    void write_rows(kernels::Workspace& workspace, std::span<const float> from) override {
        std::vector<float> rows(from.begin(), from.end());
        const auto width = static_cast<std::size_t>(workspace.shape.d_model);
        if (fault_ == Fault::last_row) std::fill_n(rows.end() - static_cast<std::ptrdiff_t>(width), width, 0.0f);
        if (fault_ == Fault::one_value) rows.back() += 1.0f;
        inner().write_rows(workspace, rows);
    }
    void copy_page(kernels::KvPages& kv, std::int32_t from, std::int32_t to) override {
        if (fault_ != Fault::page) inner().copy_page(kv, from, to);
    }

private:
    Fault fault_;
};

TEST(Split, AFaultyHandOverShows) {
    const auto whole = pair_target(host(), {});
    const Outcome expected = forked(whole);
    for (const Fault fault : {Fault::none, Fault::last_row, Fault::one_value, Fault::page}) {
        Faulty faulty(host(), fault);
        SplitOps ops({lent(host()), lent(faulty)});
        EXPECT_EQ(forked(pair_target(ops, cut_at(whole->config(), 2))) == expected, fault == Fault::none)
            << static_cast<int>(fault);
    }
}

class FailingDevice final : public Failing<kernels::OpsDecorator> {
public:
    using Failing::Failing;

    void read_rows(kernels::Workspace& workspace, std::span<float> to) override {
        count();
        inner().read_rows(workspace, to);
    }
    void write_rows(kernels::Workspace& workspace, std::span<const float> from) override {
        count();
        inner().write_rows(workspace, from);
    }
};

TEST(Split, ADeviceThatFailsIsNamedAndLeavesNothing) {
    const auto whole = pair_target(host(), {});
    const std::int32_t layers = whole->config().shape.layers;
    for (const bool first : {true, false}) {
        FailingDevice failing(host());
        SplitOps ops({first ? lent(failing) : lent(host()), first ? lent(host()) : lent(failing)},
                     {first ? "failing" : "other", first ? "other" : "failing"});
        core::Context context(pair_target(ops, cut_at(whole->config(), first ? 1 : layers - 1)), options());
        EXPECT_GE(failures_that_leave_nothing(failing, context, whole), 8)
            << "begin, the ops of a layer, and what comes before or after it";
    }
}

TEST(Split, AnInterruptDoesNotWaitForTheChunk) {
    const auto whole = pair_target(host(), {});
    const std::int32_t layers = whole->config().shape.layers;
    for (const bool first : {true, false}) {
        FailingDevice device(host());
        SplitOps ops({first ? lent(device) : lent(host()), first ? lent(host()) : lent(device)});
        core::Context context(pair_target(ops, cut_at(whole->config(), first ? 1 : layers - 1)), options());
        EXPECT_GE(interrupts_that_leave_nothing(device, context, whole), 6) << "the ops of a layer";
    }
}

}  // namespace
}  // namespace foresay::test
